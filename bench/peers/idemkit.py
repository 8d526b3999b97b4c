"""idemkit's ASGI middleware in front of the trivial handler, with its store in Redis."""

import asyncio
import os

import idemkit
import uvicorn
from idemkit.backends.redis import RedisBackend
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route

ANSWER = "r" * 198
runs = 0


async def pay(request):
    await request.body()
    return JSONResponse(ANSWER)


async def slow(request):
    global runs
    await request.body()
    run, runs = runs, runs + 1
    with open(os.environ["RUNS"], "a") as file:
        file.write(".")
    await asyncio.sleep(0.1)
    return JSONResponse({"run": run})


backend = RedisBackend(Redis.from_url(os.environ["REDIS_URL"]))
app = Starlette(
    routes=[
        Route("/payments", pay, methods=["POST"]),
        Route("/slow", slow, methods=["POST"]),
    ],
    middleware=[Middleware(idemkit.IdempotencyMiddleware, backend=backend)],
)

if __name__ == "__main__":
    port = int(os.environ["PORT"])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)
