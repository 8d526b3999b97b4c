"""Run each keyed operation once, and give every retry the same answer."""

from ._engine import Engine
from ._execution import Execution, Ran, execution
from ._native import (
    FailedElsewhere,
    Forked,
    InProgress,
    KeyInvalid,
    Mismatch,
    NotKept,
    OnlyonceError,
    OpenError,
    OutcomeUnknown,
    QueueFailed,
    Refused,
    SendFailed,
    Unavailable,
)
from .asgi import IdempotencyMiddleware
from .client import Answer, Client, Entry, Queue, Queued, Request, new_key
from .wsgi import WSGIMiddleware

__all__ = [
    "Answer",
    "Client",
    "Engine",
    "Entry",
    "Execution",
    "FailedElsewhere",
    "Forked",
    "IdempotencyMiddleware",
    "InProgress",
    "KeyInvalid",
    "Mismatch",
    "NotKept",
    "OnlyonceError",
    "OpenError",
    "OutcomeUnknown",
    "Queue",
    "QueueFailed",
    "Queued",
    "Ran",
    "Refused",
    "Request",
    "SendFailed",
    "Unavailable",
    "WSGIMiddleware",
    "execution",
    "new_key",
]
