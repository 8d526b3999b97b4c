"""A layer for one process: opened when it is first needed, and again after a fork."""

from __future__ import annotations

import os
import threading
from typing import Optional, Union

from . import _native
from ._engine import Engine


class Site:
    """Settings of the layer; the engine may be a URL, opened once per process."""

    def __init__(
        self,
        engine: Union[Engine, str],
        profile: Optional[str],
        rules: Optional[str],
        route: Optional[str],
    ) -> None:
        self._engine = engine
        self._settings = (profile, rules, route)
        self._site: Optional[_native.Site] = None
        self._process = 0
        self._lock = threading.Lock()
        if isinstance(engine, Engine):
            # Wrong settings are told where they are written, not with the first request.
            self.get()

    def get(self) -> _native.Site:
        if self._site is not None and self._process == os.getpid():
            return self._site
        if self._site is not None and not isinstance(self._engine, str):
            self._engine._native.check()
        if self._process not in (0, os.getpid()):
            self._lock = threading.Lock()
        with self._lock:
            if self._site is None or self._process != os.getpid():
                engine = self._engine
                opened = Engine.open(engine) if isinstance(engine, str) else engine
                self._site = opened._native.site(*self._settings)
                self._process = os.getpid()
            return self._site
