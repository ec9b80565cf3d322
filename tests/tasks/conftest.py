"""One finished run of the micro recipe, made once; tests that change things get a copy of its folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox import Judge, Judgement, Submission
from tasks import config
from tasks.run import runs
from tasks.run.stage import Context, Executor, StageProgress, StageResult, run_locally, run_stage, silent
from tasks.run.stage_names import STAGE_NAMES, StageName
from tasks.stages import STAGES
from tests.shared_folder import made_once
from warehouse import Warehouse

MICRO = str(Path(__file__).parent / "micro.toml")


class Lab:
    """A home folder with a warehouse, and stages run in it as plain functions."""

    def __init__(self, home: Path, location: str | None = None) -> None:
        self.home = home
        self.location = location or str(home / "warehouse")

    @contextmanager
    def store(self) -> Iterator[Warehouse]:
        with Warehouse.open(self.location) as store:
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
        with self.store() as store:
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
def storing_broken_at(prefix: str, call: int) -> Iterator[None]:
    """Storing the n-th batch whose id begins so fails, as when the machine goes away; expects that it did."""
    append, calls = Warehouse.append, 0

    def failing(self: Warehouse, batch: str, *arguments: Any, **named: Any) -> int:
        nonlocal calls
        calls += batch.startswith(prefix)
        if calls == call and batch.startswith(prefix):
            raise OSError("the machine went away")
        return append(self, batch, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Warehouse, "append", failing)
        with pytest.raises(OSError, match="went away"):
            yield


def trained_with(lab: Lab, overrides: dict[str, Any]) -> tuple[Lab, str]:
    """The lab after another run in it, up to training; that run's name."""
    run_id = lab.start("trained", overrides)
    lab.run(run_id, *STAGE_NAMES[: STAGE_NAMES.index("train") + 1])
    return lab, run_id


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Judge("embedded", workers=1) as judge:
        yield judge


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A home with one finished run, `micro-1`, made once for all processes of the tests. Tests must not write to it."""

    def make(folder: Path) -> None:
        lab = Lab(folder)
        assert lab.start("first") == "micro-1"
        results = lab.run("micro-1")
        assert not any(result.skipped for result in results.values())

    return Lab(made_once("finished", make, tmp_path_factory))


@pytest.fixture
def with_models(finished: Lab, tmp_path: Path) -> Lab:
    """An empty warehouse whose reference policy is already made."""
    shutil.copytree(finished.home / "models", tmp_path / "models")
    return Lab(tmp_path)


@pytest.fixture
def copied(finished: Lab, tmp_path: Path) -> Callable[[], Lab]:
    """A copy of the finished home, to be changed."""

    def copy() -> Lab:
        beside = shutil.ignore_patterns("*-wal", "*-shm")  # come and go while other processes read the catalogue
        shutil.copytree(finished.home, tmp_path / "home", ignore=beside)
        return Lab(tmp_path / "home")

    return copy
