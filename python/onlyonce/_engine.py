"""The engine, and functions that run once per key."""

from __future__ import annotations

import atexit
import functools
import inspect
import json
import logging
import os
import sys
import threading
from typing import Any, Awaitable, Callable, Generic, Optional, TypeVar, Union

from . import _native
from ._execution import Ran, arun, run, written

T = TypeVar("T")
Key = Union[str, Callable[..., str]]

log = logging.getLogger("onlyonce")
_DRAIN_SECONDS = 10.0


class Engine:
    """Runs keyed operations once.

    An engine lives until it is closed or the process ends: then it waits for what is not stored yet.
    """

    def __init__(self, native: _native.Engine) -> None:
        self._native = native

    @classmethod
    def open(cls, url: str, *, namespace: Optional[str] = None, instance: Optional[str] = None) -> Engine:
        """Opens the store at `url`: `memory:`, `file:PATH`, `sqlite:PATH`, `redis://`, `postgres://`, `mysql://`."""
        _lifetime.start_log()
        engine = cls(_native.Engine(url, namespace, instance))
        _lifetime.opened(engine)
        return engine

    def close(self, grace: float = _DRAIN_SECONDS) -> int:
        """Takes no more calls and waits for those that run, at most `grace` seconds.

        Returns how many were still running then.
        """
        _lifetime.closed(self)
        return self._native.close(grace)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def metrics(self) -> str:
        """Everything it has counted, as Prometheus reads it."""
        return self._native.metrics()

    @property
    def in_flight(self) -> int:
        """How many calls run or wait in this process."""
        return self._native.in_flight()

    def run(self, key: str, work: Callable[[], T], *, input: Any = None, name: str = "") -> Ran:
        """Runs `work` once for `key`; every repetition gets the same value.

        The same key with another `input` is refused. Values and inputs are JSON.
        """
        call = _Call(self._native.job(name, False, None, None, None), json.dumps, json.loads)
        return call.run(key, input, work)

    async def arun(self, key: str, work: Callable[[], Awaitable[T]], *, input: Any = None, name: str = "") -> Ran:
        """The same for a coroutine function."""
        call = _Call(self._native.job(name, False, None, None, None), json.dumps, json.loads)
        return await call.arun(key, input, work)

    def once(
        self,
        key: Key,
        *,
        name: Optional[str] = None,
        hold: bool = False,
        keep_for: Optional[float] = None,
        timeout: Optional[float] = None,
        lease: Optional[float] = None,
        input: Optional[Callable[..., Any]] = None,
        dump: Callable[[Any], str] = json.dumps,
        load: Callable[[str], Any] = json.loads,
    ) -> Callable[[Callable[..., T]], Once[T]]:
        """Makes a function run once per key; works on `def` and `async def`.

        `key` is a template over the arguments (`"{order_id}"`) or a function of them. The same key with
        other arguments is refused; `input` says what counts instead of all of them. `hold` never runs a
        call again that may have taken effect when its process died. `keep_for`, `timeout` and `lease` are
        seconds. `dump` and `load` turn values into JSON and back.
        """

        def decorate(function: Callable[..., T]) -> Once[T]:
            job_name = name if name is not None else f"{function.__module__}.{function.__qualname__}"

            def call() -> _Call:
                job = self._native.job(job_name, hold, keep_for, timeout, lease)
                return _Call(job, dump, load)

            return Once(function, key, input, call)

        return decorate


class Once(Generic[T]):
    """A function that runs once per key. `ran` also tells whether the value is an earlier one."""

    def __init__(
        self,
        function: Callable[..., T],
        key: Key,
        input: Optional[Callable[..., Any]],
        call: Callable[[], _Call],
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._signature = inspect.signature(function)
        self._key = key
        self._input = input
        self._call = call
        self._is_async = inspect.iscoroutinefunction(function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method's `self` is not part of its input."""
        if instance is None:
            return self
        bound = Once.__new__(Once)
        bound.__dict__.update(self.__dict__)
        bound._function = self._function.__get__(instance, owner)
        bound._signature = inspect.signature(bound._function)
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        ran = self.ran(*args, **kwargs)
        if self._is_async:
            return _value(ran)  # type: ignore[return-value]
        return ran.value  # type: ignore[no-any-return]

    def ran(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it; gives a `Ran`, or an awaitable of one for `async def`."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if isinstance(self._key, str):
            key = self._key.format(**bound.arguments)
        else:
            key = self._key(*args, **kwargs)
        given = self._input(*args, **kwargs) if self._input is not None else dict(bound.arguments)
        work = functools.partial(self._function, *args, **kwargs)
        call = self._call()
        if self._is_async:
            return call.arun(key, given, work)  # type: ignore[arg-type]
        return call.run(key, given, work)


async def _value(ran: Awaitable[Ran]) -> Any:
    return (await ran).value


class _Call:
    """One job with how its values are written."""

    def __init__(self, job: _native.Job, dump: Callable[[Any], str], load: Callable[[str], Any]) -> None:
        self._job = job
        self._dump = dump
        self._load = load

    def run(self, key: str, given: Any, work: Callable[[], Any]) -> Ran:
        return run(self._job.run(key, written(given)), work, self._dump, self._load)

    async def arun(self, key: str, given: Any, work: Callable[[], Awaitable[Any]]) -> Ran:
        input = written(given)
        return await arun(lambda wake: self._job.run(key, input, wake), work, self._dump, self._load)


class _Lifetime:
    """What ends with the process: the thread that writes the log, and every open engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: set[Engine] = set()
        self._queue: Optional[_native.LogQueue] = None
        self._thread: Optional[threading.Thread] = None
        self._process = 0
        self._finalized_in = 0

    def start_log(self) -> None:
        with self._lock:
            if self._process == os.getpid():
                return
            self._process = os.getpid()
            self._queue = _native.log_to(log.getEffectiveLevel())
            self._thread = threading.Thread(target=_write_log, args=(self._queue,), name="onlyonce-log", daemon=True)
            self._thread.start()

    def opened(self, engine: Engine) -> None:
        with self._lock:
            self._engines.add(engine)
            if self._finalized_in != os.getpid():
                self._finalized_in = os.getpid()
                self._end_with_multiprocessing()

    def _end_with_multiprocessing(self) -> None:
        """A child of `multiprocessing` ends by `os._exit`, after finalizers of its own instead of `atexit`."""
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:
            from multiprocessing.util import Finalize

            Finalize(None, self.end, exitpriority=10)

    def closed(self, engine: Engine) -> None:
        with self._lock:
            self._engines.discard(engine)

    def end(self) -> None:
        """Waits for what is not stored yet, and says what is lost."""
        for engine in list(self._engines):
            try:
                left = engine.close()
            except _native.OnlyonceError:
                continue  # A child after a fork has nothing to wait for.
            if left:
                log.error("%d calls were still running when the process ended", left)
        if self._queue is not None and self._thread is not None and self._process == os.getpid():
            self._queue.close()
            self._thread.join(timeout=5)


def _write_log(queue: _native.LogQueue) -> None:
    while True:
        lines = queue.take()
        if lines is None:
            return
        for level, text in lines:
            log.log(level, "%s", text)


_lifetime = _Lifetime()
start_log = _lifetime.start_log
atexit.register(_lifetime.end)


def _after_fork() -> None:
    """Another thread may have held the lock when the process forked."""
    _lifetime._lock = threading.Lock()
    _lifetime._engines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
