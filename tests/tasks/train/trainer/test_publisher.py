"""Publishing beside training: the same weights, policies and runs as when training waits, whatever happens."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tasks.checkpoints.checkpoint import compute_policy_id
from tasks.config import RunConfig, validate
from tasks.train.shared import atomic, published_weights
from tasks.train.shared.job import TrainJob
from tasks.train.trainer import loop, publisher
from tests.fork_server import process_of
from tests.refusals import refused
from tests.tasks.train.conftest import RUN, config
from tests.tasks.train.trainer.test_runs import assert_identical, job_in, kill_at, outcome, run
from warehouse import Warehouse

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def waited(stocked: Path, reference: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
    """A finished run whose training waited for every publication."""
    return run(job_in(stocked, reference, tmp_path_factory.mktemp("waited"), publish="waiting", checkpoint_interval=4))


def beside(stocked: Path, reference: Path, folder: Path, **train: Any) -> TrainJob:
    """The same run, publishing in the background."""
    return job_in(stocked, reference, folder, **{"publish": "background", "checkpoint_interval": 4} | train)


def published(job: TrainJob) -> dict[str, Any]:
    """What a run has published: every file, where LATEST points, and the policies that it has recorded."""
    files = {path.relative_to(job.weights): path.read_bytes() for path in job.weights.rglob("*") if path.is_file()}
    files.pop(Path("LATEST"))
    with Warehouse.open(job.warehouse) as warehouse:
        rows = warehouse.rows("SELECT step, policy_id, kind, parameters FROM policies ORDER BY step")
    return {"files": files, "latest": (job.weights / "LATEST").read_text(encoding="utf-8"), "policies": rows}


def without_texts(found: dict[str, Any]) -> dict[str, Any]:
    """The same without what peft writes in any order."""
    return found | {"files": {path: content for path, content in found["files"].items() if path.suffix != ".md"}}


def test_what_is_published_beside_training_is_what_training_would_have_waited_for(
    stocked: Path, reference: Path, tmp_path: Path, waited: TrainJob
) -> None:
    job = run(beside(stocked, reference, tmp_path))
    assert published(job) == published(waited)
    assert_identical(outcome(job), outcome(waited))


@pytest.mark.parametrize("train", [{"zero_stage": 3}, {"lora": {"rank": 2}}], ids=["zero_3", "adapters"])
def test_divided_weights_and_adapters_are_published_beside_training_too(
    train: dict[str, Any], stocked: Path, reference: Path, tmp_path: Path
) -> None:
    found = [
        without_texts(published(run(beside(stocked, reference, tmp_path / how, publish=how, **train))))
        for how in ("waiting", "background")
    ]
    assert found[0] == found[1]
    whole = sum(parameter.numel() for parameter in LlamaForCausalLM.from_pretrained(reference).parameters())
    assert {row["parameters"] for row in found[0]["policies"]} == {whole}


def test_what_is_handed_over_in_memory_is_kept_on_disk_by_the_same_thread(
    stocked: Path, reference: Path, tmp_path: Path, waited: TrainJob
) -> None:
    job = beside(stocked, reference, tmp_path).model_copy(update={"weights_dir": tmp_path / "memory"})
    job.write(tmp_path / "job.json")
    assert published(run(job)) == published(waited)
    kept = [folder.name for folder in atomic.complete_folders(job.kept, "step-")]
    assert kept == ["step-00000004", "step-00000006"]
    for name in kept:
        assert compute_policy_id(job.kept / name) == published_weights.read(job.weights / name).policy_id


@pytest.mark.slow
def test_two_processes_publish_beside_training(stocked: Path, reference: Path, tmp_path: Path) -> None:
    jobs = [
        run(beside(stocked, reference, tmp_path / how, publish=how, zero_stage=3, processes=2))
        for how in ("waiting", "background")
    ]
    assert published(jobs[0]) == published(jobs[1])
    assert_identical(outcome(jobs[0]), outcome(jobs[1]))


def in_a_process(script: Callable[[str], None], job: TrainJob) -> int | None:
    """Exit status of a process in which `script` trains the job."""
    process = process_of(script, str(job.run_dir.parent / "job.json"))
    process.start()
    process.join(PATIENCE_S * 2)
    return process.exitcode


def train(job_file: str, report: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
    """Train the job of a file in this process."""
    torch.set_num_threads(1)  # as the trainer's process has it: another number rounds otherwise
    loop.train(TrainJob.read(Path(job_file)), report)


def instead_of_publishing(step: int, work: Callable[[], None]) -> None:
    """Let this process do `work` before it writes the weights of `step`."""
    own = published_weights.publish

    def publish(root: Path, number: int, *given: Any, **named: Any) -> published_weights.Published:
        if number == step:
            work()
        return own(root, number, *given, **named)

    published_weights.publish = publish


def _writes_step_2_during_step_3(job_file: str) -> None:
    later = threading.Event()

    def wait() -> None:
        assert later.wait(PATIENCE_S), "training waited for the publication of step 2"

    def report(line: dict[str, Any]) -> None:
        if line.get("done") == 3:
            later.set()

    instead_of_publishing(2, wait)
    train(job_file, report)


def test_steps_go_on_while_weights_are_written_and_do_not_change_them(
    stocked: Path, reference: Path, tmp_path: Path, waited: TrainJob
) -> None:
    job = beside(stocked, reference, tmp_path)
    assert in_a_process(_writes_step_2_during_step_3, job) == 0
    assert published(job) == published(waited)
    assert_identical(outcome(job), outcome(waited))


def _notes_what_is_announced(job_file: str) -> None:
    """Write down the step that LATEST names after every publication."""
    job, own = TrainJob.read(Path(job_file)), published_weights.prune
    told: list[int] = []

    def prune(root: Path, keep_steps: set[int]) -> list[Path]:
        newest = published_weights.latest(root)
        told.append(-1 if newest is None else newest.step)
        return own(root, keep_steps)

    published_weights.prune = prune
    train(job_file)
    (job.run_dir.parent / "told").write_text(" ".join(map(str, told)))


@pytest.mark.parametrize("train", [{}, {"lora": {"rank": 2}}], ids=["weights", "adapters"])
def test_workers_are_given_new_weights_every_model_update_interval_alone(
    train: dict[str, Any], stocked: Path, reference: Path, tmp_path: Path
) -> None:
    job = job_in(stocked, reference, tmp_path, snapshot_interval=3, **train)
    assert in_a_process(_notes_what_is_announced, job) == 0
    assert (tmp_path / "told").read_text() == "0 2 2 4 6", "after the steps 0, 2, 3 (for evaluation), 4 and 6"
    assert {int(path.name[-8:]) for path in job.weights.glob("step-*")} >= {3, 6}


def _writes_slowly(job_file: str) -> None:
    """Every publication takes its time; a checkpoint that is there before its end is an error."""
    job = TrainJob.read(Path(job_file))

    def wait(step: int) -> None:
        time.sleep(0.5)
        assert not list(job.checkpoints.glob(f"step-*{step}")), "the checkpoint did not wait for the publication"
        assert not job.manifest.exists()

    for step in (2, 4, 6):
        instead_of_publishing(step, lambda step=step: wait(step))
    train(job_file)


def test_checkpoints_and_the_end_wait_for_what_is_being_published(
    stocked: Path, reference: Path, tmp_path: Path, waited: TrainJob
) -> None:
    job = beside(stocked, reference, tmp_path, checkpoint_interval=2)
    assert in_a_process(_writes_slowly, job) == 0
    assert published(job) == published(waited)


def _stopped_while_step_2_is_written(job_file: str) -> None:
    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)

    instead_of_publishing(2, stop)
    train(job_file)


def test_a_stop_waits_for_what_is_being_published_and_the_run_goes_on_exactly(
    stocked: Path, reference: Path, tmp_path: Path, waited: TrainJob
) -> None:
    job = beside(stocked, reference, tmp_path)
    assert in_a_process(_stopped_while_step_2_is_written, job) == 1, "Interrupted"
    newest = published_weights.latest(job.weights)
    assert newest is not None
    assert newest.step == 2
    with Warehouse.open(job.warehouse) as warehouse:
        assert warehouse.rows("SELECT step, policy_id FROM policies") == [{"step": 2, "policy_id": newest.policy_id}]
    assert published(run(job)) == published(waited)
    assert_identical(outcome(job), outcome(waited))


def _killed_while_step_4_is_written(job_file: str) -> None:
    own = atomic.finish_folder

    def finish(building: Path, target: Path) -> None:
        if target.name == "step-00000004" and target.parent.name != "checkpoints":
            os.kill(os.getpid(), signal.SIGKILL)
        own(building, target)

    atomic.finish_folder = finish
    train(job_file)


def test_a_run_killed_while_weights_are_written_goes_on_exactly(
    stocked: Path, reference: Path, tmp_path: Path, waited: TrainJob
) -> None:
    job = beside(stocked, reference, tmp_path, checkpoint_interval=3)
    assert in_a_process(_killed_while_step_4_is_written, job) == -signal.SIGKILL
    newest = published_weights.latest(job.weights)
    assert newest is not None
    assert newest.step == 2
    assert compute_policy_id(newest.folder) == newest.policy_id
    assert published(run(job)) == published(waited)
    assert_identical(outcome(job), outcome(waited))


@pytest.mark.slow
def test_a_run_killed_at_random_moments_goes_on_exactly(
    stocked: Path, reference: Path, tmp_path: Path, waited: TrainJob
) -> None:
    job = beside(stocked, reference, tmp_path, checkpoint_interval=2)
    for line, delay_s in ((1, 0.0), (2, 0.01), (1, 0.03), (2, 0.005)):
        kill_at(job, line, delay_s=delay_s)
    assert published(run(job)) == published(waited)
    assert_identical(outcome(job), outcome(waited))


def _fails_to_write_step_2(job_file: str) -> None:
    def fail() -> None:
        raise OSError("no space left")

    instead_of_publishing(2, fail)
    with refused("PublishingFailed", "step 2", "OSError") as raised:
        train(job_file)
    assert isinstance(raised.value.__cause__, OSError)


def test_a_publication_that_fails_ends_the_run_at_the_next_step_with_its_cause(
    stocked: Path, reference: Path, tmp_path: Path, waited: TrainJob
) -> None:
    job = beside(stocked, reference, tmp_path)
    assert in_a_process(_fails_to_write_step_2, job) == 0
    with Warehouse.open(job.warehouse) as warehouse:
        assert warehouse.value("SELECT max(step) FROM train_steps WHERE run_id = ?", (RUN,)) < 4
    assert published(run(job)) == published(waited)
    assert_identical(outcome(job), outcome(waited))


def test_one_publication_at_a_time_whose_outcome_is_told_once(tmp_path: Path) -> None:
    publications, going_on = publisher.Publications(), threading.Event()
    done = published_weights.Published(4, "id", tmp_path)

    def work() -> published_weights.Published:
        going_on.wait()
        return done

    publications.begin(4, work)
    assert publications.taken(wait=False) is None
    with pytest.raises(AssertionError):
        publications.begin(5, work)
    going_on.set()
    assert publications.taken(wait=True) == done
    assert publications.taken(wait=True) is None

    def fail() -> published_weights.Published:
        raise OSError("no space left")

    publications.begin(6, fail)
    with refused("PublishingFailed", "step 6", "OSError") as raised:
        publications.taken(wait=True)
    assert isinstance(raised.value.__cause__, OSError)
    assert publications.taken(wait=True) is None
    publications.close()


def of_bytes(size: int) -> Any:
    """A model of about so many bytes of bfloat16 weights, none of which exist."""
    shape = LlamaConfig(vocab_size=size // 2 // 64, hidden_size=64, intermediate_size=64, num_hidden_layers=1)
    with torch.device("meta"):
        return LlamaForCausalLM(shape).to(torch.bfloat16)


def settings(**train: Any) -> RunConfig:
    return validate({"train": train})


@pytest.mark.parametrize(
    ("train", "size", "expected"),
    [
        ({}, 2 * 10**9, True),
        ({}, 9 * 10**8 // 2, False),
        ({"publish": "background"}, 10**6, True),
        ({"publish": "waiting"}, 2 * 10**9, False),
        ({"lora": {"rank": 2}}, 2 * 10**9, False),
        ({"sources": {"offline": {"share": 1.0}}}, 2 * 10**9, True),
        ({"max_batches_ahead": 0, "model_update_interval": 1, "batch_size": 64}, 2 * 10**9, False),
        (
            {
                "algorithm": "ppo",
                "sources": {"online": {"share": 1.0}},
                "behaviour": {"temperature": [1.0, 1.0], "top_p": 1.0},
            },
            2 * 10**9,
            False,
        ),
    ],
)
def test_large_weights_are_published_beside_training_where_nobody_waits_for_them(
    train: dict[str, Any], size: int, expected: bool
) -> None:
    assert publisher.in_background(settings(**train).train, of_bytes(size)) is expected


def test_the_setting_is_no_part_of_what_identified_runs_before_it_came() -> None:
    assert "publish" not in config().train.model_dump()
    assert config(publish="waiting").train.model_dump()["publish"] == "waiting"
