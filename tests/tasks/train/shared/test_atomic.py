"""A folder that replaces another: whenever the process is killed, a complete one is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tasks.train.shared import atomic


def fill(target: Path, text: str) -> None:
    building = atomic.start_folder(target)
    (building / "file").write_text(text)
    atomic.finish_folder(building, target)


def test_a_process_that_dies_while_it_deletes_the_old_folder_leaves_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "step-1"
    fill(target, "old")

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            fill(target, "new")
    assert (target / "file").read_text() == "new"
    assert atomic.complete_folders(tmp_path, "step-") == [target]
    fill(target, "newest")
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]
