"""Results of a study as a file: what stands in it is not run again, and machines' results are compared together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.report.reached import Spent
from tasks.report.study import ArmResult
from tasks.report.study_results import BadResults, Results, append, read

SETTINGS = {"calm": "c0", "wild": "w0"}
NOTHING: dict[str, tuple[str, ...]] = {"calm": (), "wild": ()}


def arm(label: str, finals: dict[int, float], stopped: tuple[int, ...] = ()) -> ArmResult:
    curves = [{"pass@1": {0: 0.1, 10: final}} for final in finals.values()]
    measures = [{"pass@1": final, "pass@1 of pi_0": 0.1} for final in finals.values()]
    return ArmResult(label, list(finals), curves, measures, [{10: Spent(64, 900, 2.5)} for _ in finals], list(stopped))


def test_results_of_two_machines_are_one_arm_to_the_last_digit(tmp_path: Path) -> None:
    path = tmp_path / "results" / "study.jsonl"
    here = {"calm": arm("calm", {0: 0.1 + 0.2, 1: 0.5}), "wild": arm("wild", {}, (0,))}
    assert append(path, here, SETTINGS) == 3
    known = read(path, SETTINGS)
    assert known.arms == {"calm", "wild"}
    assert known.added("calm", arm("calm", {2: 0.7})) == arm("calm", {2: 0.7, 0: 0.1 + 0.2, 1: 0.5})
    assert known.added("wild", arm("wild", {1: 0.4})) == arm("wild", {1: 0.4}, (0,))


def test_a_file_grows_by_what_it_does_not_know_and_what_was_run_here_counts_first(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    append(path, {"calm": arm("calm", {0: 0.3})}, SETTINGS)
    known = read(path, SETTINGS)
    again = {"calm": arm("calm", {0: 0.4, 1: 0.5})}
    assert known.added("calm", again["calm"]) == again["calm"]
    assert append(path, again, SETTINGS) == 1
    assert append(path, again, SETTINGS) == 0
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [0, 1]


def test_what_is_missing_takes_along_the_runs_that_it_draws_on(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    append(path, {"calm": arm("calm", {0: 0.3, 1: 0.3})}, SETTINGS)
    known = read(path, SETTINGS)
    work = [("calm", 0), ("wild", 0), ("calm", 1), ("wild", 1), ("calm", 2)]
    assert known.missing(work, NOTHING) == [("wild", 0), ("wild", 1), ("calm", 2)]
    append(path, {"wild": arm("wild", {1: 0.3})}, SETTINGS)
    after = {"calm": (), "wild": ("calm",)}
    assert read(path, SETTINGS).missing(work, after) == [("calm", 0), ("wild", 0), ("calm", 2)]


def test_no_file_yet_knows_nothing_and_other_studies_arms_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    assert read(path, SETTINGS) == Results()
    append(path, {"calm": arm("calm", {0: 0.3})}, SETTINGS)
    assert read(path, {"wild": "w0"}) == Results()


def test_results_of_other_settings_are_refused_by_line_and_arm(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    append(path, {"calm": arm("calm", {7: 0.3})}, SETTINGS)
    with pytest.raises(BadResults, match=r"line 1: arm 'calm', seed 7 .* other settings"):
        read(path, {"calm": "c1"})


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "line 1 is no JSON object"), ("3", "line 1"), ('{"arm": "calm"}', "line 1 is no result of a study")],
)
def test_a_line_that_is_no_result_is_refused_by_number(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadResults, match=words):
        read(path, SETTINGS)
