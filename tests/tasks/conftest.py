"""One finished run of the micro recipe, made once; tests that change things get a copy of its folder."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import Judge, Judgement, Submission, Verdict
from tasks import config
from tasks.run import runs
from tasks.run.stage import Context, Executor, StageProgress, StageResult, run_locally, run_stage, silent
from tasks.run.stage_names import STAGE_NAMES, StageName
from tasks.stages import STAGES
from tests import fork_server
from tests.budget import apart
from tests.shared_folder import copy_home, made_once
from tests.tasks.forked_training import trainings_forked
from warehouse import Warehouse

MICRO = str(Path(__file__).parent / "micro.toml")
IMPORTED = (
    "deepspeed",
    "transformers.models.llama.modeling_llama",
    "pyarrow.parquet",
    "tasks.report.run_report",
    "tasks.engines.transformers_engine",
)


def imported() -> None:
    """Import what a whole run needs, here and in the fork server."""
    with apart("imports"):
        for module in IMPORTED:
            importlib.import_module(module)
        fork_server.start()


class Lab:
    """A home folder with a warehouse, and stages run in it as plain functions."""

    def __init__(self, home: Path, location: str | None = None) -> None:
        self.home = home
        self.location = location or str(home / "warehouse")
        self.opened = Warehouse
        """The class of its warehouse: `breaking` makes one that breaks."""

    @contextmanager
    def store(self) -> Iterator[Warehouse]:
        with self.opened.open(self.location) as store:
            yield store

    def start(self, origin: str, overrides: dict[str, Any] | None = None) -> str:
        """A new run."""
        with self.store() as store:
            return runs.create(store, config.load(MICRO, overrides, folder=Path()), origin=origin)

    def run(
        self,
        run_id: str,
        *stages: StageName,
        force: bool = False,
        pin: int | None = None,
        progress: StageProgress = silent,
        executor: Executor = run_locally,
    ) -> dict[str, StageResult[Any]]:
        """Results of these stages, all when none is named."""
        results: dict[str, StageResult[Any]] = {}
        with trainings_forked() if "train" in (stages or STAGE_NAMES) else nullcontext(), self.store() as store:
            for name in stages or STAGE_NAMES:
                context = Context(run_id, runs.load_config(store, run_id), store, self.home, progress, pin, executor)
                results[name] = run_stage(STAGES[name], context, force=force)
        return results

    def value(self, sql: str) -> Any:
        """First value of a query."""
        with self.store() as store:
            return store.value(sql)


@contextmanager
def judge_broken_at(call: int) -> Iterator[None]:
    """Judging fails at its n-th call from now on, as when the machine goes away; expects that it did."""
    judge_stream, calls = Judge.judge_stream, 0

    def failing(self: Judge, submissions: Iterable[Submission]) -> Iterator[Judgement]:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError("the machine went away")
        return judge_stream(self, submissions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judge, "judge_stream", failing)
        with pytest.raises(OSError, match="went away"):
            yield


@contextmanager
def judgements_lost(lost: Callable[[Sequence[Submission]], Container[int]], detail: str = "") -> Iterator[None]:
    """The sandbox itself fails on those of the submissions whose places `lost` names."""
    judge = Judge.judge

    def failing(self: Judge, submissions: Iterable[Submission]) -> list[Judgement]:
        given = list(submissions)
        places, found = lost(given), judge(self, given)
        return [
            replace(one, verdict=Verdict.infra, detail=detail) if place in places else one
            for place, one in enumerate(found)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judge, "judge", failing)
        yield


def breaking(prefix: str, call: int, blow: Callable[[], None], *, after: bool = False) -> type[Warehouse]:
    """A warehouse that takes a blow before, or `after`, it stores the n-th batch whose id begins so."""
    left = call

    class Breaking(Warehouse):
        def append(self, batch_id: str, *arguments: Any, **named: Any) -> int:
            nonlocal left
            left -= batch_id.startswith(prefix)
            struck = left == 0 and batch_id.startswith(prefix)
            if struck and not after:
                blow()
            stored = super().append(batch_id, *arguments, **named)
            if struck:
                blow()
            return stored

    return Breaking


def interrupt() -> None:
    """A blow as of Ctrl-C."""
    raise KeyboardInterrupt


@contextmanager
def storing_broken_at(lab: Lab, prefix: str, call: int) -> Iterator[None]:
    """Storing the n-th batch whose id begins so fails, as when the machine goes away; expects that it did."""

    def fail() -> None:
        raise OSError("the machine went away")

    lab.opened = breaking(prefix, call, fail)
    with pytest.raises(OSError, match="went away"):
        yield
    lab.opened = Warehouse


def trained_with(lab: Lab, overrides: dict[str, Any]) -> tuple[Lab, str]:
    """The lab after another run in it, up to training; that run's name."""
    run_id = lab.start("trained", overrides)
    lab.run(run_id, *STAGE_NAMES[: STAGE_NAMES.index("train") + 1])
    return lab, run_id


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Judge("embedded", workers=1) as judge:
        yield judge


def finished_home(factory: pytest.TempPathFactory) -> Path:
    """A home with one finished run, `micro-1`, made once for all processes of the tests."""

    def make(folder: Path) -> None:
        lab = Lab(folder)
        assert lab.start("first") == "micro-1"
        results = lab.run("micro-1")
        assert not any(result.skipped for result in results.values())

    imported()
    with apart("the finished run"):
        return made_once("finished", make, factory)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The home with one finished run. Tests must not write to it."""
    return Lab(finished_home(tmp_path_factory))


@pytest.fixture
def with_models(finished: Lab, tmp_path: Path) -> Lab:
    """An empty warehouse whose reference policy is already made."""
    copy_home(finished.home / "models", tmp_path / "models")
    return Lab(tmp_path)


@pytest.fixture(scope="session")
def _prepared(finished: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("prepared"))
    copy_home(finished.home / "models", lab.home / "models")
    lab.run(lab.start("first"), "prepare")
    return lab


@pytest.fixture
def prepared(_prepared: Lab, tmp_path: Path) -> Lab:
    """A warehouse with the problems and prompts of the run `micro-1`, which has done nothing else."""
    copy_home(_prepared.home, tmp_path / "prepared")
    return Lab(tmp_path / "prepared")


@pytest.fixture
def copied(finished: Lab, tmp_path: Path) -> Callable[[], Lab]:
    """A copy of the finished home, to be changed."""

    def copy() -> Lab:
        return Lab(copy_home(finished.home, tmp_path / "home"))

    return copy
