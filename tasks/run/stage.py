"""What a stage is: a name, what its result depends on, and a body that reads and appends to the warehouse.

A stage crosses the orchestrator as one small `StageResult`. Its key is a hash over everything its result depends on
(stage, version, its part of the configuration, the content of its inputs); a key that has completed once is never
computed again. While a stage runs it holds a lock of its key, so that the same work submitted twice is done once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Generic, TypeVar

from tasks.config import RunConfig
from tasks.run import runs
from tasks.run.errors import StageInputMissing, TrainingHasBegun
from tasks.run.manifests import Manifest
from tasks.run.provenance import begin_training, reads_until, refuse_to_pin, training_began_with
from tasks.run.stage_names import StageName
from warehouse import Warehouse, WarehouseBusy
from warehouse.queries import query

M = TypeVar("M", bound=Manifest)

LOCK_TIMEOUT_S = 24 * 3600.0
SHORT_WAIT_S = 2.0
"""After which it is told who holds the lock."""


StageProgress = Callable[[int, int, str, str], None]
"""Called as (done, total, unit, note)."""


def silent(done: int, total: int, unit: str, note: str) -> None:
    """A Progress that shows nothing."""


Work = Callable[[Mapping[str, int], int], int]
"""Does work (units with their amounts), given what was done before it (for progress only); returns what was done."""
WorkerFactory = Callable[["Context"], AbstractContextManager[Work]]
"""Opens what does the work: an engine, a sandbox. A module's function, so that it can travel to another machine."""
Executor = Callable[[WorkerFactory, "Context"], AbstractContextManager[Work]]
"""Opens a worker here, or workers on several machines that share the work."""


def run_locally(worker: WorkerFactory, context: Context) -> AbstractContextManager[Work]:
    """The Executor that does everything in this process."""
    return worker(context)


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a stage body may use."""

    run_id: str
    config: RunConfig
    warehouse: Warehouse
    home: Path
    progress: StageProgress = silent
    pin: int | None = None
    """Snapshot after which nothing of other runs is read. None: `run_stage` fixes it (`reads_until`)."""
    executor: Executor = run_locally
    """Who does the units of a stage's work: this process, or several tasks on several machines."""
    manifests: Mapping[StageName, Manifest] = field(default_factory=dict[StageName, Manifest])
    """Manifests to use instead of what the run's own stages left: those of a run that is only planned."""
    kept: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any], compare=False, repr=False)
    """What was read for this context already and several ask for: batches of the warehouse, by what names them."""

    @property
    def run_dir(self) -> Path:
        """Folder of this run's files (checkpoints, figures)."""
        return run_folder(self.home, self.run_id)

    def manifest(self, kind: type[M]) -> M:
        """What the stage of that kind of manifest left for this run. Raises StageInputMissing."""
        found = self.manifests.get(kind.stage) or finished(self.warehouse, kind, run_id=self.run_id)
        if not isinstance(found, kind):
            raise StageInputMissing(
                f"run {self.run_id!r} has no finished stage {kind.stage!r}; "
                f"run `prefect deployment run spo/{kind.stage} -p run={self.run_id}` first"
            )
        return found


def run_folder(home: Path, run_id: str) -> Path:
    """Folder of a run's files."""
    return home / "runs" / run_id


@dataclass(frozen=True, slots=True)
class StageResult(Generic[M]):
    """What a stage hands to the orchestrator."""

    stage: StageName
    snapshot: int
    rows: int
    skipped: bool
    seconds: float
    manifest: M


@dataclass(frozen=True, slots=True)
class Amount:
    """Work of a stage: `units` of `unit`, and in words what is there already."""

    units: int
    unit: str
    note: str = ""
    open_ended: bool = False
    """Whether more comes that nobody can count beforehand."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a stage may look at to say how much work it has ahead."""

    config: RunConfig
    context: Context | None
    """None while the run's problems are not in the warehouse: then only what the recipe says at most is known."""
    run_dir: Path | None
    """Folder of the run to be continued; None for a new one."""
    executions: Sequence[Execution]
    """Earlier executions of the stage, those of the same recipe first."""


@dataclass(frozen=True, slots=True)
class Execution:
    """An earlier execution of a stage."""

    seconds: float
    rows: int
    config: RunConfig


@dataclass(frozen=True, slots=True)
class Stage(Generic[M]):
    """A stage's definition."""

    manifest: type[M]
    """What it leaves; says its name, too."""
    version: int
    """Raised when the same inputs lead to another result than before."""
    sections: tuple[str, ...]
    """Parts of the configuration its result depends on: sections, or single fields (`reference.dtype`)."""
    inputs: Callable[[Context], Mapping[str, Any]]
    """Identity of what it reads: content hashes, ids and counts, never paths or times."""
    body: Callable[[Context], M]
    """Does the work."""
    amount: Callable[[Outlook], Amount]
    """How much work it has ahead, for `spo plan`."""
    units: Callable[[Execution], int] = lambda execution: execution.rows
    """How many of these units an earlier execution did."""
    usable: Callable[[M], bool] = lambda _: True
    """Whether what a finished stage left outside the warehouse (a checkpoint) is still there."""

    @property
    def name(self) -> StageName:
        """Its name in the pipeline."""
        return self.manifest.stage


def key_of(stage: Stage[Any], context: Context) -> str:
    """Hash over all that decides the result of `stage`."""
    config = context.config.model_dump(mode="json")
    read = {name: reduce(getitem, name.split("."), config) for name in stage.sections}
    parts = [stage.name, stage.version, read, dict(stage.inputs(context))]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def run_stage(stage: Stage[M], context: Context, *, force: bool = False, again: bool = False) -> StageResult[M]:
    """Run `stage` unless its key has completed before; record the outcome in the warehouse either way.

    `force`: also if it has, which is refused once the run's training has begun. `again`: what began it is retried.
    """
    attempt = _Attempt()
    try:
        if force and not again:
            refuse_to_redo(context.warehouse, context.run_id, stage.name)
        return _run(stage, context, attempt, force=force)
    except BaseException as error:
        message = f"{type(error).__name__}: {error}"
        kind = "failed" if isinstance(error, Exception) else "cancelled"  # a signal from outside is no fault
        payload = {} if attempt.begun else {"begun": False}
        runs.note(context.warehouse, context.run_id, stage=stage.name, kind=kind, message=message, payload=payload)
        raise


@dataclass(slots=True)
class _Attempt:
    """Whether an execution got as far as its body: what ends before is no sign of an earlier one, which was killed."""

    begun: bool = False


def _run(stage: Stage[M], context: Context, attempt: _Attempt, *, force: bool) -> StageResult[M]:
    began = time.monotonic()
    store = context.warehouse
    pin = reads_until(store, context.run_id, stage.name) if context.pin is None else context.pin
    context = replace(context, pin=pin)
    key = current_key(stage, context)
    waiting = time.monotonic()
    with turn(context, f"stage/{key}"):
        began += time.monotonic() - waiting
        known = None if force else finished(store, stage.manifest, key=key)
        skipped = known is not None and stage.usable(known)
        if stage.name == "train" and not training_began_with(store, context.run_id):
            begin_training(store, context.run_id, key, pin)
        if not skipped:
            runs.note(store, context.run_id, stage=stage.name, kind="started", message=f"key {key}")
            attempt.begun = True
        manifest = known if known is not None and skipped else stage.body(context)
        return _record(stage, context, key, manifest, skipped=skipped, seconds=time.monotonic() - began)


@contextmanager
def turn(context: Context, name: str, short_wait_s: float = SHORT_WAIT_S) -> Generator[None]:
    """Hold the lock `name`; while another process does the same work, the progress says which after a short wait."""
    with ExitStack() as held:
        try:
            held.enter_context(context.warehouse.lock(name, timeout_s=short_wait_s))
        except WarehouseBusy as busy:
            context.progress(0, 0, "", f"waits for the same work elsewhere: {busy}")
            held.enter_context(context.warehouse.lock(name, timeout_s=LOCK_TIMEOUT_S))
        yield


def current_key(stage: Stage[Any], context: Context) -> str:
    """The key that the run's stage has now: of what its training began with, or else of what it would read."""
    fixed = training_began_with(context.warehouse, context.run_id)
    return fixed[stage.name] if stage.name in fixed else key_of(stage, context)


def refuse_to_redo(store: Warehouse, run_id: str, stage: StageName) -> None:
    """Raise TrainingHasBegun when `stage` of that run stands."""
    if stage in training_began_with(store, run_id):
        raise TrainingHasBegun(
            f"stage {stage!r} of run {run_id!r} cannot be done anew: its training has begun, and the batches that it "
            f"took are recorded; `spo resume {run_id}` continues it, `spo run --like {run_id}` starts a new run with "
            f"the same settings"
        )


def refuse(store: Warehouse, run_id: str, force: Iterable[StageName], pin: int | None) -> None:
    """Raise TrainingHasBegun or UnknownSnapshot when the run cannot be pinned there or do these stages anew."""
    if pin is not None:
        refuse_to_pin(store, run_id, pin)
    for stage in force:
        refuse_to_redo(store, run_id, stage)


def finished(store: Warehouse, kind: type[M], *, key: str | None = None, run_id: str | None = None) -> M | None:
    """What the newest finished execution with that key, or of that run, left; None when there is none."""
    text = store.value(query(__name__, "finished"), {"stage": kind.stage, "key": key, "run_id": run_id})
    return None if text is None else kind.model_validate_json(text)


def _record(
    stage: Stage[M], context: Context, key: str, manifest: M, *, skipped: bool, seconds: float
) -> StageResult[M]:
    store = context.warehouse
    rows = 0 if skipped else manifest.rows
    row = {
        "stage": stage.name,
        "stage_version": str(stage.version),
        "key": key,
        "status": "skipped" if skipped else "completed",
        "snapshot_in": context.pin,
        "snapshot_out": store.snapshot(),
        "rows": rows,
        "seconds": seconds,
        "manifest_json": json.dumps(manifest.model_dump(mode="json"), sort_keys=True),
    }
    batch = f"stage/{context.run_id}/{stage.name}/{key}/{time.time_ns()}"
    snapshot = store.append(batch, {"stages": [row]}, run_id=context.run_id)
    return StageResult(stage.name, snapshot, rows, skipped, seconds, manifest)
