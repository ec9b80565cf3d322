"""Known verdicts within a bounded memory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sandbox
from sandbox import Judgement, Verdict
from tasks.sampling.known_verdicts import KNOWN_VERDICTS, VERDICT_BYTES, KnownVerdicts
from warehouse import Warehouse

ROUNDS, SUITES, PROGRAMS = 1000, 300, 40
"""1,000 batches of five problems each, of 300 with 40 programs that come again."""


class Stored:
    """Stands for the warehouse: what was stored is read back."""

    def __init__(self) -> None:
        self.verdicts: dict[tuple[str, str], bool] = {}
        self.read: list[str] = []

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        assert sql == KNOWN_VERDICTS
        suites = parameters[2]
        self.read += suites
        return [
            {"program_hash": p, "suite_hash": s, "verdict": _verdict(passed), "tests_passed": 1, "tests_total": 2}
            for (p, s), passed in self.verdicts.items()
            if s in suites
        ]


def _verdict(passed: bool) -> Verdict:
    return Verdict.accepted if passed else Verdict.wrong_answer


THOUSAND_MB = 1000 * VERDICT_BYTES / 1_000_000
"""Memory for a thousand verdicts."""


def judged(most_mb: float) -> tuple[list[tuple[str, str]], list[int], Stored]:
    """Which programs had to be judged, how many verdicts were in memory after each batch, and the warehouse."""
    stored, draws = Stored(), random.Random(0)
    known = KnownVerdicts(stored, most_mb=most_mb)
    asked: list[tuple[str, str]] = []
    sizes: list[int] = []
    for _ in range(ROUNDS):
        suites = [f"suite-{draws.randrange(SUITES)}" for _ in range(5)]
        known.read(suites)
        fresh: dict[tuple[str, str], bool] = {}
        for suite in suites:
            key = (f"program-{draws.randrange(PROGRAMS)}", suite)
            if known.get(key) is None:
                asked.append(key)
                fresh[key] = draws_of(key)
                known.put(key, Judgement(_verdict(fresh[key]), 1, 2))
            assert known.get(key).verdict == _verdict(draws_of(key))  # type: ignore[union-attr]
        stored.verdicts |= fresh
        sizes.append(known.count)
    return asked, sizes, stored


def draws_of(key: tuple[str, str]) -> bool:
    """Whether a program passes: a function of it alone."""
    return random.Random("/".join(key)).random() < 0.5


def test_a_bound_keeps_memory_flat_and_nothing_is_judged_twice() -> None:
    bounded, sizes, stored = judged(THOUSAND_MB)
    unbounded, growing, _ = judged(1000)
    assert bounded == unbounded
    assert len(set(bounded)) == len(bounded)
    assert max(sizes) <= 1000 + 5
    assert growing[-1] == len(stored.verdicts) > 3000
    assert len(stored.read) > SUITES, "what was forgotten is read again"


def test_the_suites_of_the_present_call_stay_however_many_verdicts_they_have() -> None:
    stored = Stored()
    stored.verdicts = {(f"program-{number}", "large"): True for number in range(2 * 1_000_000 // VERDICT_BYTES)}
    known = KnownVerdicts(stored, most_mb=1)
    known.read(["small"])
    known.read(["large"])
    assert known.get(("program-0", "large")) is not None
    known.read(["small"])
    assert known.get(("program-0", "large")) is None
    assert known.count == 0


def test_expected_suites_are_read_some_at_a_time_and_nothing_is_judged_twice() -> None:
    stored = Stored()
    stored.verdicts = {(f"program-{n}", f"suite-{s}"): True for s in range(SUITES) for n in range(3)}
    known, questions = KnownVerdicts(stored, suites_ahead=100), 0
    known.expect(f"suite-{number}" for number in range(SUITES))
    for number in reversed(range(SUITES)):
        before = len(stored.read)
        known.read([f"suite-{number}"])
        questions += len(stored.read) > before
        assert known.get(("program-2", f"suite-{number}")) == Judgement(Verdict.accepted, 1, 2, reused=True)
    assert questions == 3
    assert sorted(stored.read) == sorted(f"suite-{number}" for number in range(SUITES)), "each once"


def test_no_more_than_half_of_the_memory_is_filled_with_what_is_expected() -> None:
    stored = Stored()
    stored.verdicts = {(f"program-{n}", f"suite-{s}"): True for s in range(SUITES) for n in range(20)}
    known = KnownVerdicts(stored, most_mb=THOUSAND_MB, suites_ahead=10)
    known.expect(f"suite-{number}" for number in range(SUITES))
    for number in range(SUITES):
        known.read([f"suite-{number}"])
        assert known.count <= 1000
        assert known.get(("program-2", f"suite-{number}")) is not None
    assert len(stored.read) == SUITES, "read ahead or not, once"


def test_without_a_warehouse_nothing_is_forgotten_and_a_failing_sandbox_is_no_verdict() -> None:
    known = KnownVerdicts(most_mb=1)
    for number in range(3000):
        known.put((str(number), "suite"), Judgement(Verdict.accepted, 1, 1))
        known.read(["suite"])
    known.put(("broken", "suite"), Judgement(Verdict.infra, 0, 1))
    assert known.count == 3000
    assert known.get(("broken", "suite")) is None


def test_what_is_read_is_what_the_view_of_known_verdicts_shows_for_these_suites(tmp_path: Path) -> None:
    row = {"program_hash": "p", "suite_hash": "s", "sandbox_version": sandbox.VERSION, "verdict": "accepted"}
    others = [{"verdict": "wrong_answer"}, {"suite_hash": "t"}, {"sandbox_version": "0"}, {"program_hash": "q"}]
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("infra", {"verdicts": [row | {"verdict": "infra"}]}, run_id="run")
        for number, changes in enumerate([{}, *others]):
            store.append(str(number), {"verdicts": [row | changes]}, run_id="run")
        columns = "program_hash, suite_hash, verdict, tests_passed, tests_total"
        shown = f"SELECT {columns} FROM known_verdicts WHERE suite_hash = 's' AND sandbox_version = ?"
        found = store.rows(KNOWN_VERDICTS, [sandbox.VERSION, str(Verdict.infra), ["s"]])
        assert sorted(found, key=str) == sorted(store.rows(shown, [sandbox.VERSION]), key=str)
    assert {(one["program_hash"], one["verdict"]) for one in found} == {("p", "accepted"), ("q", "accepted")}
