"""Who wrote what, on a few planted responses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.explorer import problem as problem_page
from tasks.explorer import runs
from tasks.explorer.pages import Explorer
from tasks.explorer.trajectory import COUNTS, SEARCHED
from tasks.sampling.reference_counts import reference_sampling
from tests.tasks.explorer.conftest import Pages
from warehouse import Warehouse
from warehouse.reading.readers import Readers


def response(number: int, program: str, source: str, *, passed: bool = True, step: int | None = None) -> dict[str, Any]:
    return {
        "trajectory_id": f"t{number}",
        "problem_id": "p",
        "source": source,
        "policy_start": None if source == "human" else "policy",
        "token_ids": [1],
        "text": f"print('{program}')",
        "normal_hash": program,
        "program_hash": program,
        "reward": 0.0 if passed else -1.0,
        "verdict": "accepted" if passed else "wrong_answer",
        "step": step,
    }


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Training found `new` (twice) and `late`; `wrong` is wrong, `known` is pi_0's too, and `hers` a person's."""
    folder = tmp_path_factory.mktemp("planted")
    with Warehouse.open(folder / "warehouse") as store:
        problem = {"problem_id": "p", "split": "train", "title": "Planted", "suite_hash": "s"}
        rows = [response(0, "known", "reference"), response(1, "searched", "pivotal_rollout")]
        store.append("a", {"problems": [problem], "trajectories": rows}, run_id="one")
        rows = [response(2, "known", "online", step=1), response(3, "searched", "online", step=1)]
        rows += [response(4, "new", "online", step=1), response(5, "wrong", "online", passed=False, step=1)]
        store.append("b", {"trajectories": rows}, run_id="one")
        rows = [response(6, "new", "online", step=2), response(7, "late", "online", step=2)]
        rows += [response(8, "hers", "human"), response(9, "hers", "online", step=2)]
        store.append("c", {"trajectories": rows}, run_id="two")
        with Readers.open(folder / "warehouse") as readers:
            readers.fill()
            yield Pages(Explorer(readers, folder, asked_s=300), store)


def programs(page: str) -> list[str]:
    return re.findall(r"print</span>\(<span class=\"string\">&#39;</span><span class=\"string\">(\w+)", page)


@pytest.mark.parametrize(
    "filters, expected",
    [
        ({}, ["known", "searched", "new", "wrong", "late", "hers"]),
        ({"by": "found"}, ["new", "late"]),
        ({"by": "found", "order": "new"}, ["late", "new"]),
        ({"by": "pi_0"}, ["known", "searched"]),
        ({"by": "person"}, ["hers"]),
        ({"verdict": "wrong"}, ["wrong"]),
        ({"by": "training", "verdict": "correct"}, ["known", "searched", "new", "late", "hers"]),
    ],
)
def test_programs_are_filtered_by_who_wrote_them(planted: Pages, filters: dict[str, str], expected: list[str]) -> None:
    shown = programs(planted.html("/problem", id="p", **filters))
    assert sorted(shown) == sorted(expected)
    if filters.get("by") == "found":
        assert shown == expected


def test_what_training_found_is_counted_the_same_on_every_page(planted: Pages) -> None:
    assert planted.value("SELECT count(*) FROM new_solutions") == 2
    assert ">2</a>" in planted.html("/")
    assert ">2</a></b>" in planted.html("/problems", kind="found")
    assert "found by training</span>" in planted.html("/problem", id="p", by="found")


def test_an_earlier_snapshot_knows_only_what_was_found_until_then(planted: Pages) -> None:
    before = planted.value("SELECT max(snapshot_id) - 1 FROM trajectories")
    assert programs(planted.html("/problem", id="p", by="found", at=before)) == ["new"]
    assert ">1</a>" in planted.html("/", at=before)


def test_each_step_says_what_was_new_in_it(planted: Pages) -> None:
    first, second = planted.html("/prompt", id="p", step=1), planted.html("/prompt", id="p", step=2)
    assert "<dt>never written before</dt><dd>2</dd>" in first
    assert "<dt>never written before</dt><dd>1</dd>" in second
    assert "<dt>samples</dt><dd>4</dd>" in first
    assert sorted(programs(second)) == ["hers", "late", "new"]


def test_what_was_imported_is_no_persons(planted: Pages) -> None:
    row = response(20, "theirs", "other_model") | {"problem_id": "imported", "policy_start": None}
    problem = {"problem_id": "imported", "split": "train", "title": "Imported", "suite_hash": "s"}
    planted.store.append("d", {"problems": [problem], "trajectories": [row]}, run_id="import")
    page = planted.html("/problem", id="imported")
    assert "<code>another model</code>" in page
    assert "a person</code>" not in page


def test_rewards_that_were_believed_with_an_import_count_as_correct_nowhere(tmp_path: Path) -> None:
    claimed = {"verdict": "claimed"}
    with Warehouse.open(tmp_path / "warehouse") as store:
        known = {"problem_id": "p", "split": "train", "title": "Planted", "suite_hash": "s"}
        rows = [response(0, "ours", "online", step=1), response(1, "theirs", "online", step=1) | claimed]
        rows += [response(2, "failed", "online", passed=False, step=1) | claimed]
        store.append("a", {"problems": [known], "trajectories": rows}, run_id="one")
        assert store.rows("SELECT normal_hash FROM new_solutions") == [{"normal_hash": "ours"}]
        with Readers.open(tmp_path / "warehouse") as readers:
            readers.fill()
            with readers.session() as session:
                session.need_responses()
                (counted,) = session.rows("FROM resident.by_problem")
                (rates,) = session.rows(problem_page.POLICIES, {"problem": "p"})
            pages = Pages(Explorer(readers, tmp_path, asked_s=300), store)
            shown = {
                verdict: programs(pages.html("/problem", id="p", verdict=verdict)) for verdict in ("correct", "wrong")
            }
            found = programs(pages.html("/problem", id="p", by="found"))
            everything = programs(pages.html("/problem", id="p"))
    assert (counted["programs"], counted["correct"], counted["found_by_training"]) == (3, 1, 1)
    assert (counted["later_n"], counted["later_k"]) == (rates["n"], rates["k"]) == (1, 1)
    assert rates["unscored"] == 2
    assert shown == {"correct": ["ours"], "wrong": []}
    assert found == ["ours"]
    assert sorted(everything) == ["failed", "ours", "theirs"]


def test_of_two_searches_of_a_trajectory_the_newer_counts(tmp_path: Path) -> None:
    found = {"trajectory_id": "t", "reference": "base", "n": 10, "k": 5}
    with Warehouse.open(tmp_path / "warehouse") as store:
        for search, pivotal in (("annotation/old", (1, 2, 3)), ("annotation/new", (3,))):
            rows = [
                found | {"search_id": search, "position": place, "pivotal": place in pivotal} for place in (0, *pivotal)
            ]
            store.append(search, {"token_values": rows}, run_id="run")
        assert store.rows(SEARCHED) == [{"trajectory_id": "t", "estimated": 1, "pivotal": 1}]


def test_what_outside_models_wrote_is_no_part_of_a_prompts_way_through_training(tmp_path: Path) -> None:
    outside = {"policy_id": "endpoint-1", "step": 0, "problem_set": "x", "problem_id": "p", "sampling": "t"}
    outside |= {"suite_hash": "s", "prompt_id": "q", "token_ids": [], "text": "print('theirs')", "reward": 0.0}
    samples = [outside | {"sample": n, "normal_hash": "theirs", "program_hash": "theirs"} for n in range(3)]
    with Warehouse.open(tmp_path / "warehouse") as store:
        problem = {"problem_id": "p", "split": "train", "title": "Planted", "suite_hash": "s"}
        rows = [response(0, "ours", "online", step=4)]
        store.append("a", {"problems": [problem], "trajectories": rows, "eval_samples": samples}, run_id="one")
        with Readers.open(tmp_path / "warehouse") as readers:
            readers.fill()
            page = Pages(Explorer(readers, tmp_path, asked_s=300), store).html("/prompt", id="p")
    assert programs(page) == ["ours"]
    assert 'value="0"' not in page


def test_a_response_in_several_batches_counts_once_as_it_was_judged_last(tmp_path: Path) -> None:
    """Two runs drew the same four responses; the second judged them by another suite, and one of them not."""
    with Warehouse.open(tmp_path / "warehouse") as store:
        problem = {"problem_id": "p", "split": "train", "title": "Planted", "suite_hash": "s"}
        first = [response(n, f"program {n}", "online", step=1) for n in range(4)]
        store.append("a", {"problems": [problem], "trajectories": first}, run_id="one")
        again = [row | {"suite_hash": "t", "reward": -1.0, "verdict": "wrong_answer"} for row in first[:3]]
        again += [first[3] | {"suite_hash": "t", "reward": None, "verdict": "infra"}]
        store.append("b", {"trajectories": again, "runs": [{"recipe": "tiny"}]}, run_id="two")
        with Readers.open(tmp_path / "warehouse") as readers:
            readers.fill()
            pages = Pages(Explorer(readers, tmp_path, asked_s=300), store)
            page, listed = pages.html("/problem", id="p"), pages.html("/problems")
            along, alone = pages.html("/prompt", id="p"), pages.html("/prompt", id="p", run="one")
            with readers.session() as session:
                session.need_responses()
                (totals,) = session.rows(runs.TOTALS)
    assert "25.0%" in page
    assert page.count("written 1 time<") == 4
    assert "1 of 4" in listed
    assert "1 of 4" in along
    assert "4 of 4" in alone, "as that run had them judged"
    assert (totals["responses"], totals["correct"]) == (4, 4)


def test_a_program_is_new_in_the_run_that_wrote_it_first_and_where_pi_0_or_training_did(tmp_path: Path) -> None:
    outside = {"policy_id": "endpoint-1", "step": 0, "problem_set": "x", "problem_id": "p", "sampling": "t"}
    outside |= {"suite_hash": "s", "prompt_id": "q", "token_ids": [], "text": "print('zz')", "reward": 0.0}
    outside |= {"sample": 0, "normal_hash": "zz", "program_hash": "zz"}
    with Warehouse.open(tmp_path / "warehouse") as store:
        problem = {"problem_id": "p", "split": "train", "title": "Planted", "suite_hash": "s"}
        rows = [response(0, "x", "online", step=1), response(1, "y", "online", step=1)]
        store.append("a", {"problems": [problem], "trajectories": rows, "eval_samples": [outside]}, run_id="one")
        store.append("b", {"trajectories": [response(2, "x", "online", step=1)]}, run_id="two")
        store.append("c", {"trajectories": [response(3, "x", "online", step=0)]}, run_id="two")
        with Readers.open(tmp_path / "warehouse") as readers:
            readers.fill()
            with readers.session() as session:
                session.need_responses()
                new = {
                    run: [row["new"] for row in session.rows(problem_page.THROUGH_TIME, {"problem": "p", "run": run})]
                    for run in ("", "one", "two")
                }
    assert new == {"": [0, 2], "one": [2], "two": [0, 0]}


def test_a_response_is_valued_by_pi_0s_samples_of_its_own_limit_of_length(tmp_path: Path) -> None:
    asked = {"problem": "p", "suite": "s", "reference": "r", "prompt": "q"}
    with Warehouse.open(tmp_path / "warehouse") as store:
        for limit, k in ((512, 100), (64, 0)):
            of = {"problem_id": "p", "reference": "r", "template_id": "t", "suite_hash": "s", "prompt_id": "q"}
            row = of | {"sampling": reference_sampling(limit), "n": 200, "k": k}
            store.append(f"q0/{limit}", {"reference_counts": [row]}, run_id="x")
        for sampling, k in ((reference_sampling(512), 100), (reference_sampling(64), 0), ("", 0)):
            assert store.rows(COUNTS, asked | {"sampling": sampling}) == [{"n": 200, "k": k}]
        assert store.rows(COUNTS, asked | {"problem": "other", "sampling": ""}) == [{"n": 0, "k": 0}]
