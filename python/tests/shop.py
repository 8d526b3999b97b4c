"""A FastAPI service behind the middleware, with everything in its answers that a replay can get wrong."""

import argparse
import asyncio
import socket
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response

from onlyonce import Engine, IdempotencyMiddleware

parser = argparse.ArgumentParser()
parser.add_argument("--profile", default="standard")
parser.add_argument("--store", default="memory:")
parser.add_argument("--rules")
parser.add_argument("--effects", help="a file with one line per execution")
arguments = parser.parse_args()

app = FastAPI()
orders = 0


@app.post("/orders")
async def order(request: Request) -> Response:
    global orders
    orders += 1
    body = await request.body()
    if arguments.effects:
        with open(arguments.effects, "a", encoding="utf-8") as effects:
            effects.write("python\n")
    kind = request.headers.get("content-type")
    if kind == "application/octet-stream":
        content = orders.to_bytes(8, "big") + body
    else:
        kind, content = "application/json", f'{{"order":{orders},"bytes":{len(body)}}}'.encode()
    response = Response(content, status_code=201, media_type=kind)
    response.headers["location"] = f"/orders/{orders}"
    response.headers["etag"] = f'"{orders}"'
    response.headers.append("link", "</orders>; rel=collection")
    response.headers.append("link", "</help>; rel=help")
    response.headers["set-cookie"] = f"session={orders}"
    return response


@app.get("/orders")
async def listed() -> dict[str, Any]:
    return {"orders": orders}


@app.post("/slow")
async def slow(request: Request) -> Response:
    await asyncio.sleep(0.3)
    return await order(request)


@app.post("/stuck")
async def stuck() -> None:
    """Takes effect and does not end."""
    with open(arguments.effects, "a", encoding="utf-8") as effects:
        effects.write("stuck\n")
    await asyncio.sleep(600)


engine = Engine.open(arguments.store)
if arguments.rules:
    app.add_middleware(IdempotencyMiddleware, engine=engine, rules=arguments.rules)
else:
    app.add_middleware(IdempotencyMiddleware, engine=engine, profile=arguments.profile)

listener = socket.create_server(("127.0.0.1", 0), backlog=512)
print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
