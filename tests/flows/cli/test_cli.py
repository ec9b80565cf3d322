"""The command `spo`: quick, clear about mistakes, read-only where it should be."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from flows import settings
from flows.cli import eval_command, run_commands
from flows.settings import RECIPES, recipe_names
from tasks import config
from tasks.engines import processor
from tasks.run import provenance, runs
from tests.tasks.conftest import MICRO
from warehouse import Warehouse


def spo(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SPO_HOME": str(home), "COLUMNS": "200"}
    environment.pop("SPO_WAREHOUSE", None)
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with Warehouse.open(tmp_path / "warehouse") as store:
        rows = [
            {
                "problem_id": f"p{i}",
                "reference": "r",
                "sampling": "s",
                "template_id": "t",
                "suite_hash": "h",
                "n": 10,
                "k": i,
            }
            for i in range(3)
        ]
        store.append("counts", {"reference_counts": rows}, run_id="run-1")
    return tmp_path


def test_the_command_starts_without_the_model_libraries() -> None:
    heavy = "torch|transformers|vllm|deepspeed|prefect|duckdb|pyarrow"
    code = f"import sys, re, flows.cli.main; print([m for m in sys.modules if re.fullmatch({heavy!r}, m)])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["flows.cli.status", "tasks.stages"])
def test_what_only_looks_loads_neither_what_draws_nor_a_model_library(module: str) -> None:
    code = f"import sys, re, {module}; print([m for m in sys.modules if re.fullmatch('torch|matplotlib|prefect', m)])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["flows.pipeline", "tasks.train.stage"])
def test_a_flow_process_loads_no_model_library_before_its_stage(module: str) -> None:
    """Nor for training: it is other processes that train."""
    heavy = "torch|transformers|vllm|deepspeed"
    code = f"import sys, re, {module}; print([m for m in sys.modules if re.fullmatch({heavy!r}, m)])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_it_says_which_version_it_is(tmp_path: Path) -> None:
    done = spo(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"spo {version('spo-pipeline')}\n")


def test_a_question_is_answered_as_table_csv_and_json(home: Path) -> None:
    query = "SELECT problem_id, k FROM q0 ORDER BY k DESC LIMIT 1"
    assert re.search(r"p2\s+2", spo(home, "sql", query).stdout)
    assert spo(home, "sql", query, "--csv").stdout.splitlines() == ["problem_id,k", "p2,2"]
    assert json.loads(spo(home, "sql", query, "--json").stdout) == {"problem_id": "p2", "k": 2}


def test_an_empty_answer_says_so(home: Path) -> None:
    result = spo(home, "sql", "SELECT * FROM trajectories")
    assert result.returncode == 0
    assert "(no rows)" in result.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM lake.stored.reference_counts",
        "INSERT INTO lake.stored.quarantine (bad_batch_id) VALUES ('x')",
        "DROP VIEW q0",
    ],
)
def test_a_question_cannot_change_the_warehouse(home: Path, statement: str) -> None:
    result = spo(home, "sql", statement)
    assert result.returncode == 1
    assert "error:" in result.stderr
    assert "Traceback" not in result.stderr
    assert spo(home, "sql", "SELECT count(*) AS n FROM q0", "--csv").stdout.split() == ["n", "3"]


def test_a_program_is_shown_as_it_is(home: Path) -> None:
    result = spo(home, "sql", "SELECT 'return [x for x in xs if x > 0]' AS \"text[0]\"")
    assert "return [x for x in xs if x > 0]" in result.stdout
    assert "text[0]" in result.stdout


def test_rows_too_wide_for_the_screen_have_a_line_for_each_value(home: Path) -> None:
    columns = ", ".join(f"'value of column {n}' AS column_{n}" for n in range(24))
    lines = [line.rstrip() for line in spo(home, "sql", f"SELECT {columns} FROM range(2)").stdout.splitlines()]
    assert [line for line in lines if line.startswith("row")] == ["row 1", "row 2"]
    assert lines[1] == "column_0   value of column 0"
    assert lines.count("column_23  value of column 23") == 2


def test_wrong_sql_is_one_message(home: Path) -> None:
    result = spo(home, "sql", "SELEC 1")
    assert result.returncode == 1
    assert "SELEC" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_warehouse_is_named_and_not_made(tmp_path: Path) -> None:
    result = spo(tmp_path / "none", "sql", "SELECT 1")
    assert result.returncode == 1
    assert str(tmp_path / "none" / "warehouse") in result.stderr.replace("\n", "")
    assert not (tmp_path / "none").exists()


def test_a_wrong_override_is_refused_before_anything_starts(tmp_path: Path) -> None:
    result = spo(tmp_path / "none", "run", "tiny", "--set", "train.stepz=3")
    assert result.returncode == 1
    assert "train.stepz: no such field" in result.stderr
    assert not (tmp_path / "none").exists()


def test_a_missing_or_broken_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    broken = tmp_path / "latin.jsonl"
    broken.write_bytes(b'{"problem_id": "caf\xe9"}\n')
    for path, words in ((tmp_path / "absent.jsonl", "no such file"), (broken, "latin.jsonl:1: not UTF-8")):
        result = spo(tmp_path / "none", "run", "real", "--set", f"problems.path={path}")
        assert result.returncode == 1
        assert words in result.stderr
        assert "Traceback" not in result.stderr
    assert not (tmp_path / "none").exists()


def test_an_unknown_recipe_names_the_known_ones(tmp_path: Path) -> None:
    result = spo(tmp_path, "run", "huge")
    assert result.returncode == 1
    assert "tiny" in result.stderr


def test_recipes_lists_what_ships(tmp_path: Path) -> None:
    shown = spo(tmp_path, "recipes").stdout.splitlines()
    assert [line.split()[0] for line in shown if not line.startswith(" ")] == recipe_names()


def test_no_run_yet_says_how_to_start_one(home: Path) -> None:
    assert "(no rows)" in spo(home, "runs").stdout


def test_a_quarantined_batch_is_in_no_view_and_an_unknown_one_is_refused(home: Path) -> None:
    refused = spo(home, "quarantine", "counts", "no-such-batch")
    assert refused.returncode == 1
    assert "no-such-batch" in refused.stdout
    assert "3" in spo(home, "sql", "SELECT count(*) FROM reference_counts", "--csv").stdout
    assert spo(home, "quarantine", "counts", "--reason", "drawn with the wrong model").returncode == 0
    assert spo(home, "sql", "SELECT count(*) FROM reference_counts", "--csv").stdout.split()[-1] == "0"


class Healthy(BaseHTTPRequestHandler):
    """Answers as a Prefect server of another home does."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_the_server_of_another_home_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HTTPServer(("127.0.0.1", 0), Healthy) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        monkeypatch.setenv("SPO_PORT", str(other.server_port))
        monkeypatch.delenv("PREFECT_API_URL", raising=False)
        assert "not running" in spo(tmp_path, "status").stdout
        refused = spo(tmp_path, "run", "tiny")
        other.shutdown()
    assert refused.returncode == 1
    assert f"port {other.server_port} is taken" in refused.stderr
    advice = re.search(r"export (PREFECT_API_URL)=(http://127.0.0.1:\d+/api)", refused.stderr)
    assert advice is not None
    monkeypatch.setenv(*advice.groups())
    assert settings.api_url() == advice[2]
    assert advice[2] == f"http://127.0.0.1:{settings.port()}/api"
    assert not settings.server_elsewhere()


@pytest.mark.parametrize("command", ["status", "plan", "recipes"])
def test_looking_around_before_the_first_run_works_and_makes_nothing(tmp_path: Path, command: str) -> None:
    result = spo(tmp_path / "none", command)
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("command", ["runs", "resume", "compact", "verify", "export out", "sql SELECT"])
def test_what_needs_a_warehouse_says_so_and_makes_none(tmp_path: Path, command: str) -> None:
    result = spo(tmp_path / "none", *command.split())
    assert result.returncode == 1
    assert "run the pipeline first" in result.stderr
    assert not (tmp_path / "none").exists()


def test_a_plan_before_the_first_run_lists_every_stage_and_no_time(tmp_path: Path) -> None:
    result = spo(tmp_path / "none", "plan", "tiny", "--set", "q0.samples=10", "--set", "problems.train=7")
    assert re.search(r"q0\s+70 samples\s+\?", result.stdout)
    assert "known after the first run" in result.stdout


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
    recipe: str, dtype: str, able: bool, told: bool, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(processor, "computes_bfloat16", lambda: able)
    run_commands.plan(recipe, [f"reference.dtype={dtype}"])
    assert ("-s reference.dtype=bfloat16" in capsys.readouterr().out) is told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["statsu"], ["No such command 'statsu'", "status"]),
        (["resume", "--from", "trian"], ["'trian' is not one of", "'train'"]),
        (["resume", "--from", "train", "--only", "q0"], ["comes before it", "--from q0 --only q0"]),
        (["run", "tinny"], ["no recipe 'tinny'", "did you mean 'tiny'?"]),
        (["plan", "--set", "train.stepz=3"], ["train.stepz: no such field", "did you mean 'steps'?"]),
        (["run", "--set", "train.steps"], ["--set needs name=value"]),
        (["run", "--stage", "q1"], ["'q1' is not one of", "'q0'"]),
        (["run", "--stage", "train"], ["--stage train: a new run has nothing", "spo resume RUN --only train"]),
        (["plan", "--run", "tiny-1", "--set", "train.steps=5"], ["--set is for a new run", "--run tiny-1"]),
        (["run", "--set", "evaluate.during_training=True"], ["evaluate.during_training: true or false is needed"]),
        (["run", "--set", "seed=007"], ["seed: a number is needed, got the text '007'"]),
        (["run", "--set", "recipe=../../escaped"], ["recipe: String should match pattern"]),
        (["import", "README.md"], ["README.md is no warehouse", "--from FORMAT"]),
        (["import", "hf:a/b"], ["hf:a/b is no warehouse", "--from columns"]),
        (["import", "README.md", "--table", "trajectories", "--trust"], ["--trust is for rollouts", "--from FORMAT"]),
        (["audit"], ["there is no warehouse at"]),
        (["audit", "--accept", "x"], ["there is no warehouse at"]),
        (["eval", "./flows/nothing", "--set", "basics"], ["there is no folder", "flows/nothing"]),
        (["eval", ".", "--set", "flows/nothing-*.jsonl"], ["there is no file or folder", "nor one of this pattern"]),
        (["run", "--stage", "q0", "--force", "prepare"], ["--force prepare with --stage q0", "that stage alone"]),
        (["eval", "flows/cli/nothing", "--set", "basics"], ["there is no folder", "flows/cli/nothing"]),
        (["eval", "out/tiny", "--set", "nothing.jsonl"], ["there is no file or folder", "nothing.jsonl"]),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_ones(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    result = spo(tmp_path / "none", *arguments)
    assert result.returncode != 0
    for word in words:
        assert word in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "none").exists()


def test_a_model_of_the_hub_is_no_folder_where_one_has_its_owners_name(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    owned = tmp_path / "HuggingFaceTB" / "mine"
    owned.mkdir(parents=True)
    for model, expected in (("HuggingFaceTB/SmolLM2", "HuggingFaceTB/SmolLM2"), ("HuggingFaceTB/mine", str(owned))):
        subject = eval_command._subject(model, None, temperature=1.0, top_p=1.0, max_tokens=9)
        assert subject["reference"] == {"model": expected}


def made_run(home: Path, **overrides: Any) -> str:
    """A run in the warehouse at `home`."""
    with Warehouse.open(home / "warehouse") as store:
        return runs.create(store, config.load("tiny", overrides, folder=RECIPES), origin="test")


def test_an_unknown_run_is_answered_with_the_nearest(home: Path) -> None:
    assert made_run(home) == "tiny-1"
    for arguments in (["resume", "tyni-1"], ["run", "--like", "tyni-1"]):
        result = spo(home, *arguments)
        assert result.returncode == 1
        assert "did you mean 'tiny-1'?" in result.stderr


def test_a_bundle_of_an_unknown_run_is_refused(home: Path, tmp_path: Path) -> None:
    made_run(home)
    result = spo(home, "ui", "--bundle", str(tmp_path / "pages"), "--run", "tiny-9")
    assert result.returncode == 1
    assert "no run 'tiny-9' at snapshot" in result.stderr
    assert not (tmp_path / "pages").exists()


def test_a_new_run_like_another_has_its_settings_and_the_overrides(home: Path, monkeypatch: Any) -> None:
    from flows import pipeline

    monkeypatch.setenv("SPO_HOME", str(home))
    monkeypatch.delenv("SPO_WAREHOUSE", raising=False)
    like = made_run(home, train={"steps": 17}, q0={"samples": 40})
    made = pipeline._run_id({"q0": {"samples": 80}}, like=like)
    assert made == "tiny-2"
    with Warehouse.open(home / "warehouse", read_only=True) as store:
        before, after = runs.load_config(store, like), runs.load_config(store, made)
    assert after == config.changed(before, {"q0.samples": 80})
    assert (after.train.steps, after.q0.samples) == (17, 80)
    with pytest.raises(config.InvalidConfig, match="recipe and like"):
        pipeline._run_id({}, recipe="tiny", like=like)


def test_a_run_like_another_is_no_run_of_a_recipe_and_its_overrides_are_checked(home: Path) -> None:
    run_id = made_run(home)
    both = spo(home, "run", "tiny", "--like", run_id)
    assert both.returncode == 2
    assert "cannot both be the origin" in " ".join(both.stderr.replace("│", " ").split())
    wrong = spo(home, "run", "--like", run_id, "--set", "train.stepz=3")
    assert wrong.returncode == 1
    assert "train.stepz: no such field" in wrong.stderr
    assert not (home / "logs").exists()


def test_what_would_change_the_data_of_a_run_that_trains_is_refused_before_anything_starts(home: Path) -> None:
    run_id = made_run(home)
    with Warehouse.open(home / "warehouse") as store:
        provenance.begin_training(store, run_id, "key", 1)
    for arguments, words in (
        (["resume", run_id, "--from", "train"], "its training has begun"),
        (["resume", run_id, "--only", "train", "--from", "q0"], "its training has begun"),
        (["resume", run_id, "--pin", "1"], f"spo run --like {run_id} --pin 1"),
        (["resume", run_id, "--pin", "999999"], "there is no snapshot 999999"),
        (["run", "--pin", "999999"], "there is no snapshot 999999"),
    ):
        result = spo(home, *arguments)
        assert result.returncode == 1, arguments
        assert words in result.stderr
        assert "Traceback" not in result.stderr
        assert not (home / "logs").exists()


def test_a_study_is_looked_at_before_anything_is_started(tmp_path: Path) -> None:
    path = tmp_path / "rates.toml"
    path.write_text(
        f"""
        title = "Rates"
        [arms.good]
        recipe = "{MICRO}"
        label = "good"
        [arms.bad]
        recipe = "{MICRO}"
        label = "bad"
        overrides = {{ corpus = {{ files = ["absent.jsonl"] }} }}
        [[groups]]
        title = "Rates"
        arms = ["good", "bad"]
        """,
        encoding="utf-8",
    )
    refused = spo(tmp_path / "home", "study", str(path))
    assert refused.returncode == 1
    assert "nothing was started" in refused.stderr
    assert re.search(r"bad: .*absent\.jsonl", refused.stderr)
    assert "good" not in refused.stderr
    unknown = spo(tmp_path / "home", "study", str(path), "--arm", "godo")
    assert "the study has no arm 'godo'; it has good, bad" in unknown.stderr
    assert not (tmp_path / "home" / "prefect").exists()
