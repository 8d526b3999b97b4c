"""A ledger that writes each charge to a file, and dies with SIGKILL where it is told to."""

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FILE = sys.argv[1]


def charges():
    if not os.path.exists(FILE):
        return []
    with open(FILE) as lines:
        return [json.loads(line) for line in lines]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Ledger(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        crash = body.get("crash") if self.headers["Onlyonce-Attempt"] == "1" else None
        if crash == "before":
            die()
        charge = {"operation": self.headers["Onlyonce-Operation"], "amount": body["amount"]}
        with open(FILE, "a") as lines:
            lines.write(json.dumps(charge) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        if crash == "after":
            die()
        self.answer(201, charge)

    def do_GET(self):
        wanted = self.path.rsplit("/", 1)[1]
        found = [charge for charge in charges() if charge["operation"] == wanted]
        if found:
            self.answer(200, found[0])
        else:
            self.answer(404, {})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Ledger)
print(server.server_address[1], flush=True)
server.serve_forever()
