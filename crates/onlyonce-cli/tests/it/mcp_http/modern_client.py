"""A client on the MCP SDK for revision 2026-07-28. modern_client.py URL [-- COMMAND…]"""

import asyncio
import json
import os
import sys

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
command = sys.argv[split + 1 :]


async def main():
    where = sys.argv[1]
    if command:
        where = stdio_client(StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ)))
    async with Client(where) as shop:
        await shop.list_tools()
        heard = []
        for item in ("tea", "tea", "cake"):
            arguments = {"item": item, "region": "süd", "idempotencyKey": "key-1"}
            result = await shop.call_tool("order", arguments)
            heard.append({"text": result.content[0].text, "meta": result.meta or {}})
        print(json.dumps({"version": shop.protocol_version, "heard": heard}))


asyncio.run(main())
