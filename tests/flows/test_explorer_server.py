"""Who is answered by the server of `spo ui`, and what every answer carries."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from flows.cli.main import app as command
from flows.explorer_server import AddressTaken, App, Guard, Serving, loopback, serve
from tasks.explorer.pages import Explorer
from tests.warehouse.conftest import trajectories
from warehouse import Warehouse, WarehouseMissing
from warehouse.reading.readers import Readers


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("home")
    with Warehouse.open(folder / "warehouse") as store:
        store.append("a", {"trajectories": trajectories(5)}, run_id="one")
    with Readers.open(folder / "warehouse") as readers:
        readers.fill()
        yield Explorer(readers, folder)


def ask(
    explorer: Explorer,
    guard: Guard,
    path: str = "/",
    *,
    method: str = "GET",
    host: str = "127.0.0.1:4280",
    headers: Mapping[str, str] | None = None,
) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app=App(explorer, guard))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return await client.request(method, path, headers=dict(headers or {}))

    return asyncio.run(asked())


HERE = Guard.of("127.0.0.1", None)
ELSEWHERE = Guard.of("0.0.0.0", "the-token")


@pytest.mark.parametrize(
    "path", ["/", "/problems", "/nothing", "/static/explorer.css", "/ask.csv?sql=FROM+runs", "/live"]
)
def test_every_answer_lets_the_browser_load_and_run_nothing_but_our_own_files(explorer: Explorer, path: str) -> None:
    policy = ask(explorer, HERE, path).headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert ask(explorer, HERE, path).headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/ask"])
def test_nothing_but_get_is_answered(explorer: Explorer, method: str, path: str) -> None:
    assert ask(explorer, HERE, path, method=method).status_code == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4280", "127.0.0.1.evil.org", "localhost.", "[::2]:1"])
def test_another_name_in_the_host_header_is_refused(explorer: Explorer, host: str) -> None:
    reply = ask(explorer, HERE, headers={"host": host})
    assert reply.status_code == 421
    assert "responses" not in reply.text


@pytest.mark.parametrize("host", ["127.0.0.1:4280", "localhost:4280", "localhost", "[::1]:4280"])
def test_this_machines_names_are_answered(explorer: Explorer, host: str) -> None:
    assert ask(explorer, HERE, headers={"host": host}).status_code == 200


def test_beyond_this_machine_only_the_token_lets_in_and_leaves_the_address(explorer: Explorer) -> None:
    assert ask(explorer, ELSEWHERE).status_code == 401
    assert ask(explorer, ELSEWHERE, "/?token=wrong").status_code == 401
    assert ask(explorer, ELSEWHERE, "/static/explorer.js").status_code == 401
    entered = ask(explorer, ELSEWHERE, "/problems?q=a&token=the-token")
    assert (entered.status_code, entered.headers["location"]) == (303, "/problems?q=a")
    assert "HttpOnly" in entered.headers["set-cookie"]
    cookie = entered.headers["set-cookie"].split(";")[0]
    assert ask(explorer, ELSEWHERE, "/problems", headers={"cookie": cookie}).status_code == 200
    assert ask(explorer, ELSEWHERE, "/problems", headers={"cookie": "spo-token=wrong"}).status_code == 401


def test_a_server_beyond_this_machine_always_has_a_token() -> None:
    made = Guard.of("0.0.0.0", None).token
    assert made is not None
    assert len(made) >= 24
    assert made != Guard.of("0.0.0.0", None).token
    assert Guard.of("localhost", None).token is None
    assert [loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [loopback(host) for host in ("0.0.0.0", "::", "192.168.1.5", "example.org")] == [False] * 4


def test_files_other_than_our_two_are_not_served(explorer: Explorer) -> None:
    assert ask(explorer, HERE, "/static/explorer.css").headers["content-type"].startswith("text/css")
    for path in ("/static/../pages.py", "/static/%2e%2e/pages.py", "/static/explorer.css/", "/templates/frame.html"):
        assert ask(explorer, HERE, path).status_code == 404


def test_a_page_that_waits_says_when_to_come_again(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("a", {"trajectories": trajectories(5)}, run_id="one")
    with Readers.open(tmp_path / "warehouse") as unfilled:
        reply = ask(Explorer(unfilled, tmp_path), HERE, "/problems")
        assert reply.status_code == 503
        assert reply.headers["retry-after"] == "1"
        assert 'http-equiv="refresh"' in reply.text
        assert ask(Explorer(unfilled, tmp_path), HERE, "/").status_code == 200


def test_without_a_warehouse_the_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPO_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("SPO_WAREHOUSE", raising=False)
    result = CliRunner().invoke(command, ["ui", "--port", "0"])
    assert isinstance(result.exception, WarehouseMissing)
    assert not (tmp_path / "none").exists()


def test_a_taken_port_is_one_message(tmp_path: Path) -> None:
    Warehouse.open(tmp_path / "warehouse").close()
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(AddressTaken, match=f"127\\.0\\.0\\.1, port {port}:"):
            serve(str(tmp_path / "warehouse"), tmp_path, Serving("127.0.0.1", port, None, 1.0), told.append)
    assert told == []
