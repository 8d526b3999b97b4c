"""The client over TLS: it trusts whom the machine trusts. `TLS` is a folder with a certificate and its key."""

import os
import ssl
import subprocess
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

FOLDER = Path(os.environ["TLS"])
SEND = """
    import sys, onlyonce
    client = onlyonce.Client(attempts=1)
    try:
        print(client.send("POST", sys.argv[1], key="k", json={}).status)
    except onlyonce.SendFailed as failed:
        print(failed.cause)
    """


class Answering(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def url():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / "cert.pem", FOLDER / "key.pem")
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://localhost:{server.server_address[1]}/orders"
        server.shutdown()


def sent(url, **environment):
    line = [sys.executable, "-c", textwrap.dedent(SEND), url]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_server_that_the_machine_trusts_is_sent_to(url):
    assert sent(url, SSL_CERT_FILE=str(FOLDER / "cert.pem")) == "204"


def test_a_server_that_it_does_not_trust_is_not(url):
    assert sent(url) == "unreachable"
