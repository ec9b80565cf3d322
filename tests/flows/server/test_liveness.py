"""A flow run that a jump of the server's clock ended is put back by its own process; other ends stand."""

from __future__ import annotations

import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Cancelling, Crashed, Running

import flows
from flows.server import liveness
from flows.server.deployments import SILENT, automation


class Api:
    """Prefect's client as far as it is used here: the state of one flow run."""

    def __init__(self, state: State[Any]) -> None:
        self.state = state

    def read_flow_run(self, _: object) -> Any:
        return SimpleNamespace(state=self.state)

    def set_flow_run_state(self, _: object, state: State[Any], *, force: bool) -> None:
        assert force
        self.state = state


def test_a_run_that_was_taken_for_dead_runs_again() -> None:
    message = automation()["actions"][0]["message"]
    api = Api(Crashed(message=message))
    assert liveness.put_back(api, uuid4())
    assert api.state.is_running()


@pytest.mark.parametrize(
    "state", [Running(), Cancelled(message=SILENT), Crashed(message="Flow run process exited with status -9")]
)
def test_any_other_state_stands(state: State[Any]) -> None:
    api = Api(state)
    assert not liveness.put_back(api, uuid4())
    assert api.state is state


def test_a_server_that_is_away_ends_nothing() -> None:
    class Away(Api):
        def read_flow_run(self, _: object) -> Any:
            raise httpx.ConnectError("refused")

    assert not liveness.put_back(Away(Running()), uuid4())


@pytest.mark.parametrize(
    ("state", "worker_died", "stopped"),
    [(Cancelling(), True, True), (Cancelled(), True, True), (Cancelling(), False, False), (Running(), True, False)],
)
def test_a_cancelled_run_whose_worker_died_stops_itself_once(
    state: State[Any], worker_died: bool, stopped: bool
) -> None:
    terms: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: terms.append(number))
    worker = 2**22 if worker_died else os.getppid()
    try:
        with liveness.kept_running(uuid4(), every_s=0.01, worker=worker, connect=lambda: nullcontext(Api(state))):
            time.sleep(0.1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert terms == ([signal.SIGTERM] if stopped else [])


def test_every_flow_that_is_deployed_looks_after_its_own_state() -> None:
    deployed = {path: path.read_text(encoding="utf-8") for path in Path(flows.__file__).parent.glob("*.py")}
    deployed = {path.stem: text for path, text in deployed.items() if '@flow(name="spo",' in text}
    assert {"pipeline", "study", "evaluation", "rejudge", "audit"} <= deployed.keys()
    assert [name for name, text in deployed.items() if "with kept_running(" not in text] == []
