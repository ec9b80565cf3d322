"""The command `spo`: quick, clear about mistakes, read-only where it should be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import pytest

from flows.cli import eval_command
from flows.settings import RECIPES
from tasks import config
from tasks.engines import processor
from tasks.run import provenance, runs
from tests.flows.cli.conftest import USAGE, Spo, code
from tests.tasks.conftest import MICRO
from warehouse import Warehouse

COUNT = {"reference": "r", "sampling": "s", "template_id": "t", "suite_hash": "h", "n": 10}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with Warehouse.open(tmp_path / "warehouse") as store:
        rows = [{"problem_id": f"p{number}", "k": number, **COUNT} for number in range(3)]
        store.append("counts", {"reference_counts": rows}, run_id="run-1")
    return tmp_path


def made_run(home: Path, **overrides: Any) -> str:
    """A run in the warehouse at `home`."""
    with Warehouse.open(home / "warehouse") as store:
        return runs.create(store, config.load("tiny", overrides, folder=RECIPES), origin="test")


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


def test_neither_commands_nor_what_only_looks_nor_a_flow_load_the_model_libraries() -> None:
    """Nor does a flow process before its stage, not even for training: it is other processes that train."""
    script = """
import importlib, sys
heavy = "torch", "transformers", "vllm", "deepspeed", "matplotlib", "prefect", "duckdb", "pyarrow"
for names in sys.argv[1:]:
    for name in names.split(","):
        importlib.import_module(name)
    print(*[name for name in heavy if name in sys.modules])
"""
    loaded = python("-c", script, "flows.cli.main", "flows.cli.status,tasks.stages", "flows.pipeline,tasks.train.stage")
    command, looking, flow = (set(line.split()) for line in loaded.stdout.splitlines())
    assert command == set()
    assert looking <= {"duckdb", "pyarrow"}
    assert flow <= {"duckdb", "pyarrow", "prefect", "matplotlib"}


def test_the_program_says_its_version_and_tells_an_error_as_one_message() -> None:
    said = python("-m", "flows.cli", "--version")
    assert (said.returncode, said.stdout) == (0, f"spo {version('spo-pipeline')}\n")
    wrong = python("-m", "flows.cli", "run", "huge")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("error: ")
    assert "Traceback" not in wrong.stderr


@pytest.mark.usefixtures("home")
def test_a_question_is_answered_as_table_csv_and_json(spo: Spo) -> None:
    query = "SELECT problem_id, k FROM q0 ORDER BY k DESC LIMIT 1"
    assert spo("sql", query).stdout.split() == ["problem_id", "k", "p2", "2"]
    assert spo("sql", query, "--csv").stdout.splitlines() == ["problem_id,k", "p2,2"]
    assert json.loads(spo("sql", query, "--json").stdout) == {"problem_id": "p2", "k": 2}
    assert code(spo("sql", "SELECT * FROM trajectories")) == ""


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM lake.stored.reference_counts",
        "INSERT INTO lake.stored.quarantine (bad_batch_id) VALUES ('x')",
        "DROP VIEW q0",
        "SELEC 1",
    ],
)
def test_a_question_cannot_change_the_warehouse(spo: Spo, statement: str) -> None:
    assert isinstance(spo("sql", statement).exception, duckdb.Error)
    assert spo("sql", "SELECT count(*) AS n FROM q0", "--csv").stdout.split() == ["n", "3"]


@pytest.mark.usefixtures("home")
def test_a_program_is_shown_as_it_is_and_wide_rows_have_a_line_for_each_value(spo: Spo) -> None:
    result = spo("sql", "SELECT 'return [x for x in xs if x > 0]' AS \"text[0]\"")
    assert [line.rstrip() for line in result.stdout.splitlines()] == ["text[0]", "return [x for x in xs if x > 0]"]
    columns = ", ".join(f"'value of column {n}' AS column_{n}" for n in range(24))
    lines = [line.rstrip() for line in spo("sql", f"SELECT {columns} FROM range(2)").stdout.splitlines()]
    assert len(lines) == 2 * 25
    assert lines.count("column_23  value of column 23") == 2


def test_a_quarantined_batch_is_in_no_view_and_an_unknown_one_is_refused(home: Path, spo: Spo) -> None:
    assert spo("quarantine", "counts", "no-such-batch").exit_code == 1
    with Warehouse.open(home / "warehouse") as store:
        assert store.value("SELECT count(*) FROM reference_counts") == 3
        assert code(spo("quarantine", "counts", "--reason", "drawn with the wrong model")) == ""
        assert store.value("SELECT count(*) FROM reference_counts") == 0


@pytest.mark.parametrize("command", ["status", "plan", "recipes"])
def test_looking_around_before_the_first_run_works_and_makes_nothing(tmp_path: Path, spo: Spo, command: str) -> None:
    assert code(spo(command, home=tmp_path / "none")) == ""
    assert not (tmp_path / "none").exists()


def test_a_plan_before_the_first_run_counts_what_is_to_do_and_knows_no_time(spo: Spo) -> None:
    shown = spo("plan", "tiny", "--set", "q0.samples=10", "--set", "problems.train=7").stdout
    assert re.search(r"q0\s+70 samples\s+\?", shown)


@pytest.mark.parametrize(
    ("recipe", "dtype", "able", "told"),
    [
        ("smollm", "float32", True, True),
        ("smollm", "float32", False, False),
        ("smollm", "bfloat16", True, False),
        ("tiny", "float32", True, False),
    ],
)
def test_a_pretrained_model_in_float32_is_told_of_a_faster_type(
    recipe: str, dtype: str, able: bool, told: bool, spo: Spo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "computes_bfloat16", lambda: able)
    shown = spo("plan", recipe, "--set", f"reference.dtype={dtype}").stdout
    assert ("-s reference.dtype=bfloat16" in shown) is told


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        ("WarehouseMissing", ["sql", "SELECT 1"]),
        ("WarehouseMissing", ["runs"]),
        ("WarehouseMissing", ["resume"]),
        ("WarehouseMissing", ["compact"]),
        ("WarehouseMissing", ["verify"]),
        ("WarehouseMissing", ["export", "out"]),
        ("WarehouseMissing", ["audit"]),
        ("WarehouseMissing", ["audit", "--accept", "x"]),
        ("UnknownRecipe", ["run", "huge"]),
        ("InvalidConfig", ["run", "tiny", "--set", "train.stepz=3"]),
        ("InvalidConfig", ["run", "--set", "evaluate.during_training=True"]),
        ("InvalidConfig", ["run", "--set", "seed=007"]),
        ("InvalidConfig", ["run", "--set", "recipe=../../escaped"]),
        ("NotReady", ["run", "real", "--set", "problems.path=absent.jsonl"]),
        (USAGE, ["statsu"]),
        (USAGE, ["resume", "--from", "trian"]),
        (USAGE, ["run", "--stage", "train"]),
        (USAGE, ["run", "--stage", "q0", "--force", "prepare"]),
        (USAGE, ["plan", "--run", "tiny-1", "--set", "train.steps=5"]),
        (USAGE, ["import", "README.md"]),
        (USAGE, ["import", "hf:a/b"]),
        (USAGE, ["import", "README.md", "--table", "trajectories", "--trust"]),
        (USAGE, ["eval", "model"]),
        (USAGE, ["eval", "./flows/nothing", "--set", "basics"]),
        (USAGE, ["eval", "flows/cli/nothing", "--set", "basics"]),
        (USAGE, ["eval", ".", "--set", "flows/nothing-*.jsonl"]),
        (USAGE, ["eval", "out/tiny", "--set", "nothing.jsonl"]),
        (USAGE, ["audit", "--accept"]),
        (USAGE, ["audit", "--accept", "--all", "x"]),
        (USAGE, ["audit", "--all"]),
        (USAGE, ["audit", "--accept", "x", "--run", "y"]),
    ],
)
def test_a_wrong_word_is_refused_before_anything_is_made(
    expected: str, arguments: list[str], tmp_path: Path, spo: Spo
) -> None:
    assert code(spo(*arguments, home=tmp_path / "none")) == expected
    assert not (tmp_path / "none").exists()


def test_problems_that_are_no_text_are_named_with_their_line(tmp_path: Path, spo: Spo) -> None:
    broken = tmp_path / "latin.jsonl"
    broken.write_bytes(b'{"problem_id": "caf\xe9"}\n')
    refused = spo("run", "real", "--set", f"problems.path={broken}", home=tmp_path / "none")
    assert code(refused) == "NotReady"
    assert f"{broken}:1" in str(refused.exception)


def test_a_model_of_the_hub_is_no_folder_where_one_has_its_owners_name(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    owned = tmp_path / "HuggingFaceTB" / "mine"
    owned.mkdir(parents=True)
    for model, expected in (("HuggingFaceTB/SmolLM2", "HuggingFaceTB/SmolLM2"), ("HuggingFaceTB/mine", str(owned))):
        subject = eval_command.subject_of(model, None, temperature=1.0, top_p=1.0, max_tokens=9)
        assert subject["reference"] == {"model": expected}


def test_what_would_change_the_data_of_a_run_that_trains_is_refused_before_anything_starts(
    home: Path, spo: Spo
) -> None:
    run_id = made_run(home)
    with Warehouse.open(home / "warehouse") as store:
        provenance.begin_training(store, run_id, "key", 1)
    for expected, *arguments in (
        ("TrainingHasBegun", "resume", run_id, "--from", "train"),
        ("TrainingHasBegun", "resume", run_id, "--only", "train", "--from", "q0"),
        ("TrainingHasBegun", "resume", run_id, "--pin", "1"),
        ("UnknownSnapshot", "resume", run_id, "--pin", "999999"),
        ("UnknownSnapshot", "run", "--pin", "999999"),
        ("InvalidConfig", "run", "--like", run_id, "--set", "train.stepz=3"),
        (USAGE, "run", "tiny", "--like", run_id),
    ):
        assert code(spo(*arguments)) == expected, arguments
    assert not (home / "logs").exists()


def test_an_unknown_run_is_answered_with_the_nearest(home: Path, tmp_path: Path, spo: Spo) -> None:
    assert made_run(home) == "tiny-1"
    pages = tmp_path / "pages"
    for arguments in (["resume", "tyni-1"], ["run", "--like", "tyni-1"]):
        refused = spo(*arguments)
        assert code(refused) == "UnknownRun"
        assert "'tiny-1'" in str(refused.exception)
    assert "tiny-9" in str(spo("ui", "--bundle", str(pages), "--run", "tiny-9").exception)
    assert not pages.exists()


def test_a_study_is_looked_at_before_anything_is_started(tmp_path: Path, spo: Spo) -> None:
    path = tmp_path / "rates.toml"
    arms = "".join(f'[arms.{name}]\nrecipe = "{MICRO}"\nlabel = "{name}"\n' for name in ("good", "bad"))
    wrong = 'overrides = { corpus = { files = ["absent.jsonl"] } }\n'
    groups = '[[groups]]\ntitle = "Rates"\narms = ["good", "bad"]\n'
    path.write_text(f'title = "Rates"\n{arms}{wrong}{groups}', encoding="utf-8")
    refused = spo("study", str(path))
    assert code(refused) == "NotReady"
    assert re.search(r"bad: .*absent\.jsonl", str(refused.exception))
    assert "good" not in str(refused.exception)
    assert code(spo("study", str(path), "--arm", "godo")) == "InvalidConfig"
    assert not (tmp_path / "prefect").exists()
