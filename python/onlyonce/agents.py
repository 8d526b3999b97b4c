"""Tools of agent frameworks that run once per run and tool call.

An agent that is retried, resumed or dispatched twice calls its tools again. Each adapter here gives a
framework's tool call a key, and the engine does the rest: the first call runs, every repetition gets its
result, and the same key with other arguments is refused in words for the model.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import secrets
from typing import TYPE_CHECKING, Any, Awaitable, Callable, NamedTuple, Optional, Union
from urllib.parse import quote

from . import _native
from ._engine import Engine, _Call
from ._execution import execution

if TYPE_CHECKING:
    from agents import FunctionTool
    from agents.tool_context import ToolContext
    from fastmcp.server.middleware import Middleware
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from pydantic_ai import RunContext
    from pydantic_ai.toolsets import AbstractToolset, WrapperToolset

__all__ = ["LangGraph", "ToolCall", "by_arguments", "by_call", "fastmcp", "openai_agents", "pydantic_ai"]

_KEY_LENGTH_MAX = 200
# What a stored result has in the place of its tool call's id.
_THIS_CALL = "onlyonce/this-call"


class ToolCall(NamedTuple):
    """One call of a tool, as a key is made from it."""

    run: str
    tool: str
    id: Optional[str]
    arguments: Any


Key = Callable[[ToolCall], str]


def by_call(call: ToolCall) -> str:
    """The run's and the tool call's identity: for agents that resume with the messages they had."""
    if not call.id:
        raise ValueError(f"the call of {call.tool} has no id: use key=by_arguments, or a function of your own")
    return _joined("call", call.run, call.id)


def by_arguments(call: ToolCall) -> str:
    """The run's identity and the arguments: for agents that ask the model again, which makes new call ids.

    Two calls of one tool with equal arguments in one run are one call then.
    """
    written = json.dumps(call.arguments, sort_keys=True, default=str)
    return _joined("arguments", call.run, hashlib.sha256(written.encode()).hexdigest())


class LangGraph:
    """The wrappers that a LangGraph `ToolNode` takes: `ToolNode(tools, **LangGraph(engine).wrappers)`.

    The run is the thread (`configurable.thread_id`), so that a tool call that is resumed from a
    checkpoint, or dispatched again while it runs, meets its first execution.
    """

    def __init__(self, engine: Engine, *, key: Key = by_call, run: Optional[str] = None, **settings: Any) -> None:
        self._tools = _Tools(engine, key, settings, _dump_message, _load_message, _langgraph_pauses)
        self._run = run
        # A tool that failed may have taken effect: then its error is what every repetition gets.
        self._keeps_errors = bool(settings.get("hold", False))

    @property
    def wrappers(self) -> dict[str, Any]:
        """What `ToolNode` and an agent's middleware call around each tool call."""
        return {"wrap_tool_call": self.wrap_tool_call, "awrap_tool_call": self.awrap_tool_call}

    def wrap_tool_call(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
        """Runs the tool call, or gives what its first execution gave."""
        call = self._call(request)

        def work() -> Any:
            return self._result(execute(request), call)

        return _for_call(self._tools.run(call, work, lambda text: _tool_error(call, text)), call)

    async def awrap_tool_call(
        self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """The same for a graph that is awaited."""
        call = self._call(request)

        async def work() -> Any:
            return self._result(await execute(request), call)

        return _for_call(await self._tools.arun(call, work, lambda text: _tool_error(call, text)), call)

    def _result(self, result: Any, call: ToolCall) -> Any:
        """As it is stored. `handle_tool_errors` makes messages of failures, which are still not stored."""
        if not self._keeps_errors and _is_error(result):
            execution().do_not_store()
        return _renamed(result, call.id, _THIS_CALL)

    def _call(self, request: ToolCallRequest) -> ToolCall:
        run = self._run
        if run is None:
            run = (request.runtime.config.get("configurable") or {}).get("thread_id")
        if not run:
            raise ValueError("the graph runs without a thread: pass run=…, or thread_id in its config")
        made = request.tool_call
        return ToolCall(str(run), made["name"], made.get("id"), made["args"])


def openai_agents(
    engine: Engine,
    tool: FunctionTool,
    *,
    run: Union[str, Callable[[ToolContext[Any]], str]],
    key: Key = by_call,
    **settings: Any,
) -> FunctionTool:
    """A tool of the OpenAI Agents SDK that runs once: `tools=[openai_agents(engine, charge, run="order-7")]`.

    `run` says which intention this is; a function gets the tool's context. What the tool answers to a
    failure of its own is an answer, and stored.
    """
    tools = _Tools(engine, key, settings, _dump_json, json.loads)
    invoke = tool.on_invoke_tool

    async def on_invoke_tool(context: ToolContext[Any], arguments: str) -> Any:
        identity = run if isinstance(run, str) else run(context)
        call = ToolCall(identity, tool.name, context.tool_call_id, _parsed(arguments))
        return await tools.arun(call, lambda: invoke(context, arguments), str)

    return dataclasses.replace(tool, on_invoke_tool=on_invoke_tool)


def pydantic_ai(
    engine: Engine,
    toolset: AbstractToolset[Any],
    *,
    run: Union[str, Callable[[RunContext[Any]], str]],
    key: Key = by_call,
    **settings: Any,
) -> WrapperToolset[Any]:
    """A toolset of pydantic-ai whose tools run once: `toolsets=[pydantic_ai(engine, toolset, run="order-7")]`.

    Values come back as JSON gives them. `ModelRetry` and other exceptions are not stored. A call that needs
    approval, or is deferred, has not run: it runs when it is resumed.
    """
    from pydantic_ai.toolsets import WrapperToolset
    from pydantic_ai.toolsets.abstract import ToolsetTool

    tools = _Tools(engine, key, settings, _dump_return, _load_return, _pydantic_pauses)

    class OnceToolset(WrapperToolset[Any]):
        async def call_tool(
            self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
        ) -> Any:
            identity = run if isinstance(run, str) else run(ctx)
            call = ToolCall(identity, name, ctx.tool_call_id, tool_args)
            return await tools.arun(call, lambda: self.wrapped.call_tool(name, tool_args, ctx, tool), str)

    return OnceToolset(toolset)


def fastmcp(
    engine: Engine, *, caller: Optional[Callable[[], str]] = None, required: bool = False, **settings: Any
) -> Middleware:
    """Middleware for a FastMCP server: `FastMCP("shop", middleware=[fastmcp(engine)])`.

    The key is `idempotencyKey` in the call's `_meta`, as `onlyonce mcp` reads it; a call without one runs
    as usual, or is an error where `required`. Callers are told apart by their access token; `caller` says
    who calls where a server has another way to know.
    """
    from fastmcp.exceptions import ToolError
    from fastmcp.server.middleware import Middleware

    tools = _Tools(engine, _given, settings, _dump_json, _load_tool_result)
    whose = caller or _token_of_caller

    class Once(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            message = context.message
            given = _meta_of(context).get("idempotencyKey")
            if given is None and not required:
                return await call_next(context)
            if not isinstance(given, str) or not given:
                raise ToolError("this call needs a key: a text as idempotencyKey in its _meta")
            call = ToolCall(whose(), message.name, given, message.arguments)

            def refused(text: str) -> Any:
                raise ToolError(text)

            return await tools.arun(call, lambda: call_next(context), refused)

    return Once()


class _Tools:
    """The tool calls of one adapter: their keys, their settings, and how their results are written."""

    def __init__(
        self,
        engine: Engine,
        key: Key,
        settings: dict[str, Any],
        dump: Callable[[Any], str],
        load: Callable[[str], Any],
        pauses: Callable[[], tuple[type[BaseException], ...]] = tuple,
    ) -> None:
        unknown = set(settings) - {"hold", "keep_for", "timeout", "lease"}
        if unknown:
            raise TypeError(f"no such setting: {', '.join(sorted(unknown))} (hold, keep_for, timeout, lease)")
        self._engine = engine
        self._key = key
        self._settings = settings
        self._dump = dump
        self._load = load
        self._pauses = pauses

    def run(self, call: ToolCall, work: Callable[[], Any], refused: Callable[[str], Any]) -> Any:
        paused: list[BaseException] = []

        def attempt() -> Any:
            try:
                return work()
            except self._pauses() as pause:
                return _pause(pause, paused)

        while True:
            try:
                value = self._job(call).run(self._key(call), call.arguments, attempt).value
            except _native.Refused as error:
                return refused(_in_words(call, error))
            if paused:
                raise paused[0]
            if value is not _PAUSED:
                return value

    async def arun(self, call: ToolCall, work: Callable[[], Awaitable[Any]], refused: Callable[[str], Any]) -> Any:
        paused: list[BaseException] = []

        async def attempt() -> Any:
            try:
                return await work()
            except self._pauses() as pause:
                return _pause(pause, paused)

        while True:
            try:
                value = (await self._job(call).arun(self._key(call), call.arguments, attempt)).value
            except _native.Refused as error:
                return refused(_in_words(call, error))
            if paused:
                raise paused[0]
            if value is not _PAUSED:
                return value

    def _job(self, call: ToolCall) -> _Call:
        given = self._settings
        job = self._engine._native.job(
            f"tool:{call.tool}",
            bool(given.get("hold", False)),
            given.get("keep_for"),
            given.get("timeout"),
            given.get("lease"),
        )
        return _Call(job, self._written, self._read)

    def _written(self, value: Any) -> str:
        return _PAUSED_JSON if value is _PAUSED else self._dump(value)

    def _read(self, text: str) -> Any:
        return _PAUSED if text == _PAUSED_JSON else self._load(text)


# In the place of a value where a tool call was put off: a duplicate that waited for it in this process sees it too, and
# tries for itself. It is never stored, so that another process never sees it.
_PAUSED = object()
_PAUSED_JSON = json.dumps(f"onlyonce/paused {secrets.token_hex(16)}")


def _pause(pause: BaseException, paused: list[BaseException]) -> Any:
    """Puts a call off until a person has approved it or a result is there: it has not run, and its key stays free."""
    execution().do_not_store()
    paused.append(pause)
    return _PAUSED


def _langgraph_pauses() -> tuple[type[BaseException], ...]:
    from langgraph.errors import GraphBubbleUp

    return (GraphBubbleUp,)


def _pydantic_pauses() -> tuple[type[BaseException], ...]:
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred

    return (ApprovalRequired, CallDeferred)


def _in_words(call: ToolCall, error: _native.Refused) -> str:
    """What the model reads instead of a result. A store that fails is an error of the run, not an answer."""
    if isinstance(error, _native.Mismatch):
        return (
            f"{call.tool} was not run: this call was already made with other arguments. Its first result stands. "
            "Make a new call if you really want both."
        )
    if isinstance(error, _native.OutcomeUnknown):
        return (
            f"{call.tool} was not run again: an earlier attempt was cut off, and whether it took effect is unknown. "
            "Do not repeat it; ask a person to check."
        )
    if isinstance(error, _native.InProgress):
        return f"{call.tool} was not run a second time: the first attempt is still running."
    raise error


def _joined(*parts: str) -> str:
    """Parts that never run into each other, short enough to be a key."""
    text = "/".join(quote(part, safe="") for part in parts)
    if len(text) <= _KEY_LENGTH_MAX:
        return text
    return f"digest/{hashlib.sha256(text.encode()).hexdigest()}"


def _given(call: ToolCall) -> str:
    return _joined("given", call.run, call.id or "")


def _meta_of(context: Any) -> dict[str, Any]:
    """The `_meta` of the request: FastMCP keeps it with the request, not with the message."""
    request = context.fastmcp_context.request_context if context.fastmcp_context is not None else None
    return dict((request.meta if request is not None else None) or context.message.meta or {})


def _token_of_caller() -> str:
    from fastmcp.server.dependencies import get_access_token

    token = get_access_token()
    if token is None:
        return "anonymous"
    # Who it was issued to, not the token: a refreshed one is the same caller.
    subject = (getattr(token, "claims", None) or {}).get("sub")
    return _joined("token", token.client_id or "", str(subject or ""))


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments


def _dump_json(value: Any) -> str:
    from pydantic_core import to_json

    # A result that cannot be written must not undo that the tool ran: the rest is kept as text.
    return to_json(value, fallback=str, by_alias=True).decode()


def _load_tool_result(text: str) -> Any:
    from fastmcp.tools.base import ToolResult
    from mcp.types import ContentBlock
    from pydantic import TypeAdapter

    stored = json.loads(text)
    stored["content"] = TypeAdapter(list[ContentBlock]).validate_python(stored["content"])
    return ToolResult(**stored)


def _dump_return(value: Any) -> str:
    from pydantic_ai import ToolReturn

    kind = "return" if isinstance(value, ToolReturn) else "value"
    return json.dumps({"kind": kind, "value": json.loads(_dump_json(value))})


def _load_return(text: str) -> Any:
    from pydantic import TypeAdapter
    from pydantic_ai import ToolReturn

    stored = json.loads(text)
    if stored["kind"] == "return":
        return TypeAdapter(ToolReturn).validate_python(stored["value"])
    return stored["value"]


def _dump_message(value: Any) -> str:
    """As LangGraph's own checkpoints keep it. An artifact that cannot be written is left out."""
    from langchain_core.messages import ToolMessage
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    serializer = JsonPlusSerializer()
    try:
        kind, data = serializer.dumps_typed(value)
    except Exception:
        if not isinstance(value, ToolMessage):
            raise
        kind, data = serializer.dumps_typed(value.model_copy(update={"artifact": None}))
    return json.dumps([kind, base64.b64encode(data).decode()])


def _load_message(text: str) -> Any:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    kind, data = json.loads(text)
    return JsonPlusSerializer().loads_typed((kind, base64.b64decode(data)))


def _tool_error(call: ToolCall, text: str) -> Any:
    from langchain_core.messages import ToolMessage

    return ToolMessage(content=text, name=call.tool, tool_call_id=call.id or "", status="error")


def _is_error(result: Any) -> bool:
    from langchain_core.messages import ToolMessage

    return isinstance(result, ToolMessage) and result.status == "error"


def _for_call(result: Any, call: ToolCall) -> Any:
    """A replayed result answers the call that asks, also where its key is not the call's id."""
    from langchain_core.messages import ToolMessage

    if isinstance(result, ToolMessage) and call.id:
        # Whichever id it was stored with.
        return result.model_copy(update={"tool_call_id": call.id})
    return _renamed(result, _THIS_CALL, call.id)


def _renamed(value: Any, old: Optional[str], new: Optional[str]) -> Any:
    """The same with another id of its tool call, also in the messages of a `Command`, wherever it goes."""
    from langchain_core.messages import ToolMessage
    from langgraph.types import Command, Send

    if not old or not new:
        return value
    if isinstance(value, ToolMessage):
        return value.model_copy(update={"tool_call_id": new}) if value.tool_call_id == old else value
    if isinstance(value, Command):
        return dataclasses.replace(value, update=_renamed(value.update, old, new), goto=_renamed(value.goto, old, new))
    if isinstance(value, Send):
        return Send(value.node, _renamed(value.arg, old, new))
    if isinstance(value, dict):
        return {name: _renamed(one, old, new) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_renamed(one, old, new) for one in value)
    return value
