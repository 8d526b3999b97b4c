"""The WSGI middleware, around Flask and around a bare application."""

import threading

import pytest
from flask import Flask, Response, request
from werkzeug.test import Client, create_environ, run_wsgi_app

from onlyonce import Engine, WSGIMiddleware

KEY = {"Idempotency-Key": "7c9e6679-7425-40de-944b-e07fc1f90ae7"}


@pytest.fixture
def engine():
    with Engine.open("memory:") as engine:
        yield engine


def service(engine, **settings):
    app = Flask(__name__)
    app.runs = 0

    @app.post("/charges")
    def charge():
        app.runs += 1
        execution = request.environ["onlyonce.execution"]
        return {"run": app.runs, "bytes": len(request.get_data()), "attempt": execution.attempt}

    @app.post("/slow")
    def slow():
        app.runs += 1
        threading.Event().wait(0.2)
        return {"run": app.runs}

    @app.post("/large")
    def large():
        app.runs += 1
        return Response(b"x" * 65536 for _ in range(64))

    @app.get("/opted-out")
    def opted_out():
        return Response("x", headers={"idempotency-store": "no"})

    app.wsgi_app = WSGIMiddleware(app.wsgi_app, engine=engine, **settings)
    return app


def test_a_retry_gets_the_first_answer(engine):
    client = service(engine).test_client()

    first = client.post("/charges", headers=KEY, data=b"abc")
    again = client.post("/charges", headers=KEY, data=b"abc")
    other = client.post("/charges", headers=KEY, data=b"abcd")

    assert first.json == {"run": 1, "bytes": 3, "attempt": 1}
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.data == first.data
    assert other.status_code == 422


def test_two_keys_are_refused_though_the_server_has_joined_them(engine):
    app = service(engine, profile="ietf")

    def asked(key):
        return app.test_client().post("/charges", headers={"Idempotency-Key": key}).status_code

    assert [asked(key) for key in ("a,b", "a, b", '"a", "b"', "a,")] == [400] * 4
    assert asked('"a,b"') == 200
    assert app.runs == 1


def test_64_duplicates_share_one_run(engine):
    app = service(engine)
    answers = []

    def call():
        answers.append(app.test_client().post("/slow", headers=KEY).data)

    threads = [threading.Thread(target=call) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert app.runs == 1
    assert len(answers) == 64 and len(set(answers)) == 1


def test_large_bodies_are_bounded_in_both_directions(engine):
    app = service(engine)
    client = app.test_client()

    too_large = client.post("/charges", headers=KEY, data=b"x" * (2 << 20))
    first = client.post("/large", headers=KEY)
    again = client.post("/large", headers=KEY)

    assert too_large.status_code == 413
    assert (first.status_code, len(first.data)) == (200, 64 * 65536)
    assert again.status_code == 507
    assert app.runs == 1


def test_an_answer_that_is_to_be_marked_is_not_asked_for_compressed():
    asked = []

    def app(environ, start_response):
        asked.append(environ.get("HTTP_ACCEPT_ENCODING"))
        start_response("201 Created", [("content-type", "application/json")])
        return [b'{"ok": true}']

    with Engine.open("memory:") as engine:
        for profile in ("standard", "broker"):
            client = Client(WSGIMiddleware(app, engine, profile=profile))
            client.post(f"/{profile}", headers={**KEY, "Accept-Encoding": "gzip"})

    assert asked == ["gzip", "identity"]


def test_a_request_that_breaks_off_does_not_run(engine):
    amounts = []

    def app(environ, start_response):
        amounts.append(environ["wsgi.input"].read())
        start_response("200 OK", [])
        return [b""]

    def paid(length):
        environ = create_environ("/", method="POST", headers=KEY, data=b"amount=10")
        environ["CONTENT_LENGTH"] = length
        _, status, _ = run_wsgi_app(WSGIMiddleware(app, engine), environ)
        return status

    for length in ("11", "-1", "nine"):
        assert paid(length).startswith("400")
    assert amounts == []
    assert paid("9").startswith("200")
    assert amounts == [b"amount=10"]


def test_an_exception_is_stored_as_the_profile_says():
    def twice(profile):
        runs = []

        def app(environ, start_response):
            runs.append(1)
            raise LookupError("a bug")

        with Engine.open("memory:") as engine:
            client = Client(WSGIMiddleware(app, engine, profile=profile))
            statuses = [client.post("/", headers=KEY).status_code for _ in range(2)]
        return statuses, len(runs)

    assert twice("middleware") == ([500, 500], 1)
    assert twice("formbridge") == ([500, 500], 2)


def test_the_old_way_to_write_works_and_the_application_is_closed(engine):
    closed = []

    class Body:
        def __iter__(self):
            return iter([b"b", b"c"])

        def close(self):
            closed.append(1)

    def app(environ, start_response):
        write = start_response("201 Created", [("content-type", "text/plain")])
        write(b"a")
        return Body()

    client = Client(WSGIMiddleware(app, engine))
    answers = [client.post("/", headers=KEY) for _ in range(2)]

    assert [(it.status_code, it.data) for it in answers] == [(201, b"abc")] * 2
    assert closed == [1]


def test_what_is_not_covered_passes(engine):
    app = service(engine)

    assert "idempotency-store" not in app.test_client().get("/opted-out").headers
    assert app.test_client().post("/charges", headers={"Idempotency-Key": ""}).status_code == 400
