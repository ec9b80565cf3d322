from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from tests.refusals import refused
from tests.warehouse.conftest import everywhere, trajectories, trajectory
from warehouse import Warehouse
from warehouse.exchange.exporting import PRIVATE, export
from warehouse.exchange.importing_files import import_file
from warehouse.exchange.importing_warehouses import import_warehouse
from warehouse.superseding import superseded
from warehouse.upkeep.verification import verify

SECRET = "SECRET-EXPECTED-OUTPUT"


@pytest.fixture(scope="module")
def filled(new_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse with rows in many tables, to read from."""
    folder = str(shutil.copytree(new_warehouse, tmp_path_factory.mktemp("filled") / "warehouse"))
    with Warehouse.open(folder) as store:
        store.append("a", {"trajectories": trajectories(3), "run_events": [{"kind": "note"}]}, run_id="run")
        store.append("b", {"trajectories": trajectories(2, "b")}, run_id="other")
        hidden = {"problem_id": "p0", "suite_hash": "s", "position": 0, "expected": SECRET, "hidden": True}
        shown = {"input": "1", "output": "2"}
        problem = {"problem_id": "p0", "split": "train", "statement": "Add.", "public_tests": [shown]}
        prompt = {"prompt_id": "q", "problem_id": "p0", "token_ids": [1], "text": "Add."}
        told = {"program_hash": "h", "suite_hash": "s", "verdict": "wrong_answer", "detail": f"expected {SECRET}"}
        audit = {"audit_id": "a", "problem_id": "p0", "suite_hash": "s", "programs": ["h", "g"], "solutions": []}
        audit |= {"inputs": 9, "discarded": 0, "behaviours": 2, "disagreeing": 1}
        finding = {"audit_id": "a", "problem_id": "p0", "suite_hash": "s", "position": 0, "input": SECRET, "groups": 2}
        finding |= {"expected": SECRET, "basis": "majority", "dissenters": ["h"]}
        extended = {"problem_id": "p0", "suite_hash": "t", "parent_suite_hash": "s", "parent_tests_hash": "u"}
        extended |= {"version": 2, "added": [{"input": SECRET, "output": SECRET}], "audit_ids": ["a"]}
        audited = {"audits": [audit], "audit_findings": [finding], "suite_versions": [extended], "verdicts": [told]}
        asked = {"tests": [hidden], "problems": [problem], "prompts": [prompt]}
        store.append("problems", asked | audited, run_id="run")
        store.append("mask", {"quarantine": [{"bad_batch_id": "b", "reason": "test"}]}, run_id="run")
    return folder


@pytest.fixture
def own(filled: str, tmp_path: Path) -> str:
    """A copy of it that may be changed."""
    return str(shutil.copytree(filled, tmp_path / "own"))


def test_tables_views_and_queries_are_exported_to_parquet(filled: str, tmp_path: Path) -> None:
    done = export(filled, tmp_path / "out", ["trajectories", "pass_rate_by_problem", "SELECT 1 AS one"])
    assert done.rows == {"trajectories": 3, "pass_rate_by_problem": 1, "query": 1}
    assert set(done.files) == {"trajectories.parquet", "pass_rate_by_problem.parquet", "query.parquet"}
    assert pq.read_table(tmp_path / "out" / "trajectories.parquet").column("token_ids").to_pylist() == [[1, 2, 3]] * 3


def test_json_lines_hold_one_object_a_row(filled: str, tmp_path: Path) -> None:
    export(filled, tmp_path / "out", "trajectories", form="jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out" / "trajectories.jsonl").read_text().splitlines()]
    assert sorted(row["trajectory_id"] for row in rows) == ["t0", "t1", "t2"]
    assert rows[0]["sampled_logprobs"] == [-0.5, -1.0, -0.25]


def test_a_data_set_has_a_card_that_names_files_and_columns(filled: str, tmp_path: Path) -> None:
    done = export(filled, tmp_path / "out", ["trajectories", "problems"], form="hf")
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nconfigs:\n- config_name: trajectories\n  data_files:\n  - split: train\n")
    assert "path: trajectories/*.parquet" in card
    assert "| sampled_logprobs | FLOAT[] | log-probability of each of `token_ids`" in card
    assert all((tmp_path / "out" / file).is_file() for file in done.files)


def test_the_library_datasets_loads_an_exported_data_set(filled: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    export(filled, tmp_path / "out", ["trajectories", "pass_rate_by_problem", "corpus"], form="hf")
    names = datasets.get_dataset_config_names(str(tmp_path / "out"))
    assert set(names) == {"trajectories", "pass_rate_by_problem"}
    assert "## corpus\n\nNo rows, so no file." in (tmp_path / "out" / "README.md").read_text()
    loaded = datasets.load_dataset(str(tmp_path / "out"), "trajectories", split="train", cache_dir=tmp_path / "cache")
    assert [row["trajectory_id"] for row in loaded] == ["t0", "t1", "t2"]
    assert loaded[0]["token_ids"] == [1, 2, 3]
    assert loaded.features["sampled_logprobs"].feature.dtype == "float32"


def test_an_export_at_a_snapshot_leaves_later_rows_out(own: str, tmp_path: Path) -> None:
    with Warehouse.open(own) as store:
        at = store.snapshot()
        store.append("later", {"trajectories": trajectories(4, "later")}, run_id="run")
    assert export(own, tmp_path / "out", "trajectories", snapshot=at).rows == {"trajectories": 3}


HIDDEN = [
    "tests",
    "SELECT expected FROM tests",
    "SELECT * FROM stored.tests WHERE expected = 'x'",
    'SELECT p.* FROM problems AS p JOIN lake.stored."TESTS" USING (problem_id)',
    "WITH t AS (SELECT * FROM tests) SELECT count(*) FROM t",
    *sorted(PRIVATE - {"tests"}),
]


def test_hidden_tests_are_exported_only_when_asked_for(filled: str, tmp_path: Path) -> None:
    for what in HIDDEN:
        with refused("HoldsHiddenTests"):
            export(filled, tmp_path / "out", what)
    for what in ("SELECT * FROM query('SELECT * FROM tests')", "SELECT * FROM query_table('tests')"):
        with refused("HiddenTables"):
            export(filled, tmp_path / "out", what)
    assert not (tmp_path / "out").exists()
    for number, what in enumerate(HIDDEN[:2]):
        export(filled, tmp_path / f"out {number}", what, hidden_tests=True)


def test_no_expected_output_is_in_any_other_table_or_view(filled: str, tmp_path: Path) -> None:
    with Warehouse.open(filled) as store:
        names = [row["view_name"] for row in store.rows("SELECT view_name FROM duckdb_views() WHERE NOT internal")]
        leaking = [name for name in names if SECRET in str(store.rows(f'SELECT * FROM "{name}"'))]
    assert set(leaking) == PRIVATE
    export(filled, tmp_path / "out", [name for name in names if name not in PRIVATE], form="jsonl")
    assert not any(SECRET.encode() in file.read_bytes() for file in (tmp_path / "out").iterdir())


def test_unknown_names_and_full_folders_are_refused(filled: str, tmp_path: Path) -> None:
    with refused("UnknownView", "'dreams'", "trajectories"):
        export(filled, tmp_path / "out", "dreams")
    with refused("NotASelect"):
        export(filled, tmp_path / "out", "DROP VIEW q0")
    with refused("SeveralQueries"):
        export(filled, tmp_path / "out", ["SELECT 1 AS one", "SELECT 2 AS two"])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    with refused("FolderNotEmpty"):
        export(filled, tmp_path / "out", "trajectories")


def test_another_warehouse_is_imported_once_with_its_runs_and_quarantine(filled: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    first = import_warehouse(target, filled)
    assert (first.batches, first.rows["trajectories"]) == (4, 5)
    second = import_warehouse(target, filled)
    assert (second.batches, second.skipped) == (0, 4)
    with Warehouse.open(target) as store:
        assert store.rows("SELECT DISTINCT run_id FROM trajectories") == [{"run_id": "run"}]
        assert store.value("SELECT count(*) FROM trajectories") == 3
    assert verify(target).clean


def test_what_a_stage_had_read_there_is_what_it_has_read_here(folder: str, tmp_path: Path) -> None:
    def stage(manifest: dict[str, Any] | None) -> dict[str, Any]:
        text = None if manifest is None else json.dumps(manifest)
        return {"stage": "pivotal", "key": "k", "status": "completed", "manifest_json": text, "snapshot_in": read}

    with Warehouse.open(tmp_path / "theirs") as theirs:
        theirs.append("rollouts", {"trajectories": trajectories(3)}, run_id="run")
        read = theirs.snapshot()
        pinned = {"kind": "pinned", "payload_json": json.dumps({"snapshot": read})}
        theirs.append("pin", {"run_events": [pinned]}, run_id="run")
        theirs.append("stage/1", {"stages": [stage({"snapshot": read, "summary": "found"})]}, run_id="run")
        theirs.append("stage/2", {"stages": [stage({"summary": "no snapshot"}), stage(None)]}, run_id="run")
        batch = {"step": 1, "trajectory_ids": ["t0"], "sources": ["online"], "max_snapshot": read}
        theirs.append("train/run/1", {"train_batches": [batch]}, run_id="run")
        theirs.append("later", {"trajectories": trajectories(2, "later")}, run_id="run")
    with Warehouse.open(folder) as ours:
        for number in range(9):
            ours.append(f"event/{number}", {"run_events": [{"kind": "note"}]}, run_id="own")
    import_warehouse(folder, tmp_path / "theirs")
    with Warehouse.open(folder) as ours:
        found = [row["manifest_json"] for row in ours.rows("SELECT manifest_json FROM stages ORDER BY arrival")]
        first = json.loads(found[0])
        assert first["summary"] == "found"
        until = ours.value("SELECT count(*) FROM trajectories WHERE snapshot_id <= ?", [first["snapshot"]])
        pin = ours.value("SELECT payload_json FROM run_events WHERE kind = 'pinned'")
        assert json.loads(pin) == {"snapshot": first["snapshot"]}
        assert ours.value("SELECT list(DISTINCT snapshot_in) FROM stages") == [first["snapshot"]]
        assert ours.value("SELECT max_snapshot FROM train_batches") == first["snapshot"]
    assert until == 3, "those that were there, not those that came later"
    assert found[1:] == [json.dumps({"summary": "no snapshot"}), None]


def test_importing_back_and_forth_adds_nothing(own: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    import_warehouse(target, own)
    assert import_warehouse(own, target).batches == 0
    third = str(tmp_path / "third")
    assert import_warehouse(third, target).batches == 4
    assert import_warehouse(third, own).batches == 0
    with refused("SameWarehouse"):
        import_warehouse(own, own)


def test_what_is_newest_there_is_newest_here(folder: str, tmp_path: Path) -> None:
    with Warehouse.open(folder) as store:
        for batch, manifest in (("zzz", "old"), ("mmm", "older than new"), ("aaa", "new")):
            row = {"stage": "q0", "key": "k", "status": "completed", "manifest_json": manifest}
            store.append(batch, {"stages": [row]}, run_id="run")
            store.append(f"{batch}-event", {"run_events": [{"kind": manifest}]}, run_id="run")
        newest = "SELECT manifest_json FROM stages ORDER BY arrival DESC LIMIT 1"
        assert store.value(newest) == "new"
    target = str(tmp_path / "target")
    assert import_warehouse(target, folder).batches == 6
    with Warehouse.open(target) as store:
        assert store.value(newest) == "new"
        query = "SELECT manifest_json, snapshot_id FROM stages UNION ALL SELECT kind, snapshot_id FROM run_events"
        rows = store.rows(f"{query} ORDER BY snapshot_id")
        assert [row["manifest_json"] for row in rows] == [
            manifest for manifest in ("old", "older than new", "new") for _ in range(2)
        ]
        assert len({row["snapshot_id"] for row in rows}) == 6


def test_batches_of_one_snapshot_are_imported_in_the_order_in_which_they_were_staged(
    folder: str, tmp_path: Path
) -> None:
    names = [f"b{number}" for number in (7, 2, 9, 4, 0, 8, 1, 3)]
    with Warehouse.open(folder) as store:
        for number, name in enumerate(names):
            tables: dict[str, list[dict[str, Any]]] = {"trajectories": trajectories(3, f"{name}-")}
            if number % 2:
                tables["run_events"] = [{"kind": name}]
            store.stage(name, tables, run_id="run")
        store.commit()
    target = str(tmp_path / "target")
    import_warehouse(target, folder)
    with Warehouse.open(target) as store:
        found = [row["trajectory_id"] for row in store.rows("SELECT trajectory_id FROM trajectories ORDER BY arrival")]
        assert found == [f"t{name}-{number}" for name in names for number in range(3)]
        kinds = [row["kind"] for row in store.rows("SELECT kind FROM run_events ORDER BY arrival")]
        assert kinds == names[1::2]


def with_run(location: str, config: str, run_id: str = "tiny-1") -> str:
    """A warehouse in which a run of that name began with that configuration and drew three responses."""
    with Warehouse.open(location) as store:
        store.append(f"run/{run_id}", {"runs": [{"recipe": "tiny", "config_json": config}]}, run_id=run_id)
        store.append(f"drawn/{run_id}", {"trajectories": trajectories(3, config)}, run_id=run_id)
    return location


@pytest.mark.parametrize("config", ["{}", '{"seed": 2}'])
def test_different_runs_of_one_name_are_refused_before_anything_is_taken(tmp_path: Path, config: str) -> None:
    ours, theirs = with_run(str(tmp_path / "ours"), "{}"), with_run(str(tmp_path / "theirs"), config)
    with_run(theirs, config, "tiny-2")
    with refused("DifferentRunsOfOneName", "tiny-1", ours, theirs):
        import_warehouse(ours, theirs)
    with Warehouse.open(ours) as store:
        assert [batch.batch_id for batch in store.ledger.batches()] == ["run/tiny-1", "drawn/tiny-1"]


def test_the_way_out_of_equal_names_takes_rows_under_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = with_run(str(tmp_path / "ours"), "{}"), with_run(str(tmp_path / "theirs"), '{"seed": 2}')
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.setenv("SPO_WAREHOUSE", theirs)
    query = "SELECT * FROM trajectories WHERE run_id = 'tiny-1'"
    assert CliRunner().invoke(app, ["export", str(tmp_path / "out"), "-w", query]).exit_code == 0
    monkeypatch.setenv("SPO_WAREHOUSE", ours)
    command = ["import", str(tmp_path / "out" / "query.parquet"), "--table", "trajectories", "--run", "other-tiny-1"]
    assert CliRunner().invoke(app, command).exit_code == 0
    with Warehouse.open(ours) as store:
        found = store.rows("SELECT run_id, count(*) AS n FROM trajectories GROUP BY ALL ORDER BY ALL")
    assert found == [{"run_id": "other-tiny-1", "n": 3}, {"run_id": "tiny-1", "n": 3}]


def test_the_same_run_may_go_back_and_forth_and_come_by_way_of_others(tmp_path: Path) -> None:
    first, second, third = (str(tmp_path / name) for name in ("first", "second", "third"))
    with_run(first, "{}")
    import_warehouse(second, first)
    with_run(second, "{}", "tiny-2")
    import_warehouse(third, second)
    with Warehouse.open(first) as store:
        store.append("more", {"trajectories": trajectories(2, "more")}, run_id="tiny-1")
    assert import_warehouse(second, first).batches == 1
    assert import_warehouse(second, first).batches == 0
    assert import_warehouse(first, second).batches == 2
    assert import_warehouse(third, first).batches == 1
    with Warehouse.open(third) as store:
        assert store.value("SELECT count(*) FROM trajectories WHERE run_id = 'tiny-1'") == 5
        assert store.value("SELECT count(*) FROM runs") == 2


@everywhere
def test_the_command_imports_from_every_kind_of_location(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_run(location, "{}")
    target = str(tmp_path / "target")
    monkeypatch.setenv("SPO_WAREHOUSE", target)
    done = CliRunner().invoke(app, ["import", location])
    assert done.exit_code == 0, done.exception
    with Warehouse.open(target) as store:
        assert store.value("SELECT count(*) FROM trajectories") == 3


def test_exported_files_are_imported_into_another_warehouse(filled: str, tmp_path: Path) -> None:
    query = "SELECT * EXCLUDE (snapshot_id) FROM trajectories"
    export(filled, tmp_path / "parquet", query)
    export(filled, tmp_path / "jsonl", query, form="jsonl")
    target = str(tmp_path / "target")
    for form in ("parquet", "jsonl"):
        path = tmp_path / form / f"query.{form}"
        assert import_file(target, path, "trajectories", run_id="imported").rows == {"trajectories": 3}
        assert import_file(target, path, "trajectories", run_id="imported").rows == {"trajectories": 0}
    with Warehouse.open(target) as store:
        assert store.value("SELECT count(*) FROM trajectories WHERE run_id = 'imported'") == 6


@pytest.mark.parametrize(
    "line, code, named",
    [
        ("{", "NotJson", ["line 2"]),
        ("[1]", "NotAnObject", ["line 2"]),
        ('{"trajectory_id": "x"}', "MissingField", ["'trajectories'", "row 1", "'problem_id'"]),
    ],
)
def test_a_bad_line_is_refused_by_file_and_line_before_anything_is_written(
    folder: str, tmp_path: Path, line: str, code: str, named: list[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(trajectory(0)) + "\n" + line + "\n")
    with refused(code, path, *named):
        import_file(folder, path, "trajectories")
    with Warehouse.open(folder) as store:
        assert store.value("SELECT count(*) FROM trajectories") == 0


def test_a_prompt_with_a_hidden_expected_output_is_found(own: str) -> None:
    assert not [finding for finding in verify(own).findings if "prompt" in finding.message]
    with Warehouse.open(own) as store:
        row = {"prompt_id": "bad", "problem_id": "p0", "token_ids": [1], "text": f"Add. The answer is {SECRET}."}
        store.append("leak", {"prompts": [row]}, run_id="run")
    (found,) = [finding for finding in verify(own).findings if "prompt" in finding.message]
    assert found.level == "note"
    assert "'p0'" in found.message
    assert "'bad'" in found.message


def replaced(folder: str, old: str, version: int, ids: int = 2) -> str:
    """Batch `old` once more as `spo rejudge` of this version appends it; its name."""
    new = f"{old}/rejudged-{version}"
    with Warehouse.open(folder) as store:
        rows = trajectories(ids, f"of version {version}-")
        store.append(new, {"trajectories": rows, "quarantine": [superseded(old, new)]}, run_id="run")
    return new


def shown(folder: str) -> set[str]:
    with Warehouse.open(folder, read_only=True) as store:
        return {row["batch_id"] for row in store.rows("SELECT batch_id FROM trajectories")}


def test_a_batch_replaced_here_and_there_has_one_successor_after_an_import(folder: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    with Warehouse.open(folder) as store:
        store.append("b", {"trajectories": trajectories(2)}, run_id="run")
        origin = f"warehouse/{store.ledger.get('warehouse_id')}"
    import_warehouse(target, folder)
    replaced(folder, "b", 4)
    here = replaced(target, f"{origin}/b", 5)
    import_warehouse(target, folder)
    assert shown(target) == {here}
    assert import_warehouse(target, folder).batches == 0
