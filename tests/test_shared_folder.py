"""Folders that the processes of the tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shared_folder import made_once


def test_a_folder_is_made_once_and_one_whose_making_failed_is_not_taken(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    name, made = request.node.name, list[Path]()

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no room")

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "whole").touch()

    with pytest.raises(OSError, match="no room"):
        made_once(name, fail, tmp_path_factory)
    folders = {made_once(name, make, tmp_path_factory) for _ in range(2)}
    assert folders == set(made)
    assert [path.name for path in made[0].iterdir()] == ["whole"]
