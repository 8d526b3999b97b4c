"""A client on the MCP SDK. It prints what it heard, as JSON.

client.py SCENARIO URL [TOKEN] [-- COMMAND…]; with a command it speaks to that on stdio.
"""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
scenario, url, *more = sys.argv[1:split]
command = sys.argv[split + 1 :]
headers = {"authorization": f"Bearer {more[0]}"} if more else {}
KEY = os.environ.get("KEY", "idem_8f14e45f-ceea-467f-a8d1-3c2b0b7de8a9")


async def elicited(context, params):
    return types.ElicitResult(action="accept", content={"colour": "red"})


@asynccontextmanager
async def session():
    if command:
        server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        wires = stdio_client(server)
    else:
        wires = streamablehttp_client(url, headers=headers)
    async with wires as (read, write, *_):
        async with ClientSession(read, write, elicitation_callback=elicited) as found:
            await found.initialize()
            yield found


def told(result):
    return {
        "text": "".join(getattr(block, "text", "") for block in result.content),
        "error": bool(result.isError),
        "replayed": bool((result.meta or {}).get("onlyonce/replayed")),
        "reconciled": bool((result.meta or {}).get("onlyonce/reconciled")),
        "refused": (result.meta or {}).get("onlyonce/refused", {}).get("reason"),
    }


async def keyed(shop, tool, item="tea", key=KEY, **arguments):
    return told(await shop.call_tool(tool, {"item": item, "idempotencyKey": key, **arguments}))


async def everything():
    """Every method that the server has, as its own client uses them."""
    async with session() as shop:
        tools = (await shop.list_tools()).tools
        heard = {
            "offered": sorted(t.name for t in tools if "idempotencyKey" in t.inputSchema["properties"]),
            "resource": (await shop.read_resource("shop://items")).contents[0].text,
            "resources": len((await shop.list_resources()).resources),
            "prompt": (await shop.get_prompt("greet", {"name": "Ada"})).messages[0].content.text,
            "prompts": len((await shop.list_prompts()).prompts),
        }
        await shop.send_ping()
        first = await keyed(shop, "order")
        again = await keyed(shop, "order")
        other = await keyed(shop, "order", item="cake")
        bare = told(await shop.call_tool("order", {"item": "bare"}))
        in_meta = told(await shop.call_tool("order", {"item": "meta"}, meta={"idempotencyKey": "in-meta-1"}))
        in_meta_again = told(
            await shop.call_tool("order", {"item": "meta"}, meta={"idempotencyKey": "in-meta-1"})
        )
        called = {"claudecode/toolUseId": "toolu_01"}
        by_id = told(await shop.call_tool("order", {"item": "one"}, meta=called))
        drifted = told(await shop.call_tool("order", {"item": "One."}, meta=called))
        failed = await keyed(shop, "fail", key="fails-1")
        failed_again = await keyed(shop, "fail", key="fails-1")
        heard |= {
            "first": first,
            "again": again,
            "other": other,
            "bare": bare,
            "in_meta": [in_meta, in_meta_again],
            "by_id": [by_id, drifted],
            "failed": [failed, failed_again],
        }
        print(json.dumps(heard))


async def asked():
    """Elicitation and progress reach the client, and its answers the server."""
    steps = []

    async def progress(done, total, message):
        steps.append(done)

    async with session() as shop:
        first = await keyed(shop, "order_in_a_colour", key="colour-1")
        again = await keyed(shop, "order_in_a_colour", key="colour-1")
        slow = told(
            await shop.call_tool(
                "order_slowly", {"item": "slow", "idempotencyKey": "slow-1"}, progress_callback=progress
            )
        )
        print(json.dumps({"first": first, "again": again, "slow": slow, "steps": steps}))


async def once():
    async with session() as shop:
        print(json.dumps(await keyed(shop, os.environ["TOOL"], item=os.environ.get("ITEM", "tea"))))


async def verified():
    async with session() as shop:
        print(json.dumps(await keyed(shop, "order_and_die", reference=KEY)))


async def notes():
    """A third-party server: each of its calls, and one that acts twice under one key."""
    note = os.environ["NOTE"]
    edits = [{"oldText": "end", "newText": "|end"}]
    async with session() as found:
        tools = [tool.name for tool in (await found.list_tools()).tools]
        arguments = {"path": note, "edits": edits, "idempotencyKey": KEY}
        acted = [told(await found.call_tool("edit_file", arguments)) for _ in range(2)]
        read = told(await found.call_tool("read_text_file", {"path": note}))
        print(json.dumps({"tools": tools, "acted": acted, "read": read}))


async def many():
    """Many clients, each in a session of its own, with one key."""

    async def one():
        async with session() as shop:
            return await keyed(shop, "order_slowly")

    print(json.dumps(await asyncio.gather(*(one() for _ in range(8)))))


SCENARIOS = {
    "everything": everything,
    "asked": asked,
    "once": once,
    "verified": verified,
    "notes": notes,
    "many": many,
}
asyncio.run(SCENARIOS[scenario]())
