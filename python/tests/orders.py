"""Places orders over a network that breaks answers: by a client that repeats until it has an answer, or by a queue.

Says of each order what was answered.
"""

import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor

from onlyonce import Client, Queue, SendFailed

mode, url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
orders = [f"order-{number}" for number in range(count)]
# Shorter than the network's delays.
client = Client(timeout=1.0, attempts=2, backoff=(0.01, 0.05))


def say(answer):
    order, number, filler = answer.decode().split(" ")
    assert len(filler) == 32 * 1024, "an answer that broke off was taken for a whole one"
    print(order, number)


def send(order):
    key = str(uuid.uuid4())
    while True:
        try:
            return client.send("POST", url, key=key, body=order.encode()).body
        except SendFailed as failed:
            if not failed.retryable:
                raise


if mode == "client":
    with ThreadPoolExecutor(len(orders)) as threads:
        for answer in threads.map(send, orders):
            say(answer)
else:
    with tempfile.TemporaryDirectory() as folder, Queue(folder, client, parallel=9, backoff=(0.01, 0.05)) as queue:
        queued = [queue.add("POST", url, body=order.encode()) for order in orders]
        queue.drain()
        for one in queued:
            entry = queue.entry(one.id)
            assert entry.state == "done", entry
            say(entry.answer)
