"""The service of ledger.py with FastAPI: `charge` is the same.

    pip install "psycopg[binary]" fastapi uvicorn
    DATABASE_URL=postgresql://app@127.0.0.1/shop PORT=3000 python ledger_fastapi.py
"""

import os
import socket
from typing import Optional

import psycopg
import uvicorn
from fastapi import FastAPI, Header, Response
from pydantic import BaseModel

from ledger import charge

app = FastAPI()


class Asked(BaseModel):
    cents: int


@app.post("/charges")
def create(asked: Asked, onlyonce_lease: Optional[str] = Header(None)):
    try:
        headers, body = charge(onlyonce_lease, asked.cents)
        return Response(body, 201, headers)
    except psycopg.Error as error:
        # ONCE1: another attempt has taken over, and its answer is the one that counts.
        return Response(b"rolled back", 503, {"x-sqlstate": error.sqlstate or ""})


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", 3000))))
    print(f"listening on {listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
