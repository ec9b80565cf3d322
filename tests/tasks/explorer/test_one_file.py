"""One trajectory's page as a file: whole, of the right policy, and clean in a browser that has no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.explorer import one_file
from tasks.explorer.address import NotFound
from tests.browser import needs_browser, opened
from tests.tasks.conftest import Lab
from tests.tasks.explorer.conftest import Pages, structure
from warehouse.reading.readers import Readers


@pytest.fixture(scope="module")
def readers(finished: Lab) -> Iterator[Readers]:
    with Readers.open(finished.location) as opened:
        opened.fill()
        yield opened


@pytest.fixture(scope="module")
def written(pages: Pages, readers: Readers, finished: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the first searched trajectory, with the newest policy's values."""
    identity = one_file.searched(readers, finished.home)[0]["trajectory"]
    page = tmp_path_factory.mktemp("one") / "page.html"
    one_file.write(pages.explorer, one_file.chosen(readers, finished.home, identity, None), page)
    return page


def test_the_list_names_what_was_searched_most_pivotal_first(pages: Pages, readers: Readers, finished: Lab) -> None:
    rows = one_file.searched(readers, finished.home, limit=3)
    assert len(rows) == 3
    assert [row["pivotal"] for row in rows] == sorted((row["pivotal"] for row in rows), reverse=True)
    for row in rows:
        known = pages.store.rows(
            "SELECT problem_id, len(token_ids) AS tokens FROM trajectories WHERE starts_with(trajectory_id, ?)",
            [row["trajectory"]],
        )[0]
        assert (row["problem"], row["tokens"]) == (known["problem_id"], known["tokens"])


def test_the_file_loads_nothing_and_leads_nowhere(written: Path) -> None:
    page = written.read_text(encoding="utf-8")
    found = structure(page)
    assert found.tags.count("style") == found.tags.count("script") == 1
    assert {link for link in found.links if not link.startswith("#")} == set()
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", page)
    assert "default-src 'none'" in page


def test_it_shows_the_program_its_estimates_and_the_newest_policys_values(pages: Pages, written: Path) -> None:
    page = written.read_text(encoding="utf-8")
    identity = re.search(r"Trajectory <code>(\w+)</code>", page)
    assert identity is not None
    block = re.search(r'<pre class="tokens success" data-tokens>(.*?)</pre>', page, flags=re.DOTALL)
    assert block is not None
    length = pages.value("SELECT len(token_ids) FROM trajectories WHERE trajectory_id = ? LIMIT 1", identity[1])
    assert block[1].count('<span class="t ') == length
    newest = pages.value("SELECT policy_id FROM policies WHERE kind <> 'reference' ORDER BY arrival DESC LIMIT 1")
    assert f"policy {newest[:8]}: its own value" in page
    pivotal = pages.value(
        "SELECT count(DISTINCT position) FROM token_values WHERE trajectory_id = ? AND pivotal", identity[1]
    )
    table = page.partition("<h2>Pivotal tokens</h2>")[2].partition("</table>")[0]
    assert table.count("<tr>") - bool(table) == pivotal == block[1].count(" pivotal")


def test_beginnings_of_ids_choose_and_without_values_none_is_computed(
    pages: Pages, readers: Readers, finished: Lab
) -> None:
    identity = pages.value("SELECT trajectory_id FROM trajectories WHERE reward = -1 AND source = 'online' LIMIT 1")
    reference = pages.value("SELECT policy_id FROM policies WHERE kind = 'reference'")
    found = one_file.chosen(readers, finished.home, identity[:20], reference[:8])
    assert (found.trajectory_id, found.policy_id, found.colour) == (identity, reference, "")
    assert one_file.chosen(readers, finished.home, identity, None, values=False).policy_id == ""


@pytest.mark.parametrize(
    "identity, policy, message",
    [
        ("zz", None, "no trajectory begins with 'zz'"),
        ("", None, "trajectories begin with ''"),
        (None, "zz", "no policy begins with 'zz'"),
        (None, "", "policies begin with ''"),
    ],
)
def test_what_cannot_be_shown_says_why(
    pages: Pages, readers: Readers, finished: Lab, identity: str | None, policy: str | None, message: str
) -> None:
    known = pages.value("SELECT trajectory_id FROM trajectories ORDER BY ALL LIMIT 1")
    with pytest.raises(NotFound, match=message):
        one_file.chosen(readers, finished.home, known if identity is None else identity, policy)


def test_a_checkpoint_that_is_gone_is_named(pages: Pages, tmp_path: Path) -> None:
    known = pages.value("SELECT trajectory_id FROM trajectories WHERE source = 'online' ORDER BY ALL LIMIT 1")
    with pytest.raises(NotFound, match="policy 'nobody' is not where the warehouse says"):
        one_file.write(pages.explorer, one_file.Chosen(known, "nobody"), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@needs_browser
def test_it_opens_in_a_real_browser_without_console_messages(written: Path, tmp_path: Path) -> None:
    shown = opened(written, tmp_path / "profile")
    assert 'tabindex="0"' in shown
