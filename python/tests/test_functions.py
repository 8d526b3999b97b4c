"""Functions that run once per key."""

import asyncio
import logging
import threading

import pytest

import onlyonce
from onlyonce import Engine


@pytest.fixture
def engine():
    with Engine.open("memory:") as engine:
        yield engine


def test_a_function_runs_once_and_its_repetitions_get_its_value(engine):
    runs = []

    @engine.once(key="{order}")
    def charge(order, cents):
        runs.append(order)
        return {"cents": cents, "run": len(runs)}

    first = charge.ran("a", 5)
    again = charge.ran("a", cents=5)

    assert first == ({"cents": 5, "run": 1}, False)
    assert again == ({"cents": 5, "run": 1}, True)
    assert charge("b", 5)["run"] == 2
    assert charge.__name__ == "charge"


def test_a_coroutine_function_runs_once(engine):
    runs = []

    @engine.once(key=lambda order: order)
    async def charge(order):
        await asyncio.sleep(0)
        runs.append(order)
        return len(runs)

    async def both():
        return await charge("a"), await charge("a")

    assert asyncio.run(both()) == (1, 1)
    assert asyncio.run(charge.ran("a")) == (1, True)


def test_run_takes_a_function_and_its_key(engine):
    assert engine.run("k", lambda: 1, input=[1]) == (1, False)
    assert engine.run("k", lambda: 2, input=[1]) == (1, True)

    async def three():
        return 3

    assert asyncio.run(engine.arun("l", three)) == (3, False)


def test_methods_have_their_self_left_out(engine):
    class Shop:
        @engine.once(key="{order}")
        def charge(self, order):
            return id(self)

    assert Shop().charge("a") == Shop().charge("a")


def test_the_same_key_with_another_input_is_refused(engine):
    @engine.once(key="{order}")
    def charge(order, cents):
        return cents

    charge("a", 5)
    with pytest.raises(onlyonce.Mismatch) as refused:
        charge("a", 6)

    assert isinstance(refused.value, onlyonce.OnlyonceError)
    assert refused.value.reason == "mismatch"


def test_what_a_function_raises_is_raised_and_it_runs_again(engine):
    runs = []

    @engine.once(key="k")
    def fail():
        runs.append(1)
        raise LookupError("no card")

    @engine.once(key="k")
    async def fail_later():
        runs.append(1)
        raise LookupError("no card")

    for _ in range(2):
        with pytest.raises(LookupError, match="no card"):
            fail()
        with pytest.raises(LookupError, match="no card"):
            asyncio.run(fail_later())

    assert len(runs) == 4


def test_64_threads_share_one_run(engine):
    runs = []
    started = threading.Barrier(64)

    @engine.once(key="k")
    def slow():
        runs.append(1)
        threading.Event().wait(0.2)
        return "value"

    values = []

    def call():
        started.wait()
        values.append(slow())

    threads = [threading.Thread(target=call) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(runs), values) == (1, ["value"] * 64)


def test_64_tasks_share_one_run_and_one_failure(engine):
    runs = []

    @engine.once(key="{key}")
    async def slow(key):
        runs.append(1)
        await asyncio.sleep(0.1)
        if key == "bad":
            raise LookupError("no card")
        return "value"

    async def all_of(key):
        return await asyncio.gather(*(slow(key) for _ in range(64)), return_exceptions=True)

    assert asyncio.run(all_of("good")) == ["value"] * 64
    assert len(runs) == 1

    failures = asyncio.run(all_of("bad"))
    assert all(isinstance(it, (LookupError, onlyonce.FailedElsewhere)) for it in failures)
    assert any(isinstance(it, LookupError) for it in failures)


def test_a_caller_that_is_cancelled_does_not_stop_the_function(engine):
    ended = []

    @engine.once(key="k")
    async def slow():
        await asyncio.sleep(0.1)
        ended.append(1)
        return "value"

    async def scenario():
        task = asyncio.create_task(slow())
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await slow.ran()

    assert asyncio.run(scenario()) == ("value", True)
    assert len(ended) == 1


def test_a_coroutine_past_its_deadline_is_cancelled_and_its_outcome_unknown(engine):
    seen = []

    @engine.once(key="k", timeout=1)
    async def forever():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def scenario():
        with pytest.raises(onlyonce.OutcomeUnknown) as refused:
            await forever()
        for _ in range(100):
            if seen:
                break
            await asyncio.sleep(0.01)
        return refused.value.reason

    assert asyncio.run(scenario()) == "timed-out"
    assert seen == ["cancelled"]


def test_a_value_that_is_no_json_does_not_make_its_function_run_again(engine):
    runs = []

    def work(value):
        runs.append(value)
        return value

    async def awork(value):
        return work(value)

    for number, value in enumerate([object(), float("nan"), {(1, 2): 3}]):
        for _ in range(2):
            with pytest.raises(onlyonce.NotKept, match="the job ran, but its value could not be kept: "):
                engine.run(f"k{number}", lambda value=value: work(value))
            with pytest.raises(onlyonce.NotKept, match="the job ran, but its value could not be kept: "):
                asyncio.run(engine.arun(f"a{number}", lambda value=value: awork(value)))

    assert len(runs) == 6


def test_wrong_use_is_told_with_what_would_be_right(engine):
    with pytest.raises(onlyonce.OpenError, match="did you mean redis"):
        Engine.open("reddis://localhost")
    with pytest.raises(onlyonce.KeyInvalid):
        engine.run("", lambda: 1)
    with pytest.raises(TypeError, match="pass input="):
        engine.run("k", lambda: 1, input=object())
    with pytest.raises(ValueError, match="keep_for must be"):
        engine.once(key="k", keep_for=-1)(lambda: 1)()
    assert engine.run("k", lambda: 1).value == 1

    engine.close()
    with pytest.raises(onlyonce.OnlyonceError, match="closed"):
        engine.run("k", lambda: 1)


def test_what_it_does_is_counted_and_logged(engine, caplog):
    engine.run("k", lambda: 1)
    engine.run("k", lambda: 1)

    assert "idempotency_lock_acquired_total" in engine.metrics()
    assert logging.getLogger("onlyonce") is not None
