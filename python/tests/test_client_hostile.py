"""The client and its queue among keys, bodies, networks and processes that do them no favours."""

import json
import subprocess
import sys
import textwrap
from collections import Counter

import pytest
from test_client import SOON, Service

import onlyonce
from onlyonce import Client, Queue

PORTAL = (200, {"content-type": "text/html"}, b"<html>Welcome to the hotel")


def program(code, *args):
    line = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return said


@pytest.mark.parametrize("key", ["größe-✓", "a b", "a,b", 'with "quotes" inside', "/?&=#"])
def test_a_key_arrives_as_it_is(key):
    with Service() as service:
        Client(**SOON).send("POST", service.url, key=key)

        # This server reads headers as Latin-1.
        assert [sent.encode("latin-1").decode() for sent in service.keys] == [key]


@pytest.mark.parametrize("key", [" a", "a ", '"a"', '"a', "a\nb", "a\x00b"])
def test_a_key_that_would_be_read_as_another_one_is_refused(key, tmp_path):
    with Service() as service, Queue(tmp_path) as queue:
        with pytest.raises(onlyonce.KeyInvalid):
            Client(**SOON).send("POST", service.url, key=key)
        with pytest.raises(onlyonce.KeyInvalid):
            queue.add("POST", service.url, key=key)

        assert (service.asked, list(queue.entries())) == ([], [])


def test_a_body_that_is_too_large_is_refused_before_anything_is_sent(tmp_path):
    most = 1 << 20
    with Service() as service, Queue(tmp_path) as queue:
        client = Client(**SOON)
        for send in (client.send, queue.add):
            with pytest.raises(ValueError, match="at most 1048576"):
                send("POST", service.url, key="k", body=bytes(most + 1))
        assert service.asked == []

        client.send("POST", service.url, key="k", body=bytes(most))

        assert [len(body) for _, body, _ in service.asked] == [most]


def test_an_answer_that_is_too_large_is_not_taken_for_a_whole_one():
    with Service((201, {}, "x" * (9 << 20))) as service:
        answer = Client(timeout=30, **SOON).send("POST", service.url, key="k")

        assert (answer.status, answer.whole, len(answer.body) <= 8 << 20) == (201, False, True)
        with pytest.raises(ValueError, match="larger than 8 MiB"):
            answer.json()
        with pytest.raises(ValueError, match="larger than 8 MiB"):
            answer.text  # noqa: B018
        assert Client(**SOON).send("POST", service.url, key="l").whole


def test_a_sign_in_page_is_no_answer(tmp_path):
    with Service(PORTAL, PORTAL) as service:
        answer = Client(attempts=3, **SOON).send("POST", service.url, key="k")
        assert (answer.json(), answer.attempts) == ({"order": 1}, 3)

    with Service(*[PORTAL] * 3) as service:
        with pytest.raises(onlyonce.SendFailed) as failed:
            Client(attempts=3, **SOON).send("POST", service.url, key="k")
        assert (failed.value.cause, failed.value.retryable) == ("not-the-service", True)

    with Service(PORTAL) as service, Queue(tmp_path, Client(attempts=1), **SOON) as queue:
        id = queue.add("POST", service.url, json=1).id
        queue.drain()
        assert (queue.entry(id).state, json.loads(queue.entry(id).answer)) == ("done", {"order": 1})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_elsewhere_is_not_followed_and_gets_no_credential(status):
    with Service() as elsewhere, Service((status, {"location": elsewhere.url}, {})) as service:
        client = Client(headers={"Authorization": "Bearer secret"}, attempts=1)
        with pytest.raises(onlyonce.SendFailed) as failed:
            client.send("POST", service.url, key="k", json=1)

        assert (failed.value.cause, failed.value.retryable) == ("not-the-service", True)
        assert elsewhere.asked == []


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_within_the_service_gets_the_same_request(status):
    with Service((status, {"location": "/v2/orders"}, {})) as service:
        answer = Client(attempts=1).send("POST", service.url, key="k", json=1)

        assert answer.status == 201
        assert [what for what, _, _ in service.asked] == ["POST /orders", "POST /v2/orders"]
        assert (service.keys, service.asked[1][1]) == (["k", "k"], b"1")


def test_processes_that_share_a_queue_send_each_request(tmp_path):
    code = """
        import sys, onlyonce
        queue = onlyonce.Queue(sys.argv[1])
        queue.start()
        ids = [queue.add("POST", sys.argv[2], key=f"{sys.argv[3]}-{n}", json=n).id for n in range(10)]
        ids += [queue.add("POST", sys.argv[2], key=f"common-{n}", json=n).id for n in range(10)]
        print(*{queue.settled(id).state for id in ids})
        queue.close()
        """
    with Service() as service:
        processes = [program(code, tmp_path, service.url, name) for name in "abcd"]

        assert [ended(process) for process in processes] == ["done\n"] * 4

    own = [f"{name}-{n}" for name in "abcd" for n in range(10)]
    sent = Counter(service.keys)
    assert set(sent) == {*own, *(f"common-{n}" for n in range(10))}
    # What a process was sending when it closed its queue is sent again under its key, by the next one.
    assert sum(sent.values()) - len(sent) <= 4 * 3


def test_a_process_that_ends_while_it_sends_leaves_the_rest_to_the_next(tmp_path):
    code = """
        import sys, onlyonce
        queue = onlyonce.Queue(sys.argv[1], parallel=1, backoff=(60, 60))
        queue.start()
        print(*[queue.add("POST", sys.argv[2], json=n).key for n in range(5)])
        """
    later = (503, {"retry-after": "30"}, {})
    with Service(*[later] * 1000) as service:
        keys = ended(program(code, tmp_path, service.url)).split()
    with Service() as service, Queue(tmp_path, **SOON) as queue:
        moved = [queue.edit(entry.id, "POST", service.url, json=1)[0] for entry in queue.entries()]
        queue.drain()

        assert len(set(keys)) == len(moved) == 5
        assert sorted(service.keys) == sorted(moved)


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_process_ends_though_a_request_is_not_answered(kind):
    code = """
        import asyncio, socket, sys, threading, onlyonce
        silent = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        client = onlyonce.Client()
        async def leave():
            task = asyncio.create_task(client.asend("POST", url, key="k"))
            await asyncio.to_thread(silent.accept)
        if sys.argv[1] == "task":
            asyncio.run(leave())
        else:
            threading.Thread(target=client.send, args=("POST", url), kwargs={"key": "k"}, daemon=True).start()
            silent.accept()
        print("ends")
        """

    assert ended(program(code, kind)) == "ends\n"


def test_a_queue_that_a_parent_has_open_is_refused_in_its_children_and_one_that_it_closed_is_not(tmp_path):
    code = """
        import os, sys, onlyonce
        def is_open():
            files = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
            return any("queue.db" in os.readlink(file) for file in files if os.path.lexists(file))
        def in_child(expected):
            child = os.fork()
            if child == 0:
                try:
                    own = onlyonce.Queue(sys.argv[1])
                    own.start()
                    said = own.settled(own.add("POST", sys.argv[2], json=1).id).state
                    own.close()
                except onlyonce.Forked as error:
                    said = "forked" if "was open in process" in str(error) else str(error)
                os._exit(0 if said == expected else 1)
            assert os.waitpid(child, 0)[1] == 0, expected
        in_child("done")
        queue = onlyonce.Queue(sys.argv[1])
        queue.start()
        in_child("forked")
        print(queue.settled(queue.add("POST", sys.argv[2], json=2).id).state)
        queue.close()
        # SQLite closes on a thread of its own.
        while is_open():
            pass
        in_child("done")
        """
    with Service() as service:
        assert ended(program(code, tmp_path, service.url)) == "done\n"

        assert sorted(body for _, body, _ in service.asked) == [b"1", b"1", b"2"]
