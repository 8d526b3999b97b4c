"""A service whose rows and whose answer are committed together, behind `onlyonce gateway`.

    pip install "psycopg[binary]"
    DATABASE_URL=postgresql://app@127.0.0.1/shop PORT=3000 python ledger.py

The gateway's route says `transactional = true`, and its store is in the same database. However often a
request is sent, and whatever dies meanwhile, the ledger gets one row, and every retry the same answer.
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

DATABASE_URL = os.environ["DATABASE_URL"]
# The name of the function: another one if the store's URL names a table.
COMPLETE = os.environ.get("COMPLETE", "onlyonce_complete")


def crash(point):
    """Dies as by SIGKILL if the tests ask for it here."""
    if os.environ.get("CRASH_AT") == point:
        os._exit(9)


def charge(lease, cents):
    """Books the charge and stores the answer to it, in one transaction."""
    with psycopg.connect(DATABASE_URL) as connection:  # commits at its end, or rolls back
        row = connection.execute(
            "INSERT INTO ledger (cents) VALUES (%s) RETURNING id", (cents,)
        ).fetchone()
        headers = {"content-type": "application/json"}
        body = json.dumps({"charge": row[0], "cents": cents}).encode()
        crash("before-complete")
        if lease is not None:
            connection.execute(
                f"SELECT {COMPLETE}(%s, %s, %s::jsonb, %s)",
                (lease, 201, json.dumps(headers), body),
            )
        crash("before-commit")
    crash("after-commit")
    return headers, body


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        asked = json.loads(self.rfile.read(length))
        try:
            headers, body = charge(self.headers.get("onlyonce-lease"), asked["cents"])
            status = 201
        except psycopg.Error as error:
            # ONCE1: another attempt has taken over, and its answer is the one that counts.
            headers, body = {"x-sqlstate": error.sqlstate or ""}, b"rolled back"
            status = 503
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", 3000))), Handler)
    print(f"listening on {server.server_address[1]}", flush=True)
    server.serve_forever()
