"""Orders through a gateway with httpx, h11 and h2, and stops at the first thing that is not HTTP.

Usage: clients.py HOST PORT. The service behind answers POST /orders with "order N", N counting up.
"""

import asyncio
import socket
import sys

import h11
import h2.config
import h2.connection
import h2.events
import h2.settings
import httpx

HOST, PORT = sys.argv[1], int(sys.argv[2])
URL = f"http://{HOST}:{PORT}/orders"
PATIENCE = 30


def keyed(key):
    return {"idempotency-key": key, "content-type": "text/plain"}


async def duplicates(**versions):
    """Many at once under one key: all hear of the same order."""
    async with httpx.AsyncClient(timeout=PATIENCE, **versions) as client:
        key = "-".join(["httpx", *versions])
        posts = [client.post(URL, headers=keyed(key), content=b"tea=2") for _ in range(40)]
        answers = await asyncio.gather(*posts)
    assert {answer.status_code for answer in answers} == {201}, answers
    assert len({answer.text for answer in answers}) == 1, [a.text for a in answers]
    replays = [a for a in answers if a.headers.get("idempotent-replayed") == "true"]
    assert len(replays) == 39, len(replays)
    wanted = "HTTP/2" if "http1" in versions else "HTTP/1.1"
    assert {answer.http_version for answer in answers} == {wanted}


def httpx_over_http_1():
    asyncio.run(duplicates(http2=False))


def httpx_over_http_2():
    asyncio.run(duplicates(http1=False, http2=True))


class H11:
    """A connection that h11 reads along with."""

    def __init__(self):
        self.socket = socket.create_connection((HOST, PORT), timeout=PATIENCE)
        self.connection = h11.Connection(h11.CLIENT)

    def send(self, *events):
        self.socket.sendall(b"".join(self.connection.send(event) for event in events))

    def answer(self):
        """The status and the body of the next answer."""
        status, body = None, b""
        while True:
            event = self.connection.next_event()
            if event is h11.NEED_DATA:
                self.connection.receive_data(self.socket.recv(65536))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return status, body
            elif isinstance(event, h11.InformationalResponse):
                assert event.status_code == 100, event
            else:
                raise AssertionError(event)

    def next(self):
        self.connection.start_next_cycle()


def post(key, *more, method="POST", target="/orders"):
    headers = [("host", "a"), ("idempotency-key", key), *more]
    return h11.Request(method=method, target=target, headers=headers)


def h11_with_a_length_and_in_chunks():
    peer, answers = H11(), []
    peer.send(post("h11", ("content-length", "5")), h11.Data(b"tea=2"), h11.EndOfMessage())
    answers.append(peer.answer())
    peer.next()
    chunks = [h11.Data(bytes([byte])) for byte in b"tea=2"]
    peer.send(post("h11", ("transfer-encoding", "chunked")), *chunks, h11.EndOfMessage())
    answers.append(peer.answer())
    assert answers[0] == answers[1] and answers[0][0] == 201, answers


def h11_waits_for_leave():
    peer = H11()
    head = post("leave", ("content-length", "5"), ("expect", "100-continue"))
    peer.send(head)
    while (event := peer.connection.next_event()) is h11.NEED_DATA:
        peer.connection.receive_data(peer.socket.recv(65536))
    assert isinstance(event, h11.InformationalResponse), event
    peer.send(h11.Data(b"tea=2"), h11.EndOfMessage())
    assert peer.answer()[0] == 201


def h11_hears_refusals():
    peer = H11()
    peer.send(post("bad key with spaces", ("content-length", "0")), h11.EndOfMessage())
    assert peer.answer()[0] == 400
    peer.next()
    big = b"x" * 100_000
    peer.send(post("large", ("content-length", str(len(big)))), h11.Data(big), h11.EndOfMessage())
    assert peer.answer()[0] == 413


def h11_hears_answers_without_a_body():
    peer = H11()
    peer.send(post("head", method="HEAD", target="/told"), h11.EndOfMessage())
    assert peer.answer() == (200, b"")
    peer.next()
    peer.send(post("options", method="OPTIONS", target="/told"), h11.EndOfMessage())
    assert peer.answer()[0] == 200


class H2:
    """A connection that h2 reads along with. It sends whatever it is told to."""

    def __init__(self):
        self.socket = socket.create_connection((HOST, PORT), timeout=PATIENCE)
        config = h2.config.H2Configuration(
            client_side=True,
            header_encoding="utf-8",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.connection = h2.connection.H2Connection(config)
        self.connection.initiate_connection()
        self.statuses, self.bodies, self.ended, self.reset = {}, {}, set(), set()
        self.is_over, self.pongs = False, 0
        self.flush()

    def flush(self):
        self.socket.sendall(self.connection.data_to_send())

    def request(self, key, *more, body=b"tea=2", method="POST", ends=True):
        stream = self.connection.get_next_available_stream_id()
        head = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", "/orders"),
            ("idempotency-key", key),
            *more,
        ]
        self.connection.send_headers(stream, head)
        if body is not None:
            self.connection.send_data(stream, body, end_stream=ends)
        self.flush()
        return stream

    def read(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.is_over = True
            return
        for event in self.connection.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                self.statuses[event.stream_id] = dict(event.headers)[":status"]
            elif isinstance(event, h2.events.DataReceived):
                so_far = self.bodies.get(event.stream_id, b"")
                self.bodies[event.stream_id] = so_far + event.data
                length = event.flow_controlled_length
                self.connection.acknowledge_received_data(length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.add(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.reset.add(event.stream_id)
            elif isinstance(event, h2.events.PingAckReceived):
                self.pongs += 1
            elif isinstance(event, h2.events.ConnectionTerminated):
                self.is_over = True
        if not self.is_over:
            self.flush()

    def answer(self, stream):
        while stream not in self.ended | self.reset and not self.is_over:
            self.read()
        return self.statuses.get(stream), self.bodies.get(stream)


def h2_streams_at_once():
    peer = H2()
    streams = [peer.request("streams") for _ in range(100)]
    answers = {peer.answer(stream) for stream in streams}
    assert len(answers) == 1 and answers.pop()[0] == "201"


def h2_pings_and_large_heads():
    peer = H2()
    peer.connection.ping(b"12345678")
    stream = peer.request("large-head", ("x-large", "y" * 40_000))
    assert peer.answer(stream)[0] == "201"
    while peer.pongs == 0:
        peer.read()


def h2_trailers():
    peer = H2()
    stream = peer.request("trailers", ("trailer", "x-sum"), ends=False)
    peer.connection.send_headers(stream, [("x-sum", "1")], end_stream=True)
    peer.flush()
    assert peer.answer(stream)[0] == "201"


def h2_resets_and_retries():
    peer = H2()
    for _ in range(5):
        stream = peer.request("reset")
        peer.connection.reset_stream(stream)
        peer.flush()
    status, body = peer.answer(peer.request("reset"))
    again = peer.answer(peer.request("reset"))
    assert (status, body) == again and status == "201", (status, body, again)


def h2_takes_answers_a_byte_at_a_time():
    peer = H2()
    settings = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE
    peer.connection.update_settings({settings: 1})
    peer.flush()
    status, body = peer.answer(peer.request("bytes"))
    assert status == "201" and body.startswith(b"order "), (status, body)


def h2_malformed_requests_are_not_run():
    for more in [
        [("Upper", "case")],
        [("connection", "close")],
        [("transfer-encoding", "chunked")],
        [("te", "gzip")],
        [("content-length", "9")],
        [(":path", "/orders")],
        [("x-line", "a\nb")],
    ]:
        peer = H2()
        stream = peer.request("malformed", *more)
        status, _ = peer.answer(stream)
        assert status is None or status.startswith("4"), (more, status)
    peer = H2()
    status, _ = peer.answer(peer.request("malformed", method="post"))
    assert status == "501", status


CHECKS = [
    httpx_over_http_1,
    httpx_over_http_2,
    h11_with_a_length_and_in_chunks,
    h11_waits_for_leave,
    h11_hears_refusals,
    h11_hears_answers_without_a_body,
    h2_streams_at_once,
    h2_pings_and_large_heads,
    h2_trailers,
    h2_resets_and_retries,
    h2_takes_answers_a_byte_at_a_time,
    h2_malformed_requests_are_not_run,
]

for check in CHECKS:
    check()
    print("ok", check.__name__, flush=True)
