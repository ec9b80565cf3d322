"""Published weights: complete checkpoints, each with its policy id, and a pointer to the newest.

A checkpoint is a whole model, or an adapter that names its base (tasks/checkpoints/adapter.py).

A folder appears complete or not at all, and is neither deleted nor replaced while someone holds it, so that a reader
never loads parts of two sets. The folder may lie on a disk or in shared memory; the protocol is the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.checkpoints.checkpoint import POLICY_FILE, companions, policy_id, record_policy_id, share
from tasks.checkpoints.checkpoint import PUBLISHED_FILE as OWN_FILE
from tasks.train.shared import atomic
from tasks.train.shared.errors import TrainerError

if TYPE_CHECKING:
    from torch import Tensor

PREFIX = "step-"
LATEST = "LATEST"
KEPT = 3
"""Newest folders kept, whether or not someone holds them."""
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Published:
    """A set of weights in a folder."""

    step: int
    policy_id: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Canary:
    """A fixed sequence with the trainer's log-probabilities (nats), for whoever loads the weights to check itself."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


def folder_of(root: Path, step: int) -> Path:
    """The folder in `root` that holds, or will hold, the published weights of `step`."""
    return root / f"{PREFIX}{step:08d}"


def publish(
    root: Path,
    step: int,
    model: Any,
    state: dict[str, Tensor],
    *,
    like: Path,
    canaries: Sequence[Canary] = (),
    announced: bool = True,
) -> Published:
    """Write the weights of `step` as an ordinary checkpoint folder and point LATEST at it, if they are `announced`.

    Tokenizer, chat template and generation settings are copied from the folder `like`.
    """
    building = atomic.start_folder(folder_of(root, step))
    model.save_pretrained(building, state_dict=state)
    share(building)
    for path in companions(like):
        shutil.copyfile(path, building / path.name)
    return _complete(building, root, step, record_policy_id(building), canaries, announced=announced)


def publish_adapter(
    root: Path,
    step: int,
    write: Callable[[Path], None],
    *,
    base: str,
    canaries: Sequence[Canary] = (),
    announced: bool = True,
) -> Published:
    """Publish what `write` puts into a folder as the weights of `step`: an adapter of the policy `base`, alone."""
    building = atomic.start_folder(folder_of(root, step))
    write(building)
    share(building)
    return _complete(building, root, step, record_policy_id(building, base=base), canaries, announced=announced)


def publish_reference(root: Path, like: Path, canaries: Sequence[Canary], *, linked: bool = False) -> Published:
    """Publish the checkpoint `like` itself as the weights of step 0: the policy is the reference, down to its id.

    `linked`: the folder's files are links to those of `like`, which stays where it is.
    """
    building = atomic.start_folder(folder_of(root, 0))
    for path in sorted(like.iterdir()):
        if path.is_file() and path.name not in (OWN_FILE, POLICY_FILE):
            put = building / path.name
            put.symlink_to(path.resolve()) if linked else shutil.copyfile(path, put)
    return _complete(building, root, 0, record_policy_id(building, policy_id(like)), canaries)


def _complete(
    building: Path, root: Path, step: int, identity: str, canaries: Sequence[Canary], *, announced: bool = True
) -> Published:
    content = {"step": step, "policy_id": identity, "canaries": [asdict(canary) for canary in canaries]}
    (building / OWN_FILE).write_text(json.dumps(content), encoding="utf-8")
    return _appear(building, folder_of(root, step), announced=announced)


def keep(published: Published, root: Path) -> Published:
    """A copy of the published weights in another folder `root`, by the same protocol."""
    target = root / published.folder.name
    building = atomic.start_folder(target)
    shutil.copytree(published.folder, building, dirs_exist_ok=True)
    return _appear(building, target)


def read(folder: Path) -> Published:
    """The published weights in `folder`."""
    content = json.loads((folder / OWN_FILE).read_text(encoding="utf-8"))
    return Published(int(content["step"]), str(content["policy_id"]), folder)


def read_canaries(folder: Path) -> list[Canary]:
    """The canaries published with the weights in `folder`."""
    found = json.loads((folder / OWN_FILE).read_text(encoding="utf-8"))["canaries"]
    return [Canary(*(tuple(one[name]) for name in ("prompt_ids", "response_ids", "logprobs"))) for one in found]


def latest(root: Path) -> Published | None:
    """The newest published weights; None when there are none yet, or while the newest are being replaced."""
    try:
        return read(root / (root / LATEST).read_text(encoding="utf-8").strip())
    except FileNotFoundError:
        return None


@contextmanager
def newest_held(root: Path) -> Generator[Published | None]:
    """The newest published weights, kept from deletion and replacement until the block ends."""
    while (found := latest(root)) is not None:
        with _locked(found.folder, fcntl.LOCK_SH) as held:
            if held:
                yield found
                return
    yield None


def kept(root: Path, *, every: int, last: int) -> list[Published]:
    """The weights kept for evaluation so far, by step: every `every` steps, and those of step `last`, none later."""
    steps = {int(folder.name.removeprefix(PREFIX)): folder for folder in atomic.complete_folders(root, PREFIX)}
    return [read(steps[step]) for step in sorted(steps) if step == last or (0 < step < last and step % every == 0)]


def prune(root: Path, keep_steps: set[int]) -> list[Path]:
    """Delete all but the newest folders, what LATEST names, those of `keep_steps` and those held; what was deleted.

    While a resumed run takes steps again, the folders of later steps are there, and what LATEST names is older.
    """
    folders, newest = atomic.complete_folders(root, PREFIX), latest(root)
    spared = keep_steps | ({newest.step} if newest is not None else set())
    doomed = [folder for folder in folders[:-KEPT] if int(folder.name.removeprefix(PREFIX)) not in spared]
    return [folder for folder in doomed if _delete(folder, wait=False)]


def memory_folder(run_dir: Path, memory: Path | None = None) -> Path:
    """Where a run hands its weights over in shared memory."""
    return (memory or SHARED_MEMORY) / f"spo-{hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:16]}"


def roomy_memory_folder(run_dir: Path, size: int, memory: Path | None = None) -> Path:
    """The run's `memory_folder`, for weights of `size` bytes each time.

    Raises TrainerError where there is not enough memory for them.
    """
    memory = memory or SHARED_MEMORY
    if not memory.is_dir():
        raise TrainerError(f'there is no {memory} on this machine; set train.hand_over = "disk"', code="NoSharedMemory")
    folder = memory_folder(run_dir, memory)
    wanted = (KEPT + 2) * size
    held = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())  # left by a run that was killed
    free = shutil.disk_usage(memory).free + held
    if wanted > free:
        raise TrainerError(
            f"{memory} has {free >> 20} MiB left, {KEPT + 2} sets of the weights take "
            f'{wanted >> 20}; enlarge it, or set train.hand_over = "disk"'
        )
    return folder


def _appear(building: Path, target: Path, *, announced: bool = True) -> Published:
    """Make the finished folder visible under `target`, and through LATEST if `announced`.

    The same weights published again stay as they are.
    """
    new = read(building)
    old = read(target) if target.is_dir() else None
    if old is not None and old.policy_id == new.policy_id:
        shutil.rmtree(building)
    else:
        if old is not None:
            _delete(target, wait=True)
        atomic.finish_folder(building, target)
    if announced:
        atomic.write_text(target.parent / LATEST, target.name)
    return Published(new.step, new.policy_id, target)


def _delete(folder: Path, *, wait: bool) -> bool:
    """Delete a folder that nobody holds; whether that was so."""
    with _locked(folder, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)) as free:
        if free:
            atomic.delete_folder(folder)
        return free


@contextmanager
def _locked(folder: Path, how: int) -> Generator[bool]:
    """Whether the folder is there and could be locked; it stays locked until the block ends."""
    try:
        descriptor = os.open(folder / OWN_FILE, os.O_RDONLY if how == fcntl.LOCK_SH else os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    try:
        yield _lock(descriptor, how) and os.fstat(descriptor).st_nlink > 0
    finally:
        os.close(descriptor)


def _lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    return True
