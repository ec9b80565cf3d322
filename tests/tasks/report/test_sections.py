"""The parts of a report from histories made up for the purpose: one run, several, and runs that have not got far."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandbox import TestCase
from tasks.config import RunConfig, validate
from tasks.evaluate.eval_samples import Scores
from tasks.problems.problem import Problem
from tasks.report import chart_sections, prompt_sections, reuse_sections, table_sections
from tasks.report import run_report as report
from tasks.report.comparison import NothingToCompare, paired
from tasks.report.report_page import report_html
from tasks.report.run_history import Point, RunHistory
from tasks.run.prompt_set import PromptedProblem

KS = (1, 10)


def config(**changes: object) -> RunConfig:
    return validate({"evaluate": {"ks": KS}} | changes)


def scores(*successes: int, sets: int = 1) -> Scores:
    """20 samples a problem, dealt out to the problem sets in turn."""
    return {f"set{s}": {f"p{i}": (20, k) for i, k in enumerate(successes) if i % sets == s} for s in range(sets)}


def point(step: int, found: Scores, entropy: float | None = 0.3) -> Point:
    return Point(step, f"policy-{step}", found, 64 * step, 2.5 * step, 1.5, 0.4, entropy)


def history(name: str, *points: Point, a_config: RunConfig | None = None, curve: float = 0.5) -> RunHistory:
    steps = range(1, 41)
    return RunHistory(
        run_id=name,
        config=a_config or config(),
        points=points,
        figures={"loss": [(s, 1 / s) for s in steps], "online/pass_fraction": [(s, curve) for s in steps]},
        source_mix=[{"step": s, "source": source, "sequences": 4} for s in steps for source in ("online", "offline")],
        temperatures=[{"low": 0.1, "n": 40, "k": 10}, {"low": 0.7, "n": 40, "k": 4}],
        stages=[
            {"run": name, "stage": "q0", "seconds": None, "reused": True, "responses": None, "tokens": None}
            | {"programs": None, "judging": None},
            {"run": name, "stage": "train", "seconds": 83.0, "reused": False, "responses": 640, "tokens": 9000}
            | {"programs": 320, "judging": 12.5},
        ],
        q0={"p0": (800, 8)},
        discovered=[
            {"problem_id": "p0", "program": "print('a <b>')", "times": 1, "step": 20, "new": True, "human": True},
            {"problem_id": "p1", "program": "print(2)", "times": 3, "step": 0, "new": False, "human": False},
        ],
        fingerprints={"reference policy": "abc"},
    )


def aged(name: str) -> RunHistory:
    """A run that used trajectories again."""
    steps = range(1, 41)
    found = history(name)
    figures = {
        f"{source}/{figure}": [(s, 1 / s) for s in steps]
        for source in ("online", "replay")
        for figure in ("loss", "log_ratio")
    }
    by_age = [
        {"age": age, "name": figure, "value": age / 10} for age in (0, 10) for figure in ("loss", "log_ratio", "y_T")
    ]
    uses = [{"uses": n, "trajectories": 60 // n, "age": 10.0 * n} for n in (1, 4)]
    return replace(found, figures={**found.figures, **figures}, by_age=by_age, uses=uses)


A = history("a-1", point(0, scores(1, 2, 0, 4)), point(20, scores(9, 12, 5, 20)))
B = history("b-1", point(0, scores(1, 2, 0, 4)), point(20, scores(3, 12, 0, 20)), a_config=config(train={"beta": 0.2}))


def page(*histories: RunHistory) -> str:
    return report_html(report.assemble(histories, report.described(histories), "somewhere"))


def test_one_run_shows_every_part_the_issue_names() -> None:
    text = page(A)
    for name in ("learning_curve", "learning_by_cost", "diversity", "source_mix", "q0_histogram", "stage_time"):
        assert f'id="chart-{name}"' in text
    assert 'id="chart-reward_by_temperature"' in text
    assert "print(&#39;a &lt;b&gt;&#39;)" in text
    assert "first with the weights of step 20, once, also among people&#39;s programs" in text
    assert "print(2)" not in text
    assert "trajectories trained on" in text
    assert "1 min 23 s" in text
    assert "reused" in text
    assert "Side by side" not in text


def test_a_run_that_uses_trajectories_again_shows_how_old_they_are_and_how_often_they_were_used() -> None:
    section = reuse_sections.staleness([aged("a-1")])
    assert section is not None
    by_age, beside = section.charts
    assert "y_T, nats, a-1: from 0 to 1" in by_age.alt
    assert "loss, a-1, used again: from 1 to" in beside.alt
    (table,) = section.tables
    assert [(row["uses"], row["trajectories"]) for row in table.rows] == [(1, 60), (4, 15)]


def test_a_run_that_uses_each_trajectory_once_has_no_table_of_uses_and_one_without_ages_no_section() -> None:
    once = replace(aged("a-1"), uses=[{"uses": 1, "trajectories": 60, "age": 10.0}])
    section = reuse_sections.staleness([once])
    assert section is not None
    assert section.tables == []
    assert reuse_sections.staleness([A]) is None


def test_problems_drawn_stand_by_how_often_pi_0_solves_them_and_by_what_was_believed() -> None:
    drawn = [{"problem_id": "p0", "n": 30, "k": 3}, {"problem_id": "p1", "n": 10, "k": 10}]
    believed = [
        {"step": 0, "kind": "open", "responses": 6},
        {"step": 0, "kind": "solved", "responses": 2},
        {"step": 10, "kind": "open", "responses": 8},
    ]
    q0 = {"p0": (800, 8), "p1": (800, 700), "p2": (800, 790)}
    section = prompt_sections.drawn_problems([replace(A, drawn=drawn, believed=believed, q0=q0)])
    assert section is not None
    (table,) = section.tables
    shown = [
        (row["pi_0 solves it"], row["problems"], row["responses"], row["a problem"], row["pass"]) for row in table.rows
    ]
    assert shown == [("up to 5%", 1, 30, 30.0, "10%"), ("above 75%", 2, 10, 5.0, "100%")]
    assert "believed open, a-1: from 0.75 to 1" in section.charts[0].alt
    assert prompt_sections.drawn_problems([A]) is None


def test_several_runs_stand_side_by_side_with_what_differs() -> None:
    section = table_sections.side_by_side([A, B])
    assert section is not None
    against, differing = section.tables
    assert [row["problems better / worse / equal"] for row in against.rows] == ["0 / 2 / 2", "0 / 2 / 2"]
    assert [row["setting"] for row in differing.rows] == ["train.beta"]
    assert "a-1" in section.charts[0].alt
    assert "b-1" in section.charts[0].alt
    charts = [chart.name for part in report.assemble([A, B], "", "").sections for chart in part.charts]
    assert charts.count("learning_curve") == 1


def test_pass_at_k_is_the_mean_over_problem_sets_and_each_set_is_listed() -> None:
    uneven: Scores = {"small": {"p0": (20, 20)}, "large": {f"q{i}": (20, 0) for i in range(9)}}
    section = chart_sections.learning([history("a-1", point(0, uneven), point(20, uneven))])
    assert "pass@1, a-1: from 0.5 to 0.5" in section.charts[0].alt
    assert [(row["problem set"], row["problems"]) for row in section.tables[0].rows] == [("small", 1), ("large", 9)]


def test_runs_on_different_problems_are_subtracted_on_those_in_common() -> None:
    other = history("c-1", point(0, scores(1)), point(20, scores(2)))
    section = table_sections.side_by_side([A, other])
    assert section is not None
    (table,) = section.tables
    common = len({p for own in scores(1).values() for p in own})
    assert f"c-1: {common} problems in common." in table.note


def asked(suite: str, **changes: str) -> dict[str, PromptedProblem]:
    """Four problems, all judged by one test; `changes`: the test of some."""
    tests = {f"p{i}": suite for i in range(4)} | changes
    return {
        p: PromptedProblem(
            Problem(p, "set0", "evaluation", p, f"Do {p}.", hidden_tests=(TestCase(test, "1"),)), f"prompt {p}", ()
        )
        for p, test in tests.items()
    }


def test_what_other_tests_judged_is_not_subtracted_and_said() -> None:
    mine, theirs = (replace(A, problems=asked("old")), replace(B, problems=asked("old", p0="new")))
    section = table_sections.side_by_side([mine, theirs])
    assert section is not None
    against = section.tables[0]
    assert [row["problems better / worse / equal"] for row in against.rows] == ["0 / 1 / 2", "0 / 1 / 2"]
    assert "b-1: warning: 1 of 4 problems were judged by other tests" in against.note
    with pytest.raises(NothingToCompare):
        table_sections.side_by_side([mine, replace(B, problems=asked("new"))])


def test_another_tokenizers_prompts_are_compared_and_said() -> None:
    problems = asked("old")
    others = {p: replace(found, prompt_id=f"other {p}") for p, found in problems.items()}
    first, second = replace(A, problems=problems), replace(B, problems=others)
    pairs = paired((first, first.points[-1]), (second, second.points[-1]))
    assert (pairs.first, pairs.judged_otherwise) == (A.points[-1].scores, 0)
    assert pairs.notes == ["4 problems were shown by other prompts (another template or tokenizer)"]


def test_policies_that_were_sampled_otherwise_are_compared_and_said() -> None:
    cold, warm = (replace(run, problems=asked("old")) for run in (A, B))
    section = table_sections.side_by_side([replace(cold, sampling="T=0.4"), replace(warm, sampling="T=1")])
    assert section is not None
    assert "They were not all sampled in the same way: a-1 T=0.4; b-1 T=1." in section.text
    assert "b-1: warning: the two were sampled differently" in section.tables[0].note


def test_one_problem_gives_no_interval() -> None:
    (fact, _) = chart_sections.facts(history("a-1", point(0, scores(1)), point(20, scores(3))))
    assert fact.note == "+10.0 points, 95% interval unknown"


def test_a_single_policy_has_a_value_and_no_difference() -> None:
    (fact, _) = chart_sections.facts(history("a-1", point(0, scores(3, 3))))
    assert (fact.label, fact.note) == ("pass@1", "")
    assert fact.value.startswith("15.0% [")


def test_runs_side_by_side_are_drawn_by_the_k_that_both_have() -> None:
    fewer = history("c-1", point(0, {"set0": {"p0": (5, 1)}}), a_config=config(evaluate={"ks": (1, 5)}))
    both = history("b-1", *A.points, a_config=config(evaluate={"ks": (1, 5, 10)}))
    section = chart_sections.diversity([both, fewer])
    assert section is not None
    assert "pass@5 minus pass@1" in section.charts[0].alt


def test_findings_name_the_runs_own_k() -> None:
    own = config(evaluate={"ks": (2, 10)})
    fallen = history("a-1", point(0, scores(20, 20)), point(20, scores(1, 1)), a_config=own)
    assert "pass@2 was 100.0%" in chart_sections.findings([fallen])[0].text


def test_runs_without_a_common_k_are_refused_by_name(tmp_path: Path) -> None:
    other = history("c-1", *A.points, a_config=config(evaluate={"ks": (5,)}))
    with pytest.raises(NothingToCompare):
        report.write([A, other], "nowhere", tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_findings_name_the_run_they_belong_to() -> None:
    collapsed = history("ppo-1", point(0, scores(0, 9, 0, 0)), point(20, scores(0, 20, 0, 0)), curve=0.0)
    found = {(finding.name, finding.run) for finding in chart_sections.findings([A, collapsed])}
    assert ("Policy collapse", "ppo-1") in found
    assert ("No reward signal", "ppo-1") in found
    assert not [name for name, run in found if run == "a-1"]


@pytest.mark.parametrize(
    "early", [RunHistory("x-1", config()), history("x-1"), history("x-1", point(0, scores(1, 2)))], ids=str
)
def test_a_run_that_has_not_got_far_still_has_a_report(early: RunHistory) -> None:
    for title, histories in (("Run x-1", [early]), ("Runs x-1, a-1", [early, A])):
        assert report.assemble(histories, report.described(histories), "somewhere").title == title


def test_unknown_entropy_leaves_its_panel_out() -> None:
    section = chart_sections.diversity([history("a-1", point(0, scores(1, 2), None), point(20, scores(3, 4)))])
    assert section is not None
    assert "entropy" not in section.charts[0].alt


@pytest.mark.parametrize("longest,unit", [(100, "seconds"), (180, "minutes"), (3 * 3600, "hours")])
def test_time_is_told_in_a_handy_unit(longest: float, unit: str) -> None:
    assert chart_sections.time_unit(longest)[0] == unit
