"""Runs: their names, their stored configuration, and what is known of them.

Errors
------
UnknownRun
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from tasks.config import EVALUATION, ConfigError, InvalidConfig, RunConfig, validate
from tasks.errors import CodedError
from warehouse import Warehouse
from warehouse.queries import query

PROJECT = "spo-pipeline"

TRAINED_BY = query(__name__, "trained_by")


OF_AN_EVALUATION = "`spo eval` with the same arguments goes on with it"
"""What to do where an evaluation was taken for a run of the pipeline."""


class UnknownRun(CodedError):
    """No run of that name in the warehouse."""


def create(store: Warehouse, config: RunConfig, *, origin: str) -> str:
    """Name of the run that `origin` (a flow run's id) stands for: the same again when it was created before.

    Names count up per recipe: `tiny-1`, `tiny-2`, ...; those of imported and of quarantined runs are taken.
    """
    with store.lock("runs", timeout_s=600):
        known = created_by(store, origin)
        if known is not None:
            return known
        beginning = f"{config.recipe}-"
        made = {name.removeprefix("run/") for name in store.committed_under(f"run/{beginning}")}  # quarantined, too
        found = store.rows("SELECT DISTINCT run_id FROM runs WHERE starts_with(run_id, ?)", [beginning])
        numbers = [name.removeprefix(beginning) for name in made | {str(row["run_id"]) for row in found}]
        run_id = f"{config.recipe}-{max((int(number) for number in numbers if number.isdecimal()), default=0) + 1}"
        row = {
            "recipe": config.recipe,
            "config_json": config.model_dump_json(),
            "project_version": version(PROJECT),
            "snapshot": store.snapshot(),
        }
        event = {"stage": "", "kind": "created", "message": origin, "payload_json": "{}"}
        store.append(f"run/{run_id}", {"runs": [row], "run_events": [event]}, run_id=run_id)
    return run_id


def load_config(store: Warehouse, run_id: str) -> RunConfig:
    """The resolved configuration `run_id` was created with. Raises UnknownRun."""
    text = store.value("SELECT config_json FROM runs WHERE run_id = ? ORDER BY arrival DESC LIMIT 1", [run_id])
    if text is None:
        known = [str(row["run_id"]) for row in listing(store, limit=1000)]
        close = difflib.get_close_matches(run_id, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise UnknownRun(f"no run {run_id!r} in {store.location}{hint} Newest runs: {', '.join(known[:5]) or 'none'}")
    return validate(json.loads(text), origin=f"stored configuration of run {run_id!r}")


def load_pipeline_config(store: Warehouse, run_id: str) -> RunConfig:
    """The same of a run of the pipeline. Raises UnknownRun, and InvalidConfig for what `spo eval` made."""
    config = load_config(store, run_id)
    if config.subject is not None:
        raise InvalidConfig(f"{run_id!r} is an evaluation, not a run of the pipeline; {OF_AN_EVALUATION}")
    return config


def latest(store: Warehouse) -> str:
    """The newest run of the pipeline, whatever was evaluated or imported since. Raises UnknownRun for none."""
    found = store.value(query(__name__, "latest"), [EVALUATION])
    if found is None:
        raise UnknownRun(f"no run in {store.location} yet; start one with `make run` or `spo run`")
    return str(found)


def created_by(store: Warehouse, origin: str) -> str | None:
    """The run that `origin` (a flow run's id) has created."""
    return store.value("SELECT run_id FROM run_events WHERE kind = 'created' AND message = ?", [origin])


def created_for(store: Warehouse, beginning: str, config: RunConfig) -> str | None:
    """The newest run whose origin begins so and that has this configuration, whichever version of the project made it:
    a field that came later is at its default.
    """
    for row in store.rows(query(__name__, "created_for"), [beginning]):
        with suppress(ConfigError):
            if load_config(store, str(row["run_id"])) == config:
                return str(row["run_id"])
    return None


def listing(store: Warehouse, *, limit: int = 20) -> list[dict[str, Any]]:
    """Newest runs first: run_id, recipe, created_at, and each one's stages in the order they ended; where a study
    started one of them, also `study`: its name, the arm and the seed, by slashes.
    """
    rows = store.rows(query(__name__, "listing"), [limit])
    studied = any(row["study"] for row in rows)
    return rows if studied else [{name: row[name] for name in row if name != "study"} for row in rows]


def note(
    store: Warehouse, run_id: str, *, stage: str, kind: str, message: str, payload: Mapping[str, Any] | None = None
) -> None:
    """Append one line to the run's history; `payload` are its details as JSON values."""
    row = {"stage": stage, "kind": kind, "message": message[:4000], "payload_json": json.dumps(dict(payload or {}))}
    store.append(f"event/{run_id}/{stage}/{kind}/{time.time_ns()}", {"run_events": [row]}, run_id=run_id)
