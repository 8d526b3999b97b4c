"""A client on the MCP SDK. It prints what it heard, as JSON.

client.py SCENARIO URL [TOKEN] [-- COMMAND…]; with a command it speaks to that on stdio.
"""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from datetime import timedelta

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.exceptions import McpError

split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
scenario, url, *more = sys.argv[1:split]
command = sys.argv[split + 1 :]
headers = {"authorization": f"Bearer {more[0]}"} if more else {}
KEY = os.environ.get("KEY", "idem_8f14e45f-ceea-467f-a8d1-3c2b0b7de8a9")
# The revision of the protocol that it asks for.
types.LATEST_PROTOCOL_VERSION = os.environ.get("REVISION", types.LATEST_PROTOCOL_VERSION)


async def elicited(context, params):
    return types.ElicitResult(action="accept", content={"colour": "red"})


async def sampled(context, params):
    asked = params.messages[0].content.text
    text = types.TextContent(type="text", text={"Which tea?": "green"}[asked])
    return types.CreateMessageResult(role="assistant", content=text, model="scripted")


@asynccontextmanager
async def session():
    if command:
        server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        wires = stdio_client(server)
    else:
        wires = streamablehttp_client(url, headers=headers)
    async with wires as (read, write, *_):
        async with ClientSession(
            read, write, elicitation_callback=elicited, sampling_callback=sampled
        ) as found:
            found.revision = (await found.initialize()).protocolVersion
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
            "revision": shop.revision,
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


async def sampling():
    """A question to the client's model, while a tool runs."""
    async with session() as shop:
        tries = [await keyed(shop, "order_what_the_model_likes", key="sampled-1") for _ in range(2)]
        print(json.dumps({"revision": shop.revision, "tries": tries}))


async def tasks():
    """Two calls with one key as a task, and one that is none."""
    async with session() as shop:
        arguments = {"item": "tea", "idempotencyKey": "task-1"}
        asked = [await shop.experimental.call_tool_as_task("order", arguments) for _ in range(2)]
        made = [it.task.taskId for it in asked]
        async for status in shop.experimental.poll_task(made[1]):
            last = status.status
        result = await shop.experimental.get_task_result(made[1], types.CallToolResult)
        listed = [it.taskId for it in (await shop.experimental.list_tasks()).tasks]
        other = await keyed(shop, "order", key="task-1")
        told_of = {"made": made, "status": last, "result": told(result), "listed": listed, "other": other}
        print(json.dumps(told_of | {"meta": asked[1].meta}))


async def cancelled():
    """A call that is cancelled while its tool runs, which would never end by itself; and the same call again."""
    acted = asyncio.Event()

    async def progress(done, total, message):
        acted.set()

    async def called(shop):
        arguments = {"item": "tea", "idempotencyKey": KEY}
        try:
            return told(await shop.call_tool("order_slowly", arguments, progress_callback=progress))
        except McpError as error:
            return {"code": error.error.code, "text": error.error.message}

    async with session() as shop:
        number = shop._request_id
        first = asyncio.create_task(called(shop))
        await acted.wait()
        stop = types.CancelledNotificationParams(requestId=number, reason="enough")
        stop = types.CancelledNotification(method="notifications/cancelled", params=stop)
        await shop.send_notification(types.ClientNotification(stop))
        again = await called(shop)
        first.cancel()
        print(json.dumps(again))


async def faulty():
    """Orders over a network that breaks answers: each is sent again, in a new session, until it has its answer."""

    async def place(item):
        heard = []
        for _ in range(20):
            try:
                async with asyncio.timeout(30), session() as shop:
                    sent = {"item": item, "idempotencyKey": f"key-of-{item}"}
                    result = told(
                        await shop.call_tool("order", sent, read_timeout_seconds=timedelta(seconds=1))
                    )
                    if result["refused"] != "in-progress":
                        return result
            except Exception as error:
                heard.append(repr(error))  # No answer: whatever the SDK makes of that, it is sent again.
        return {"text": f"no answer: {heard}"}

    items = [f"item-{number}" for number in range(int(os.environ["ORDERS"]))]
    print(json.dumps(dict(zip(items, await asyncio.gather(*map(place, items))))))


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
    "sampling": sampling,
    "tasks": tasks,
    "cancelled": cancelled,
    "faulty": faulty,
    "once": once,
    "verified": verified,
    "notes": notes,
    "many": many,
}
asyncio.run(SCENARIOS[scenario]())
