"""What a function or handler may know and say about its own execution, and its durable steps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Awaitable, Callable, NamedTuple, Optional, TypeVar, Union

from . import _native
from ._loop import Stepper, number

T = TypeVar("T")
Dump = Callable[[Any], str]
Load = Callable[[str], Any]


class Ran(NamedTuple):
    """A function's value, and whether an earlier call with this key made it."""

    value: Any
    replayed: bool


class Execution:
    """One attempt at a keyed operation, for the function or handler that makes it."""

    def __init__(self, native: _native.Execution) -> None:
        self._native = native

    @property
    def attempt(self) -> int:
        """1, or more if an earlier attempt was cut off: then check what it left behind."""
        return self._native.attempt

    @property
    def operation(self) -> str:
        """The id of this operation for the services it calls: the same for every attempt."""
        return self._native.operation

    def downstream(self, name: str) -> str:
        """A key for a service that takes idempotency keys: the same for every attempt, another for each name."""
        return self._native.downstream(name)

    @property
    def label(self) -> Optional[str]:
        """How logs name the key; `None` when running without protection."""
        return self._native.label

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken over meanwhile: this answer will not count."""
        return self._native.is_lost

    @property
    def lease(self) -> Optional[str]:
        """The right to store the answer in a transaction of your own, for the SQL function `onlyonce_complete`.

        It is a secret: bind it as a value, and do not log it. `None` when running without protection.
        """
        return self._native.lease

    def do_not_store(self) -> None:
        """Does not store this answer: the next request with the key runs again."""
        self._native.do_not_store()

    def keep_for(self, seconds_kept: float) -> None:
        """Keeps this answer for so many seconds."""
        self._native.keep_for(seconds_kept)

    def made(self, resource: str) -> None:
        """Names what was made, for audits and operators."""
        self._native.made(resource)

    def step(
        self,
        name: str,
        work: Callable[[], T],
        *,
        input: Any = None,
        hold: Optional[bool] = None,
        dump: Dump = json.dumps,
        load: Load = json.loads,
    ) -> T:
        """Runs `work` once in this operation, whatever happens: an attempt after a crash gets its value.

        `input` is what the step depends on; an attempt that comes with another one is refused. With `hold` a
        step that may have taken effect when its process died is not run again. What `work` raises is raised
        here and not stored. Values and inputs are JSON: a step whose value is none has run, raises `NotKept`, and
        is not run again.
        """
        started = self._native.step(name, written(input), hold)
        return run(started, work, dump, load).value  # type: ignore[no-any-return]

    async def astep(
        self,
        name: str,
        work: Callable[[], Awaitable[T]],
        *,
        input: Any = None,
        hold: Optional[bool] = None,
        dump: Dump = json.dumps,
        load: Load = json.loads,
    ) -> T:
        """The same for a coroutine function."""
        given = written(input)
        ran = await arun(lambda wake: self._native.step(name, given, hold, wake), work, dump, load)
        return ran.value  # type: ignore[no-any-return]


_running: ContextVar[Optional[Execution]] = ContextVar("onlyonce.execution", default=None)


def execution() -> Execution:
    """The execution that the calling function or handler is part of."""
    found = _running.get()
    if found is None:
        raise _native.OnlyonceError("no keyed operation runs here")
    return found


@contextmanager
def running(native: Optional[_native.Execution]) -> Iterator[Optional[Execution]]:
    """Makes an execution the one that `execution()` gives."""
    inside = Execution(native) if native is not None else None
    token = _running.set(inside)
    try:
        yield inside
    finally:
        _running.reset(token)


def run(call: _native.Run, work: Callable[[], Any], dump: Dump, load: Load) -> Ran:
    """Takes the steps of a call on this thread."""
    raised: Optional[BaseException] = None
    while True:
        step = call.wait()
        if step[0] == "work":
            call.detach()
            raised = _work(step[1], step[2], work, dump)
            if raised is not None and not isinstance(raised, Exception):
                raise raised
        elif step[0] == "done":
            return Ran(load(step[1]), step[2])
        else:
            assert raised is not None
            raise raised


def _work(
    reply: _native.Work, native: _native.Execution, work: Callable[[], Any], dump: Dump
) -> Optional[BaseException]:
    try:
        with running(native):
            value = work()
    except BaseException as error:
        reply.raised(_shown(error))
        return error
    return _returned(reply, value, dump)


def _returned(reply: _native.Work, value: Any, dump: Dump) -> Optional[BaseException]:
    # What the function did is done: a value that cannot be written must not make it run again.
    try:
        reply.returned(dump(value))
    except BaseException as error:
        reply.unwritable(_shown(error))
        if not isinstance(error, Exception):
            return error
    return None


async def arun(
    start: Callable[[tuple[_native.Signal, int]], _native.Run],
    work: Callable[[], Awaitable[Any]],
    dump: Dump,
    load: Load,
) -> Ran:
    """Takes the steps of a call on this loop."""
    stepper = Stepper()
    call = start((stepper.watch.signal, stepper.number))
    driving = stepper.watch.spawn(_drive(stepper, call, work, dump, load))
    # A caller that is cancelled stops waiting; the function goes on, and its value is stored.
    return await asyncio.shield(driving)


async def _drive(
    stepper: Stepper, call: _native.Run, work: Callable[[], Awaitable[Any]], dump: Dump, load: Load
) -> Ran:
    working: Optional[asyncio.Task[Optional[BaseException]]] = None
    try:
        while True:
            step = await stepper.step(call.poll)
            if step[0] == "work":
                working = stepper.watch.spawn(_awork(step[1], step[2], work, dump))
                stop_when_abandoned(stepper, step[1], working)
            elif step[0] == "done":
                return Ran(load(step[1]), step[2])
            else:
                assert working is not None
                raised = await working
                assert raised is not None
                raise raised
    finally:
        stepper.close()


async def _awork(
    reply: _native.Work, native: _native.Execution, work: Callable[[], Awaitable[Any]], dump: Dump
) -> Optional[BaseException]:
    try:
        with running(native):
            value = await work()
    except BaseException as error:
        reply.raised(_shown(error))
        if isinstance(error, asyncio.CancelledError):
            raise
        return error
    return _returned(reply, value, dump)


def stop_when_abandoned(stepper: Stepper, reply: Union[_native.Work, _native.Reply], task: asyncio.Task[Any]) -> None:
    """Cancels a handler that is past its deadline."""
    watch, mine = stepper.watch, number()
    watch.call(mine, task.cancel)
    task.add_done_callback(lambda _: watch.forget(mine))
    reply.when_abandoned(watch.signal, mine)


def written(given: Any) -> str:
    """An input as JSON."""
    try:
        return json.dumps(given)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the input is not JSON ({error}): pass input=… and say what identifies the call") from error


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
