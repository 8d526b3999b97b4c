"""The ASGI middleware. Transports call the application directly, unless a test needs a connection."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

import onlyonce
from onlyonce import Engine, IdempotencyMiddleware

KEY = {"idempotency-key": "7c9e6679-7425-40de-944b-e07fc1f90ae7"}


@pytest.fixture
def engine():
    with Engine.open("memory:") as engine:
        yield engine


def service(engine, **settings):
    app = FastAPI()
    app.state.runs = 0
    app.state.started = False

    @app.post("/charges")
    async def charge(request: Request):
        app.state.runs += 1
        body = await request.body()
        execution = request.scope["onlyonce"]
        assert execution.downstream("charge") == execution.downstream("charge") != execution.downstream("mail")
        assert execution.operation != execution.downstream("charge")
        return {"run": app.state.runs, "bytes": len(body), "attempt": execution.attempt}

    @app.post("/sync")
    def sync_charge():
        app.state.runs += 1
        return {"run": app.state.runs}

    @app.post("/slow")
    async def slow():
        app.state.started = True
        await asyncio.sleep(0.2)
        app.state.runs += 1
        return {"run": app.state.runs}

    @app.post("/refused")
    async def refused():
        app.state.runs += 1
        raise HTTPException(402, "no money")

    @app.post("/raises")
    async def raises():
        app.state.runs += 1
        raise LookupError("a bug")

    @app.post("/large")
    async def large():
        app.state.runs += 1

        async def pieces():
            for _ in range(64):
                yield b"x" * 65536

        return StreamingResponse(pieces())

    @app.post("/breaks")
    async def breaks():
        app.state.runs += 1

        async def pieces():
            yield b"start"
            raise LookupError("a bug half-way")

        return StreamingResponse(pieces())

    @app.post("/not-stored")
    async def not_stored(request: Request):
        app.state.runs += 1
        if request.scope["onlyonce"] is not None:
            request.scope["onlyonce"].do_not_store()
        return {"run": app.state.runs}

    @app.get("/opted-out")
    async def opted_out():
        return Response("x", headers={"idempotency-store": "no"})

    app.add_middleware(IdempotencyMiddleware, engine=engine, **settings)
    return app


def client(app):
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://shop")


def test_a_retry_gets_the_first_answer(engine):
    app = service(engine)

    async def scenario():
        async with client(app) as http:
            first = await http.post("/charges", headers=KEY, content=b"abc")
            again = await http.post("/charges", headers=KEY, content=b"abc")
            other = await http.post("/charges", headers=KEY, content=b"abcd")
            keyless = [(await http.post("/sync")).json()["run"] for _ in range(2)]
            return first, again, other, keyless

    first, again, other, keyless = asyncio.run(scenario())
    assert first.json() == {"run": 1, "bytes": 3, "attempt": 1}
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.content == first.content
    assert other.status_code == 422
    assert other.headers["content-type"] == "application/problem+json"
    assert keyless == [2, 3]


def test_64_duplicates_share_one_run(engine):
    app = service(engine)

    async def scenario():
        async with client(app) as http:
            calls = (http.post("/slow", headers=KEY) for _ in range(64))
            return await asyncio.gather(*calls)

    answers = asyncio.run(scenario())
    assert {(it.status_code, it.content) for it in answers} == {(200, b'{"run":1}')}
    assert app.state.runs == 1


def test_a_profile_is_a_contract(engine):
    async def mismatch(**settings):
        async with client(service(engine, **settings)) as http:
            await http.post("/charges", headers=KEY, content=b"a")
            return await http.post("/charges", headers=KEY, content=b"b")

    stripe = asyncio.run(mismatch(profile="stripe"))
    assert stripe.status_code == 400
    assert stripe.json()["error"]["type"] == "idempotency_error"

    with Engine.open("memory:") as own:
        engine = own
        rules = 'base = "stripe"\n[refusals]\nmismatch = { status = 418 }\n'
        assert asyncio.run(mismatch(rules=rules)).status_code == 418
    for wrong in ({"profile": "strip"}, {"rules": "ttl = 5"}, {"route": "/{"}, {"profile": "ietf", "rules": ""}):
        with pytest.raises(onlyonce.OpenError):
            IdempotencyMiddleware(app=None, engine="memory:", **wrong)._site.get()


def test_a_failure_is_stored_as_the_profile_says():
    def twice(path, profile):
        with Engine.open("memory:") as engine:
            app = service(engine, profile=profile)

            async def scenario():
                async with client(app) as http:
                    first = await http.post(path, headers=KEY)
                    again = await http.post(path, headers=KEY)
                    return first.status_code, again.status_code, first.content == again.content

            return (*asyncio.run(scenario()), app.state.runs)

    assert twice("/refused", "standard") == (402, 402, True, 1)
    assert twice("/refused", "broker") == (402, 402, True, 2)
    assert twice("/raises", "middleware") == (500, 500, True, 1)
    assert twice("/raises", "formbridge") == (500, 500, True, 2)


def test_a_client_that_goes_away_does_not_stop_the_handler(engine):
    app = service(engine)

    async def scenario():
        async with client(app) as http:
            call = asyncio.create_task(http.post("/slow", headers=KEY))
            while not app.state.started:
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return await http.post("/slow", headers=KEY)

    again = asyncio.run(scenario())
    assert again.json() == {"run": 1}
    assert again.headers["idempotent-replayed"] == "true"
    assert app.state.runs == 1


def test_large_bodies_are_bounded_in_both_directions(engine):
    app = service(engine)

    async def scenario():
        async with client(app) as http:
            too_large = await http.post("/charges", headers=KEY, content=b"x" * (2 << 20))
            first = await http.post("/large", headers=KEY)
            again = await http.post("/large", headers=KEY)
            return too_large, first, again

    too_large, first, again = asyncio.run(scenario())
    assert too_large.status_code == 413
    assert (first.status_code, len(first.content)) == (200, 64 * 65536)
    assert again.status_code == 507
    assert app.state.runs == 1


async def call(app, path, messages, sent, headers=(), **more):
    """Calls an application as a server does."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"shop"), (b"idempotency-key", b"a-key-of-this-call"), *headers],
        **more,
    }
    waiting = iter(messages)

    async def receive():
        return next(waiting)

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)


def test_a_request_that_breaks_off_does_not_run(engine):
    app = service(engine)
    sent = []
    messages = [{"type": "http.request", "body": b"half", "more_body": True}, {"type": "http.disconnect"}]

    asyncio.run(call(app, "/charges", messages, sent))

    assert sent[0]["status"] == 400
    assert app.state.runs == 0


def test_a_response_that_breaks_off_is_not_taken_for_a_whole_one(engine):
    app = service(engine)
    sent = []

    with pytest.raises(LookupError):
        asyncio.run(call(app, "/breaks", [{"type": "http.request"}], sent))

    assert [it.get("body") for it in sent[1:]] == [b"start"]
    assert all(it.get("more_body", True) for it in sent)


EXTENSIONS = {
    "tls": {"tls_version": 0x0304},
    "http.response.pathsend": {},
    "http.response.zerocopysend": {},
    "http.response.trailers": {},
    "http.response.early_hint": {},
    "http.response.push": {},
    "http.response.debug": {},
}


def test_a_file_is_stored_also_where_the_server_could_send_it_by_its_path(engine, tmp_path):
    file = tmp_path / "receipt.txt"
    file.write_bytes(b"paid")
    app = FastAPI()
    seen = []

    @app.post("/receipts")
    async def receipt(request: Request):
        seen.append(dict(request.scope["extensions"]))
        return FileResponse(file)

    app.add_middleware(IdempotencyMiddleware, engine=engine)
    first, again = [], []

    asyncio.run(call(app, "/receipts", [{"type": "http.request"}], first, extensions=dict(EXTENSIONS)))
    file.write_bytes(b"changed meanwhile")
    asyncio.run(call(app, "/receipts", [{"type": "http.request"}], again, extensions=dict(EXTENSIONS)))

    for sent in (first, again):
        assert {it["type"] for it in sent} == {"http.response.start", "http.response.body"}
        assert b"".join(it.get("body", b"") for it in sent) == b"paid"
    assert seen == [{"tls": {"tls_version": 0x0304}}]


@pytest.mark.parametrize("kind", sorted(set(EXTENSIONS) - {"tls"}))
def test_an_application_that_sends_what_cannot_be_stored_is_told(engine, kind):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": kind})
        await send({"type": "http.response.body", "body": b""})

    with pytest.raises(RuntimeError, match=f"cannot have {kind}"):
        asyncio.run(call(IdempotencyMiddleware(app, engine), "/", [{"type": "http.request"}], []))


def test_what_is_not_covered_has_the_extensions_of_its_server(engine):
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["extensions"])

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"shop")], "extensions": EXTENSIONS}
    asyncio.run(IdempotencyMiddleware(app, engine)(scope, None, None))

    assert seen == [EXTENSIONS]


def test_a_slow_client_does_not_fill_memory(engine):
    """A body past the bound is produced only as fast as its client reads."""
    produced = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            produced.append(65536)
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    stuck = asyncio.Event

    async def scenario():
        event = stuck()

        async def send(message):
            if message["type"] == "http.response.body":
                await event.wait()

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"",
            "headers": [(b"host", b"shop"), (b"idempotency-key", b"a-key-of-this-call"), (b"content-length", b"0")],
        }
        middle = IdempotencyMiddleware(app, engine)
        task = asyncio.create_task(middle(scope, None, send))
        seen = -1
        while seen != len(produced):
            seen = len(produced)
            await asyncio.sleep(0.1)
        task.cancel()
        return sum(produced)

    assert asyncio.run(scenario()) < 4 << 20


def test_what_is_not_covered_passes_untouched(engine):
    app = service(engine)

    async def scenario():
        async with client(app) as http:
            opted = await http.get("/opted-out")
            runs = [(await http.post("/not-stored", headers=KEY)).json()["run"] for _ in range(2)]
            bad = await http.post("/charges", headers={"idempotency-key": ""})
            async with app.router.lifespan_context(app):
                pass
            return opted, runs, bad

    opted, runs, bad = asyncio.run(scenario())
    assert "idempotency-store" not in opted.headers
    assert runs == [1, 2]
    assert bad.status_code == 400


def test_callers_are_told_apart(engine):
    app = service(engine, principal=lambda scope: dict(scope["headers"]).get(b"x-user", b"").decode() or None)

    async def scenario():
        async with client(app) as http:
            return [
                (await http.post("/charges", headers={**KEY, "x-user": user})).json()["run"]
                for user in ("ada", "bob", "ada")
            ]

    assert asyncio.run(scenario()) == [1, 2, 1]


def test_a_url_is_opened_by_each_process_for_itself(tmp_path):
    app = service(f"sqlite:{tmp_path}/records.db")

    async def scenario():
        async with client(app) as http:
            return [(await http.post("/charges", headers=KEY)).json()["run"] for _ in range(2)]

    assert asyncio.run(scenario()) == [1, 1]
    assert asyncio.run(scenario()) == [1, 1]
