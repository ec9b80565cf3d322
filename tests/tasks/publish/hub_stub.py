"""What the Hugging Face hub answers to a push, for its own client to talk to: repositories kept in memory."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LARGE = (".safetensors", ".parquet", ".png")


class Hub:
    """Repositories by `models/owner/name` or `datasets/owner/name`: their files."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.objects: dict[str, bytes] = {}
        self.address = ""


class Handler(BaseHTTPRequestHandler):
    """One request to a hub."""

    hub: Hub

    def do_POST(self) -> None:
        """Repositories are made, uploads announced, commits taken."""
        body = self._body()
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._answer({"error": "Invalid credentials in Authorization header"}, 401)
            return
        path = self.path.partition("?")[0].strip("/")
        if path == "api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif path == "api/repos/create":
            self._create(json.loads(body))
        elif path.endswith("/info/lfs/objects/batch"):
            self._answer({"transfer": "basic", "objects": [self._upload(one) for one in json.loads(body)["objects"]]})
        elif "/preupload/" in path:
            files = [one["path"] for one in json.loads(body)["files"]]
            modes = [{"path": p, "uploadMode": "lfs" if p.endswith(LARGE) else "regular"} for p in files]
            self._answer({"files": [mode | {"shouldIgnore": False} for mode in modes]})
        elif "/commit/" in path:
            self._commit(path.removeprefix("api/").partition("/commit/")[0], body)
        else:
            self._answer({"error": f"no such address: {path}"}, 404)

    def do_PUT(self) -> None:
        """A large file arrives."""
        self.hub.objects[self.path.rsplit("/", 1)[-1]] = self._body()
        self._answer({})

    def do_GET(self) -> None:
        """Nothing is there yet."""
        self._answer({"error": f"no such address: {self.path}"}, 404)

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps the tests' output quiet."""

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, found: Any, status: int = 200) -> None:
        content = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _create(self, asked: dict[str, Any]) -> None:
        kind = {"dataset": "datasets"}.get(asked.get("type") or "model", "models")
        name = f"{asked['organization']}/{asked['name']}"
        self.hub.repositories.setdefault(f"{kind}/{name}", {})
        self.hub.private[f"{kind}/{name}"] = bool(asked.get("private")) or asked.get("visibility") == "private"
        prefix = "" if kind == "models" else f"{kind}/"
        self._answer({"url": f"{self.hub.address}/{prefix}{name}", "id": name, "name": name})

    def _upload(self, asked: dict[str, Any]) -> dict[str, Any]:
        return asked | {"actions": {"upload": {"href": f"{self.hub.address}/objects/{asked['oid']}"}}}

    def _commit(self, repository: str, body: bytes) -> None:
        for line in (json.loads(line) for line in body.splitlines() if line.strip()):
            value, files = line["value"], self.hub.repositories[repository]
            if line["key"] == "file":
                assert value["encoding"] == "base64"
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
        name = repository.removeprefix("models/")
        self._answer({"success": True, "commitUrl": f"{self.hub.address}/{name}/commit/abc", "commitOid": "abc"})


@contextmanager
def running(token: str) -> Iterator[Hub]:
    """A hub that knows one token; at `Hub.address` until the block ends."""
    hub = Hub(token)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
