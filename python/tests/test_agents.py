"""Published failures of agent frameworks, with scripted models: reproduced without the adapters, gone with them."""

import asyncio
import itertools
import json
import threading

import pytest

from onlyonce import Engine, agents


@pytest.fixture
def engine():
    with Engine.open("memory:") as engine:
        yield engine


class Ledger:
    """Counts effects."""

    def __init__(self):
        self.charges = []

    def charge(self, cents):
        self.charges.append(cents)
        return f"charge {len(self.charges)} of {cents}"


# LangGraph


def graph_of(ledger, wrappers, *, then=lambda: None, slow=None, number=lambda: 1):
    """One node that asks for a charge, one that runs the tool, one that may fail; with a checkpointer."""
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    @tool
    def charge(cents: int) -> str:
        """Charges a card."""
        if slow is not None:
            slow()
        said = ledger.charge(cents)
        then()
        return said

    def model(state):
        call = {"name": "charge", "args": {"cents": 500}, "id": f"call-{number()}"}
        return {"messages": [AIMessage(content="", tool_calls=[call])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([charge], handle_tool_errors=False, **wrappers))
    graph.add_edge(START, "model")
    graph.add_edge("model", "tools")
    graph.add_edge("tools", END)
    return graph.compile(checkpointer=InMemorySaver())


def dispatched_twice(graph, arrived):
    """A long tool call that the platform dispatches again from its checkpoint (langgraph #7417)."""
    config = {"configurable": {"thread_id": "order-7"}}
    for _ in graph.stream({"messages": [("user", "charge")]}, config, interrupt_before=["tools"]):
        pass
    answers = []

    def resume():
        answers.append(graph.invoke(None, config)["messages"][-1].content)

    threads = [threading.Thread(target=resume) for _ in range(2)]
    for thread in threads:
        thread.start()
    arrived.wait(60)
    for thread in threads:
        thread.join()
    return answers


def test_langgraph_dispatches_a_long_tool_call_twice(engine):
    plain, both = Ledger(), threading.Barrier(2)
    arrived = threading.Event()

    def slow():
        both.wait(60)
        arrived.set()

    dispatched_twice(graph_of(plain, {}, slow=slow), arrived)
    assert len(plain.charges) == 2, "without the adapter both dispatches charge"

    once, begun = Ledger(), threading.Event()

    def begin():
        begun.set()
        threading.Event().wait(0.3)

    answers = dispatched_twice(graph_of(once, agents.LangGraph(engine).wrappers, slow=begin), begun)

    assert once.charges == [500]
    assert answers == ["charge 1 of 500"] * 2


def test_langgraph_resumes_a_node_that_was_cut_off_after_its_effect(engine):
    for wrappers, effects in [({}, 2), (agents.LangGraph(engine, hold=True).wrappers, 1)]:
        ledger = Ledger()
        cut = itertools.chain([True], itertools.repeat(False))

        def then(cut=cut):
            if next(cut):
                raise SystemError("the process dies here")

        graph = graph_of(ledger, wrappers, then=then)
        config = {"configurable": {"thread_id": "order-8"}}
        with pytest.raises(SystemError):
            graph.invoke({"messages": [("user", "charge")]}, config)
        last = graph.invoke(None, config)["messages"][-1]

        assert len(ledger.charges) == effects
        if wrappers:
            assert last.status == "error"
            assert "unknown" in last.content


def test_langgraph_awaits_and_answers_the_call_that_asks(engine):
    ledger, numbers = Ledger(), itertools.count(1)
    wrappers = agents.LangGraph(engine, key=agents.by_arguments).wrappers
    graph = graph_of(ledger, wrappers, number=lambda: next(numbers))
    config = {"configurable": {"thread_id": "order-9"}}

    async def twice():
        question = {"messages": [("user", "charge")]}
        return [(await graph.ainvoke(question, config))["messages"][-1] for _ in range(2)]

    first, again = asyncio.run(twice())

    assert ledger.charges == [500]
    assert first.content == again.content
    assert (first.tool_call_id, again.tool_call_id) == ("call-1", "call-2")


def test_a_graph_without_a_thread_is_told_what_it_needs(engine):
    graph = graph_of(Ledger(), agents.LangGraph(engine).wrappers)
    graph.checkpointer = None

    with pytest.raises(ValueError, match="thread_id"):
        graph.invoke({"messages": [("user", "charge")]})


def paused_graph(engine, tool, **settings):
    """A graph whose tool has two ids of one call, one after the other."""
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    ids, handled = itertools.count(1), settings.pop("handle_tool_errors", False)

    def model(state):
        call = {"name": tool.name, "args": {"cents": 500}, "id": f"call-{next(ids)}"}
        return {"messages": [AIMessage(content="", tool_calls=[call])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    wrappers = agents.LangGraph(engine, **settings).wrappers
    graph.add_node("tools", ToolNode([tool], handle_tool_errors=handled, **wrappers))
    graph.add_edge(START, "model")
    graph.add_edge("model", "tools")
    graph.add_edge("tools", END)
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("hold", [False, True])
def test_a_langgraph_tool_runs_once_a_person_has_approved_it(engine, hold, is_async):
    from langchain_core.tools import tool
    from langgraph.types import Command, interrupt

    ledger = Ledger()

    @tool
    def charge(cents: int) -> str:
        """Charges a card."""
        return ledger.charge(cents) if interrupt("charge?") == "yes" else "no"

    graph = paused_graph(engine, charge, hold=hold)
    config = {"configurable": {"thread_id": f"approved-{hold}-{is_async}"}}

    def invoke(given):
        return asyncio.run(graph.ainvoke(given, config)) if is_async else graph.invoke(given, config)

    asked = invoke({"messages": [("user", "charge")]})
    approved = invoke(Command(resume="yes"))

    assert [it.value for it in asked["__interrupt__"]] == ["charge?"]
    assert ledger.charges == [500]
    assert approved["messages"][-1].content == "charge 1 of 500"


def test_a_duplicate_of_a_call_that_waits_for_approval_waits_for_it_too(engine):
    from langchain_core.tools import tool
    from langgraph.types import Command, interrupt

    ledger, asks = Ledger(), []

    @tool
    def charge(cents: int) -> str:
        """Charges a card."""
        asks.append(cents)
        threading.Event().wait(0.2)
        return ledger.charge(cents) if interrupt("charge?") == "yes" else "no"

    graph = paused_graph(engine, charge, hold=True)
    config = {"configurable": {"thread_id": "approved-twice"}}
    for _ in graph.stream({"messages": [("user", "charge")]}, config, interrupt_before=["tools"]):
        pass
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(graph.invoke(None, config))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(answers) == 2 and all("__interrupt__" in answer for answer in answers)
    assert (len(asks), ledger.charges) == (2, [])
    assert graph.invoke(Command(resume="yes"), config)["messages"][-1].content == "charge 1 of 500"
    assert ledger.charges == [500]


@pytest.mark.parametrize("hold", [False, True])
def test_an_error_that_langgraph_made_a_message_of_is_stored_only_where_calls_are_held(engine, hold):
    from langchain_core.tools import tool

    tries = []

    @tool
    def charge(cents: int) -> str:
        """Charges a card."""
        tries.append(cents)
        if len(tries) == 1:
            raise ConnectionError("the bank is away")
        return "charged"

    graph = paused_graph(engine, charge, hold=hold, handle_tool_errors=True, key=agents.by_arguments)
    config = {"configurable": {"thread_id": f"handled-{hold}"}}
    asked = {"messages": [("user", "charge")]}
    first, again = (graph.invoke(asked, config)["messages"][-1] for _ in range(2))

    assert (first.status, again.status) == ("error", "error" if hold else "success")
    assert len(tries) == (1 if hold else 2)
    assert (first.tool_call_id, again.tool_call_id) == ("call-1", "call-2")


def test_a_command_that_is_replayed_answers_the_call_that_asks(engine):
    from typing import Annotated

    from langchain_core.messages import ToolMessage
    from langchain_core.tools import InjectedToolCallId, tool
    from langgraph.types import Command

    ledger = Ledger()

    @tool
    def charge(cents: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
        """Charges a card."""
        return Command(update={"messages": [ToolMessage(ledger.charge(cents), tool_call_id=tool_call_id)]})

    graph = paused_graph(engine, charge, key=agents.by_arguments)
    config = {"configurable": {"thread_id": "command"}}
    asked = {"messages": [("user", "charge")]}
    first, again = (graph.invoke(asked, config)["messages"][-1] for _ in range(2))

    assert ledger.charges == [500]
    assert first.content == again.content == "charge 1 of 500"
    assert (first.tool_call_id, again.tool_call_id) == ("call-1", "call-2")


# OpenAI Agents SDK


def openai_run(ledger, wrap, ids):
    """A run whose second model call fails, so that its caller starts it again (agno #10366, crewAI #5802)."""
    from agents import Agent, ModelResponse, RunConfig, Runner, Usage, function_tool
    from agents.models.interface import Model
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        def __init__(self):
            self.turns = iter(["call", "fail", "call", "say"])

        async def get_response(self, *args, **kwargs):
            turn = next(self.turns)
            if turn == "fail":
                raise ConnectionError("500 from the model")
            if turn == "call":
                made = ResponseFunctionToolCall(
                    arguments=json.dumps({"cents": 500}), call_id=next(ids), name="charge", type="function_call"
                )
                return ModelResponse(output=[made], usage=Usage(), response_id=None)
            text = ResponseOutputText(annotations=[], text="done", type="output_text")
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *args, **kwargs):
            raise NotImplementedError

    @function_tool
    def charge(cents: int) -> str:
        """Charges a card."""
        return ledger.charge(cents)

    agent = Agent(name="clerk", model=Scripted(), tools=[wrap(charge)])
    quiet = RunConfig(tracing_disabled=True)
    with pytest.raises(ConnectionError):
        Runner.run_sync(agent, "charge the card", run_config=quiet)
    return Runner.run_sync(agent, "charge the card", run_config=quiet)


@pytest.mark.parametrize("new_ids", [False, True])
def test_a_retried_run_of_openai_agents_charges_once(engine, new_ids):
    def ids():
        return iter(["c1", "c2"]) if new_ids else itertools.repeat("c1")

    plain, once = Ledger(), Ledger()
    openai_run(plain, lambda tool: tool, ids())
    assert len(plain.charges) == 2, "without the adapter the retry charges again"

    key = agents.by_arguments if new_ids else agents.by_call
    result = openai_run(once, lambda tool: agents.openai_agents(engine, tool, run=f"order-7-{new_ids}", key=key), ids())

    assert once.charges == [500]
    assert result.final_output == "done"


# pydantic-ai


def pydantic_run(ledger, wrap, calls):
    """A model that dispatches these calls at once (claude-code #36149: one call, two ids)."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.toolsets import FunctionToolset

    def model(messages, info):
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("charge", arguments, id) for id, arguments in calls])
        return ModelResponse(parts=[TextPart("; ".join(str(part.content) for part in messages[-1].parts))])

    toolset = FunctionToolset()

    @toolset.tool_plain
    async def charge(cents: int) -> str:
        await asyncio.sleep(0)
        return ledger.charge(cents)

    return Agent(FunctionModel(model), toolsets=[wrap(toolset)]).run_sync("charge").output


def test_a_tool_call_that_is_dispatched_under_two_ids_charges_once(engine):
    twice = [("c1", {"cents": 500}), ("c2", {"cents": 500})]
    plain, once = Ledger(), Ledger()
    pydantic_run(plain, lambda toolset: toolset, twice)
    assert len(plain.charges) == 2, "without the adapter both dispatches charge"

    said = pydantic_run(
        once, lambda toolset: agents.pydantic_ai(engine, toolset, run="order-7", key=agents.by_arguments), twice
    )

    assert once.charges == [500]
    assert said == "charge 1 of 500; charge 1 of 500"


def test_a_retry_with_other_arguments_is_told_about_the_difference(engine):
    ledger = Ledger()

    def wrap(toolset):
        return agents.pydantic_ai(engine, toolset, run="order-8")

    first = pydantic_run(ledger, wrap, [("c1", {"cents": 500})])
    drifted = pydantic_run(ledger, wrap, [("c1", {"cents": 501})])

    assert ledger.charges == [500]
    assert first == "charge 1 of 500"
    assert "other arguments" in drifted


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("pause", ["ApprovalRequired", "CallDeferred"])
def test_a_pydantic_ai_tool_runs_once_it_is_approved_or_its_result_is_there(engine, pause, hold):
    from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, exceptions
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.toolsets import FunctionToolset

    ledger, toolset = Ledger(), FunctionToolset()

    @toolset.tool
    async def charge(ctx: RunContext, cents: int) -> str:
        if not ctx.tool_call_approved:
            raise getattr(exceptions, pause)
        return ledger.charge(cents)

    def model(messages, info):
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("charge", {"cents": 500}, "c1")])
        return ModelResponse(parts=[TextPart(str(messages[-1].parts[0].content))])

    once = agents.pydantic_ai(engine, toolset, run=f"approved-{pause}-{hold}", hold=hold)
    agent = Agent(FunctionModel(model), toolsets=[once], output_type=[str, DeferredToolRequests])
    asked = agent.run_sync("charge")
    if pause == "ApprovalRequired":
        results = DeferredToolResults(approvals={"c1": True})
    else:
        results = DeferredToolResults(calls={"c1": "charged by somebody else"})
    done = agent.run_sync(message_history=asked.all_messages(), deferred_tool_results=results)

    assert isinstance(asked.output, DeferredToolRequests)
    if pause == "ApprovalRequired":
        assert (ledger.charges, done.output) == ([500], "charge 1 of 500")
    else:
        assert (ledger.charges, done.output) == ([], "charged by somebody else")


# FastMCP


def mcp_server(ledger, middleware):
    from fastmcp import FastMCP

    server = FastMCP("shop", middleware=middleware)

    @server.tool
    def charge(cents: int) -> str:
        """Charges a card."""
        return ledger.charge(cents)

    return server


def test_a_retried_call_of_a_fastmcp_server_charges_once(engine):
    """A client that repeats a call whose answer was lost (composio #3654)."""
    from fastmcp import Client

    async def repeated(middleware):
        ledger = Ledger()
        async with Client(mcp_server(ledger, middleware)) as client:
            answers = [
                await client.call_tool("charge", {"cents": 500}, meta={"idempotencyKey": "order-7"}) for _ in range(2)
            ]
        return ledger, [(answer.data, [block.text for block in answer.content]) for answer in answers]

    plain, _ = asyncio.run(repeated([]))
    assert len(plain.charges) == 2, "without the middleware the retry charges again"

    once, answers = asyncio.run(repeated([agents.fastmcp(engine)]))

    assert once.charges == [500]
    assert answers == [("charge 1 of 500", ["charge 1 of 500"])] * 2


def test_a_fastmcp_server_keeps_callers_and_calls_apart(engine):
    from fastmcp import Client
    from fastmcp.exceptions import ToolError

    async def calls():
        ledger, who = Ledger(), iter(["alice", "bob", "alice"])
        server = mcp_server(ledger, [agents.fastmcp(engine, caller=lambda: next(who), required=True)])
        async with Client(server) as client:
            meta = {"idempotencyKey": "order-8"}
            await client.call_tool("charge", {"cents": 1}, meta=meta)
            await client.call_tool("charge", {"cents": 2}, meta=meta)
            with pytest.raises(ToolError, match="other arguments"):
                await client.call_tool("charge", {"cents": 3}, meta=meta)
            with pytest.raises(ToolError, match="needs a key"):
                await client.call_tool("charge", {"cents": 4})
        return ledger

    assert asyncio.run(calls()).charges == [1, 2]


# What all of them share


def test_parts_of_a_key_do_not_run_into_each_other():
    def key(run, id):
        return agents.by_call(agents.ToolCall(run, "t", id, {}))

    assert key("a/b", "c") != key("a", "b/c")
    assert len(key("a" * 1000, "c")) < 256
    assert key("a" * 1000, "c") != key("a" * 1000, "d")
    with pytest.raises(ValueError, match="no id"):
        key("a", None)


def test_a_setting_that_does_not_exist_is_an_error(engine):
    with pytest.raises(TypeError, match="no such setting: retries"):
        agents.LangGraph(engine, retries=3)
