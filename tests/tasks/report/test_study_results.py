"""Results of a study as a file: what stands in it is not run again, and machines' results are compared together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.report.arms import ArmResult, Spent
from tasks.report.study_results import BadResults, Results, append, read, require_writable

SETTINGS = {"calm": "c0", "wild": "w0"}
PROBLEMS = {"train": "t0", "evaluation": "e0"}
NOTHING: dict[str, tuple[str, ...]] = {"calm": (), "wild": ()}


def arm(
    label: str, finals: dict[int, float], stopped: tuple[int, ...] = (), problems: dict[str, str] = PROBLEMS
) -> ArmResult:
    curves = [{"pass@1": {0: 0.1, 10: final}} for final in finals.values()]
    measures = [{"pass@1": final, "pass@1 of pi_0": 0.1} for final in finals.values()]
    spent = [{10: Spent(64, 900, 2.5)} for _ in finals]
    return ArmResult(label, list(finals), curves, measures, spent, list(stopped), [problems for _ in finals])


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
    with pytest.raises(BadResults):
        read(path, {"calm": "c1"})


def test_an_arm_of_other_problems_is_refused_and_so_is_one_evaluated_on_others_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    append(path, {"calm": arm("calm", {7: 0.3})}, SETTINGS)
    known = read(path, SETTINGS)
    known.check_problems("calm", PROBLEMS, {"calm", "wild"})
    known.check_problems("wild", PROBLEMS | {"train": "t1"}, {"calm", "wild"})
    known.check_problems("wild", {"train": "t1", "evaluation": "e1"}, {"wild"})
    with pytest.raises(BadResults):
        known.check_problems("calm", PROBLEMS | {"train": "t1"})
    with pytest.raises(BadResults):
        known.check_problems("wild", {"train": "t1", "evaluation": "e1"}, {"calm", "wild"})


def test_a_file_in_which_an_arms_seeds_are_of_other_problems_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "study.jsonl", tmp_path / "other.jsonl"
    append(path, {"calm": arm("calm", {0: 0.3})}, SETTINGS)
    append(other, {"calm": arm("calm", {1: 0.3}, problems={"train": "t0", "evaluation": "e1"})}, SETTINGS)
    path.write_text(path.read_text() + other.read_text())
    with pytest.raises(BadResults):
        read(path, SETTINGS)


def test_a_file_in_which_compared_arms_are_evaluated_on_other_problems_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    append(path, {"calm": arm("calm", {0: 0.3})}, SETTINGS)
    append(path, {"wild": arm("wild", {0: 0.3}, problems=PROBLEMS | {"evaluation": "e1"})}, SETTINGS)
    assert read(path, SETTINGS, [["calm"], ["wild"]]).arms == {"calm", "wild"}
    with pytest.raises(BadResults):
        read(path, SETTINGS, [["calm", "wild"]])


def test_lines_that_do_not_say_their_problems_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    append(path, {"calm": arm("calm", {0: 0.3, 1: 0.3})}, SETTINGS)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del lines[0]["problems"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = read(path, SETTINGS)
    assert list(known.added("calm", arm("calm", {2: 0.3})).problems) == [PROBLEMS, {}, PROBLEMS]
    known.check_problems("calm", PROBLEMS)


def test_a_last_line_without_its_end_is_no_part_of_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    append(path, {"calm": arm("calm", {0: 0.3})}, SETTINGS)
    path.write_text(path.read_text().rstrip())
    append(path, {"calm": arm("calm", {1: 0.3})}, SETTINGS)
    assert [seed for _, seed in read(path, SETTINGS).ended] == [0, 1]


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadResults):
        require_writable(tmp_path / "file" / "study.jsonl")
    require_writable(tmp_path / "new" / "study.jsonl")
    assert read(tmp_path / "new" / "study.jsonl", SETTINGS).arms == set()


@pytest.mark.parametrize(
    "text",
    ["{", "3", '{"arm": "calm"}'],
)
def test_a_line_that_is_no_result_is_refused_by_number(text: str, tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadResults):
        read(path, SETTINGS)
