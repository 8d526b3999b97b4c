"""A Flask service behind the middleware, with everything in its answers that a replay can get wrong."""

import argparse
import itertools
import socket
import threading
import time

import waitress
from flask import Flask, Response, request
from werkzeug.serving import make_server

from onlyonce import Engine, WSGIMiddleware

parser = argparse.ArgumentParser()
parser.add_argument("--profile", default="standard")
parser.add_argument("--server", default="waitress", choices=["waitress", "werkzeug"])
arguments = parser.parse_args()

app = Flask(__name__)
numbers = itertools.count(1)
order_made = threading.Lock()


@app.post("/orders")
def order() -> Response:
    with order_made:
        number = next(numbers)
    body = request.get_data()
    kind = request.headers.get("content-type")
    if kind == "application/octet-stream":
        content = number.to_bytes(8, "big") + body
    else:
        kind, content = "application/json", f'{{"order":{number},"bytes":{len(body)}}}'.encode()
    response = Response(content, status=201, content_type=kind)
    response.headers["location"] = f"/orders/{number}"
    response.headers["etag"] = f'"{number}"'
    response.headers.add("link", "</orders>; rel=collection")
    response.headers.add("link", "</help>; rel=help")
    response.headers["set-cookie"] = f"session={number}"
    return response


@app.post("/slow")
def slow() -> Response:
    time.sleep(0.3)
    return order()


protected = WSGIMiddleware(app, engine=Engine.open("memory:"), profile=arguments.profile)
listener = socket.create_server(("127.0.0.1", 0), backlog=512)
print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
if arguments.server == "waitress":
    # A duplicate waits on a thread of its own.
    waitress.serve(protected, sockets=[listener], threads=64)
else:
    make_server("127.0.0.1", 0, protected, threaded=True, fd=listener.fileno()).serve_forever()
