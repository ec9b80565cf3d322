"""Which candidates an offline corpus keeps."""

from __future__ import annotations

from tasks.corpus.selection import CorpusCandidate, choose
from tests.tasks.problems.test_dedup import LONG

EDITED = LONG.replace("best[-1][-1]", "best[rows - 1][-1]")


def candidates(*programs: tuple[str, str, bool, str]) -> list[CorpusCandidate]:
    return [CorpusCandidate(*program) for program in programs]


def test_the_first_of_near_duplicates_is_kept() -> None:
    found = candidates(("a", "human", True, LONG), ("b", "reference", True, EDITED), ("c", "human", True, "print(1)"))
    assert choose(found, threshold=0.8, cap=9) == {"a": "kept", "b": "near duplicate", "c": "kept"}


def test_a_wrong_program_is_no_duplicate_of_a_right_one() -> None:
    found = candidates(("a", "human", True, LONG), ("b", "human", False, EDITED))
    assert set(choose(found, threshold=0.8, cap=9).values()) == {"kept"}


def test_threshold_one_keeps_every_candidate() -> None:
    found = candidates(("a", "human", True, LONG), ("b", "human", True, EDITED))
    assert set(choose(found, threshold=1.0, cap=9).values()) == {"kept"}


def test_sources_take_turns_under_the_cap() -> None:
    programs = [f"print({n})" for n in range(6)]
    found = candidates(
        *[(f"h{n}", "human", True, program) for n, program in enumerate(programs[:4])],
        *[(f"r{n}", "reference", True, program) for n, program in enumerate(programs[4:])],
    )
    kept = {name for name, fate in choose(found, threshold=1.0, cap=3).items() if fate == "kept"}
    assert kept == {"h0", "r0", "h1"}


def test_nothing_is_chosen_from_nothing() -> None:
    assert choose([], threshold=0.8, cap=1) == {}
