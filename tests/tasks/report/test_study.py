"""The comparison of a study: intervals over seeds, tables, the page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.estimators import mean_interval
from tasks.report import run_history
from tasks.report.arms import ArmResult, Spent
from tasks.report.reached import first_at
from tasks.report.study import collect, describe, group_tables, markdown, problem_digests, write
from tasks.run.manifests import PrepareManifest
from tasks.run.stage_names import STAGE_NAMES
from tests.tasks.conftest import Lab
from warehouse import Warehouse


def arm(label: str, *finals: float) -> ArmResult:
    curves = [{"pass@1": {0: 0.1, 10: final}, "pass@10": {0: 0.4, 10: final + 0.2}} for final in finals]
    before = {"pass@1 of pi_0": 0.1, "pass@10 of pi_0": 0.4, "distinct correct of pi_0": 1.0}
    after = [{"pass@1": final, "pass@10": final + 0.2, "distinct correct": 2.0, "train s": 60.0} for final in finals]
    measures = [found | before for found in after]
    spent = [{5: Spent(64, 1000, 2), 10: Spent(128, 2100, 4.4)}] * len(finals)
    return ArmResult(label, list(range(len(finals))), curves, measures, spent)


def text_of(heading: str, arms: list[ArmResult]) -> str:
    return markdown("A study", [(heading, "", group_tables(arms))])


def test_the_interval_over_seeds_is_students() -> None:
    mean, low, high = mean_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert high - mean == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert mean - low == pytest.approx(high - mean)


def test_one_seed_has_no_interval_and_no_value_is_not_zero() -> None:
    mean, low, high = mean_interval([0.5])
    assert mean == 0.5
    assert math.isnan(low)
    assert math.isnan(high)
    assert math.isnan(mean_interval([])[0])
    assert describe("pass@1", mean, low, high) == "50.0"
    assert describe("entropy", math.nan, math.nan, math.nan) == ""


def test_a_mark_is_reached_at_the_first_step_that_is_there() -> None:
    curve, spent = {0: 0.1, 5: 0.4, 10: 0.3}, {5: Spent(64, 1000, 2), 10: Spent(128, 2000, 4)}
    assert first_at(curve, spent, 0.35) == Spent(64, 1000, 2)
    assert first_at(curve, spent, 0.1) == Spent()
    assert first_at(curve, spent, 0.5) is None


def test_a_table_says_what_each_arm_had_sampled_when_it_reached_the_marks() -> None:
    text = text_of("Sampling", [arm("SPO", 0.5, 0.6, 0.7), arm("PPO", 0.4, 0.6, 0.6)])
    assert "| arm | to 80% of the best pass@10 | to the pass@10 of SPO |" in text
    assert "| SPO | 128 trajectories, 2,100 tokens, 4 s | 128 trajectories, 2,100 tokens, 4 s |" in text
    assert "| PPO | 128 trajectories, 2,100 tokens, 4 s (2 of 3 seeds) |" in text
    assert "4 s (1 of 3 seeds) |" in text
    low = text_of("Sampling", [arm("SPO", 0.5), arm("PPO", 0.4)])
    assert "none of 1 |" in low


def test_ranks_say_what_the_seeds_leave_open() -> None:
    sure = [arm("first", 0.7, 0.72, 0.74), arm("second", 0.5, 0.52, 0.54), arm("third", 0.3, 0.32, 0.34)]
    text = text_of("Three", sure[::-1])
    rows = [
        "| first | 1.0 | 1 to 1 | 1 to 1 |",
        "| second | 2.0 | 2 to 2 | 2 to 2 |",
        "| third | 3.0 | 3 to 3 | 3 to 3 |",
    ]
    assert "\n".join(rows) in text
    open_ = [arm("one", 0.5, 0.6), arm("other", 0.6, 0.5), arm("equal", 0.6, 0.5)]
    text = text_of("Three", open_)
    assert "| one | 2.0 | 1 to 3 | 1 to 3 |" in text
    assert "| other | 2.0 | 1.5 to 2.5 | 1 to 3 |" in text
    assert "Ranks" not in text_of("Two", sure[:2])
    assert "Ranks" not in text_of("One seed", [arm(name, 0.5) for name in "abc"])
    apart = [replace(one, seeds=[n, n + 10]) for n, one in enumerate(open_)]
    assert "Ranks" not in text_of("No seed in common", apart)


def test_curves_are_drawn_of_few_arms_alone(tmp_path: Path) -> None:
    arms = {f"a{n}": arm(f"arm {n}", 0.5, 0.6) for n in range(13)}
    write("A study", arms, [("Few", "", list(arms)[:12]), ("Many", "", list(arms))], tmp_path)
    assert (tmp_path / "curves_0.png").is_file()
    assert (tmp_path / "final_1.png").is_file()
    assert not (tmp_path / "curves_1.png").exists()
    assert "**Ranks (pass@10)**" in (tmp_path / "study.md").read_text(encoding="utf-8")


def test_the_page_the_tables_and_the_numbers_are_written(tmp_path: Path) -> None:
    offline, none = arm("fine-tuning", 0.5, 0.6), ArmResult("squared", [], [], [], stopped=[0, 1])
    offline = replace(offline, spent=[{5: Spent(0, 0, 2), 10: Spent(0, 0, 4)}] * 2)
    arms = {"spo": arm("SPO", 0.5, 0.6, 0.7), "rft": offline, "none": none}
    groups = [("Both", "What differs.", list(arms)), ("Nothing ran", "", []), ("Offline", "", ["rft"])]
    text = write("A study", arms, groups, tmp_path).read_text(encoding="utf-8")
    assert "Both" in text
    assert "Nothing ran" not in text
    raw = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    assert [found["pass@1"] for found in raw["arms"]["spo"]["measures"]] == [0.5, 0.6, 0.7]
    pictures = {"curves_0.png", "final_0.png", "tokens_0.png", "curves_2.png", "final_2.png"}
    assert {path.name for path in tmp_path.glob("*.png")} == pictures, "what samples nothing has no curve over tokens"
    assert "| squared | 0; 2 stopped by the guards |" in (tmp_path / "study.md").read_text(encoding="utf-8")


def test_markdown_has_a_row_for_pi_0_and_each_arm_with_its_differences_by_seed() -> None:
    text = text_of("Figure 1", [arm("SPO", 0.5, 0.6, 0.7), arm("PPO", 0.45, 0.5, 0.55)])
    assert "| arm | seeds | pass@1 | pass@10 | pass@10 against pi_0 |" in text
    assert "| pi_0 |  | 10.0 | 40.0 |  |" in text
    assert "| SPO | 3 | 60.0 [35.2, 84.8] | 80.0 [55.2, 104.8] | 40.0 [15.2, 64.8] |" in text
    assert "| PPO | 3 | 50.0 [37.6, 62.4] | 70.0 [57.6, 82.4] | 30.0 [17.6, 42.4] |" in text
    assert "| arm | pass@1 | pass@10 | distinct correct |\n|---|---|---|---|\n| PPO | -10.0 [-22.4, 2.4] |" in text
    assert "| SPO | -" not in text
    assert "| arm | distinct correct |\n|---|---|\n| pi_0 | 1.00 |\n| SPO | 2.00 |" in text


def test_an_arm_is_compared_with_the_policy_that_it_began_with() -> None:
    large = arm("large", 0.35, 0.45)
    large = replace(large, measures=[found | {"pass@10 of pi_0": 0.7} for found in large.measures])
    text = text_of("Models", [arm("small", 0.5, 0.6), large])
    assert "| pi_0 of small |  | 10.0 | 40.0 |  |\n| pi_0 of large |  | 10.0 | 70.0 |  |" in text
    assert "| large | 2 | 40.0 [-23.5, 103.5] | 60.0 [-3.5, 123.5] | -10.0 [-73.5, 53.5] |" in text
    elsewhere = replace(large, measures=[found | {"pass@10 of pi_0": 0.404} for found in large.measures])
    text = text_of("Machines", [arm("here", 0.5, 0.6), elsewhere])
    assert "| pi_0 |  | 10.0 | 40.0 |  |\n| here |" in text
    assert "| 19.6 [" in text, "its own 40.4 of 60.0"


def test_the_table_of_costs_shows_the_range_over_seeds() -> None:
    quiet, busy = arm("SPO", 0.5, 0.6), arm("PPO", 0.5, 0.6)
    busy = replace(busy, measures=[found | {"train s": 60.0 * (n + 1)} for n, found in enumerate(busy.measures)])
    text = text_of("Figure 1", [quiet, busy])
    assert "| arm | train s |\n|---|---|\n| SPO | 60 |\n| PPO | 90 [60, 120] |" in text


def test_a_difference_takes_only_the_seeds_that_both_arms_have() -> None:
    one = ArmResult("one", [0, 2], [], [{"pass@10": 0.5}, {"pass@10": 0.9}])
    other = ArmResult("other", [1, 2], [], [{"pass@10": 0.1}, {"pass@10": 0.4}])
    assert one.against(other, "pass@10")[0] == pytest.approx(0.5)


def at(arm: ArmResult, *ks: int) -> ArmResult:
    """The arm with other k of pass@k in the place of 1 and 10."""
    names = {f"pass@{old}": f"pass@{new}" for old, new in zip((1, 10), ks, strict=False)}
    return replace(
        arm,
        curves=[{new: curve[old] for old, new in names.items()} for curve in arm.curves],
        measures=[{names.get(name, name): value for name, value in found.items()} for found in arm.measures],
    )


def test_the_first_and_last_k_that_all_arms_have_are_drawn(tmp_path: Path) -> None:
    arms = {"a": at(arm("SPO", 0.5), 5, 20), "b": at(arm("PPO", 0.4), 5, 20), "c": at(arm("GRPO", 0.4), 4, 8)}
    groups = [("Alike", "", ["a", "b"]), ("Nothing shared", "", ["a", "c"])]
    text = write("A study", arms, groups, tmp_path).read_text(encoding="utf-8")
    assert "pass@5, SPO: 50.0%" in text
    assert "pass@20, PPO: 60.0%" in text
    assert (tmp_path / "final_0.png").is_file()
    assert not (tmp_path / "final_1.png").exists()


def test_bars_in_names_break_no_row_and_notes_are_written() -> None:
    text = text_of("Losses", [arm("a|b", 0.5, 0.6), arm("PPO", 0.4, 0.5)])
    assert "| a\\|b | 2 |" in text
    assert "\n\nMean over seeds, 95% interval in brackets.\n" in text
    assert "**Against a|b**" in text


def test_an_arm_that_took_over_a_training_has_its_cost(copied: Callable[[], Lab]) -> None:
    lab, stages = copied(), STAGE_NAMES[: STAGE_NAMES.index("report")]
    pin = lab.value("SELECT snapshot_out FROM stages WHERE stage = 'corpus' AND run_id = 'micro-1'")
    again = lab.start("again")
    assert lab.run(again, *stages, pin=pin)["train"].skipped
    with lab.store() as store:
        own, taken_over = (collect(store, lab.home, "arm", {0: run_id}) for run_id in ("micro-1", again))
    assert taken_over.measures == own.measures
    assert taken_over.spent == own.spent
    assert own.measures[0]["online trajectories"] > 0
    assert max(own.spent[0]) == 4
    assert own.problems == taken_over.problems


def test_digests_of_problems_tell_which_split_is_another(tmp_path: Path) -> None:
    splits = (("a", "train"), ("b", "evaluation"))
    rows = [{"problem_id": name, "split": split, "content_hash": "c"} for name, split in splits]
    with Warehouse.open(tmp_path / "warehouse") as store:
        for run, changed in (("first", {}), ("again", {}), ("other", {"content_hash": "d"})):
            prepared = PrepareManifest(
                problems_batch=f"problems/{run}", prompts_batch="p", policy_id="p", reference=tmp_path, template_id="t"
            )
            stage = {"stage": "prepare", "status": "completed", "key": run, "manifest_json": prepared.model_dump_json()}
            store.append(f"problems/{run}", {"problems": [rows[0], rows[1] | changed], "stages": [stage]}, run_id=run)
        first, again, other = (problem_digests(store, run) for run in ("first", "again", "other"))
    assert first == again
    assert first["train"] == other["train"]
    assert first["evaluation"] != other["evaluation"]


def test_a_run_trained_its_own_policy_although_a_longer_one_passed_the_same_weights_before(tmp_path: Path) -> None:
    trained = {"stage": "train", "status": "completed", "manifest_json": "{}"}
    with Warehouse.open(tmp_path / "warehouse") as store:
        for run, kind, key in (("long", "snapshot", "long"), ("own", "final", "short"), ("took-over", "", "short")):
            policies = [{"policy_id": "p", "kind": kind, "step": 4}] if kind else []
            store.append(run, {"policies": policies, "stages": [trained | {"key": key}]}, run_id=run)
        assert [run_history.trained_by(store, "p", run) for run in ("own", "took-over")] == ["own", "own"]
