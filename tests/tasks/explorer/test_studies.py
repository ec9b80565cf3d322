"""A study's page: means over seeds, and differences paired by seed, against values worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks import config as configuration
from tasks.explorer.pages import Explorer
from tasks.run import runs
from tests.tasks.explorer.conftest import Pages
from warehouse import Warehouse
from warehouse.reading.readers import Readers

FINALS = {("m", 0): 0.5, ("m", 1): 0.6, ("b", 0): 0.4, ("b", 1): 0.45, ("c", 0): None}


def manifest(after: float) -> str:
    change = {"before": 0.1, "after": after, "difference": after - 0.1, "interval": [0.0, 1.0]}
    curve = [
        {"step": step, "policy_id": f"p{after}", "k": 1, "value": value, "low": value, "high": value}
        for step, value in ((0, 0.1), (10, after))
    ]
    return json.dumps({"comparison": {"pass@1": change}, "curve": curve, "described": "by hand"})


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("study")
    with Warehouse.open(folder / "warehouse") as store:
        before = [{"stage": "", "kind": "created", "message": "study/hand/m/0/4567"}]  # the arm as it once was
        ended = {"stage": "evaluate", "key": "k", "status": "completed", "manifest_json": manifest(0.9)}
        rows = {"runs": [{"recipe": "m", "config_json": "{}"}], "run_events": before, "stages": [ended]}
        store.append("m0-before", rows, run_id="z-before")
        for (arm, seed), after in FINALS.items():
            events = [{"stage": "", "kind": "created", "message": f"study/hand/{arm}/{seed}/0123"}]
            settings = json.dumps({"seed": seed, "train": {"steps": 30}})
            rows = {"runs": [{"recipe": arm, "config_json": settings}], "run_events": events}
            if after is not None:
                ended = {"stage": "evaluate", "key": "k", "status": "completed", "manifest_json": manifest(after)}
                rows["stages"] = [ended]
            else:
                events.append({"stage": "train", "kind": "started", "message": ""})
                rows["train_batches"] = [{"step": step, "trajectory_ids": [], "sources": []} for step in (6, 7)]
            store.append(f"{arm}{seed}", rows, run_id=f"{arm}-{seed}")
        with Readers.open(folder / "warehouse") as readers:
            readers.fill()
            yield Pages(Explorer(readers, folder), store)


def test_the_list_counts_arms_seeds_and_runs(study: Pages) -> None:
    page = study.html("/studies")
    assert 'href="/study?id=hand"' in page
    assert '<td class="number">3</td><td class="number">2</td><td class="number">6</td>' in page


def test_means_and_paired_differences_are_those_worked_out_by_hand(study: Pages) -> None:
    page = study.html("/study", id="hand")
    assert "<b>55.0%</b>" in page
    assert "<b>42.5%</b>" in page
    assert '-12.5 points<br><span class="quiet">[-44.3, +19.3]</span>' in page
    assert "not evaluated" in page
    assert "+12.5 points" in study.html("/study", id="hand", base="b")


def test_settings_stand_below_the_run_that_has_them(study: Pages) -> None:
    for names, seeds in ((["m-1", "b-0"], ("1", "0")), (["b-0", "m-1"], ("0", "1")), (["b-1", "m-0"], ("1", "0"))):
        page = study.html("/compare", run=names)
        assert f"<th>setting</th><th>{names[0]}</th><th>{names[1]}</th>" in page
        assert f"<td><code>seed</code></td><td>{seeds[0]}</td><td>{seeds[1]}</td>" in page


def test_of_an_arm_that_was_defined_anew_the_newest_run_counts(study: Pages) -> None:
    found = study.store.rows("SELECT run_id, newest FROM study_runs WHERE arm = 'm' ORDER BY arrival")
    assert [tuple(row.values()) for row in found] == [("z-before", False), ("m-0", True), ("m-1", True)]
    page = study.html("/study", id="hand")
    assert ">m-0<" not in page
    assert 'Left out, because the arm has other settings or a newer run since: <a href="/run?id=z-before">' in page


def test_runs_of_other_settings_than_the_newest_are_left_out_and_the_base_stays(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "warehouse") as store:
        for name, arm, seed, steps, after in (
            ("on-0", "online/of-lab", 0, 60, 0.50),
            ("on-1", "online/of-lab", 1, 60, 0.52),
            ("ppo-0", "ppo", 0, 60, 0.40),
            ("on-2", "online/of-lab", 0, 180, 0.90),
            ("on-3", "online/of-lab", 1, 180, 0.94),
        ):
            shares = {"online": {"share": 0.5}, "offline": {"share": 0.0}, "earlier": {"share": 0.5}}
            train = {"steps": steps, "earlier": {"run_ids": [f"first-{seed}"]}, "sources": shares}
            settings = json.dumps({"seed": seed, "train": train})
            if name == "on-3":  # of a newer version, with fields that older ones lack, and on other machines
                train["worker_launcher"] = ["srun"]
                settings = configuration.validate({"seed": seed, "train": train}).model_dump_json()
            event = {"stage": "", "kind": "created", "message": f"study/quick/{arm}/{seed}/{steps}"}
            ended = {"stage": "evaluate", "key": "k", "status": "completed", "manifest_json": manifest(after)}
            rows = {"runs": [{"recipe": arm, "config_json": settings}], "run_events": [event], "stages": [ended]}
            store.append(name, rows, run_id=name)
        with Readers.open(tmp_path / "warehouse") as readers:
            readers.fill()
            page = Pages(Explorer(readers, tmp_path), store).html("/study", id="quick")
        assert {row["study"] for row in runs.listing(store)} == {
            "quick/online/of-lab/0",
            "quick/online/of-lab/1",
            "quick/ppo/0",
        }
    assert "<b>92.0%</b>" in page
    assert "against online/of-lab" in page
    assert "-50.0 points" in page
    left_out = page.split("Left out")[1]
    assert ">on-0</a>" in left_out
    assert ">on-1</a>" in left_out


def test_an_arm_that_is_not_there_is_refused(study: Pages) -> None:
    assert study.reply("/study", id="hand", base="z").status == 404
