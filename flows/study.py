"""The flow `spo/study`: many runs that differ in what a study compares, over several seeds, and their comparison.

Every arm and seed is an ordinary run, so a study that was stopped continues where it was, and a second one finds
everything done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from prefect import flow
from prefect.context import get_run_context
from pydantic import Field

from flows.pipeline import execute_stages
from flows.progress import Log, NestedProgress, ProgressTable, Publisher
from flows.retries import permanent
from flows.server.liveness import kept_running
from flows.settings import home, warehouse_location
from flows.study_config import Study, load, origin
from tasks import config as configuration
from tasks.errors import CodedError
from tasks.run.stage_names import STAGE_NAMES

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

    from tasks.report.arms import ArmResult
    from tasks.report.study_results import Results


@flow(name="spo", flow_run_name="study-{study}", validate_parameters=True)
def study(
    study: str = "quick",
    seeds: Annotated[int, Field(ge=1)] | None = None,
    arms: list[str] | None = None,
    folder: str | None = None,
    first_seed: Annotated[int, Field(ge=0)] | None = None,
    results: str | None = None,
) -> None:
    """Run every arm of a study once per seed, then compare them.

    study: a name in flows/studies or the path of a TOML file.
    seeds: number of seeds, instead of the study's own.
    arms: run only these.
    folder: where relative paths in its recipes and overrides start; the worker's own folder without it.
    first_seed: the first of the seeds, instead of the study's own.
    results: a file of results of other machines; what stands there is not run, and what is run here is added to it.
    """
    from tasks.report import study_results
    from tasks.train.shared.errors import StoppedByGuards

    definition = load(study)
    chosen = definition.chosen(arms)
    file = Path(folder or ".") / results if results else None
    settings = definition.settings()
    known = study_results.Results()
    if file is not None:
        study_results.require_writable(file)
        known = study_results.read(file, settings, definition.compared())
    work = known.missing(definition.work(chosen, seeds, first_seed), definition.after())
    configs = {(arm, seed): definition.config(arm, seed) for arm, seed in work}  # files may change while it runs
    lines = [f"{arm} {seed}" for arm, seed in work]
    this: FlowRun = get_run_context().flow_run  # type: ignore[union-attr, assignment]
    board = ProgressTable([*lines, "compare"], Publisher(this.id, f"study {study}"), Log())
    found: dict[str, dict[int, str]] = {arm: {} for arm in chosen}
    stopped: dict[str, list[int]] = {arm: [] for arm in chosen}
    begun: dict[tuple[str, int], Mapping[str, Any]] = {}
    failed: list[str] = []
    with kept_running(this.id):
        for line, (arm, seed) in zip(lines, work, strict=True):
            earlier = {name: found[name][seed] for name in chosen if seed in found[name]}
            if missing := [name for name in definition.arms[arm].after if name not in earlier]:
                board.end(line, "failed", f"not begun: {', '.join(missing)} did not end well")
                failed.append(f"{line} (not begun, after {', '.join(missing)})")
                continue
            config = definition.drawing_on(earlier, arm, configs[arm, seed])
            run_id = _run(study, arm, configuration.absolute(config, Path(folder or ".")))
            error = _one(board, line, run_id, partial(_check_problems, definition, known, begun, (arm, seed), run_id))
            ended = {seed: run_id} if error is None else {}
            guarded = [seed] if isinstance(error, StoppedByGuards) else []
            if error is not None and not guarded:
                failed.append(f"{line} (run {run_id}: {_why(error)})")
            found[arm] |= ended
            stopped[arm] += guarded
            if file is not None and (ended or guarded):  # run by run: what is interrupted keeps what it has
                study_results.append(file, _collected(definition, {arm: ended}, {arm: guarded}), settings)
        _compare(definition, study, _collected(definition, found, stopped), known, board)
    if failed:
        raise StudyIncomplete(f"{len(failed)} of {len(work)} runs failed: {', '.join(failed)}; the study again retries")


class StudyIncomplete(CodedError):
    """Some runs of a study failed; the others were compared."""


def _run(name: str, arm: str, config: configuration.RunConfig) -> str:
    from tasks.run import runs
    from warehouse import Warehouse

    known_by = origin(name, arm, config)
    with closing(Warehouse.open(warehouse_location())) as store:
        return runs.created_for(store, f"{known_by.rpartition('/')[0]}/", config) or runs.create(
            store, config, origin=known_by
        )


def _one(board: ProgressTable, line: str, run_id: str, check: Callable[[], None]) -> Exception | None:
    """What ended the run before its end, if anything, of what is about this run alone and leaves others their turn.

    `check` is called when the run has its problems, and raises BadResults.
    """
    from tasks.report.study_results import BadResults
    from tasks.train.shared.errors import TrainerError

    board.start(line)
    try:
        nested = NestedProgress(board, line, run_id)
        execute_stages(["prepare"], run_id, nested, tidy=False)
        check()
        execute_stages([name for name in STAGE_NAMES if name not in ("prepare", "report")], run_id, nested)
    except (BadResults, TrainerError, *permanent()) as error:
        board.end(line, "failed", f"{run_id}: {_why(error)}")
        return error
    board.end(line, "done", run_id)
    return None


def _check_problems(
    definition: Study,
    known: Results,
    begun: dict[tuple[str, int], Mapping[str, Any]],
    run: tuple[str, int],
    run_id: str,
) -> None:
    """Refuse what cannot be compared with the file of results or the runs `begun` here, before hours are spent on it.

    `run`, its arm and seed, joins those. Raises BadResults.
    """
    from tasks.report import study as study_report
    from tasks.report.study_results import Results
    from warehouse import Warehouse

    arm, _ = run
    beside = {name for group in definition.groups if arm in group.arms for name in group.arms}
    with closing(Warehouse.open(warehouse_location(), read_only=True)) as store:
        problems = study_report.problem_digests(store, run_id)
    Results(known.ended, begun).check_problems(arm, problems, beside)
    begun[run] = {"problems": problems}


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _collected(
    definition: Study, found: Mapping[str, Mapping[int, str]], stopped: Mapping[str, Sequence[int]]
) -> dict[str, ArmResult]:
    """What the warehouse knows of the runs that ended, by arm."""
    from tasks.report import study as study_report
    from warehouse import Warehouse

    labels = {arm: definition.arms[arm].label for arm in found}
    if not any(found.values()):  # nothing ended here, and there may be no warehouse yet
        return {arm: study_report.ArmResult(labels[arm], [], [], [], [], stopped[arm]) for arm in found}
    with closing(Warehouse.open(warehouse_location(), read_only=True)) as store:
        return {
            arm: study_report.collect(store, home(), labels[arm], runs, stopped[arm]) for arm, runs in found.items()
        }


def _compare(definition: Study, name: str, here: Mapping[str, ArmResult], known: Results, board: ProgressTable) -> None:
    """Compare the runs of this command with those that the file of results had."""
    from tasks.report import study as study_report

    board.start("compare")
    arms = {
        arm: known.added(arm, here.get(arm) or study_report.ArmResult(defined.label, [], [], []))
        for arm, defined in definition.arms.items()
        if arm in here or arm in known.arms
    }
    groups = [(group.title, group.text, [arm for arm in group.arms if arm in arms]) for group in definition.groups]
    page = study_report.write(definition.title, arms, groups, home() / "studies" / Path(name).stem)
    board.end("compare", "done", str(page))
