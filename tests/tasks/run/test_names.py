"""Names of runs: counted up per recipe, and never given twice."""

from __future__ import annotations

import json
from pathlib import Path

from tasks import config
from tasks.run import runs
from warehouse import Warehouse


def test_a_name_is_not_given_twice_also_where_runs_are_quarantined_or_were_imported(tmp_path: Path) -> None:
    settings = config.validate({"recipe": "tiny"})
    with Warehouse.open(tmp_path / "warehouse") as store:
        assert runs.create(store, settings, origin="first") == "tiny-1"
        assert runs.create(store, settings, origin="first") == "tiny-1"
        imported = {"recipe": "tiny", "config_json": settings.model_dump_json(), "project_version": "0", "snapshot": 1}
        store.append("warehouse/another/run/tiny-4", {"runs": [imported]}, run_id="tiny-4")  # as `spo import` does
        assert runs.create(store, settings, origin="second") == "tiny-5"
        store.append("bad", {"quarantine": [{"bad_batch_id": "run/tiny-5", "reason": "a test"}]}, run_id="hand")
        assert runs.create(store, settings, origin="third") == "tiny-6"
        assert runs.create(store, config.validate({"recipe": "tiny-4"}), origin="fourth") == "tiny-4-1"
        assert runs.load_config(store, "tiny-6").recipe == "tiny"


def test_the_newest_run_is_one_made_here_unless_all_are_imported(tmp_path: Path) -> None:
    settings = config.validate({"recipe": "tiny"})
    imported = {"recipe": "tiny", "config_json": settings.model_dump_json(), "project_version": "0", "snapshot": 1}
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("warehouse/another/run/tiny-8", {"runs": [imported]}, run_id="tiny-8")
        assert runs.latest(store) == "tiny-8"
        assert runs.create(store, settings, origin="first") == "tiny-9"
        store.append("warehouse/another/run/tiny-4", {"runs": [imported]}, run_id="tiny-4")
        assert runs.latest(store) == "tiny-9"


def test_a_run_is_found_by_its_origin_and_configuration_also_if_that_has_more_fields_now(tmp_path: Path) -> None:
    settings = config.validate({"recipe": "tiny"})
    with Warehouse.open(tmp_path / "warehouse") as store:
        before = json.loads(settings.model_dump_json())
        del before["train"]["keep_checkpoints"]  # as if the field, with a default, had come later
        created = {"kind": "created", "message": "study/a/b/0/digest", "stage": "", "payload_json": "{}"}
        row = {"recipe": "tiny", "config_json": json.dumps(before), "project_version": "0", "snapshot": 1}
        store.append("run/tiny-1", {"runs": [row], "run_events": [created]}, run_id="tiny-1")
        assert runs.created_for(store, "study/a/b/0/", settings) == "tiny-1"
        assert runs.created_for(store, "study/a/c/0/", settings) is None
        assert runs.created_for(store, "study/a/b/0/", config.changed(settings, {"train.steps": 7})) is None
        unknown = row | {"config_json": json.dumps(before | {"no": "such field"})}
        store.append("run/tiny-2", {"runs": [unknown], "run_events": [created]}, run_id="tiny-2")
        assert runs.created_for(store, "study/a/b/0/", settings) == "tiny-1"
