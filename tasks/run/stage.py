"""What a stage is: a name, what its result depends on, and a body that reads and appends to the warehouse.

A stage crosses the orchestrator as one small `StageResult`. Its key is a hash over everything its result depends on
(stage, version, its part of the configuration, the content of its inputs); a key that has completed once is never
computed again. While a stage runs it holds a lock of its key, so that the same work submitted twice is done once.

Errors
------
StageError
    StageInputMissing
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.config import RunConfig
from tasks.run import runs
from warehouse import Warehouse

LOCK_TIMEOUT_S = 24 * 3600.0


class StageError(Exception):
    """A stage cannot do its work; the message says what is missing and what to run."""


class StageInputMissing(StageError):
    """An earlier stage has not produced what this one reads."""


Progress = Callable[[int, int, str, str], None]
"""Called as (done, total, unit, note)."""


def silent(done: int, total: int, unit: str, note: str) -> None:
    """A Progress that shows nothing."""


Draw = Callable[[Mapping[str, int], int], int]
"""Does work (units with their amounts), given what was done before it (for progress only); returns what was done."""
Part = Callable[["Context"], AbstractContextManager[Draw]]
"""What is opened to do work: an engine, a sandbox. A module's function, so that it can travel to another machine."""
Spread = Callable[[Part, "Context"], AbstractContextManager[Draw]]
"""Opens a part here, or on several machines that share the work."""


def here(part: Part, context: Context) -> AbstractContextManager[Draw]:
    """The Spread that does everything in this process."""
    return part(context)


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a stage body may use."""

    run_id: str
    config: RunConfig
    warehouse: Warehouse
    home: Path
    progress: Progress = silent
    pin: int | None = None
    """Snapshot the inputs are read at; None reads the newest."""
    spread: Spread = here
    """Who does the units of a stage's work: this process, or several tasks on several machines."""
    manifests: Mapping[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Manifests to use instead of what the run's own stages left: those of a run that is only planned."""

    @property
    def run_dir(self) -> Path:
        """Folder of this run's files (checkpoints, figures)."""
        return self.home / "runs" / self.run_id

    def manifest(self, stage: str) -> dict[str, Any]:
        """What `stage` left for this run. Raises StageInputMissing."""
        found = self.manifests.get(stage) or finished(self.warehouse, stage, run_id=self.run_id)
        if found is None:
            raise StageInputMissing(
                f"run {self.run_id!r} has no finished stage {stage!r}; "
                f"run `prefect deployment run spo/{stage} -p run={self.run_id}` first"
            )
        return found


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage hands to the orchestrator."""

    stage: str
    snapshot: int
    rows: int
    skipped: bool
    seconds: float
    manifest: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage's definition."""

    name: str
    version: int
    sections: tuple[str, ...]
    """Parts of the configuration its result depends on."""
    inputs: Callable[[Context], Mapping[str, Any]]
    """Identity of what it reads: content hashes, ids and counts, never paths or times."""
    body: Callable[[Context], dict[str, Any]]
    """Does the work and returns the manifest; `rows` in it counts the rows appended."""
    usable: Callable[[dict[str, Any]], bool] = lambda _: True
    """Whether what a finished stage left outside the warehouse (a checkpoint) is still there."""


def key_of(stage: Stage, context: Context) -> str:
    """Hash over all that decides the result of `stage`."""
    config = context.config.model_dump(mode="json")
    parts = [stage.name, stage.version, {s: config[s] for s in stage.sections}, dict(stage.inputs(context))]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def run_stage(stage: Stage, context: Context, *, force: bool = False) -> StageResult:
    """Run `stage` unless its key has completed before; record the outcome in the warehouse either way."""
    try:
        return _run(stage, context, force=force)
    except BaseException as error:
        message = f"{type(error).__name__}: {error}"
        runs.note(context.warehouse, context.run_id, stage=stage.name, kind="failed", message=message)
        raise


def _run(stage: Stage, context: Context, *, force: bool) -> StageResult:
    started = time.monotonic()
    store = context.warehouse
    key = key_of(stage, context)
    with store.lock(f"stage/{key}", timeout_s=LOCK_TIMEOUT_S):
        known = None if force else finished(store, stage.name, key=key)
        skipped = known is not None and stage.usable(known)
        manifest = known if known is not None and skipped else stage.body(context)
        return _record(stage, context, key, manifest, skipped=skipped, seconds=time.monotonic() - started)


def finished(
    store: Warehouse, stage: str, *, key: str | None = None, run_id: str | None = None
) -> dict[str, Any] | None:
    """Manifest of the newest finished execution of `stage` with that key, or of that run."""
    column, value = ("key", key) if key is not None else ("run_id", run_id)
    text = store.value(
        f"SELECT manifest_json FROM stages WHERE stage = ? AND {column} = ? AND status IN ('completed', 'skipped') "
        "ORDER BY created_at DESC LIMIT 1",
        [stage, value],
    )
    return None if text is None else json.loads(text)


def _record(
    stage: Stage, context: Context, key: str, manifest: dict[str, Any], *, skipped: bool, seconds: float
) -> StageResult:
    store = context.warehouse
    rows = 0 if skipped else int(manifest.get("rows", 0))
    row = {
        "stage": stage.name,
        "stage_version": str(stage.version),
        "key": key,
        "status": "skipped" if skipped else "completed",
        "snapshot_in": context.pin,
        "snapshot_out": store.snapshot(),
        "rows": rows,
        "seconds": seconds,
        "manifest_json": json.dumps(manifest, sort_keys=True),
    }
    batch = f"stage/{context.run_id}/{stage.name}/{key}/{time.time_ns()}"
    snapshot = store.append(batch, {"stages": [row]}, run_id=context.run_id)
    return StageResult(stage.name, snapshot, rows, skipped, seconds, manifest)
