"""Files that are imported into a table: under which run their rows are, and that nobody has them there twice."""

from __future__ import annotations

import hashlib
import json
import shlex
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from tests.refusals import refused
from tests.warehouse.conftest import trajectories, trajectory
from warehouse import Warehouse
from warehouse.exchange.importing_files import import_file
from warehouse.superseding import superseded
from warehouse.upkeep.verification import verify


def runs_of(location: str) -> dict[str, int]:
    """How many trajectories are shown of each run."""
    with Warehouse.open(location) as store:
        found = store.rows("SELECT run_id, count(*) AS n FROM trajectories GROUP BY ALL")
    return {row["run_id"]: row["n"] for row in found}


def written(path: Path, *runs: str | None) -> Path:
    """A file with a trajectory for each of these runs, None being one that names no run."""
    named = [{} if run is None else {"run_id": run} for run in runs]
    path.write_text("".join(json.dumps(trajectory(at) | run) + "\n" for at, run in enumerate(named)))
    return path


@pytest.mark.parametrize("first, second", [(None, "other"), ("other", None), ("other", "third")])
def test_rows_that_are_here_under_another_run_are_taken_once_those_are_left_out(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str | None, second: str | None
) -> None:
    monkeypatch.setenv("SPO_WAREHOUSE", folder)
    path = written(tmp_path / "my rows.jsonl", None, "own", None)
    take = partial(import_file, folder, path, "trajectories", rows_per_batch=2)
    of = {None: {"import": 2, "own": 1}, "other": {"other": 3}, "third": {"third": 3}}
    assert take(run_id=first).batches == 2
    with refused("OfAnotherRun", *of[first]) as refusal:
        take(run_id=second)
    assert runs_of(folder) == of[first]
    assert take(run_id=first).skipped == 2
    said = shlex.split(str(refusal.value).split("`")[1])
    assert CliRunner().invoke(app, said[1:]).exit_code == 0
    assert take(run_id=second).batches == 2
    assert runs_of(folder) == of[second]
    assert take(run_id=second).skipped == 2
    assert verify(folder).clean


def test_rows_whose_file_names_the_run_that_is_asked_for_are_the_same_rows(folder: str, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", "own", "own")
    for run_id, added in ((None, 2), ("own", 0), (None, 0)):
        assert import_file(folder, path, "trajectories", run_id=run_id).rows == {"trajectories": added}


def test_what_an_older_version_imported_under_a_run_is_known_by_it(folder: str, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", None, "own")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    name = f"import/rows.jsonl/{digest}/trajectories/0"  # without the run
    with Warehouse.open(folder) as store:
        store.append(name, {"trajectories": [trajectory(0), trajectory(1)]}, run_id="older")
    assert import_file(folder, path, "trajectories", run_id="older").skipped == 1
    with refused("OfAnotherRun", "run older", f"`spo quarantine {name}`", "another name"):
        import_file(folder, path, "trajectories")
    with Warehouse.open(folder) as store:
        store.append("mask", {"quarantine": [{"bad_batch_id": name, "reason": "other run"}]}, run_id="run")
    import_file(folder, path.rename(tmp_path / "copy.jsonl"), "trajectories")
    assert runs_of(folder) == {"import": 1, "own": 1}


def test_what_was_judged_again_counts_as_here(folder: str, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", None, None)
    import_file(folder, path, "trajectories")
    with Warehouse.open(folder) as store:
        (name,) = store.committed_under("import/")
        new = f"{name}/rejudged-9"
        tables = {"trajectories": trajectories(2), "quarantine": [superseded(name, new)]}
        store.append(new, tables, run_id="import")
    with refused("OfAnotherRun", "run import", f"`spo quarantine {new}`"):
        import_file(folder, path, "trajectories", run_id="other")
    assert import_file(folder, path, "trajectories").skipped == 1
    assert runs_of(folder) == {"import": 2}
