"""A service that is not ours: Python's own http.server. It counts what it does, by key."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

lock = threading.Lock()
runs = {}
opened = threading.Event()


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/open":
            opened.set()
        with lock:
            self.answer(200, json.dumps(runs))

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key = self.headers.get("Idempotency-Key", "")
        with lock:
            runs[key] = runs.get(key, 0) + 1
            number = runs[key]
        if self.path == "/slow":
            opened.wait()
        self.answer(201, f"{key} run {number}")

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # A gateway that is killed leaves its connections broken.


server = Server(("127.0.0.1", 0), Shop)
print(server.server_address[1], flush=True)
server.serve_forever()
