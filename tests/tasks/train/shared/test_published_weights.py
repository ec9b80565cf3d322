"""Publishing: a reader never sees part of a set of weights, whenever the publisher is killed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.checkpoints.checkpoint import compute_policy_id, load_weights, policy_id
from tasks.config import AdapterConfig
from tasks.scoring import lora
from tasks.train.shared import published_weights
from tasks.train.trainer.publisher import Publications
from tests.examples import MANY
from tests.refusals import refused
from tests.tasks.train.conftest import save_reference, tiny_model

KILLED = 9
Put = Callable[[Path, int, int, Path], published_weights.Published]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reference(tmp_path_factory.mktemp("reference"))


def publish(root: Path, step: int, seed: int, reference: Path) -> published_weights.Published:
    model = tiny_model(seed)
    return published_weights.publish(root, step, model, model.state_dict(), like=reference)


def publish_adapter(root: Path, step: int, seed: int, reference: Path) -> published_weights.Published:
    """An adapter of the reference with random weights, as the trainer writes it."""
    model = load_weights(reference, "float32")
    config = AdapterConfig(rank=2)
    torch.manual_seed(seed)
    lora.add_adapters(model, config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)

    def write(folder: Path) -> None:
        lora.save_adapter(model, model.state_dict(), config, reference, folder)

    return published_weights.publish_adapter(root, step, write, base=policy_id(reference))


def publish_beside(root: Path, step: int, seed: int, reference: Path) -> published_weights.Published:
    """Whole weights, by the thread that publishes beside training."""
    publications = Publications()
    publications.begin(step, lambda: publish(root, step, seed, reference))
    found = publications.taken(wait=True)
    publications.close()
    assert found is not None
    return found


def killed_at(point: int, work: Any) -> bool:
    """Do `work` in a child process that dies before its `point`-th system call on files; whether it died."""
    child = os.fork()
    if child == 0:
        _die_at(point)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


def _die_at(point: int) -> None:
    left = point

    def watch(event: str, _arguments: Any) -> None:
        nonlocal left
        if event == "open" or event.startswith(("os.", "shutil.")):
            left -= 1
            if left < 0:
                os._exit(KILLED)

    sys.addaudithook(watch)


def assert_whole(published: published_weights.Published | None) -> published_weights.Published:
    assert published is not None
    assert compute_policy_id(published.folder) == published.policy_id
    names = {path.name for path in published.folder.iterdir()}
    model, adapter = {"tokenizer.json", "config.json"}, {"adapter_config.json", "adapter_model.safetensors"}
    assert names >= {"policy.json", "published.json"} | (adapter if names & adapter else model)
    return published


@pytest.mark.parametrize("put", [publish, publish_adapter, publish_beside], ids=["whole", "adapter", "beside_training"])
@pytest.mark.parametrize("again", [False, True], ids=["a_new_step", "the_same_step_with_other_weights"])
def test_a_publisher_killed_at_any_point_leaves_the_old_weights_or_the_new(
    again: bool, put: Put, tmp_path: Path, reference: Path
) -> None:
    root = tmp_path / "weights"
    old = put(root, 1, 0, reference)
    step = 1 if again else 2
    seen: set[str] = set()
    point = 0
    while killed_at(point, lambda: put(root, step, 1, reference)):
        found = published_weights.latest(root)
        assert again or found is not None
        if found is not None:
            seen.add(assert_whole(found).policy_id)
        point += 1 if MANY else 4
    assert point > 20
    assert seen <= {old.policy_id, assert_whole(published_weights.latest(root)).policy_id}
    assert old.policy_id in seen
    assert sorted(path.name for path in root.iterdir()) == sorted({"LATEST", "step-00000001", f"step-0000000{step}"})


def test_a_linked_reference_takes_no_room_and_stays_what_it_was(tmp_path: Path, reference: Path) -> None:
    before = {path.name: path.read_bytes() for path in reference.iterdir()}
    found = published_weights.publish_reference(tmp_path / "weights", reference, (), linked=True)
    assert assert_whole(found).policy_id == policy_id(reference)
    assert all(path.is_symlink() for path in found.folder.iterdir() if path.name in before.keys() - {"policy.json"})
    for step in range(1, 6):
        publish_adapter(tmp_path / "weights", step, step, reference)
    assert found.folder in published_weights.prune(tmp_path / "weights", set())
    assert {path.name: path.read_bytes() for path in reference.iterdir()} == before


def test_pruning_killed_at_any_point_leaves_whole_folders_only(tmp_path: Path, reference: Path) -> None:
    root = tmp_path / "weights"
    for step in range(6):
        publish(root, step, step, reference)
    point = 0
    while killed_at(point, lambda: published_weights.prune(root, set())):
        for folder in root.glob(f"{published_weights.PREFIX}*"):
            assert_whole(published_weights.read(folder))
        point += 1
    assert point > 5
    assert [path.name[-1] for path in sorted(root.glob(f"{published_weights.PREFIX}*"))] == ["3", "4", "5"]


def test_weights_that_are_being_loaded_are_not_deleted(tmp_path: Path, reference: Path) -> None:
    publish(tmp_path, 0, 0, reference)
    with published_weights.newest_held(tmp_path) as held:
        for step in range(1, 6):
            publish(tmp_path, step, step, reference)
        published_weights.prune(tmp_path, set())
        assert assert_whole(held).step == 0
    assert [folder.name[-1] for folder in published_weights.prune(tmp_path, set())] == ["0"]


def test_weights_that_are_being_loaded_are_not_replaced(tmp_path: Path, reference: Path) -> None:
    old = publish(tmp_path, 1, 0, reference)
    child = os.fork()  # before anything is held: a fork shares the locks of its parent
    if child == 0:
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        publish(tmp_path, 1, 1, reference)
        os._exit(0)
    with published_weights.newest_held(tmp_path) as held:
        (tmp_path / "go").touch()
        while not list(tmp_path.glob(".building-*/published.json")):
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
        assert assert_whole(held).policy_id == old.policy_id
    assert os.waitpid(child, 0)[1] == 0
    assert assert_whole(published_weights.latest(tmp_path)).policy_id != old.policy_id


def test_the_same_weights_published_again_stay_in_place(tmp_path: Path, reference: Path) -> None:
    publish(tmp_path, 1, 0, reference)
    written = (tmp_path / "step-00000001" / "model.safetensors").stat().st_ino
    publish(tmp_path, 2, 1, reference)
    publish(tmp_path, 1, 0, reference)
    assert (tmp_path / "step-00000001" / "model.safetensors").stat().st_ino == written
    newest = published_weights.latest(tmp_path)
    assert newest is not None
    assert newest.step == 1


def test_pruning_spares_what_is_newest_also_where_folders_of_later_steps_are_left(
    tmp_path: Path, reference: Path
) -> None:
    """As while a resumed run takes steps again that a killed process had taken."""
    for step in (33, 34, 35, 21):
        publish(tmp_path, step, step, reference)
    assert published_weights.prune(tmp_path, set()) == []
    newest = published_weights.latest(tmp_path)
    assert newest is not None
    assert newest.step == 21
    publish(tmp_path, 22, 22, reference)
    assert [folder.name for folder in published_weights.prune(tmp_path, set())] == ["step-00000021"]


def test_before_anything_is_published_there_is_nothing_to_hold(tmp_path: Path) -> None:
    assert published_weights.latest(tmp_path) is None
    with published_weights.newest_held(tmp_path) as held:
        assert held is None


def test_a_kept_copy_is_the_same_policy(tmp_path: Path, reference: Path) -> None:
    fast = publish(tmp_path / "memory", 4, 0, reference)
    kept = published_weights.keep(fast, tmp_path / "disk")
    assert (kept.step, kept.policy_id) == (4, fast.policy_id)
    assert assert_whole(published_weights.latest(tmp_path / "disk")) == kept


def test_shared_memory_that_is_missing_or_full_is_said_and_not_replaced_by_the_disk(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    assert published_weights.roomy_memory_folder(run_dir, 1000).parent == published_weights.SHARED_MEMORY
    assert published_weights.memory_folder(run_dir) != published_weights.memory_folder(tmp_path / "other")
    with refused("TrainerError", "train.hand_over"):
        published_weights.roomy_memory_folder(run_dir, 1 << 50)
    with refused("NoSharedMemory", tmp_path / "nowhere"):
        published_weights.roomy_memory_folder(run_dir, 1000, tmp_path / "nowhere")


@pytest.mark.parametrize("put", [publish, publish_adapter])
def test_who_may_read_the_configuration_may_read_the_weights(tmp_path: Path, reference: Path, put: Put) -> None:
    before = os.umask(0o027)
    try:
        folder = put(tmp_path, 1, 1, reference).folder
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.safetensors")} == {0o640}


def test_what_a_killed_run_left_in_memory_is_no_room_that_it_lacks(tmp_path: Path) -> None:
    run_dir, much = tmp_path / "run", shutil.disk_usage(tmp_path).free
    with refused("TrainerError", "train.hand_over"):
        published_weights.roomy_memory_folder(run_dir, much, tmp_path)
    left = published_weights.memory_folder(run_dir, tmp_path) / "step-00000010" / "model.safetensors"
    left.parent.mkdir(parents=True)
    with left.open("wb") as stream:
        stream.truncate(6 * much)  # takes no room
    assert published_weights.roomy_memory_folder(run_dir, much, tmp_path) == left.parents[1]
