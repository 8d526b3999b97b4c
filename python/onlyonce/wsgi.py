"""Middleware for WSGI: Flask, Django, Pyramid.

What is covered, refused, stored and replayed is decided by the engine; this module only carries bytes.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any, Callable, Iterable, Iterator, Optional, Union
from urllib.parse import quote

from . import _native
from ._engine import Engine
from ._execution import Execution, running
from ._site import Site

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

log = logging.getLogger("onlyonce")
_READ_BYTES = 64 * 1024


class WSGIMiddleware:
    """Makes a WSGI application run each keyed request once.

    The arguments are those of `IdempotencyMiddleware`; `principal` gets the environment. The execution is in
    `environ["onlyonce.execution"]`.
    """

    def __init__(
        self,
        app: App,
        engine: Union[Engine, str],
        *,
        profile: Optional[str] = None,
        rules: Optional[str] = None,
        route: Optional[str] = None,
        principal: Optional[Callable[[Environ], Optional[str]]] = None,
    ) -> None:
        self.app = app
        self._site = Site(engine, profile, rules, route)
        self._principal = principal

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        site = self._site.get()
        principal = self._principal(environ) if self._principal else None
        method = environ["REQUEST_METHOD"]
        try:
            target, headers = _target(environ), _headers(environ)
            # Two keys look like one here: the server has joined them with a comma.
            exchange = site.exchange(method, target, headers, principal, None, joined=True)
        except ValueError:
            start_response("400 Bad Request", [("content-type", "text/plain")])
            return [b"Bad Request"]
        if exchange is None:
            return self.app(environ, _without(site.opt_out_header, start_response))
        return _Request(self.app, environ, start_response, exchange).serve()


class _Request:
    """One covered request."""

    def __init__(
        self,
        app: App,
        environ: Environ,
        start_response: StartResponse,
        exchange: _native.Exchange,
    ) -> None:
        self._app = app
        self._environ = environ
        self._start_response = start_response
        self._exchange = exchange
        self._handler: Optional[_Handler] = None

    def serve(self) -> Iterator[bytes]:
        """Goes on until the head is known; the body follows as it is read."""
        while True:
            step = self._next()
            if step[0] == "read":
                self._read()
            elif step[0] == "handle":
                self._exchange.detach()
                self._handle(*step[1:])
            elif step[0] == "head":
                headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in step[2]]
                self._start_response(_status(step[1]), headers)
                return self._body()
            else:
                raise RuntimeError(step[1] if len(step) > 1 else "the response broke off")

    def _read(self) -> None:
        length = self._environ.get("CONTENT_LENGTH")
        if length and not length.isdecimal():
            # To read as much as a length that is none would be to wait for ever.
            return self._exchange.hang_up()
        data = self._environ["wsgi.input"].read(_left(self._environ))
        more = _took(self._environ, data)
        if more and not data:
            # Its client went away: what has come of the body is not all that was meant.
            return self._exchange.hang_up()
        self._exchange.feed(data, more)

    def _handle(
        self,
        body: bytes,
        headers: list[tuple[bytes, bytes]],
        execution: Optional[_native.Execution],
        reply: _native.Reply,
    ) -> None:
        environ = _handed(self._environ, body, headers, execution)
        self._handler = _Handler(self._app, environ, reply, execution)

    def _next(self) -> tuple[Any, ...]:
        """The next step. While the engine waits for the handler, the handler's thread is this one."""
        while True:
            handler = self._handler
            if handler is None or handler.is_over:
                step = self._exchange.wait()
                assert step is not None
                return step
            if handler.writer is not None and not handler.writer.has_room():
                step = self._exchange.wait(handler.writer)
            else:
                handler.advance()
                step = self._exchange.poll()
            if step is not None:
                return step

    def _body(self) -> Iterator[bytes]:
        try:
            while True:
                step = self._next()
                if step[0] == "data":
                    yield step[1]
                elif step[0] == "end":
                    return
                else:
                    raise RuntimeError("the response broke off before its end")
        finally:
            if self._handler is not None:
                self._handler.close()


class _Handler:
    """The application, for a request that the engine wants to be run."""

    def __init__(
        self,
        app: App,
        environ: Environ,
        reply: _native.Reply,
        execution: Optional[_native.Execution],
    ) -> None:
        self._reply: Optional[_native.Reply] = reply
        self._execution = execution
        self.writer: Optional[_native.Writer] = None
        self.is_over = False
        self._head: Optional[tuple[int, list[tuple[bytes, bytes]]]] = None
        self._chunks: Iterable[bytes] = ()
        self._iterator: Iterator[bytes] = iter(())
        try:
            with running(execution):
                self._chunks = app(environ, self._start_response)
                self._iterator = iter(self._chunks)
        except Exception:
            self._raised()
        except BaseException:
            # The process is asked to stop: whether it took effect is not known.
            self._end()
            raise

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        if exc_info is not None and self.writer is not None:
            raise exc_info[1].with_traceback(exc_info[2])
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._head = (int(status.split(" ", 1)[0]), pairs)
        return self._write

    def _write(self, data: bytes) -> None:
        if data and self.writer is None and self._reply is not None:
            if self._head is None:
                raise RuntimeError("the application sent a body before start_response")
            self.writer = self._reply.start(*self._head)
        if data and self.writer is not None:
            self.writer.send(bytes(data))

    def advance(self) -> None:
        """Takes one more piece of the body."""
        try:
            with running(self._execution):
                chunk = next(self._iterator, None)
            if chunk is not None:
                self._write(chunk)
                return
            if self.writer is None and self._reply is not None:
                if self._head is None:
                    raise RuntimeError("the application returned without a response")
                self.writer = self._reply.start(*self._head)
            if self.writer is not None:
                self.writer.end()
            self._end()
        except Exception:
            self._raised()
        except BaseException:
            self._end()
            raise

    def _raised(self) -> None:
        log.exception("the application raised an exception")
        if self.writer is None and self._reply is not None:
            self._reply.raised()
        self._end()

    def _end(self) -> None:
        """What is not complete by now never will be."""
        self._reply = self.writer = None
        self.is_over = True
        close = getattr(self._chunks, "close", None)
        self._chunks = ()
        if close is not None:
            close()

    def close(self) -> None:
        if not self.is_over:
            self._end()


def _left(environ: Environ) -> int:
    """How much to read at once; a body of unknown length is read in pieces."""
    length = environ.get("CONTENT_LENGTH")
    if not length and "onlyonce.left" not in environ:
        # Only these servers end a body whose length was not given.
        chunked = environ.get("wsgi.input_terminated") or "HTTP_TRANSFER_ENCODING" in environ
        return _READ_BYTES if chunked else 0
    left = environ.setdefault("onlyonce.left", int(length or 0))
    return min(int(left), _READ_BYTES)


def _took(environ: Environ, data: bytes) -> bool:
    """Whether there is more after `data`."""
    if "onlyonce.left" in environ:
        environ["onlyonce.left"] -= len(data)
        return bool(environ["onlyonce.left"] > 0)
    return bool(data)


def _handed(
    environ: Environ,
    body: bytes,
    headers: list[tuple[bytes, bytes]],
    execution: Optional[_native.Execution],
) -> Environ:
    """The environment with the body that was read, and with the headers that the layer left or set."""
    import io

    handed = dict(environ)
    kept = {_variable(name.decode("latin-1")): value.decode("latin-1") for name, value in headers}
    for name in environ:
        if name.startswith("HTTP_") and name not in kept:
            del handed[name]
    # An answer that the layer will write into must not come back compressed.
    if "HTTP_ACCEPT_ENCODING" in kept:
        handed["HTTP_ACCEPT_ENCODING"] = kept["HTTP_ACCEPT_ENCODING"]
    handed.pop("HTTP_TRANSFER_ENCODING", None)
    handed["wsgi.input"] = io.BytesIO(body)
    handed["CONTENT_LENGTH"] = str(len(body))
    handed["onlyonce.execution"] = Execution(execution) if execution is not None else None
    return handed


def _variable(header: str) -> str:
    return "HTTP_" + header.upper().replace("-", "_")


def _headers(environ: Environ) -> list[tuple[bytes, bytes]]:
    pairs = []
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            header = name[5:]
        elif name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            header = name
        else:
            continue
        pairs.append((header.replace("_", "-").lower().encode("latin-1"), value.encode("latin-1")))
    return pairs


def _target(environ: Environ) -> bytes:
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    target = quote(path.encode("latin-1") or b"/", safe="/:@!$&'()*+,;=~-._")
    query = environ.get("QUERY_STRING", "")
    return (f"{target}?{query}" if query else target).encode("latin-1")


def _status(code: int) -> str:
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return f"{code} Unknown"


def _without(header: str, start_response: StartResponse) -> StartResponse:
    """Takes the opt-out header off a response that the engine has nothing to do with."""

    def without(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
        kept = [pair for pair in headers if pair[0].lower() != header]
        return start_response(status, kept, *more)

    return without
