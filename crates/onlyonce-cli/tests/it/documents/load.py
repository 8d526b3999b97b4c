"""Runs a load test of the documents as it is written: gives its names their meaning, and says what it
was answered.

It asks by paths, without a host and without saying who asks; `requests` adds both. `metrics` is the
what the services count. What was answered goes to stdout.
"""

import collections
import json
import random
import sys
import uuid

import requests as library

base, token, script = sys.argv[1:]
session = library.Session()
session.trust_env = False
session.headers["Authorization"] = f"Bearer {token}"
answers = collections.Counter()


class requests:
    @staticmethod
    def post(path, **more):
        answer = session.post(base + path, **more)
        answers[answer.status_code] += 1
        return answer


class Metrics:
    """What the services count themselves: the ratio of replays to all requests with a key."""

    def __getitem__(self, name):
        assert name == "idempotency.cache_hit_rate"
        return session.get(base + "/demo/stats").json()["hitRate"]


metrics = Metrics()
# The rate that is asked for has its bounds at three standard deviations: not a matter of luck.
random.seed(35)
# What a first request would repeat, if it were a retry.
recent_keys = [str(uuid.uuid4())]

exec(compile(open(script, encoding="utf-8").read(), script, "exec"))
test_idempotency_cache_performance()
print(json.dumps({"answers": answers}))
