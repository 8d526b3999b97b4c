"""An MCP server on stdio that pays, and dies with SIGKILL after its first payment, before it answers."""

import json
import os
import signal
import sys

FILE = sys.argv[1]


def payments():
    if not os.path.exists(FILE):
        return []
    with open(FILE) as lines:
        return lines.read().split()


def pay(call):
    is_first = not payments()
    with open(FILE, "a") as lines:
        lines.write(call["_meta"]["onlyonce/operation"] + "\n")
        lines.flush()
        os.fsync(lines.fileno())
    if is_first:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"payment": len(payments())}


def find(call):
    found = call["arguments"]["of"] in payments()
    return {"payment": payments().index(call["arguments"]["of"]) + 1} if found else None


def answered(method, params):
    if method == "initialize":
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "bank", "version": "1"}}
    if method == "tools/list":
        schema = {"type": "object"}
        reads = {"readOnlyHint": True}
        return {"tools": [{"name": "pay", "inputSchema": schema}, {"name": "find", "inputSchema": schema, "annotations": reads}]}
    if method == "tools/call":
        text = json.dumps({"pay": pay, "find": find}[params["name"]](params))
        return {"content": [{"type": "text", "text": text}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answered(message["method"], message.get("params"))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
