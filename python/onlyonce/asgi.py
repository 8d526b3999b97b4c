"""Middleware for ASGI: FastAPI, Starlette, Django, Quart, Litestar.

What is covered, refused, stored and replayed is decided by the engine; this module only carries bytes.
"""

from __future__ import annotations

import asyncio
from typing import Any, Awaitable, Callable, MutableMapping, Optional, Union

from . import _native
from ._engine import Engine
from ._execution import Execution, running, stop_when_abandoned
from ._loop import Stepper
from ._site import Site

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[Any]]


class IdempotencyMiddleware:
    """Makes an ASGI application run each keyed request once.

    `engine` is an engine, or the URL of a store, which is then opened once per process. `profile` names a
    contract (`standard`, `stripe`, `ietf`, …), `rules` are a contract of your own as TOML, `route` limits
    it to paths like `/orders/{id}/pay`. `principal` says who asks, where you have verified that.
    """

    def __init__(
        self,
        app: App,
        engine: Union[Engine, str],
        *,
        profile: Optional[str] = None,
        rules: Optional[str] = None,
        route: Optional[str] = None,
        principal: Optional[Callable[[Scope], Optional[str]]] = None,
    ) -> None:
        self.app = app
        self._site = Site(engine, profile, rules, route)
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        site = self._site.get()
        stepper = Stepper()
        try:
            principal = self._principal(scope) if self._principal else None
            wake = (stepper.watch.signal, stepper.number)
            headers = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
            try:
                exchange = site.exchange(scope["method"], _target(scope), headers, principal, wake)
            except ValueError:
                await _bad_request(send)
                return
            if exchange is None:
                await self.app(scope, receive, _without(site.opt_out_header, send))
                return
            await _Request(self.app, scope, receive, send, stepper, exchange).serve()
        finally:
            stepper.close()


class _Request:
    """One covered request."""

    def __init__(
        self,
        app: App,
        scope: Scope,
        receive: Receive,
        send: Send,
        stepper: Stepper,
        exchange: _native.Exchange,
    ) -> None:
        self._app = app
        self._scope = scope
        self._receive = receive
        self._send = send
        self._stepper = stepper
        self._exchange = exchange
        self._handler: Optional[_Handler] = None

    async def serve(self) -> None:
        while True:
            step = await self._stepper.step(self._exchange.poll)
            kind = step[0]
            if kind == "read":
                await self._read()
            elif kind == "handle":
                self._handle(*step[1:])
            elif kind == "head":
                start = {"type": "http.response.start", "status": step[1], "headers": step[2]}
                await self._send(start)
            elif kind == "data":
                body = {"type": "http.response.body", "body": step[1], "more_body": True}
                await self._send(body)
            elif kind == "end":
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
                return self._raise()
            elif kind == "broken":
                self._raise()
                raise RuntimeError("the response broke off before its end")
            else:
                self._raise()
                raise RuntimeError(step[1])

    async def _read(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._exchange.hang_up()
        else:
            more = bool(message.get("more_body", False))
            self._exchange.feed(bytes(message.get("body", b"")), more)

    def _handle(
        self,
        body: bytes,
        headers: list[tuple[bytes, bytes]],
        execution: Optional[_native.Execution],
        reply: _native.Reply,
    ) -> None:
        """Starts the handler in a task of its own: it goes on if this request's client goes away."""
        scope = dict(self._scope)
        scope["headers"] = headers
        if "extensions" in scope:
            scope["extensions"] = _extensions(scope["extensions"])
        scope["onlyonce"] = Execution(execution) if execution is not None else None
        self._handler = _Handler(self._app, scope, body, reply, execution)
        task = self._stepper.watch.spawn(self._handler.run())
        stop_when_abandoned(self._stepper, reply, task)

    def _raise(self) -> None:
        """Shows what the handler raised to the server, which logs it, once it was answered."""
        if self._handler is not None and self._handler.raised is not None:
            raise self._handler.raised


class _Handler:
    """The application, for a request that the engine wants to be run."""

    def __init__(
        self,
        app: App,
        scope: Scope,
        body: bytes,
        reply: _native.Reply,
        execution: Optional[_native.Execution],
    ) -> None:
        self._app = app
        self._scope = scope
        self._execution = execution
        self._body: Optional[bytes] = body
        # Dropped with this object: a handler without an answer was cancelled.
        self._reply: Optional[_native.Reply] = reply
        self._writer: Optional[_native.Writer] = None
        self._over = asyncio.Event()
        self.raised: Optional[Exception] = None

    async def run(self) -> None:
        try:
            with running(self._execution):
                await self._app(self._scope, self.receive, self.send)
            if self._writer is None:
                raise RuntimeError("the application returned without a response")
            if not self._over.is_set():
                raise RuntimeError("the application returned before its response was complete")
        except Exception as error:
            self.raised = error
            if self._writer is None and self._reply is not None:
                self._reply.raised()
        finally:
            # What is not complete by now never will be.
            self._reply = self._writer = None
            self._over.set()

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        # The client may be gone already; that does not concern a handler that has started.
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if self._writer is not None or self._reply is None:
                raise RuntimeError("the response was started twice")
            headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", [])]
            self._writer = self._reply.start(message["status"], headers)
        elif message["type"] == "http.response.body":
            if self._writer is None:
                raise RuntimeError("the response has a body before its start")
            self._writer.send(bytes(message.get("body", b"")))
            if not message.get("more_body", False):
                self._writer.end()
                self._over.set()
            else:
                await _room(self._writer)
        else:
            raise RuntimeError(f"a response that is stored cannot have {message['type']}")


async def _room(writer: _native.Writer) -> None:
    """Waits until a slow client has read enough."""
    if writer.has_room():
        return
    stepper = Stepper()

    def poll() -> Optional[tuple[Any, ...]]:
        return ("ready",) if writer.is_ready(stepper.watch.signal, stepper.number) else None

    try:
        await stepper.step(poll)
    finally:
        stepper.close()


def _extensions(offered: Any) -> dict[str, Any]:
    """Without the server's other ways to send a response: what is stored passes through here, as bytes."""
    return {name: about for name, about in (offered or {}).items() if not name.startswith("http.response.")}


def _target(scope: Scope) -> bytes:
    """The path as it was sent, and the query."""
    path = scope.get("raw_path") or _escaped(scope["path"])
    query = scope.get("query_string", b"")
    # Some servers give the query with the raw path.
    path = bytes(path).split(b"?", 1)[0]
    return path + b"?" + bytes(query) if query else path


def _escaped(path: str) -> bytes:
    from urllib.parse import quote

    return quote(path, safe="/:@!$&'()*+,;=~-._").encode("ascii")


def _without(header: str, send: Send) -> Send:
    """Takes the opt-out header off a response that the engine has nothing to do with."""
    name = header.encode("ascii")

    async def without(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message.get("headers", [])
            kept = [pair for pair in headers if bytes(pair[0]).lower() != name]
            message = {**message, "headers": kept}
        await send(message)

    return without


async def _bad_request(send: Send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"11")]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": b"Bad Request", "more_body": False})
