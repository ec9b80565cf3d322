"""Engines in processes of their own: the same samples, the same errors, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tasks.checkpoints.errors import EngineError
from tasks.config import EngineConfig
from tasks.engines import open_engine, process_engine, wire
from tasks.engines.devices import engine_processes
from tasks.engines.engine_process import Pending
from tasks.engines.process_engine import ProcessEngine, _answered
from tasks.engines.protocol import Completion, Request, SamplingEngine
from tests.refusals import refused
from tests.tasks.engines.conftest import END, build, save, save_tokenizer

PATIENCE_S = 120.0
SCRIPT = {"stop_ids": [END], "default": [[5, 6, END], [5, 7, END], [5, 7, 8, END], [9, END]]}
SETTINGS = EngineConfig(max_batch=16)


def requests(count: int = 40) -> list[Request]:
    """Requests of several prompts, lengths, temperatures and numbers of samples."""
    return [
        Request(
            tuple(3 + (7 * part + number // 4) % 50 for part in range(5 + number % 3)),
            n=1 + number % 2,
            seed=number,
            temperature=0.5 + number % 2,
            top_p=0.9,
            max_tokens=12,
            entropies=number % 3 > 0,
        )
        for number in range(count)
    ]


def drawn(engine: SamplingEngine, wanted: Sequence[Request | None]) -> list[Completion]:
    """All responses, in an order of their own."""
    return sorted(engine.sample(wanted), key=lambda item: (item.request, item.index))


def opened(folder: Path, *, processes: int, **changes: Any) -> ProcessEngine:
    settings = SETTINGS.model_copy(update={"processes": processes, **changes})
    engine = open_engine(settings, folder, dtype="float32")
    assert isinstance(engine, ProcessEngine)
    return engine


def until(true: Callable[[], bool]) -> None:
    """Wait for something that comes whatever the load."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = save(build("llama"), tmp_path_factory.mktemp("model"))
    save_tokenizer(made)
    return made


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose engine needs no model library."""
    made = save(build("llama"), tmp_path_factory.mktemp("script"))
    (made / "script.json").write_text(json.dumps(SCRIPT), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def apart(folder: Path) -> Iterator[ProcessEngine]:
    """One engine process."""
    engine = opened(folder, processes=1)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def two(folder: Path) -> Iterator[ProcessEngine]:
    engine = opened(folder, processes=2)
    yield engine
    engine.close()


def test_a_process_gives_the_bits_that_the_engine_gives_here(folder: Path, apart: ProcessEngine) -> None:
    here = open_engine(SETTINGS, folder, dtype="float32")
    wanted = requests(10)
    assert drawn(apart, wanted) == drawn(here, wanted)
    sequences = [(r.prompt_ids, (7, 8, 9)) for r in wanted] + [((4, 5), ())]
    assert apart.score(sequences) == here.score(sequences)
    assert (apart.name, apart.logprob_kind, apart.policy_id) == (here.name, here.logprob_kind, here.policy_id)
    here.close()


def test_two_processes_give_the_bits_of_one(apart: ProcessEngine, two: ProcessEngine) -> None:
    wanted = requests(90)
    assert drawn(two, wanted) == drawn(apart, wanted)
    sequences = [(r.prompt_ids, (7, 8, 9)) for r in wanted]
    assert two.score(sequences) == apart.score(sequences)


def test_every_process_of_several_draws(script: Path) -> None:
    engine = opened(script, kind="scripted", processes=3)
    here = open_engine(EngineConfig(kind="scripted"), script, dtype="float32")
    spread = engine.sample(requests(200))
    found = [next(spread) for _ in range(100)]
    for pid in engine.pids[1:]:
        assert psutil.Process(pid).is_running()
    found += list(spread)
    assert sorted(found, key=lambda c: (c.request, c.index)) == drawn(here, requests(200))
    engine.close()


def test_requests_that_come_later_join_and_a_call_ends_when_there_are_none(apart: ProcessEngine) -> None:
    wanted = requests(12)
    late = [*wanted[:4], None, *wanted[4:9], None, *wanted[9:]]
    found = drawn(apart, iter(late))  # type: ignore[arg-type]
    whole = drawn(apart, wanted)
    assert [(c.request, c.index, c.token_ids) for c in found] == [(c.request, c.index, c.token_ids) for c in whole]
    assert drawn(apart, iter([None, *wanted])) == []  # type: ignore[arg-type]


def test_sequences_are_scored_while_samples_are_drawn(apart: ProcessEngine) -> None:
    sequences = [((3, 4, 5), (6, 7)), ((8,), (9, 10, 11))]
    before = apart.score(sequences)
    samples = apart.sample(requests())
    found = [next(samples)]
    assert apart.score(sequences) == before
    with refused("StillSampling"):
        apart.refresh(Path("nowhere"))
    found += list(samples)
    assert sorted(found, key=lambda c: (c.request, c.index)) == drawn(apart, requests())


def test_samples_can_be_given_up_and_the_next_call_is_whole(two: ProcessEngine) -> None:
    samples = two.sample(requests())
    next(samples)
    samples.close()  # type: ignore[attr-defined]
    assert drawn(two, requests(12)) == drawn(two, requests(12))


def test_other_weights_are_taken_up_by_all_and_back(two: ProcessEngine, folder: Path, other_folder: Path) -> None:
    before, first = drawn(two, requests(60)), two.policy_id
    two.refresh(other_folder)
    assert two.policy_id != first
    assert drawn(two, requests(60)) != before
    two.refresh(folder)
    assert drawn(two, requests(60)) == before


def test_weights_that_only_some_processes_took_up_are_never_sampled_from(
    script: Path, other_folder: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(other_folder, tmp_path / "other")
    shutil.copy(script / "script.json", other)
    engine = opened(script, kind="scripted", processes=2)
    lost = psutil.Process(engine.pids[0])
    lost.kill()
    with refused("EngineDied", "SIGKILL"):
        engine.refresh(other)
    with refused("EngineClosed"):
        list(engine.sample(requests(2)))
    assert engine.pids == []


def test_processes_that_read_different_weights_are_refused(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(script, kind="scripted", processes=2)

    def changed_meanwhile(pending: Sequence[Pending]) -> tuple[list[wire.Frame], list[EngineError]]:
        answers, errors = _answered(pending)
        return [({"policy_id": str(number)}, arrays) for number, (_, arrays) in enumerate(answers)], errors

    monkeypatch.setattr(process_engine, "_answered", changed_meanwhile)
    with refused("ChangedMeanwhile", script):
        engine.refresh(script)
    with refused("EngineClosed"):
        list(engine.sample(requests(2)))


def test_errors_arrive_as_what_they_are(apart: ProcessEngine, tmp_path: Path) -> None:
    with refused("MissingModel", tmp_path / "gone"):
        apart.refresh(tmp_path / "gone")
    with refused("InvalidRequest", "request 0"):
        list(apart.sample([Request((), 1, seed=0)]))
    with refused("CannotDecode", "sliding"):
        apart.refresh(save(build("mistral_sliding"), tmp_path / "sliding"))
    (empty := tmp_path / "empty").mkdir()
    with refused("NoEndToken", empty):  # of a process that cannot open its engine
        opened(empty, kind="scripted", processes=1)
    assert len(drawn(apart, requests(3))) == 4


def test_an_interpreter_that_is_none_is_named(folder: Path, tmp_path: Path) -> None:
    with refused("InterpreterMissing", tmp_path / "gone" / "python", "engine.python"):
        opened(folder, processes=1, python=str(tmp_path / "gone" / "python"))
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\necho 'no module named numpy' >&2\nexit 1\n", encoding="utf-8")
    bare.chmod(0o755)
    with refused("EngineDied", "status 1", "no module named numpy"):
        opened(folder, processes=1, python=str(bare))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_process_killed_in_mid_call_is_an_error_that_says_so(script: Path, processes: int) -> None:
    engine = opened(script, kind="scripted", processes=processes)
    samples = engine.sample(requests())
    next(samples)
    os.kill(engine.pids[-1], signal.SIGKILL)
    until(lambda: not _alive(engine.pids[-1]))
    del samples  # else the other process may say first that it draws already
    with refused("EngineDied", "SIGKILL"):
        drawn(engine, requests())
    with refused("EngineDied", "SIGKILL"):
        engine.score([((3,), (4,))] * 40)
    pids = engine.pids
    engine.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    with refused("EngineClosed"):
        list(engine.sample(requests()))


def test_closing_leaves_no_process_and_no_file(script: Path) -> None:
    engine = opened(script, kind="scripted", processes=2)
    samples = engine.sample(requests())
    next(samples)
    pids = engine.pids
    sources = [Path(psutil.Process(pid).environ()["PYTHONPATH"].split(os.pathsep)[0]) for pid in pids]
    assert all(path.exists() for path in sources)
    engine.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not any(path.exists() for path in sources)


STARTER = """
import sys
from pathlib import Path
from tasks.config import EngineConfig
from tasks.engines import open_engine
from tasks.engines.protocol import Request
engine = open_engine(EngineConfig(kind="scripted", processes=2), Path(sys.argv[1]), dtype="float32")
print(*engine.pids, flush=True)
while True:
    list(engine.sample([Request((3, 4), 1, seed=s, max_tokens=200) for s in range(4000)]))
"""


def test_when_the_starter_is_killed_its_engines_end(script: Path) -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(script)], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    pids = [int(pid) for pid in starter.stdout.readline().split()]
    assert len(pids) == 2
    assert all(psutil.pid_exists(pid) for pid in pids)
    starter.kill()
    starter.wait()
    starter.stdout.close()
    until(lambda: not any(_alive(pid) for pid in pids))


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_engine_process_imports_neither_prefect_nor_the_warehouse() -> None:
    heavy = "prefect|duckdb|pyarrow|warehouse|flows|sandbox|torch|transformers|vllm"
    code = f"""
import re, sys
import tasks.engines.serve
print(*sorted(name for name in sys.modules if re.fullmatch(r"({heavy})", name)))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_the_interpreter_sees_the_sources_and_no_packages_of_this_one(script: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$PYTHONPATH" > {told}\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    engine = opened(script, kind="scripted", processes=1, python=str(python))
    assert drawn(engine, requests(3))
    first = Path(told.read_text().strip().split(os.pathsep)[0])
    assert [path.name for path in first.iterdir()] == ["tasks"]
    engine.close()


def test_frames_keep_every_bit_and_refuse_what_is_none() -> None:
    ours, theirs = socket.socketpair()
    numbers = np.array([0.1, -np.inf, 1e-300, np.nextafter(1.0, 2.0)])
    wire.send(ours, {"call": 7}, [np.array([1, -(2**31)]), numbers, np.array([])])
    frame = wire.receive(theirs)
    assert frame is not None
    header, arrays = frame
    assert header == {"call": 7}
    assert [array.tolist() for array in arrays] == [[1, -(2**31)], numbers.tolist(), []]
    ours.sendall(b"Traceback (most recent call last)")
    with pytest.raises(wire.Garbled):
        wire.receive(theirs)
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    ("settings", "gpus", "expected"),
    [
        ({}, "", []),
        ({"processes": 2}, "", [(), ()]),
        ({"python": "/p"}, "", [()]),
        ({"kind": "vllm"}, "", [()]),
        ({}, "01", [("0",), ("1",)]),
        ({"processes": 0}, "01", []),
        ({"processes": 3}, "01", [("0",), ("1",), ("0",)]),
        ({"kind": "scripted"}, "01", []),
        ({"kind": "vllm", "vllm": {"tensor_parallel_size": 2}}, "01234", [("0", "1"), ("2", "3")]),
        ({"kind": "vllm", "vllm": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}}, "0123", [tuple("0123")]),
        ({"kind": "vllm", "processes": 1}, "01", [("0",)]),
    ],
)
def test_there_is_an_engine_for_every_gpu_unless_told_otherwise(
    settings: dict[str, Any], gpus: str, expected: list[tuple[str, ...]]
) -> None:
    assert engine_processes(EngineConfig.model_validate(settings), list(gpus)) == expected
