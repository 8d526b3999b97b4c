"""The answer is stored in the transaction that has the effect, on a real PostgreSQL server, by three drivers."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import uuid

import ledger
import pytest
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from fastapi import FastAPI, Response
from flask import Flask
from starlette.testclient import TestClient
from werkzeug.test import Client as WSGIClient

import onlyonce
from onlyonce import Engine, IdempotencyMiddleware, WSGIMiddleware, execution

drivers = pytest.mark.parametrize("driver", ledger.WRITERS)


@pytest.fixture(scope="module")
def engine():
    with Engine.open(ledger.URL) as engine:
        yield engine


@pytest.fixture
def key():
    key = str(uuid.uuid4())
    assert ledger.rows(key) == []
    return key


class Fault(Exception):
    """Something that goes wrong before the commit."""


def fails():
    raise Fault("before the commit")


def completed(value):
    """What completes a function: its lease, and its value as it is stored."""
    return execution().lease, 200, None, json.dumps(value).encode()


def program(code, *args):
    """Starts a program that runs the function `order` under a key."""
    start = """
        import json, os, signal, sys
        import ledger, onlyonce
        key, driver = sys.argv[1:]
        engine = onlyonce.Engine.open(ledger.URL)
        def complete(value):
            return onlyonce.execution().lease, 200, None, json.dumps(value).encode()
        """
    line = [sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(code), *args]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@drivers
def test_what_is_committed_is_the_answer_though_its_process_is_killed(engine, key, driver):
    code = """
        @engine.once(key="{key}", name="order")
        def order(key):
            ledger.WRITERS[driver](key, "first", complete({"order": 1}))
            os.kill(os.getpid(), signal.SIGKILL)
        order(key)
        """
    killed = program(code, key, driver)
    _, said = killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL, said

    @engine.once(key="{key}", name="order")
    def order(key):
        pytest.fail("the order and its answer are one transaction")

    assert order.ran(key) == ({"order": 1}, True)
    assert ledger.rows(key) == ["first"]


@drivers
def test_what_is_rolled_back_keeps_nothing_and_has_no_effect(engine, key, driver):
    write = ledger.WRITERS[driver]

    def order(run, then):
        write(key, run, completed(run), then)
        return run

    with pytest.raises(Fault):
        engine.run(key, lambda: order("first", fails))
    assert ledger.rows(key) == []

    assert engine.run(key, lambda: order("second", ledger.nothing)) == ("second", False)
    assert engine.run(key, lambda: pytest.fail("it has run")) == ("second", True)
    assert ledger.rows(key) == ["second"]


@drivers
def test_a_process_that_dies_before_its_commit_has_no_effect(engine, key, driver):
    code = """
        @engine.once(key="{key}", name="order", lease=1)
        def order(key):
            ledger.WRITERS[driver](key, "first", complete(1), lambda: os.kill(os.getpid(), signal.SIGKILL))
        order(key)
        """
    killed = program(code, key, driver)
    _, said = killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL, said
    write = ledger.WRITERS[driver]

    @engine.once(key="{key}", name="order", lease=1)
    def order(key):
        write(key, "second", completed(2))
        return 2

    assert order.ran(key) == (2, False)
    assert ledger.rows(key) == ["second"]


@drivers
def test_a_lost_lease_fails_the_transaction(engine, key, driver):
    code = """
        @engine.once(key="{key}", name="order", lease=1)
        def order(key):
            os.kill(os.getpid(), signal.SIGSTOP)
            try:
                ledger.WRITERS[driver](key, "late", complete("late"))
            except Exception as error:
                print(ledger.sqlstate(error), flush=True)
                raise
            return "late"
        try:
            print(order(key), flush=True)
        except Exception as error:
            print("not answered", flush=True)
        """
    late = program(code, key, driver)
    assert os.WIFSTOPPED(os.waitpid(late.pid, os.WUNTRACED)[1])
    write = ledger.WRITERS[driver]

    @engine.once(key="{key}", name="order", lease=1)
    def order(key):
        write(key, "second", completed("second"))
        return "second"

    # Its lease passes while it is stopped, and this takes over.
    assert order.ran(key) == ("second", False)
    late.send_signal(signal.SIGCONT)
    said, errors = late.communicate(timeout=60)

    assert said.splitlines()[0] == "ONCE1", (said, errors)
    assert "late" not in said
    assert ledger.rows(key) == ["second"]
    assert order.ran(key) == ("second", True)


BODY = b'{"stored": true}'


def view(driver, key, then):
    """Charges, or says that it could not."""
    complete = (execution().lease, 201, json.dumps({"content-type": "application/json"}), BODY)
    try:
        ledger.WRITERS[driver](key, f"attempt {execution().attempt}", complete, then)
    except Fault:
        return 503
    return 201


faults = []


def next_fault():
    if faults:
        faults.pop()()


@csrf_exempt
def charge_in_django(request, key):
    return HttpResponse(b"not what was stored", status=view("django", key, next_fault))


urlpatterns = [path("charges/<key>", charge_in_django)]


def fastapi(engine):
    app = FastAPI()

    @app.post("/charges/{key}")
    def charge(key: str):
        return Response(b"not what was stored", status_code=view("psycopg", key, next_fault))

    return TestClient(IdempotencyMiddleware(app, engine=engine))


def flask(engine):
    app = Flask(__name__)

    @app.post("/charges/<key>")
    def charge(key):
        return "not what was stored", view("sqlalchemy", key, next_fault)

    return WSGIClient(WSGIMiddleware(app, engine=engine))


def django(engine):
    return WSGIClient(WSGIMiddleware(get_wsgi_application(), engine=engine))


@pytest.mark.parametrize("service", [fastapi, flask, django])
def test_a_view_answers_what_its_transaction_stored_and_nothing_of_one_that_was_rolled_back(engine, key, service):
    client = service(engine)
    faults[:] = [fails]

    def ask():
        answer = client.post(f"/charges/{key}", headers={"idempotency-key": key})
        body = getattr(answer, "content", None) or answer.data
        return answer.status_code, body, answer.headers.get("idempotent-replayed")

    failed, rows = ask(), ledger.rows(key)
    first, again = ask(), ask()

    assert (failed[0], rows) == (503, [])
    assert first == (201, BODY, None)
    assert again == (201, BODY, "true")
    assert len(ledger.rows(key)) == 1


def test_a_lease_completes_once_and_what_is_none_completes_nothing(engine, key):
    seen = []

    def order():
        seen.append(execution().lease)
        ledger.by_psycopg(key, "first", completed(1))
        return 1

    engine.run(key, order)

    for lease in (seen[0], "00" * 48, "no lease"):
        with pytest.raises(Exception) as refused:
            ledger.by_psycopg(key, "second", (lease, 200, None, b"2"))
        assert ledger.sqlstate(refused.value) in ("ONCE1", "ONCE2")
    assert ledger.rows(key) == ["first"]
    with pytest.raises(onlyonce.Mismatch):
        engine.run(key, order, input="another")
