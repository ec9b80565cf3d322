"""The web server of `spo ui`: reads only, answers this machine only unless told otherwise, trusts no text.

What guards it: there is no route that writes and no method but GET; the name in the Host header must be one of this
server's, so that a page elsewhere cannot reach it by pointing its own name here; beyond this machine a token is needed;
the Content-Security-Policy lets the browser run and load nothing but this server's own two files.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from tasks.errors import CodedError
from tasks.explorer.pages import CSV, Explorer, Reply
from tasks.explorer.rendering import FOLDER
from warehouse.reading.readers import Readers

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATIC = {"explorer.css": "text/css; charset=utf-8", "explorer.js": "text/javascript; charset=utf-8"}
COOKIE = "spo-token"
PATIENCE_S = 10.0
"""Time that reading in the background has to end before the warehouse is closed under it."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Guard:
    """Who may ask. `token` is None where only this machine can."""

    hosts: frozenset[str]
    """Names (without port) that a request may call this server by; empty: any."""
    token: str | None

    @classmethod
    def of(cls, host: str, token: str | None) -> Guard:
        """The guard of a server bound to `host`: beyond this machine it has a token, made up if none is given."""
        if loopback(host):
            return cls(frozenset({"127.0.0.1", "localhost", "[::1]", host}), token)
        return cls(frozenset(), token or secrets.token_urlsafe(24))

    def refusal(self, request: Request) -> Response | None:
        """What a request that may not be answered is told; None for one that may."""
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("only GET: nothing can be changed from here\n", 405, {"Allow": "GET, HEAD"})
        if self.hosts and _name(request.headers.get("host", "")) not in self.hosts:
            return PlainTextResponse("this server does not answer to that name\n", 421)
        if self.token is None or secrets.compare_digest(_cookie(request).encode(), self.token.encode()):
            return None
        return self._entering(request, self.token)

    def _entering(self, request: Request, token: str) -> Response:
        """A request whose address carries the token gets it as a cookie, and an address without it."""
        values = parse_qsl(request.url.query, errors="replace")
        given = next((value for name, value in values if name == "token"), "")
        if not secrets.compare_digest(given.encode(), token.encode()):
            return PlainTextResponse("a token is needed: open the address that `spo ui` has printed\n", 401)
        rest = urlencode([(name, value) for name, value in values if name != "token"])
        response = RedirectResponse(request.url.path + ("?" + rest if rest else ""), 303)
        response.set_cookie(COOKIE, token, httponly=True, samesite="lax", path="/")
        return response


def loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """The Host header without its port."""
    return host[: host.index("]") + 1] if "]" in host else host.partition(":")[0]


def _cookie(request: Request) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


class App:
    """The ASGI application over one explorer."""

    def __init__(self, explorer: Explorer, guard: Guard) -> None:
        self._explorer = explorer
        self._guard = guard
        self._static = {name: (FOLDER / "static" / name).read_bytes() for name in STATIC}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        response = self._guard.refusal(request) or await self._respond(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path = request.url.path
        folder, _, name = path.removeprefix("/").partition("/")
        if folder == "static" and name in STATIC:
            return Response(self._static[name], media_type=STATIC[name], headers={"Cache-Control": "no-cache"})
        try:
            reply = await run_in_threadpool(self._explorer.reply, path, request.url.query)
        except Exception:  # the browser is told that it failed, the log why
            log.exception("the page %s failed", path)
            return PlainTextResponse("this page failed; what `spo ui` has printed says why\n", 500)
        return _sent(reply)


def _sent(reply: Reply) -> Response:
    headers = {} if reply.wait_s is None else {"Retry-After": str(reply.wait_s)}
    if reply.media_type == CSV:
        headers["Content-Disposition"] = 'attachment; filename="answer.csv"'
    return Response(reply.body, reply.status, headers, reply.media_type)


@dataclass(frozen=True, slots=True)
class Serving:
    """How the pages are served."""

    host: str
    port: int
    """0 takes a free one."""
    token: str | None
    asked_s: float
    """Time limit of a typed question."""


def serve(location: str, home: Path, serving: Serving, told: Callable[[str], None]) -> None:
    """Serve the pages of the warehouse at `location` until interrupted; `told` gets the address once it answers.

    Raises AddressTaken, WarehouseMissing and what opening raises.
    """
    host = serving.host
    guard = Guard.of(host, serving.token)
    with Readers.open(location) as readers, _listening(host, serving.port) as bound:
        filling = threading.Thread(target=readers.fill, daemon=True, name="fill")
        filling.start()
        config = uvicorn.Config(
            App(Explorer(readers, home, asked_s=serving.asked_s), guard),
            host=host,
            port=serving.port,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
        )
        server = _Server(config, lambda bound: told(_address(host, bound, guard.token)))
        try:
            server.run(sockets=[bound])
        finally:
            filling.join(PATIENCE_S)


class AddressTaken(CodedError):
    """The pages cannot be served at this address."""


def _listening(host: str, port: int) -> socket.socket:
    """A socket bound to the address, before anything else has begun. Raises AddressTaken."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise AddressTaken(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another port (--port 0 takes a "
            f"free one) or address (--host)"
        ) from error


class _Server(uvicorn.Server):
    """Tells its port once it listens."""

    def __init__(self, config: uvicorn.Config, told: Callable[[int], None]) -> None:
        super().__init__(config)
        self._told = told

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            self._told(self.servers[0].sockets[0].getsockname()[1])


def _address(host: str, port: int, token: str | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?{urlencode({'token': token})}" if token else "")
