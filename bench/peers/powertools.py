"""AWS Lambda Powertools in front of the trivial handler, with its store in Redis."""

import os
import threading
import time

import redis
import uvicorn
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route

ANSWER = "r" * 198
runs = 0
lock = threading.Lock()

client = redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
once = {
    "data_keyword_argument": "event",
    "persistence_store": CachePersistenceLayer(client=client),
    "config": IdempotencyConfig(event_key_jmespath="key", expires_after_seconds=86400),
}


@idempotent_function(**once)
def pay(event):
    return ANSWER


@idempotent_function(**once)
def slow(event):
    global runs
    with lock:
        run, runs = runs, runs + 1
    with open(os.environ["RUNS"], "a") as file:
        file.write(".")
    time.sleep(0.1)
    return {"run": run}


def served(handler):
    async def serve(request):
        event = {"key": request.headers["idempotency-key"], "body": await request.json()}
        try:
            return JSONResponse(await run_in_threadpool(handler, event=event))
        except IdempotencyAlreadyInProgressError as error:
            return JSONResponse({"error": str(error)}, 409)

    return serve


app = Starlette(
    routes=[
        Route("/payments", served(pay), methods=["POST"]),
        Route("/slow", served(slow), methods=["POST"]),
    ]
)

if __name__ == "__main__":
    port = int(os.environ["PORT"])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)
