"""A shop on the MCP SDK for revision 2026-07-28: no sessions, no handshake. modern_server.py FOLDER PORT [stdio]"""

import sys
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from pydantic import Field

folder, port = Path(sys.argv[1]), int(sys.argv[2])
shop = MCPServer("shop")


@shop.tool()
async def order(item: str, region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    with (folder / "ledger").open("a") as file:
        file.write(f"{item} {region}\n")
    return f"order of {item}"


if "stdio" in sys.argv[3:]:
    shop.run(transport="stdio")
else:
    shop.run(transport="streamable-http", host="127.0.0.1", port=port, stateless_http=True)
