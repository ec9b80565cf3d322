"""The report of a real run: complete, clean in a real browser; runs side by side and compared."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from flows.cli import summary
from flows.cli.main import app
from tasks.estimators import average_paired_difference
from tasks.report import corpus_sections, run_history, table_sections
from tasks.report import run_report as report
from tasks.report.comparison import NothingToCompare, compare, paired
from tasks.report.run_history import Point, RunHistory
from tasks.run import prompt_set, runs
from tasks.run.runs import UnknownRun
from tasks.run.stage import Context
from tasks.run.stage_names import STAGE_NAMES
from tests.browser import needs_browser, opened
from tests.tasks.conftest import Lab
from warehouse.schema import EVAL_SAMPLES, TRAJECTORIES
from warehouse.superseding import content

CHARTS = {
    *("learning_curve", "learning_by_cost", "diversity", "training", "source_mix", "reward_by_temperature"),
    *("staleness", "q0_histogram", "soft_values", "source_flow", "stage_time"),
}


@needs_browser
def test_the_report_opens_in_a_real_browser_with_every_figure_and_no_console_message(
    finished: Lab, tmp_path: Path
) -> None:
    page = finished.home / "runs" / "micro-1" / "report" / "report.html"
    shown = opened(page, tmp_path / "profile")
    assert set(re.findall(r"<figure id=\"chart-([a-z_0-9]+)\"><svg", shown)) == CHARTS
    assert {path.stem for path in page.parent.glob("*.png")} == CHARTS
    assert page.stat().st_size < 2_000_000
    named = json.loads(finished.value("SELECT manifest_json FROM stages WHERE stage = 'report'"))
    assert {path.stem: str(path) for path in page.parent.glob("*.png")}.items() <= named["pictures"].items()


def test_the_history_counts_what_the_warehouse_holds(finished: Lab, history: RunHistory) -> None:
    assert [point.step for point in history.points] == [0, 2, 4]
    assert [point.trajectories for point in history.points] == [0, 2 * 16, 4 * 16]
    assert 0 < history.points[1].seconds < history.points[2].seconds
    assert all(point.entropy is not None and point.entropy > 0 for point in history.points)
    cost = {row["stage"]: row for row in history.stages}
    assert list(cost) == ["prepare", "q0", "corpus", "pivotal", "train", "evaluate", "report"][: len(cost)]
    assert cost["q0"]["responses"] == 6 * 24
    assert cost["evaluate"]["responses"] == 3 * 4 * 10
    assert cost["train"]["tokens"] == finished.value(
        "SELECT sum(len(token_ids)) FROM trajectories WHERE source = 'online'"
    )
    judged = sum(row["programs"] or 0 for row in history.stages)
    assert judged == finished.value("SELECT count(*) FROM verdicts")
    new = finished.value(
        "SELECT count(*) FROM (SELECT DISTINCT problem_id, normal_hash FROM trajectories WHERE source = 'online' AND "
        "reward = 0) o ANTI JOIN (SELECT * FROM trajectories WHERE source IN ('reference', 'pivotal_rollout') "
        "OR policy_start IN (SELECT policy_id FROM policies WHERE kind = 'reference')) r "
        "USING (problem_id, normal_hash)"
    )
    assert sum(row["new"] for row in history.discovered) == new


def test_a_sample_counts_once_and_no_more_of_them_than_the_run_asks_for(copied: Callable[[], Lab]) -> None:
    lab = copied()
    columns = [column.name for column in EVAL_SAMPLES.columns]
    with lab.store() as store:
        before = run_history.points(store, lab.home, "micro-1")
        rows = store.rows(f"SELECT {', '.join(columns)} FROM eval_samples")
        more = [row | {"sample": row["sample"] + 10, "normal_hash": f"more {n}"} for n, row in enumerate(rows)]
        store.append("at-once", {"eval_samples": rows}, run_id="other-1")
        store.append("more", {"eval_samples": more}, run_id="other-1")
        after = run_history.points(store, lab.home, "micro-1")
    assert after[0].scores == before[0].scores, "10 samples of each problem, whoever drew 10 more"
    assert [_diversity(point) for point in after] == [_diversity(point) for point in before]


def _diversity(point: Point) -> tuple[float, ...]:
    return point.distinct_correct, point.duplicates, round(point.entropy or 0.0, 9)


def test_a_report_written_later_shows_the_counts_that_training_began_with(copied: Callable[[], Lab]) -> None:
    lab = copied()
    with lab.store() as store:
        before = run_history.read(store, lab.home, "micro-1").q0
        (row,) = store.rows("SELECT * FROM reference_counts LIMIT 1")
        store.append("later", {"reference_counts": [content(row) | {"n": 500, "k": 400}]}, run_id="other-1")
        assert run_history.read(store, lab.home, "micro-1").q0 == before
        context = Context("micro-1", runs.load_config(store, "micro-1"), store, lab.home)
        section = corpus_sections.training_prompts(context, prompt_set.load(context, "train"))
    assert {row["n"] for row in section.tables[0].rows} == {n for n, _ in before.values() if n}


def test_what_training_drew_from_pi_0_is_not_new(copied: Callable[[], Lab]) -> None:
    lab = copied()
    columns = {column.name for column in TRAJECTORIES.columns}
    with lab.store() as store:
        (row,) = store.rows("SELECT * FROM trajectories WHERE source = 'online' LIMIT 1")
        (base,) = store.rows("SELECT policy_id FROM policies WHERE kind = 'reference' LIMIT 1")
        own = {name: value for name, value in row.items() if name in columns} | {"reward": 0.0, "step": 0}
        writers = {"by pi_0": base["policy_id"], "by training": "trained", "evaluated": "trained"}
        rows = [own | {"trajectory_id": f"t {h}", "normal_hash": h, "policy_start": p} for h, p in writers.items()]
        sample = {"policy_id": base["policy_id"], "problem_id": own["problem_id"], "normal_hash": "evaluated"}
        samples = [sample | {"sample": 0, "token_ids": [1], "reward": 0.0}]
        store.append("more", {"trajectories": rows, "eval_samples": samples}, run_id="micro-1")
        found = {one["normal_hash"]: one["new"] for one in run_history.read(store, lab.home, "micro-1").discovered}
    assert (found["by pi_0"], found["by training"], found["evaluated"]) == (False, True, False)


def test_runs_side_by_side_are_one_page(history: RunHistory) -> None:
    page = report.assemble([history] * 2, "twice", "here")
    assert page.title == "Runs micro-1, micro-1"
    assert "side_by_side" in [chart.name for section in page.sections for chart in section.charts]


@pytest.fixture(scope="module")
def history(finished: Lab) -> RunHistory:
    with finished.store() as store:
        return run_history.read(store, finished.home, "micro-1")


def test_policies_are_compared_problem_by_problem(finished: Lab, history: RunHistory) -> None:
    with finished.store() as store:
        result = compare(store, finished.home, "micro-1@0", "micro-1")
        with pytest.raises(NothingToCompare):
            compare(store, finished.home, "micro-1@3", "micro-1")
        with pytest.raises(UnknownRun):
            compare(store, finished.home, "no-such-run", "micro-1")
    assert [row.k for row in result.rows] == [1, 10]
    for row in result.rows:
        assert row.difference.difference == pytest.approx(row.second - row.first)
        assert row.difference.better + row.difference.worse + row.difference.equal == 4
    last = (history, history.points[-1])
    same = paired(last, last)
    assert average_paired_difference(same.first, same.second, 1).equal == 4


def test_no_p_is_given_where_one_policy_has_more_samples_than_the_other(history: RunHistory) -> None:
    last = history.points[-1]
    more = {s: {p: (2 * n, 2 * k) for p, (n, k) in own.items()} for s, own in last.scores.items()}
    pair = paired((history, last), (history, replace(last, scores=more)))
    assert average_paired_difference(pair.first, pair.second, 1).p_value is None
    assert [note for note in pair.notes if "10 samples each, the second 20 samples each" in note]


def test_the_commands_print_the_table_and_write_a_page(
    finished: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_HOME", str(finished.home))
    monkeypatch.delenv("SPO_WAREHOUSE", raising=False)
    commands = {
        "compare": ["compare", "micro-1@0", "micro-1"],
        "list": ["show"],
    }
    printed = {name: CliRunner().invoke(app, words) for name, words in commands.items()}
    assert [(name, result.exit_code) for name, result in printed.items() if result.exit_code] == []
    assert len(re.findall(r"^pass@(?:1|10) ", printed["compare"].output, flags=re.MULTILINE)) == 2
    trajectory = printed["list"].output.splitlines()[1].split()[0]
    page = tmp_path / "one.html"
    shown = CliRunner().invoke(app, ["show", trajectory, "--no-values", "--out", str(page)])
    assert shown.exit_code == 0
    assert '<pre class="tokens success"' in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_run_without_evaluation_problems_ends_with_a_report_without_a_curve(with_models: Lab) -> None:
    run_id = with_models.start(
        "none",
        {
            "problems.evaluation": 0,
            "engine.kind": "scripted",
            "q0.samples": 2,
            "corpus": {"sources": ["human"], "reference_samples": 0},
            "pivotal.trajectories": 0,
            "train": {"steps": 1, "sources": {"offline": {"share": 1.0}, "online": {"share": 0.0}}},
        },
    )
    done = with_models.run(run_id, *STAGE_NAMES[: STAGE_NAMES.index("report")])
    assert done["evaluate"].rows == 0
    with with_models.store() as store:
        page = report.assemble([run_history.read(store, with_models.home, run_id)], "", "here")
    learning = page.sections[0]
    assert (learning.title, list(learning.charts)) == ("Learning curve", [])


def test_the_hardest_prompts_are_those_of_the_run(copied: Callable[[], Lab], monkeypatch: pytest.MonkeyPatch) -> None:
    lab = copied()
    monkeypatch.setenv("SPO_HOME", str(lab.home))
    monkeypatch.delenv("SPO_WAREHOUSE", raising=False)
    never = {"problem_id": "of-another-run", "reference": "r", "sampling": "s", "template_id": "t", "suite_hash": "h"}
    with lab.store() as store:
        store.append("counts", {"reference_counts": [never | {"n": 10, "k": 0}]}, run_id="other-1")
        one = store.rows("SELECT * FROM q0 ORDER BY s LIMIT 1")[0]
        reworded = {name: one[name] for name in never} | {"prompt_id": "of an earlier statement", "n": 999, "k": 999}
        store.append("reworded", {"reference_counts": [reworded]}, run_id="other-1")
        question = summary.hardest(store, "micro-1")
        assert question is not None
        found = store.rows(question)
    of_run = lab.value("SELECT list(problem_id) FROM q0 WHERE problem_id <> 'of-another-run'")
    assert len(found) == 5
    assert (found[0]["n"], found[0]["k"]) == (one["n"], one["k"])
    assert {row["problem_id"] for row in found} <= set(of_run)
    assert [row["share"] for row in found] == sorted(row["share"] for row in found)
    console = Console(width=200, file=io.StringIO(), record=True)
    summary.show(console, "micro-1")
    shown = console.export_text()
    assert "of-another-run" not in shown
    assert question in shown


def test_runs_with_some_problems_in_common_are_compared_on_these(history: RunHistory) -> None:
    point = history.points[-1]
    (name, own), *_ = point.scores.items()
    fewer = {name: dict(list(own.items())[:2])}
    other = replace(history, run_id="micro-2", points=[replace(point, scores=fewer)])
    found = table_sections.side_by_side([history, other])
    assert found is not None
    (table,) = found.tables
    assert table.rows[0]["problems better / worse / equal"] == "0 / 0 / 2"
    assert "micro-2: 2 problems in common." in table.note
    assert "evaluated on different problems" in found.text


def test_runs_on_different_problems_are_not_drawn_into_one_figure(history: RunHistory, tmp_path: Path) -> None:
    point = history.points[-1]
    elsewhere = {name: {f"other/{p}": n for p, n in found.items()} for name, found in point.scores.items()}
    other = replace(history, run_id="micro-2", points=[replace(point, scores=elsewhere)])
    with pytest.raises(NothingToCompare):
        report.write([history, other], "nowhere", tmp_path / "page")
    assert not (tmp_path / "page").exists()
