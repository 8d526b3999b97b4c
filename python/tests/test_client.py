"""The client and its queue, against a service that loses answers, and one behind the middleware."""

import asyncio
import json
import subprocess
import sys
import textwrap
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest

import onlyonce
from onlyonce import Client, Engine, Queue, Request, WSGIMiddleware

SOON = {"backoff": (0.01, 0.01)}


class Service(ThreadingHTTPServer):
    """Answers with what it is told to, in order; `None` hangs up. Then with 201."""

    daemon_threads = True

    def __init__(self, *script):
        super().__init__(("127.0.0.1", 0), Answering)
        self.script = list(script)
        self.asked = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/orders"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def keys(self):
        return [headers["idempotency-key"] for _, _, headers in self.asked]

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.asked.append((f"{self.command} {self.path}", body, dict(self.headers.items())))
        answer = self.server.script.pop(0) if self.server.script else (201, {}, {"order": 1})
        if answer is None:
            self.close_connection = True
            return
        status, headers, said = answer
        said = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(said)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass


class Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Silent(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def test_a_lost_answer_is_asked_for_again_under_the_same_key():
    with Service(None, (503, {}, {})) as service:
        client = Client(**SOON)

        answer = client.send("POST", service.url, key="order-7", json={"cents": 500})

        assert (answer.status, answer.json(), answer.attempts) == (201, {"order": 1}, 3)
        assert service.keys == ["order-7"] * 3
        assert service.asked[0][1] == b'{"cents": 500}'
        assert service.asked[0][2]["content-type"] == "application/json"
        assert (client.counts["attempts"], client.counts["retries"], client.counts["succeeded"]) == (3, 2, 1)


def test_a_service_that_asks_for_a_pause_gets_it():
    with Service((429, {"retry-after": "1"}, {})) as service:
        began = time.monotonic()

        answer = Client(**SOON).send("POST", service.url, key="k")

        assert (answer.status, answer.attempts) == (201, 2)
        assert time.monotonic() - began >= 1


def test_what_the_service_refuses_is_not_sent_again():
    problem = {"type": "urn:onlyonce:problem:mismatch", "detail": "this idempotency key was already used"}
    with Service((422, {}, problem)) as service:
        with pytest.raises(onlyonce.SendFailed) as failed:
            Client(**SOON).send("POST", service.url, key="k")

        assert len(service.asked) == 1
        assert (failed.value.cause, failed.value.attempts, failed.value.retryable) == ("conflict", 1, False)
        assert failed.value.answer.status == 422
        assert failed.value.answer.json() == problem


def test_a_service_that_is_not_there_leaves_a_failure_that_can_be_repeated():
    service = Service()
    service.__exit__()

    with pytest.raises(onlyonce.SendFailed) as failed:
        Client(attempts=2, **SOON).send("POST", service.url, key="k")

    assert (failed.value.cause, failed.value.attempts, failed.value.retryable) == ("unreachable", 2, True)
    assert failed.value.answer is None


def test_what_an_earlier_attempt_may_have_done_is_not_forgotten():
    detail = "the operation could not be started"
    not_run = {"type": "urn:onlyonce:problem:not-run", "detail": detail, "retryable": True}
    with Service(None, (503, {}, not_run), (503, {}, not_run)) as service:
        with pytest.raises(onlyonce.SendFailed) as failed:
            Client(attempts=3, **SOON).send("POST", service.url, key="k")

        assert (failed.value.cause, failed.value.attempts, len(service.asked)) == ("not-run", 3, 3)
        assert failed.value.may_have_run
        assert "an earlier attempt may have taken effect" in str(failed.value)

    with Service((503, {}, not_run)) as service:
        with pytest.raises(onlyonce.SendFailed) as failed:
            Client(attempts=1, **SOON).send("POST", service.url, key="k")

        assert (failed.value.cause, failed.value.may_have_run) == ("not-run", False)


def test_each_attempt_has_the_newest_token():
    with Service() as service:
        client = Client(headers={"Authorization": "Bearer one"}, **SOON)
        client.send("POST", service.url, key="k")
        client.authorize({"Authorization": "Bearer two"})
        client.send("POST", service.url, key="l")

        assert [headers["authorization"] for _, _, headers in service.asked] == ["Bearer one", "Bearer two"]


def test_sending_on_an_event_loop_does_not_block_it():
    with Service(None) as service:
        client = Client(**SOON)

        async def both():
            sending = [asyncio.create_task(client.asend("POST", service.url, key=f"k{n}")) for n in range(8)]
            assert not any(it.done() for it in sending)
            return await asyncio.gather(*sending)

        assert [it.status for it in asyncio.run(both())] == [201] * 8
        assert len(set(service.keys)) == 8


def test_a_service_behind_the_middleware_runs_once_though_its_answer_was_lost():
    runs = []

    def shop(environ, start_response):
        runs.append(1)
        environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        start_response("201 Created", [("content-type", "application/json")])
        return [b'{"order":1}']

    with Engine.open("memory:") as engine:
        protected = WSGIMiddleware(shop, engine=engine)
        lost = [True]

        def losing(environ, start_response):
            answer = list(protected(environ, start_response))
            if lost.pop() if lost else False:
                raise ConnectionAbortedError("the answer is lost")
            return answer

        with make_server("127.0.0.1", 0, losing, Threaded, Silent) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}/orders"
            answer = Client(**SOON).send("POST", url, key="a-key-of-some-length", json={})
            server.shutdown()

    assert (answer.status, answer.replayed, answer.attempts, len(runs)) == (201, True, 2, 1)


def test_a_queue_keeps_what_a_killed_process_did_not_send(tmp_path):
    code = """
        import os, signal, sys, onlyonce
        queue = onlyonce.Queue(sys.argv[1])
        print(queue.add("POST", sys.argv[2], json={"cents": 5}).key, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    with Service(None) as service:
        line = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "outbox"), service.url]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode == -9, done.stderr

        with Queue(tmp_path / "outbox", **SOON) as queue:
            (entry,) = queue.entries("waiting")
            queue.drain()
            done_entry = queue.settled(entry.id)

        assert (done_entry.state, done_entry.status, json.loads(done_entry.answer)) == ("done", 201, {"order": 1})
        assert set(service.keys) == {done.stdout.strip()}
        assert len(service.keys) == 2, "the lost answer was asked for again"


def test_a_queue_sends_in_the_background_and_takes_a_request_once(tmp_path):
    with Service() as service, Queue(tmp_path) as queue:
        queue.start()
        first = queue.add("POST", service.url, key="job-1", json=1)
        again = queue.add("POST", service.url, key="job-1", json=1)

        settled = queue.settled(first.id)

        assert (first.is_new, again.is_new, again.id) == (True, False, first.id)
        assert (settled.state, settled.key, len(service.asked)) == ("done", "job-1", 1)
        with pytest.raises(onlyonce.QueueFailed, match="belongs to another operation"):
            queue.add("POST", service.url, key="job-1", json=2)


def test_a_queue_is_used_on_an_event_loop(tmp_path):
    async def scenario(queue, url):
        queued = await queue.aadd("POST", url, json={})
        await queue.adrain()
        return await queue.asettled(queued.id)

    with Service() as service, Queue(tmp_path) as queue:
        assert asyncio.run(scenario(queue, service.url)).state == "done"


def test_what_failed_for_good_is_corrected_retried_or_dropped(tmp_path):
    refused = (400, {}, {"message": "no such item"})
    with Service(refused, refused, refused) as service, Queue(tmp_path) as queue:
        ids = [queue.add("POST", service.url, json=n).id for n in range(3)]
        queue.drain()
        failed = list(queue.entries("failed"))
        assert [it.id for it in failed] == ids
        assert {it.cause for it in failed} == {"rejected"}
        assert "no such item" in failed[0].detail

        key, may_have_run = queue.edit(ids[0], "PUT", service.url, json=7)
        queue.retry(ids[1])
        queue.drop(ids[2])
        queue.drain()

        assert (key != failed[0].key, may_have_run) == (True, True)
        assert sorted(asked[:2] for asked in service.asked[3:]) == [("POST /orders", b"1"), ("PUT /orders", b"7")]
        assert [queue.entry(id) and queue.entry(id).state for id in ids] == ["done", "done", None]


def test_a_group_is_done_as_a_whole_or_undone(tmp_path):
    with Service((200, {}, {}), (400, {}, {}), (200, {}, {})) as service, Queue(tmp_path) as queue:
        room = f"{service.url}/room"
        group = queue.add_group(
            [(Request("PUT", service.url, json=1), Request("DELETE", service.url)), (Request("POST", room), None)],
            name="sign-up-7",
        )
        queue.drain()

        assert queue.group(group) == "undone"
        assert [what for what, _, _ in service.asked] == ["PUT /orders", "POST /orders/room", "DELETE /orders"]


def test_wrong_use_of_client_and_queue_is_told_with_what_would_be_right(tmp_path):
    client = Client()
    with pytest.raises(ValueError, match="write it like https"):
        client.send("POST", "orders", key="k")
    with pytest.raises(onlyonce.KeyInvalid):
        client.send("POST", "http://127.0.0.1:9", key="")
    with pytest.raises(TypeError, match="not both"):
        client.send("POST", "http://127.0.0.1:9", key="k", json=1, body=b"2")
    with pytest.raises(ValueError, match="timeout must be"):
        Client(timeout=-1)
    with Queue(tmp_path) as queue:
        with pytest.raises(ValueError, match="give it to the client"):
            queue.add("POST", "http://127.0.0.1:9", headers={"Authorization": "Bearer one"})
        with pytest.raises(ValueError, match="one of waiting"):
            list(queue.entries("lost"))
    with pytest.raises(onlyonce.OnlyonceError, match="this queue is closed"):
        queue.add("POST", "http://127.0.0.1:9")


def test_client_and_queue_from_before_a_fork_are_refused_in_the_child(tmp_path):
    code = """
        import os, sys, onlyonce
        client = onlyonce.Client()
        queue = onlyonce.Queue(sys.argv[1], client)
        child = os.fork()
        if child == 0:
            for work in (lambda: client.send("POST", "http://127.0.0.1:9", key="k"), queue.drain):
                try:
                    work()
                except onlyonce.Forked:
                    print("refused", flush=True)
            queue.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        queue.add("POST", "http://127.0.0.1:9")
        print("parent", len(list(queue.entries())))
        """
    line = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]

    done = subprocess.run(line, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["refused", "refused", "parent 1"]
