"""What programs are offered is part of a suite's identity, and a suite is judged again as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandbox import TestCase
from tasks import config
from tasks.prepare.stage import limited
from tasks.problems.problem import Problem
from tasks.run import runs
from tasks.run.stored_suites import offered, settings_for
from warehouse import Warehouse

DOCKER = {"backend": "docker", "packages": ["/opt/contest"]}


def recipe(**sandbox: Any) -> config.RunConfig:
    return config.validate({"sandbox": sandbox})


def suite(**sandbox: Any) -> str:
    problem = Problem("p", "set", "train", "p", "Print 1.", hidden_tests=(TestCase("", "1\n"),))
    return limited(problem, recipe(**sandbox)).suite_hash


def test_verdicts_of_other_preimports_or_another_image_are_not_mixed_in() -> None:
    assert suite() == suite(preimports=[])
    assert len({suite(), suite(preimports=["numpy"]), suite(preimports=["numpy", "sympy"])}) == 3
    assert suite(preimports=["sympy", "numpy"]) == suite(preimports=["numpy", "sympy"])
    assert suite(**DOCKER, image="contest:1") != suite(**DOCKER, image="contest:2")
    assert suite(backend="docker", image="plain:1") == suite(), "an image without packages offers the standard library"


def test_a_suite_is_judged_as_the_newest_run_that_offers_the_same(tmp_path: Path) -> None:
    loaded, plain = recipe(**DOCKER, image="c", preimports=["numpy"]), recipe(**DOCKER, image="c", workers=2)
    with Warehouse.open(tmp_path / "warehouse") as store:
        runs.create(store, plain, origin="a")
        runs.create(store, loaded, origin="b")
        before = ("/opt/contest",)
        wanted = [(), before, offered(plain.sandbox), offered(loaded.sandbox), ("other==1",)]
        found = settings_for(store, wanted)
    assert found[offered(plain.sandbox)] == plain.sandbox
    assert found[offered(loaded.sandbox)] == loaded.sandbox
    assert found[before] == loaded.sandbox, "of an earlier version, which knew of packages alone"
    assert found[()] == recipe().sandbox
    assert ("other==1",) not in found
