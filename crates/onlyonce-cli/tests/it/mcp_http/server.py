"""A shop on the MCP SDK, over streamable HTTP. Each effect is a line in a file, which the tests count.

server.py FOLDER PORT [json] [stateless] [stdio]; with `stdio` it speaks on its pipes instead.
"""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import CallToolResult, SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel

folder, port, modes = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
ledger = folder / "ledger"
shop = FastMCP(
    "shop",
    host="127.0.0.1",
    port=port,
    json_response="json" in modes,
    stateless_http="stateless" in modes,
    log_level="ERROR",
)


class Colour(BaseModel):
    colour: str


def act(line: str) -> int:
    """One effect, on disk before anyone hears of it."""
    with ledger.open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
    return len(ledger.read_text().splitlines())


@shop.tool()
async def order(item: str) -> str:
    return f"order {act(item)} of {item}"


@shop.tool()
async def order_slowly(item: str, ctx: Context) -> str:
    """Acts, tells of its progress, and answers when the test lets it."""
    number = act(item)
    for step in range(3):
        await ctx.report_progress(step + 1, 3)
    while not (folder / "go").exists():
        await asyncio.sleep(0.05)
    return f"order {number} of {item}"


@shop.tool()
async def order_in_a_colour(item: str, ctx: Context) -> str:
    """Asks the user something before it acts."""
    answer = await ctx.elicit("Which colour?", Colour)
    return f"order {act(item)} of {item} in {answer.data.colour}"


@shop.tool()
async def order_what_the_model_likes(item: str, ctx: Context) -> str:
    """Asks the client's model before it acts."""
    asked = SamplingMessage(role="user", content=TextContent(type="text", text=f"Which {item}?"))
    answer = await ctx.session.create_message([asked], max_tokens=10)
    return f"order {act(item)} of {answer.content.text} {item}"


@shop.tool()
async def order_and_die(item: str, reference: str) -> list[str]:
    """Takes the server with it, before or after it acts, while the test wants that."""
    when = (folder / "die").read_text() if (folder / "die").exists() else ""
    if when == "before":
        os._exit(1)
    act(f"{item} {reference}")
    if when == "after":
        os._exit(1)
    return [f"{item} {reference}"]


@shop.tool()
async def fail(item: str) -> str:
    act(item)
    raise ValueError("half-way")


@shop.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def find_order(reference: str) -> list[str]:
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [line for line in lines if line.endswith(reference)]


@shop.resource("shop://items")
def items() -> str:
    return "tea, cake"


@shop.prompt()
def greet(name: str) -> str:
    return f"Greet {name}."


async def call_tool(name: str, arguments: dict):
    """An order that is asked for as a task is one; everything else is as the SDK has it."""
    asked = server.request_context.experimental
    if name != "order" or not asked.is_task:
        return await shop.call_tool(name, arguments)

    async def work(task) -> CallToolResult:
        text = f"order {act(arguments['item'])} of {arguments['item']}"
        return CallToolResult(content=[TextContent(type="text", text=text)])

    return await asked.run_task(work)


server = shop._mcp_server
server.experimental.enable_tasks()
server.call_tool(validate_input=False)(call_tool)
shop.run(transport="stdio" if "stdio" in modes else "streamable-http")
