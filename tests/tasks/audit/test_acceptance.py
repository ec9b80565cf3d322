"""What an audit found becomes a test of a new suite; the old one, and every verdict by it, stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import Limits
from tasks.extras.audit import acceptance
from tasks.extras.audit.acceptance import Accepted, NothingToAccept, accept
from tasks.extras.audit.audits import Wanted, audit, look
from tasks.problems import suite_versions
from tasks.programs.extraction import program_hash
from tests.shared_folder import copy_home
from tests.tasks.audit.conftest import ALSO_RIGHT, CRASHES, PROBLEM, RIGHT, WRONG, Shelf
from tests.tasks.conftest import Lab, breaking, interrupt


def accepted(shelf: Shelf, problems: Sequence[str] | None) -> Accepted:
    with shelf.store() as store:
        return accept(store, problems)


@pytest.fixture(scope="module")
def _audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    shelf = Shelf(str(folder / "warehouse"))
    shelf.put(PROBLEM, [WRONG, CRASHES, ALSO_RIGHT], [RIGHT])
    with shelf.store() as store:
        assert audit(store, look(store, Wanted(inputs=30))).survivors == 2
    return folder


@pytest.fixture
def audited(_audited: Path, tmp_path: Path) -> Shelf:
    """A problem with two survivors, audited."""
    return Shelf(str(copy_home(_audited, tmp_path / "audited") / "warehouse"))


def test_a_finding_becomes_a_hidden_test_of_a_new_suite_and_the_old_one_stays(audited: Shelf) -> None:
    done = accepted(audited, [PROBLEM.problem_id])
    assert (done.suites, done.tests, done.judged, done.failing) == (1, 1, 3, 2)
    with audited.store() as store:
        (version,) = store.rows("FROM suite_versions")
        old, new = PROBLEM.suite_hash, version["suite_hash"]
        assert (version["parent_suite_hash"], version["version"]) == (old, 2)
        assert version["added"] == [{"input": "0\n", "output": "0\n"}]
        assert version["audit_ids"] == [store.value("SELECT audit_id FROM audits")]
        tests = store.rows("SELECT input, expected, hidden FROM tests WHERE suite_hash = ? ORDER BY position", [new])
        assert [test["hidden"] for test in tests] == [False, False, True, True]
        assert tests[-1] == {"input": "0\n", "expected": "0\n", "hidden": True}
        assert store.value("SELECT count(*) FROM tests WHERE suite_hash = ?", [old]) == 3
        assert store.value("SELECT count(*) FROM trajectories WHERE verdict = 'accepted'") == 3


def test_the_view_says_each_verdict_by_the_suite_that_counts(audited: Shelf) -> None:
    with audited.store() as store:
        before = store.rows("SELECT program_hash, verdict, version FROM rejudged")
        assert {(row["verdict"], row["version"]) for row in before} == {("accepted", 1)}
    accepted(audited, None)
    with audited.store() as store:
        found = {row["program_hash"]: row for row in store.rows("FROM rejudged")}
    verdicts = {text: found[program_hash(text)]["verdict"] for text in (WRONG, CRASHES, ALSO_RIGHT)}
    assert verdicts == {WRONG: "wrong_answer", CRASHES: "runtime_error", ALSO_RIGHT: "accepted"}
    assert {row["verdict_then"] for row in found.values()} == {"accepted"}
    assert {row["judged_by"] for row in found.values()} == {PROBLEM.suite_hash}
    assert {row["version"] for row in found.values()} == {2}


def test_accepting_again_changes_nothing_and_a_name_without_findings_is_told(audited: Shelf) -> None:
    accepted(audited, None)
    with audited.store() as store:
        snapshot = store.snapshot()
        again = accept(store, None)
        assert (again.suites, again.tests, again.judged) == (0, 0, 0)
        with pytest.raises(NothingToAccept):
            accept(store, [PROBLEM.problem_id])
        assert store.snapshot() == snapshot


def test_broken_off_while_history_is_judged_it_goes_on(audited: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.run.stored_judging.AT_ONCE", 1)
    interrupted = breaking("", 3, interrupt)  # the suite is stored, and one program's verdict
    with interrupted.open(audited.location) as store, pytest.raises(KeyboardInterrupt):
        accept(store, None)
    assert accepted(audited, [PROBLEM.problem_id]).judged == 2


def test_the_next_audit_is_of_the_new_suite_with_what_passes_it(audited: Shelf) -> None:
    accepted(audited, None)
    with audited.store() as store:
        backlog = look(store, Wanted(inputs=30))
        (group,) = backlog.groups
        assert group.problem.suite_hash == store.value("SELECT suite_hash FROM suite_versions")
        assert [one.program_hash for one in group.programs] == [program_hash(ALSO_RIGHT)]
        assert audit(store, backlog).disagreeing == 0


def test_findings_without_a_solution_are_accepted_by_name_alone(shelf: Shelf) -> None:
    shelf.put(PROBLEM, [WRONG, RIGHT, ALSO_RIGHT])
    with shelf.store() as store:
        audit(store, look(store, Wanted(inputs=30)))
        assert accept(store, None).suites == 0
        assert accept(store, [PROBLEM.problem_id]).suites == 1


def test_as_few_tests_as_will_do_are_chosen() -> None:
    rows = [{"input": f"{n}", "dissenters": names} for n, names in enumerate([["a"], ["a", "b"], ["b"], ["a", "b"]])]
    assert [row["input"] for row in acceptance.chosen(rows)] == ["1", "3"]
    many = [{"input": f"{n}", "dissenters": [f"p{n}"]} for n in range(50)]
    assert len(acceptance.chosen(many)) == acceptance.MOST_TESTS


def test_accepted_tests_hold_for_the_same_tests_under_other_limits(audited: Shelf) -> None:
    accepted(audited, None)
    with audited.store() as store:
        added = suite_versions.added_tests(store.rows("SELECT * FROM suite_versions"))
    slower = replace(PROBLEM, limits=Limits(cpu_s=9))
    first, second = suite_versions.extended(slower, added)
    assert (first, second.tests[-1].input, len(second.tests)) == (slower, "0\n", 4)
    changed = replace(PROBLEM, hidden_tests=())
    assert suite_versions.extended(changed, added) == [changed]


def test_new_runs_take_the_tests_in_and_say_so_unless_the_recipe_does_not_want_them(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    quick: dict[str, Any] = {"reference": {"pretrain": {"steps": 2}}}
    first = lab.start("first", quick)
    before = lab.run(first, "prepare")["prepare"].manifest
    assert before.suite_versions == {}
    shelf = Shelf(lab.location)
    with shelf.store() as store:
        (row,) = store.rows("SELECT problem_id, suite_hash FROM problems WHERE split = 'train' ORDER BY ALL LIMIT 1")
        finding = {"audit_id": "a", **row, "position": 0, "input": "1 2\n", "expected": "3\n", "basis": "reference"}
        audited = {"audit_id": "a", **row, "programs": ["p"], "solutions": [], "inputs": 1, "discarded": 0}
        tables = {
            "audits": [audited | {"behaviours": 2, "disagreeing": 1}],
            "audit_findings": [finding | {"groups": 2, "dissenters": ["p"]}],
        }
        store.append("audit/a", tables, run_id="audit")
        assert accept(store, None).suites == 1
    second = lab.run(lab.start("second", quick), "prepare")["prepare"]
    assert not second.skipped
    assert second.manifest.suite_versions == {row["problem_id"]: 2}
    third = lab.run(lab.start("third", quick | {"problems": {"accepted_tests": False}}), "prepare")["prepare"].manifest
    assert (third.suite_versions, third.problems_batch) == ({}, before.problems_batch)
