"""Forks, event loops, signals and the end of a process."""

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
import time

import uvloop

import onlyonce
from onlyonce import Engine


def python(code, *args, **more):
    line = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, **more)


def test_an_engine_from_before_a_fork_is_refused_in_the_child():
    done = python(
        """
        import os, sys, onlyonce
        engine = onlyonce.Engine.open("memory:")
        engine.run("k", lambda: 1)
        child = os.fork()
        if child == 0:
            try:
                engine.run("k", lambda: 2)
            except onlyonce.Forked as error:
                print("refused:", error, flush=True)
            own = onlyonce.Engine.open("memory:")
            print("own:", own.run("k", lambda: 3).value, flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("parent:", engine.run("k", lambda: 4).value)
        """
    )

    assert done.returncode == 0, done.stderr
    assert "refused: this engine was opened in process" in done.stdout
    assert "own: 3" in done.stdout and "parent: 1" in done.stdout


def test_a_database_that_was_open_before_a_fork_is_refused_in_the_child(tmp_path):
    done = python(
        """
        import os, sys, onlyonce
        engine = onlyonce.Engine.open(sys.argv[1])
        child = os.fork()
        if child == 0:
            try:
                onlyonce.Engine.open(sys.argv[1])
            except onlyonce.Forked as error:
                print("refused:", error, flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("parent:", engine.run("k", lambda: 1).value)
        """,
        f"sqlite:{tmp_path}/records.db",
    )

    assert done.returncode == 0, done.stderr
    refused, parent = done.stdout.splitlines()
    assert refused.startswith("refused:") and "open it after the fork only" in refused
    assert parent == "parent: 1"


def test_what_runs_when_the_process_ends_is_stored(tmp_path):
    store = f"file:{tmp_path}/records"
    code = """
        import sys, threading, time, onlyonce
        engine = onlyonce.Engine.open(sys.argv[1])
        started = threading.Event()
        def slow():
            started.set()
            time.sleep(0.5)
            return "stored"
        threading.Thread(target=engine.run, args=("k", slow), daemon=True).start()
        started.wait()
        """

    ended = python(code, store)
    with Engine.open(store) as engine:
        again = engine.run("k", lambda: "ran again")

    assert ended.returncode == 0, ended.stderr
    assert again == ("stored", True)


def test_an_engine_that_closes_does_not_stop_the_threads_it_waits_for():
    refused, values, started = [], [], threading.Event()
    engine = Engine.open("memory:")

    @engine.once(key="inner")
    def inner():
        return "ran"

    def slow():
        started.set()
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            assert engine.in_flight and engine.metrics()
            try:
                inner()
            except onlyonce.Unavailable as error:
                refused.append(error.reason)
            time.sleep(0.01)
        return "stored"

    thread = threading.Thread(target=lambda: values.append(engine.run("k", slow)))
    thread.start()
    started.wait()
    began = time.monotonic()
    closers = [threading.Thread(target=engine.close, args=(5,)) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join()
    took = time.monotonic() - began
    thread.join()

    assert took < 4
    assert values == [("stored", False)]
    assert set(refused) == {"shutting-down"}


def test_a_daemon_that_asks_its_engine_while_the_process_ends_is_waited_for(tmp_path):
    store = f"file:{tmp_path}/records"
    code = """
        import sys, threading, time, onlyonce
        engine = onlyonce.Engine.open(sys.argv[1])
        started = threading.Event()
        def slow():
            started.set()
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                engine.in_flight
                time.sleep(0.01)
            return "stored"
        threading.Thread(target=engine.run, args=("k", slow), daemon=True).start()
        started.wait()
        """

    ended = python(code, store)
    with Engine.open(store) as engine:
        again = engine.run("k", lambda: "ran again")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert again == ("stored", True)


def test_what_runs_when_a_process_of_multiprocessing_ends_is_stored(tmp_path):
    store = f"file:{tmp_path}/records"
    code = """
        import multiprocessing, sys, threading, time
        def work(store):
            import onlyonce
            engine = onlyonce.Engine.open(store)
            started = threading.Event()
            def slow():
                started.set()
                time.sleep(0.5)
                return "stored"
            threading.Thread(target=engine.run, args=("k", slow), daemon=True).start()
            started.wait()
        import onlyonce  # also where the parent has it
        child = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
        child.start()
        child.join()
        sys.exit(child.exitcode)
        """

    ended = python(code, store)
    with Engine.open(store) as engine:
        again = engine.run("k", lambda: "ran again")

    assert ended.returncode == 0, ended.stderr
    assert again == ("stored", True)


def test_a_process_that_makes_an_exit_of_sigterm_loses_nothing(tmp_path):
    store = f"file:{tmp_path}/records"
    code = """
        import signal, sys, threading, time, onlyonce
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        engine = onlyonce.Engine.open(sys.argv[1])
        def slow():
            print("runs", flush=True)
            time.sleep(0.5)
            return "stored"
        threading.Thread(target=engine.run, args=("k", slow), daemon=True).start()
        time.sleep(60)
        """
    line = [sys.executable, "-c", textwrap.dedent(code), store]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.terminate()
    status = process.wait(30)

    with Engine.open(store) as engine:
        again = engine.run("k", lambda: "ran again")

    assert status == 0
    assert again == ("stored", True)


def test_an_engine_works_on_uvloop():
    with Engine.open("memory:") as engine:

        @engine.once(key="{order}")
        async def charge(order):
            await asyncio.sleep(0.05)
            return order

        async def both():
            return await asyncio.gather(charge.ran("a"), charge.ran("a"), charge.ran("b"))

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            values = runner.run(both())

    assert sorted(values) == [("a", False), ("a", True), ("b", False)]


def test_a_loop_that_ends_under_a_call_leaves_it_released(tmp_path):
    with Engine.open("memory:") as engine:

        @engine.once(key="k")
        async def slow(value):
            await asyncio.sleep(value)
            return "value"

        async def leave():
            left = asyncio.create_task(slow.ran(30))
            assert not left.done()
            await asyncio.sleep(0.05)

        asyncio.run(leave())
        deadline = time.monotonic() + 10
        while engine.in_flight and time.monotonic() < deadline:
            time.sleep(0.01)

        assert engine.in_flight == 0
        assert engine.run("other", lambda: 1).value == 1


def test_loops_in_several_threads_share_one_run():
    runs = []
    with Engine.open("memory:") as engine:

        @engine.once(key="k")
        async def slow():
            runs.append(1)
            await asyncio.sleep(0.2)
            return "value"

        values = []
        threads = [threading.Thread(target=lambda: values.append(asyncio.run(slow()))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert (len(runs), values) == (1, ["value"] * 8)


def test_ctrl_c_interrupts_a_call_that_waits():
    code = """
        import signal, sys, threading, onlyonce
        # A shell that starts programs in the background has them ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        engine = onlyonce.Engine.open("memory:")
        forever = threading.Event()
        threading.Thread(target=engine.run, args=("k", lambda: forever.wait(2)), daemon=True).start()
        while not engine.in_flight:
            pass
        try:
            print("waiting", flush=True)
            engine.run("k", lambda: 1)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)

    assert said == "interrupted\n"


def test_a_process_that_is_killed_is_taken_over(tmp_path):
    store = f"sqlite:{tmp_path}/records.db"
    code = """
        import sys, time, onlyonce
        engine = onlyonce.Engine.open(sys.argv[1])
        @engine.once(key="k", name="job", lease=1)
        def slow():
            print("runs", flush=True)
            time.sleep(60)
        slow()
        """
    line = [sys.executable, "-c", textwrap.dedent(code), store]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.kill()
    process.wait()

    with Engine.open(store) as engine:

        @engine.once(key="k", name="job", lease=1)
        def takes_over():
            return "value"

        assert takes_over.ran() == ("value", False)
        assert takes_over.ran() == ("value", True)


def test_logging_goes_to_the_logger_onlyonce():
    done = python(
        """
        import logging, onlyonce
        logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
        engine = onlyonce.Engine.open("memory:")
        engine.run("a-secret-key-of-some-length", lambda: 1)
        engine.run("a-secret-key-of-some-length", lambda: 1)
        """
    )

    assert done.returncode == 0, done.stderr
    assert "onlyonce INFO" in done.stderr
    assert "a-secret-key-of-some-length" not in done.stderr
    assert onlyonce.Engine is Engine
