"""A bundle: whole, without a server, and no more than was chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.explorer.bundle import EmptyBundle, Selection, chosen_by, file_name, write
from tests.tasks.explorer.conftest import Pages, structure


def links_of(path: Path) -> list[str]:
    return [link.partition("#")[0] for link in structure(path.read_text(encoding="utf-8")).links]


def test_every_link_of_a_bundle_leads_to_a_file_of_it(pages: Pages, tmp_path: Path) -> None:
    problem = pages.value("SELECT problem_id FROM trajectories WHERE source = 'online' ORDER BY ALL LIMIT 1")
    identity = pages.value("SELECT trajectory_id FROM trajectories WHERE problem_id = ? ORDER BY ALL LIMIT 1", problem)
    selection = Selection(frozenset({"micro-1"}), frozenset({problem}), frozenset({identity}))
    files = write(pages.explorer, selection, tmp_path / "bundle", "frozen at snapshot 7")
    assert files[0].name == "index.html"
    assert sorted(files) == sorted((tmp_path / "bundle").glob("*.html"))
    kinds = {path.name.split("-")[0].split(".")[0] for path in files}
    assert kinds == {"index", "run", "step", "problems", "problem", "prompt", "trajectory", "sandbox", "studies"}
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert "frozen at snapshot 7" in text
        assert 'href="/' not in text
        assert 'src="/' not in text
        for link in links_of(path):
            assert not link or (path.parent / link).is_file(), (path.name, link)
    for name in ("explorer.css", "explorer.js"):
        assert (tmp_path / "bundle" / "static" / name).is_file()


def test_what_was_not_chosen_is_text_and_not_a_link(pages: Pages, tmp_path: Path) -> None:
    problem = pages.value("SELECT problem_id FROM trajectories WHERE source = 'online' ORDER BY ALL LIMIT 1")
    files = write(pages.explorer, Selection(problems=frozenset({problem})), tmp_path, "frozen")
    assert not [path for path in files if path.name.startswith(("run", "step", "trajectory"))]
    assert "micro-1" in files[0].read_text(encoding="utf-8")
    assert not [link for link in links_of(files[0]) if link.startswith("run")]


def test_a_bundle_of_what_is_not_there_is_refused(pages: Pages, tmp_path: Path) -> None:
    with pytest.raises(EmptyBundle, match="no problem 'nothing'"):
        write(pages.explorer, Selection(problems=frozenset({"nothing"})), tmp_path, "frozen")


def test_names_of_files_are_readable_and_differ() -> None:
    names = [file_name(one) for one in ("/", "/?page=2", "/run?id=a%2Fb", "/run?id=a-b", "/problem?id=../../etc")]
    assert names[0] == "index.html"
    assert len(set(names)) == len(names)
    assert not [name for name in names if "/" in name or name.startswith(".")]


def test_a_question_chooses_problems_and_trajectories_by_their_columns() -> None:
    assert chosen_by(["problem_id", "n"], [("p", 1), ("q", 2)]) == (frozenset("pq"), frozenset())
    assert chosen_by(["trajectory_id"], [("t",)]) == (frozenset(), frozenset("t"))
    for columns, rows in ((["n"], [(1,)]), (["problem_id"], [])):
        with pytest.raises(EmptyBundle):
            chosen_by(columns, rows)
