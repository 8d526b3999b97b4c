"""The client's half: requests under their keys, sent again where that can help, and a durable queue of them.

When to send again, after how long, and what an answer means is decided by the same code as in Rust.
"""

from __future__ import annotations

import json as _json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _native
from ._engine import start_log
from ._loop import Stepper

__all__ = ["Answer", "Client", "Entry", "Queue", "Queued", "Request", "new_key"]

Wake = tuple[_native.Signal, int]
_NOTHING: Any = object()


def new_key() -> str:
    """A new random key: a UUID of version 4."""
    return _native.new_key()


class Answer(NamedTuple):
    """What a service answered."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    replayed: bool
    """Whether the service had kept it from an earlier attempt."""
    attempts: int
    whole: bool
    """Whether the body is all of the answer: of one with more than 8 MiB it is the start."""

    @property
    def text(self) -> str:
        """The body as UTF-8; a `ValueError` if it is not whole."""
        return self._all().decode()

    def json(self) -> Any:
        """The body, read as JSON; a `ValueError` if it is not whole."""
        return _json.loads(self._all())

    def _all(self) -> bytes:
        if not self.whole:
            raise ValueError("the answer is larger than 8 MiB: body has its start, and the service has done its work")
        return self.body


class Request(NamedTuple):
    """A request of a group; `body` is bytes, or anything that can be written as JSON in `json`."""

    method: str
    url: str
    json: Any = _NOTHING
    body: Optional[bytes] = None
    headers: Mapping[str, str] = {}


class Client:
    """Sends requests under their keys: a lost answer is asked for again, and what ran does not run twice.

    `headers` are added to every attempt. A request is tried `attempts` times, each for `timeout` seconds, with
    pauses that grow within `backoff` or are as long as the service's `Retry-After` says, and no attempt begins
    later than `total` seconds after the first. `status_path` is where the service says what has become of a key.
    `pages` says that it answers with web pages, which otherwise count as somebody else's.
    """

    def __init__(
        self,
        *,
        headers: Optional[Mapping[str, str]] = None,
        attempts: int = 3,
        timeout: float = 30.0,
        backoff: tuple[float, float] = (1.0, 10.0),
        total: float = 120.0,
        status_path: Optional[str] = None,
        pages: bool = False,
    ) -> None:
        start_log()
        given = _pairs(headers)
        self._native = _native.Client(given, attempts, timeout, backoff, total, status_path, pages)

    def authorize(self, headers: Mapping[str, str]) -> None:
        """Adds these headers to every attempt from now on, instead of those before: a new token."""
        self._native.authorize(_pairs(headers))

    def send(
        self,
        method: str,
        url: str,
        *,
        key: str,
        json: Any = _NOTHING,
        body: Optional[bytes] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Answer:
        """Sends a request until it is done, the service has said no, or it was tried often enough.

        `key` is the operation's: the same whenever it is sent again, also by another process. Raises `SendFailed`.
        """
        given = _given(method, url, json, body, headers)
        with _whole_answers():
            return Answer(*self._native.send(given, key).wait()[0])

    async def asend(
        self,
        method: str,
        url: str,
        *,
        key: str,
        json: Any = _NOTHING,
        body: Optional[bytes] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Answer:
        """The same on an event loop. A call that is cancelled is not sent again; it may have run."""
        given = _given(method, url, json, body, headers)
        with _whole_answers():
            return Answer(*await _taken(lambda wake: self._native.send(given, key, wake)))

    @property
    def counts(self) -> dict[str, int]:
        """What it has done so far: `attempts`, `retries`, `succeeded`, `replayed`, …, and failed attempts by cause."""
        return self._native.counts()


class Queued(NamedTuple):
    """A request that is on disk."""

    id: int
    key: str
    is_new: bool
    """Whether it was not in the queue before."""


class Entry(NamedTuple):
    """A request of a queue, and how far it is."""

    id: int
    state: str
    """`waiting`, `done`, `failed`, or `spare`: a compensation that is not needed so far."""
    key: str
    method: Optional[str]
    url: Optional[str]
    attempts: int
    cause: Optional[str]
    """Why it is not done."""
    detail: str
    status: Optional[int]
    """The status of the answer."""
    answer: Optional[bytes]
    """The answer's body, unless it was larger than 64 KiB."""
    group: Optional[int]


class Queue:
    """A durable queue of requests in a folder: on disk before they are sent, sent until they are done.

    Several processes may share a folder; one of them sends. A process that is killed loses nothing, and what it
    was sending is sent again under the same key. Open it after a fork, not before.
    """

    def __init__(
        self,
        folder: Union[str, os.PathLike[str]],
        client: Optional[Client] = None,
        *,
        parallel: int = 4,
        keep_for: float = 86400.0,
        key_life: float = 86400.0,
        failures: int = 10,
        backoff: tuple[float, float] = (1.0, 300.0),
    ) -> None:
        """`parallel` requests are sent at a time. What is done is remembered for `keep_for` seconds.

        A request that may have run is not sent again once the service may have forgotten its key, which it keeps
        `key_life` seconds. One that the service itself failed `failures` times has failed for good. Pauses grow
        within `backoff`.
        """
        self._client = client if client is not None else Client()
        self._native = _native.Queue(
            os.fspath(folder), self._client._native, parallel, (keep_for, key_life), failures, backoff
        )

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops sending and gives the folder up. What is not done stays on disk."""
        self._native.close()

    def add(
        self,
        method: str,
        url: str,
        *,
        key: Optional[str] = None,
        json: Any = _NOTHING,
        body: Optional[bytes] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Queued:
        """Queues a request, under a new key or one that names the work; it is on disk when this returns.

        The same request under the same key is queued once. Headers that prove who is calling belong to the client.
        """
        given = _given(method, url, json, body, headers)
        key = key if key is not None else new_key()
        id, is_new = self._native.add(given, key).wait()[0]
        return Queued(id, key, is_new)

    async def aadd(
        self,
        method: str,
        url: str,
        *,
        key: Optional[str] = None,
        json: Any = _NOTHING,
        body: Optional[bytes] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Queued:
        """The same on an event loop."""
        given = _given(method, url, json, body, headers)
        kept = key if key is not None else new_key()
        id, is_new = await _taken(lambda wake: self._native.add(given, kept, wake))
        return Queued(id, kept, is_new)

    def add_group(self, steps: Iterable[tuple[Request, Optional[Request]]], *, name: Optional[str] = None) -> int:
        """Queues requests that are done in order, all of them or none; gives the group's number.

        Each comes with the request that undoes it, or with `None`. When one fails for good, those before it are
        undone, the last one first. A group of one `name` is queued once.
        """
        given = [(_given(*step), _given(*undo) if undo is not None else None) for step, undo in steps]
        return int(self._native.add_group(given, name).wait()[0])

    def group(self, id: int) -> Optional[str]:
        """How far a group is: `running`, `done`, `undoing`, `undone`, or `stuck` at a compensation that failed."""
        return self._native.group(id).wait()[0]  # type: ignore[no-any-return]

    def start(self) -> None:
        """Sends what is queued in the background from now on, or as soon as the process that sends ends."""
        self._native.start()

    def drain(self) -> None:
        """Sends what waits until nothing does: every request is done or has failed for good."""
        self._native.drain().wait()

    async def adrain(self) -> None:
        """The same on an event loop."""
        await _taken(self._native.drain)

    def send_due(self) -> None:
        """Sends what is due now, once: for a program that a timer starts."""
        self._native.send_due().wait()

    def settled(self, id: int) -> Entry:
        """Waits until a request is done or has failed for good. Something has to send it meanwhile."""
        return Entry(**self._native.settled(id).wait()[0])

    async def asettled(self, id: int) -> Entry:
        """The same on an event loop."""
        return Entry(**await _taken(lambda wake: self._native.settled(id, wake)))

    def entry(self, id: int) -> Optional[Entry]:
        """How far a request is; `None` if it was never there, was dropped, or was done too long ago."""
        found = self._native.entry(id).wait()[0]
        return Entry(**found) if found is not None else None

    def entries(self, state: Optional[str] = None) -> Iterator[Entry]:
        """All requests, or those of a state, in the order in which they were queued."""
        after: Optional[int] = None
        while True:
            found = self._native.entries(state, after, 0).wait()[0]
            if not found:
                return
            for one in found:
                yield Entry(**one)
            after = found[-1]["id"]

    def edit(
        self,
        id: int,
        method: str,
        url: str,
        *,
        json: Any = _NOTHING,
        body: Optional[bytes] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> tuple[str, bool]:
        """Puts another request in the place of one that is not done.

        Gives its new key, and whether the old one may have run.
        """
        key, may_have_run = self._native.edit(id, _given(method, url, json, body, headers)).wait()[0]
        return key, may_have_run

    def retry(self, id: int) -> None:
        """Sends a request that failed again, under the same key."""
        self._native.retry(id).wait()

    def drop(self, id: int) -> bool:
        """Forgets a request that is not done; returns whether it may have run."""
        return bool(self._native.discard(id).wait()[0])


@contextmanager
def _whole_answers() -> Iterator[None]:
    """A failure's answer is one like any other."""
    try:
        yield
    except _native.SendFailed as failed:
        if failed.answer is not None:
            failed.answer = Answer(*failed.answer)
        raise


async def _taken(start: Callable[[Wake], _native.Pending]) -> Any:
    stepper = Stepper()
    try:
        pending = start((stepper.watch.signal, stepper.number))
        return (await stepper.step(pending.poll))[0]
    finally:
        stepper.close()


def _pairs(headers: Optional[Mapping[str, str]]) -> list[tuple[str, str]]:
    return list(headers.items()) if headers else []


def _given(
    method: str,
    url: str,
    json: Any = _NOTHING,
    body: Optional[bytes] = None,
    headers: Optional[Mapping[str, str]] = None,
) -> _native.Given:
    pairs = _pairs(headers)
    if json is not _NOTHING:
        if body is not None:
            raise TypeError("give json or body, not both")
        body = _json.dumps(json).encode()
        if not any(name.lower() == "content-type" for name, _ in pairs):
            pairs.append(("content-type", "application/json"))
    return method, url, pairs, body
