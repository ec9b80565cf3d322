"""A small HTTP server that answers in the place of Prefect's."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch

import pytest

Answer = tuple[int, Any]


class StandIn:
    """Answers as `answer` says, by default 200; keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.answer: Callable[[str, str], Answer] = lambda _method, _path: (200, {})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.api = f"http://127.0.0.1:{self.http.server_port}/api"

    @property
    def port(self) -> int:
        return self.http.server_port


def _handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            stand_in.asked.append((self.command, self.path, json.loads(given) if given else None))
            status, body = stand_in.answer(self.command, self.path)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    return Handler


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A server on a port of this machine; the environment is afterwards what it was."""
    made = StandIn()
    threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    with patch.dict(os.environ):
        yield made
    made.http.shutdown()
    made.http.server_close()
