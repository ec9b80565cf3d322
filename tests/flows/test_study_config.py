"""Studies: their definition, the runs they stand for, and their one-line board."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.cli.status import by_run
from flows.cli.under_way import Active
from flows.progress import NestedProgress, ProgressTable
from flows.study_config import STUDIES, load, origin
from tasks.config import InvalidConfig, UnknownRecipe
from tasks.report import study_results

RESULTS = Path(__file__).parents[2] / "docs" / "evidence" / "data"
SMALL = """
title = "Two rates"
seeds = 2
[overrides]
train = { steps = 7 }
[arms.slow]
recipe = "tiny"
label = "slow"
[arms.fast]
recipe = "tiny"
label = "fast"
overrides = { train = { steps = 9, optimizer = { learning_rate = 1e-3 } } }
[[groups]]
title = "Rates"
arms = ["slow", "fast"]
"""
SEEDED = (
    ("[overrides]\n", "[overrides]\nseed = 5\n"),
    ('label = "fast"\n', 'label = "fast"\ngrid = { seed = [1, 2] }\n'),
    ("[overrides]\n", "[grid]\nseed = [1, 2]\n[overrides]\n"),
)


def write(folder: Path, text: str) -> str:
    path = folder / "rates.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", sorted(path.stem for path in STUDIES.glob("*.toml")))
def test_every_study_that_ships_is_valid(name: str) -> None:
    study = load(name)
    grouped = {arm for group in study.groups for arm in group.arms}
    assert grouped == set(study.arms)


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.jsonl")), ids=lambda path: str(path.relative_to(RESULTS)))
def test_results_that_ship_are_of_the_studys_settings(path: Path) -> None:
    definition = load(path.stem)
    assert study_results.read(path, definition.settings(), definition.compared()).arms


def test_an_arms_overrides_win_over_the_studys_and_both_over_the_recipe(tmp_path: Path) -> None:
    study = load(write(tmp_path, SMALL))
    assert study.config("slow", 0).train.steps == 7
    fast = study.config("fast", 1)
    assert (fast.train.steps, fast.train.optimizer.learning_rate, fast.seed) == (9, 1e-3, 1)


def test_the_same_arm_and_seed_is_the_same_run_until_its_configuration_changes(tmp_path: Path) -> None:
    study = load(write(tmp_path, SMALL))
    first = origin("rates", "slow", study.config("slow", 0))
    assert first == origin("rates", "slow", study.config("slow", 0))
    assert first != origin("rates", "slow", study.config("slow", 1))
    changed = load(write(tmp_path, SMALL.replace("steps = 7", "steps = 8")))
    assert first != origin("rates", "slow", changed.config("slow", 0))


def test_a_search_takes_other_seeds_than_the_comparison(tmp_path: Path) -> None:
    text = SMALL.replace("seeds = 2", "seeds = 2\nfirst_seed = 100")
    assert list(load(write(tmp_path, text)).seed_numbers(None)) == [100, 101]
    assert list(load(write(tmp_path, text)).seed_numbers(1)) == [100]
    assert list(load(write(tmp_path, SMALL)).seed_numbers(3)) == [0, 1, 2]
    assert list(load(write(tmp_path, text)).seed_numbers(2, 0)) == [0, 1]


def test_an_arm_that_comes_after_another_draws_on_that_ones_run_of_the_seed(tmp_path: Path) -> None:
    mix = "sources = { online = { share = 0.25 }, earlier = { share = 0.25 } }"
    text = SMALL.replace('label = "fast"', 'label = "fast"\nafter = ["slow"]').replace("steps = 9", f"steps = 9, {mix}")
    study = load(write(tmp_path, text))
    assert study.chosen(["fast"]) == ["slow", "fast"]
    assert study.chosen(["slow"]) == ["slow"]
    fast, slow = (study.drawing_on({"slow": "tiny-7"}, arm, study.config(arm, 1)) for arm in ("fast", "slow"))
    assert (fast.train.earlier.run_ids, slow.train.earlier.run_ids) == (("tiny-7",), ())
    assert "run_ids" not in study.config("slow", 1).model_dump(mode="json")["train"]["earlier"]


def test_an_arm_like_another_has_its_recipe_and_overrides_under_its_own(tmp_path: Path) -> None:
    more = """[arms.fastest]
like = "fast"
label = "fastest"
overrides = { train = { optimizer = { learning_rate = 1e-2 } } }
[arms.again]
like = "fastest"
label = "again"
recipe = "spo-online"
grid = { "train.steps" = [3, 5] }
[[groups]]"""
    arms = 'arms = ["slow", "fast"', 'arms = ["slow", "fast", "fastest", "again"'
    text = SMALL.replace("[[groups]]", more).replace(*arms)
    study = load(write(tmp_path, text))
    fast, fastest, again = (study.config(arm, 0).train for arm in ("fast", "fastest", "again-5"))
    assert [train.optimizer.learning_rate for train in (fast, fastest, again)] == [1e-3, 0.01, 0.01]
    assert (fastest.steps, again.steps) == (9, 5)
    assert (study.arms["fastest"].recipe, study.arms["again-3"].recipe) == ("tiny", "spo-online")
    for wrong in ("slowest", "fastest", "again"):
        with pytest.raises(InvalidConfig, match=f"'fastest' is like '{wrong}'"):
            load(write(tmp_path, text.replace('like = "fast"', f'like = "{wrong}"')))


def test_an_arm_may_be_like_one_of_the_base_that_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "rates.toml").write_text(
        'base = "regime"\nbase_arms = ["ppo-3e-5"]\ntitle = "Sooner"\n'
        '[arms.sooner]\nlike = "ppo-3e-5"\nlabel = "sooner"\n'
        'overrides = { train = { steps = 9 } }\n[[groups]]\ntitle = "Both"\narms = ["ppo-3e-5", "sooner"]\n'
    )
    study, regime = load(str(tmp_path / "rates.toml")), load("regime")
    assert list(study.arms) == ["ppo-3e-5", "sooner"]
    assert study.config("ppo-3e-5", 0) == regime.config("ppo-3e-5", 0)
    assert study.config("sooner", 0).train.ppo == regime.config("ppo-1e-5", 0).train.ppo


def test_a_grid_makes_an_arm_of_every_combination(tmp_path: Path) -> None:
    grid = '[grid]\n"train.optimizer.learning_rate" = [3e-5, 1e-4]\n"q0.samples" = [40]\n'
    own = 'label = "slow"\ngrid = { "train.steps" = [2, 4] }'
    study = load(write(tmp_path, SMALL.replace('label = "slow"', own) + grid))
    assert list(study.arms) == ["slow-2", "slow-4", "fast-3e-5-40", "fast-1e-4-40"]
    assert study.groups[0].arms == tuple(study.arms)
    assert [study.config(arm, 0).train.steps for arm in study.arms] == [2, 4, 9, 9]
    assert study.config("fast-1e-4-40", 0).train.optimizer.learning_rate == 1e-4
    assert study.arms["fast-1e-4-40"].label == "fast, 1e-4, 40"


def test_a_search_takes_the_arms_of_the_comparison_it_is_for() -> None:
    search, methods = load("methods-search"), load("methods")
    assert len(search.arms) == 4 * len(methods.arms) + 1
    rates = {search.config(arm, 0).train.optimizer.learning_rate for arm in search.arms if arm != "rloo-kl-1e-3"}
    assert rates == {1e-5, 3e-5, 1e-4, 3e-4}
    assert search.config("rloo-kl-1e-3", 0).train.optimizer.learning_rate == 1e-3, "an arm's own grid"
    assert search.config("ppo-3e-5", 1).train.ppo == methods.config("ppo", 1).train.ppo
    assert not set(search.seed_numbers(None)) & set(methods.seed_numbers(None))


def test_a_search_may_take_some_of_the_arms() -> None:
    search = load("smollm-rates")
    assert len(search.arms) == 14
    assert {search.config(arm, 0).train.steps for arm in search.arms} == {30, 60}
    shown = {arm for group in search.groups for arm in group.arms}
    assert shown == set(search.arms)
    assert list(load("smollm-prompts").arms) == ["ppo", "pass-at-4", "max-rl"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (SMALL.replace('["slow", "fast"]', '["quick"]'), "'quick'"),
        (SMALL.replace("steps = 9", "stepz = 9"), r"train\.stepz"),
        (
            SMALL.replace("[overrides]", "[overrides]\nproblems.evaluation = 0\nevaluate.during_training = false"),
            "'slow'",
        ),
        (SMALL.replace('label = "slow"', 'label = "slow"\nafter = ["fast"]'), "'slow' comes after 'fast'"),
        ('base = "nothing"\n', "'nothing'"),
        ('base = "smollm"\nbase_arms = ["slow"]\n', "'slow'"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused_by_name(text: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=named):
        load(write(tmp_path, text))
    with pytest.raises(UnknownRecipe, match="'nothing'"):
        load("nothing")


def test_a_run_is_one_line_of_a_studys_table() -> None:
    published: list[Any] = []
    logged: list[str] = []
    board = ProgressTable(["slow 0", "compare"], published.append, logged.append)
    board.start("slow 0")
    line = NestedProgress(board, "slow 0", "tiny-1")
    line.start("prepare")
    line.start("q0")
    line.progress("q0", 3, 10, "samples", "")
    shown = board.lines["slow 0"]
    assert (shown.done, shown.note) == (3, "tiny-1, q0")
    flow = Active("study quick", "a-flow-run", "Running", list(board.lines.values()))
    assert by_run([flow])["tiny-1"] == {"q0": shown}, "`spo status` shows the run as under way"
    line.end("q0", "done", "10 samples")
    board.end("slow 0", "done", "tiny-1")
    assert "tiny-1" not in by_run([flow])
    assert "slow 0, q0: done; 10 samples" in logged
    assert [each["state"] for each in published[-1]] == ["done", "waiting"]


def test_a_recipe_given_as_a_file_lies_beside_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text('base = "tiny"\n[train]\nsteps = 7\n', encoding="utf-8")
    text = 'title = "t"\n[arms.a]\nrecipe = "mine.toml"\nlabel = "A"\n[[groups]]\ntitle = "g"\narms = ["a"]\n'
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir("/")
    assert load(str(tmp_path / "study.toml")).config("a", 0).train.steps == 7


@pytest.mark.parametrize(
    "wrong",
    [
        b'title = "\xff"',
        b'title = "t"\n[[arms]]\nname = "a"\n',
        b'title = "t"\n[arms]\na = "tiny"\n',
        SMALL.replace("[[groups]]", "[groups]").encode(),
        SMALL.encode() + b'[grid]\n"train.steps" = 5\n',
        SMALL.encode() + b'[grid]\n"train.steps" = []\n',
        SMALL.replace('label = "slow"', 'label = "slow"\ngrid = { "train.steps" = 5 }').encode(),
        SMALL.replace('label = "slow"', 'label = "slow"\noverrides = 5').encode(),
        b'title = "t"\ngrid = [[1]]\n',
        SMALL.replace('["slow", "fast"]', "3").encode(),
        b'base = "smollm"\nbase_arms = 5\n',
        b'base = "smollm"\nbase_arms = "ppo"\n',
        b'base = "smollm"\nbase_arms = [5]\n',
        *(SMALL.replace(*changed).encode() for changed in SEEDED),
    ],
)
def test_a_study_of_the_wrong_shape_is_refused_with_its_file(wrong: bytes, tmp_path: Path) -> None:
    """Also one that sets the seed, which would be ignored."""
    (tmp_path / "rates.toml").write_bytes(wrong)
    with pytest.raises(InvalidConfig, match=r"rates\.toml"):
        load(str(tmp_path / "rates.toml"))


def test_a_byte_order_mark_before_a_study_and_its_recipe_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('base = "tiny"\n[train]\nsteps = 3\n', encoding="utf-8-sig")
    text = SMALL.replace('recipe = "tiny"\nlabel = "fast"', 'recipe = "mine.toml"\nlabel = "fast"')
    (tmp_path / "rates.toml").write_text(text, encoding="utf-8-sig")
    assert load(str(tmp_path / "rates.toml")).config("slow", 0).train.steps == 7
