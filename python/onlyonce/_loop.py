"""How an event loop learns that a step can be taken: one watched socket per loop."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Coroutine
from typing import Any, Callable, Optional

from ._native import Signal

_numbers = itertools.count(1)


class Watch:
    """Calls back, on its loop, whoever was woken by a thread of the engine.

    It must not refer to its loop, which owns it.
    """

    def __init__(self) -> None:
        self.signal = Signal()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def drained(self) -> None:
        for number in self.signal.drain():
            callback = self._callbacks.get(number)
            if callback is not None:
                callback()

    def call(self, number: int, callback: Callable[[], object]) -> None:
        self._callbacks[number] = callback

    def forget(self, number: int) -> None:
        self._callbacks.pop(number, None)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a task that nobody has to wait for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


_watches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Watch] = weakref.WeakKeyDictionary()


def watch() -> Watch:
    """The watch of the running loop."""
    loop = asyncio.get_running_loop()
    found = _watches.get(loop)
    if found is None:
        found = Watch()
        loop.add_reader(found.signal.fileno(), found.drained)
        _watches[loop] = found
    return found


def number() -> int:
    return next(_numbers)


class Stepper:
    """Takes the steps of one exchange or run, one at a time."""

    def __init__(self) -> None:
        self.watch = watch()
        self.number = number()
        self._woken: Optional[asyncio.Future[None]] = None
        self._is_woken = False
        self.watch.call(self.number, self._wake)

    def _wake(self) -> None:
        self._is_woken = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def step(self, poll: Callable[[], Optional[tuple[Any, ...]]]) -> tuple[Any, ...]:
        while True:
            self._is_woken = False
            step = poll()
            if step is not None:
                return step
            if not self._is_woken:
                self._woken = asyncio.get_running_loop().create_future()
                try:
                    await self._woken
                finally:
                    self._woken = None

    def close(self) -> None:
        self.watch.forget(self.number)
