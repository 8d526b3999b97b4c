"""Run each keyed operation once, and give every retry the same answer."""

from ._engine import Engine, Ran
from ._native import (
    Execution,
    FailedElsewhere,
    Forked,
    InProgress,
    KeyInvalid,
    Mismatch,
    OnlyonceError,
    OpenError,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from .asgi import IdempotencyMiddleware
from .wsgi import WSGIMiddleware

__all__ = [
    "Engine",
    "Execution",
    "FailedElsewhere",
    "Forked",
    "IdempotencyMiddleware",
    "InProgress",
    "KeyInvalid",
    "Mismatch",
    "OnlyonceError",
    "OpenError",
    "OutcomeUnknown",
    "Ran",
    "Refused",
    "Unavailable",
    "WSGIMiddleware",
]
