"""Durable steps, the execution that a function is part of, and completion in a transaction of one's own."""

import asyncio
import sqlite3
import subprocess
import sys
import textwrap

import pytest
from fastapi import FastAPI, HTTPException
from flask import Flask
from starlette.testclient import TestClient

import onlyonce
from onlyonce import Engine, IdempotencyMiddleware, WSGIMiddleware, execution


@pytest.fixture
def engine():
    with Engine.open("memory:") as engine:
        yield engine


def killed(code, *args):
    """Runs code that ends its own process with SIGKILL."""
    line = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == -9, done.stderr
    return done.stdout


def test_a_step_that_ended_does_not_run_again_with_the_next_attempt(engine):
    ran = []

    def reserve():
        ran.append("reserve")
        return "hold-1"

    def charge():
        ran.append("charge")
        if ran.count("charge") == 1:
            raise LookupError("no card")
        return {"charged": 700}

    @engine.once(key="{ride}")
    def ride(ride):
        hold = execution().step("reserve", reserve, input=700)
        return execution().step("charge", charge, input=hold)

    with pytest.raises(LookupError, match="no card"):
        ride("ride-7")

    assert ride("ride-7") == {"charged": 700}
    assert ran == ["reserve", "charge", "charge"]


def test_steps_of_a_coroutine_function_wait_for_each_other(engine):
    ran, attempts = [], []

    async def effect(name):
        await asyncio.sleep(0)
        ran.append(name)
        return name

    async def work():
        inside = execution()
        first = await inside.astep("first", lambda: effect("one"))
        both = await asyncio.gather(
            inside.astep("left", lambda: effect("two"), input=first),
            inside.astep("right", lambda: effect("three"), input=first),
        )
        attempts.append(both)
        if len(attempts) == 1:
            raise LookupError("cut off")
        return both

    with pytest.raises(LookupError):
        asyncio.run(engine.arun("k", work))

    assert asyncio.run(engine.arun("k", work)) == (["two", "three"], False)
    assert len(ran) == 3, "no step ran twice"


def test_a_step_with_another_input_is_refused_and_a_wrong_one_is_told(engine):
    cents = iter([5, 6])

    def work():
        execution().step("charge", lambda: 1, input={"cents": next(cents)})
        raise LookupError("cut off")

    with pytest.raises(LookupError):
        engine.run("k", work)
    with pytest.raises(onlyonce.Mismatch, match="member `cents` has another value"):
        engine.run("k", work)

    def twice():
        execution().step("a", lambda: 1)
        execution().step("a", lambda: 2)

    with pytest.raises(ValueError, match="give each step a name of its own"):
        engine.run("l", twice)
    with pytest.raises(ValueError, match="a name has 1 to 100"):
        engine.run("m", lambda: execution().step("no spaces", lambda: 1))
    with pytest.raises(TypeError, match="not JSON"):
        engine.run("n", lambda: execution().step("a", lambda: 1, input=object()))
    with pytest.raises(onlyonce.OnlyonceError, match="no keyed operation"):
        execution()


def test_a_step_whose_value_is_no_json_does_not_run_again(engine):
    charges = []

    def charge():
        charges.append(1)
        return object()

    for _ in range(3):
        with pytest.raises(onlyonce.NotKept, match="step `charge` ran, but its value could not be kept: "):
            engine.run("ride", lambda: execution().step("charge", charge))

    assert len(charges) == 1


def test_downstream_keys_are_the_same_for_every_attempt(engine):
    seen = []

    def work():
        inside = execution()
        step = inside.step("pay", lambda: execution().downstream("charge"))
        seen.append((inside.operation, inside.downstream("charge"), inside.downstream("mail"), step))
        if len(seen) == 1:
            raise LookupError("cut off")
        return inside.attempt

    with pytest.raises(LookupError):
        engine.run("k", work)
    engine.run("k", work)

    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 4


RIDE = """
    import os, signal, sys, onlyonce
    engine = onlyonce.Engine.open(sys.argv[1])
    @engine.once(key="k", name="ride", lease=1)
    def ride():
        onlyonce.execution().step("reserve", lambda: print("reserve", flush=True) or "hold-1")
        def charge():
            print("charge", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return onlyonce.execution().step("charge", charge, hold=HOLD)
    ride()
    """


def test_a_killed_process_leaves_its_steps_to_the_next(tmp_path):
    store = f"sqlite:{tmp_path}/records.db"
    said = killed(RIDE.replace("HOLD", "None"), store)
    assert said == "reserve\ncharge\n"
    ran = []

    with Engine.open(store) as engine:

        @engine.once(key="k", name="ride", lease=1)
        def ride():
            hold = execution().step("reserve", lambda: ran.append("reserve"))
            return execution().step("charge", lambda: ran.append("charge") or f"charged {hold}")

        assert ride() == "charged hold-1"

    assert ran == ["charge"]


def test_a_step_under_hold_that_was_cut_off_does_not_run_again(tmp_path):
    store = f"sqlite:{tmp_path}/records.db"
    killed(RIDE.replace("HOLD", "True"), store)

    with Engine.open(store) as engine:

        @engine.once(key="k", name="ride", lease=1)
        def ride():
            execution().step("reserve", lambda: pytest.fail("it was done"))
            return execution().step("charge", lambda: pytest.fail("it is held"), hold=True)

        with pytest.raises(onlyonce.OutcomeUnknown, match="held until an operator resolves it"):
            ride()


def test_the_value_is_stored_in_the_transaction_that_has_the_effect(tmp_path):
    file = tmp_path / "shop.db"
    code = """
        import json, os, signal, sqlite3, sys, onlyonce
        engine = onlyonce.Engine.open("sqlite:" + sys.argv[1])
        @engine.once(key="k", name="order")
        def order():
            value = {"order": 1}
            database = sqlite3.connect(sys.argv[1], timeout=10)
            with database:
                database.execute("CREATE TABLE orders (item TEXT)")
                database.execute("INSERT INTO orders VALUES ('tea')")
                database.execute(
                    "INSERT INTO onlyonce_complete (lease, status, headers, body) VALUES (?, 200, NULL, ?)",
                    (bytes.fromhex(onlyonce.execution().lease), json.dumps(value).encode()),
                )
            os.kill(os.getpid(), signal.SIGKILL)
        order()
        """
    killed(code, file)

    with Engine.open(f"sqlite:{file}") as engine:

        @engine.once(key="k", name="order")
        def order():
            pytest.fail("the order and its record are one transaction")

        assert order.ran() == ({"order": 1}, True)

    orders = sqlite3.connect(file).execute("SELECT item FROM orders").fetchall()
    assert orders == [("tea",)]


def test_a_transaction_that_rolls_back_leaves_nothing(tmp_path):
    file = tmp_path / "shop.db"

    with Engine.open(f"sqlite:{file}") as engine:

        def order():
            database = sqlite3.connect(file, timeout=10)
            with database:
                lease = bytes.fromhex(execution().lease)
                complete = "INSERT INTO onlyonce_complete (lease, status, headers, body) VALUES (?, 200, NULL, x'31')"
                database.execute(complete, (lease,))
                raise LookupError("rolled back")

        with pytest.raises(LookupError):
            engine.run("k", order)

        assert engine.run("k", lambda: 2) == (2, False)


KEY = {"idempotency-key": "7c9e6679-7425-40de-944b-e07fc1f90ae7", "content-type": "application/json"}


def attempts(client):
    """Asks twice: the first attempt raises after its step, and nothing of it is stored."""
    return [client.post("/charges", headers=KEY).status_code for _ in range(2)]


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_handlers_of_fastapi_have_steps(engine, kind):
    app, ran = FastAPI(), []

    def effect():
        ran.append(1)
        return len(ran)

    async def aeffect():
        return effect()

    if kind == "async":

        @app.post("/charges")
        async def charge():
            value = await execution().astep("charge", aeffect)
            if execution().attempt == 1 and not ran[1:]:
                ran.append(0)
                execution().do_not_store()
                raise HTTPException(503)
            return value
    else:

        @app.post("/charges")
        def charge():
            value = execution().step("charge", effect)
            if not ran[1:]:
                ran.append(0)
                execution().do_not_store()
                raise HTTPException(503)
            return value

    with TestClient(IdempotencyMiddleware(app, engine=engine)) as client:
        assert attempts(client) == [503, 200]

    assert ran == [1, 0]


def test_views_of_flask_have_steps(engine):
    app, ran = Flask(__name__), []

    @app.post("/charges")
    def charge():
        value = execution().step("charge", lambda: ran.append(1) or "charged")
        if not ran[1:]:
            ran.append(0)
            execution().do_not_store()
            return "later", 503
        return value

    app.wsgi_app = WSGIMiddleware(app.wsgi_app, engine=engine)

    assert attempts(app.test_client()) == [503, 200]
    assert ran == [1, 0]
