"""A model behind an OpenAI-compatible server that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


@contextmanager
def server(answers: list[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An OpenAI-compatible server that answers by what the prompt names; its address, what it was asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            text = next(one for one in answers if one.split("(")[0].split()[-1] in body["messages"][0]["content"])
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            content = json.dumps(
                {"id": "1", "object": "chat.completion", "created": 0, "model": "m"} | {"choices": [choice]}
            )
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Keeps the tests' output quiet."""

    running = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}/v1", asked
    finally:
        running.shutdown()
        running.server_close()
        thread.join()
