"""`spo audit` names what survived weak tests, accepts what it found, and is done the second time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.cli import audit_command
from tasks.audit import audits
from tests.flows.conftest import Server
from tests.tasks.audit.conftest import ALSO_RIGHT, PROBLEM, RIGHT, WRONG, Shelf
from warehouse import Warehouse


def test_a_survivor_is_found_accepted_as_a_test_and_told_no_more(tmp_path: Path) -> None:
    at_home = Server(tmp_path / "home")
    nowhere = at_home.spo("audit")
    assert nowhere.returncode == 1
    assert "there is no warehouse at" in nowhere.stderr
    Warehouse.open(str(at_home.home / "warehouse")).close()
    nothing = at_home.spo("audit")
    assert "there is nothing to audit" in nothing.stdout, nothing.stderr
    Shelf(str(at_home.home / "warehouse")).put(PROBLEM, [WRONG, ALSO_RIGHT], [RIGHT])
    refused = at_home.spo("audit", "nobody/knows")
    assert refused.returncode == 1
    assert "no problem 'nobody/knows'" in refused.stderr
    try:
        done = at_home.spo("audit", "--inputs", "30")
        assert done.returncode == 0, done.stdout + done.stderr
        assert PROBLEM.problem_id in done.stdout
        assert "1 problems audited, 1 of them now" in done.stdout
        again = at_home.spo("audit", "--inputs", "30", "--json")
        (row,) = map(json.loads, again.stdout.splitlines())
        assert (row["programs"], row["disagreeing"], len(row["survivors"])) == (3, 1, 1)
        assert at_home.value("SELECT count(*) FROM audits") == 1
        accepted = at_home.spo("audit", "--accept", "--all")
        assert "1 tests added to 1 suites" in accepted.stdout, accepted.stdout + accepted.stderr
        assert "on 1 problems all programs agree" in at_home.spo("audit", "--inputs", "30").stdout
    finally:
        assert at_home.spo("down").returncode == 0
    by_now = "SELECT count(*) FROM rejudged WHERE verdict_then = 'accepted' AND verdict = 'wrong_answer'"
    assert at_home.value(by_now) == 1


def test_accepting_needs_names_or_all(tmp_path: Path) -> None:
    at_home = Server(tmp_path / "home")
    for arguments in (["--accept"], ["--accept", "--all", "x"], ["--all"], ["--accept", "x", "--run", "y"]):
        result = at_home.spo("audit", *arguments)
        assert result.returncode == 2, result.stdout + result.stderr
        assert "--all" in result.stderr


def test_accepting_reads_no_problem_but_those_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    monkeypatch.delenv("SPO_WAREHOUSE", raising=False)
    Shelf(str(tmp_path / "warehouse")).put(PROBLEM, [WRONG, ALSO_RIGHT], [RIGHT])
    read: list[int] = []
    submitted: list[dict[str, Any]] = []
    parsed = audits.stored_problems

    def stored_problems(store: Warehouse, suites: list[str]) -> list[Any]:
        read.append(len(suites))
        return parsed(store, suites)

    monkeypatch.setattr(audits, "stored_problems", stored_problems)
    monkeypatch.setattr(audits, "_programs", lambda *_: pytest.fail("names are checked without their programs"))
    monkeypatch.setattr(audit_command, "_submit", lambda parameters, **_: submitted.append(parameters))
    audit_command.audit(accept=True, everything=True, set_=None, run=None)
    assert (read, submitted) == ([], [{"problems": [], "accept": True}])
    audit_command.audit([PROBLEM.problem_id], accept=True, everything=False, set_=None, run=None)
    assert (read, len(submitted)) == ([1], 2)
    with pytest.raises(audits.NothingToAudit, match="'nobody/knows'"):
        audit_command.audit(["nobody/knows"], accept=True, everything=False, set_=None, run=None)
    assert len(submitted) == 2
