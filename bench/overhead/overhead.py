"""What a key costs in Python: functions and an ASGI handler, bare, with us, and with others.

All of it is in one process, without a socket, with records in memory. Subjects take turns, so that a busy
machine is busy for all of them; each figure is the median of the rounds. CPU counts every thread of the process.

It needs the wheel that `cargo xtask package python` makes, and requirements.txt beside this file, in one environment.
"""

import argparse
import asyncio
import json
import logging
import os
import statistics
import sys
import time
import uuid
import warnings

import idemkit
from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import MemoryBackend

import onlyonce

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--calls", type=int, default=2000, help="per round and subject")
arguments = parser.parse_args()
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

ANSWER = json.dumps({"charged": "r" * 198}).encode()
US, BARE = "onlyonce", "bare"
fields = idemkit.MethodConfig(key_fields=["order"])
engine = onlyonce.Engine.open("memory:")


def charge(order):
    return {"order": order}


async def acharge(order):
    return {"order": order}


async def app(scope, receive, send):
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


async def post(served, key):
    headers = [(b"host", b"shop.test"), (b"content-type", b"application/json"), (b"idempotency-key", key.encode())]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/charges",
        "raw_path": b"/charges",
        "query_string": b"",
        "headers": headers,
    }

    async def receive():
        return {"type": "http.request", "body": b'{"cents":500}', "more_body": False}

    answered = []

    async def send(message):
        answered.append(message)

    await served(scope, receive, send)
    assert answered[0]["status"] == 201, answered


def timed_calls(call):
    def run(keys):
        for key in keys:
            call(key)

    return run


def timed_awaits(call):
    async def all_of(keys):
        for key in keys:
            await call(key)

    return lambda keys: loop.run_until_complete(all_of(keys))


def posting(served):
    return timed_awaits(lambda key: post(served, key))


loop = asyncio.new_event_loop()
once, aonce = engine.once(key="{order}", name="sync"), engine.once(key="{order}", name="async")
theirs = idemkit.idempotent(backend=idemkit.InMemoryBackend(), config=fields)(acharge)
theirs_sync = idemkit.idempotent_sync(backend=idemkit.InMemoryBackend(), config=fields)(charge)
SUBJECTS = {
    "function": {
        BARE: timed_calls(charge),
        US: timed_calls(once(charge)),
        "idemkit": timed_calls(lambda order: theirs_sync(order=order)),
    },
    "coroutine function": {
        BARE: timed_awaits(acharge),
        US: timed_awaits(aonce(acharge)),
        "idemkit": timed_awaits(lambda order: theirs(order=order)),
    },
    "ASGI handler": {
        BARE: posting(app),
        US: posting(onlyonce.IdempotencyMiddleware(app, engine=engine)),
        "idemkit": posting(idemkit.IdempotencyMiddleware(app, backend=idemkit.InMemoryBackend())),
        "asgi-idempotency-header": posting(IdempotencyHeaderMiddleware(app, backend=MemoryBackend())),
    },
}


def new_keys():
    return [str(uuid.uuid4()) for _ in range(arguments.calls)]


def measured(run, keys):
    """Microseconds per call: of time, and of CPU."""
    began, cpu = time.perf_counter(), time.process_time()
    run(keys)
    took = time.perf_counter() - began, time.process_time() - cpu
    return [it * 1e6 / len(keys) for it in took]


def rounds(kind):
    """The figures of each subject in all rounds: of new keys and of replays."""
    figures = {name: ([], []) for name in SUBJECTS[kind]}
    for _ in range(arguments.rounds):
        for name, run in SUBJECTS[kind].items():
            keys = new_keys()
            figures[name][0].append(measured(run, keys))
            figures[name][1].append(measured(run, keys))
    return figures


def report(kind):
    figures = rounds(kind)
    middle = {
        name: [[statistics.median(values) for values in zip(*part)] for part in parts]
        for name, parts in figures.items()
    }
    print(f"\n{kind}\n{'':26}{'new key':>12}{'CPU':>9}{'of us':>8}{'replay':>12}{'CPU':>9}{'of us':>8}")
    for name, parts in middle.items():
        line = f"  {name:24}"
        for part, ours in zip(parts, middle[US]):
            line += f"{part[0]:>10.1f}µs{part[1]:>7.1f}µs{part[0] / ours[0]:>7.2f}×"
        print(line)


print(f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the start")
for kind in SUBJECTS:
    report(kind)
print(f"\nload {os.getloadavg()[0]:.1f} at the end; a machine with more load than its cores less one measures its other work")
engine.close()
