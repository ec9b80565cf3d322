"""Suites as the warehouse has them, and the sandbox settings under which each is judged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress

from sandbox import installed_packages
from tasks.config import ConfigError, SandboxConfig, validate
from tasks.problems.problem import Problem, problems_from_rows
from warehouse import Warehouse
from warehouse.queries import query

Packages = tuple[str, ...]


def stored_problems(store: Warehouse, suites: Sequence[str]) -> list[Problem]:
    """Every problem that is judged by one of these suites, as it was stored last with each, where its tests are there.

    Problems with the same tests share a suite.
    """
    asked = {"suites": list(suites)}
    tests = store.rows(query(__name__, "tests"), asked)
    read = problems_from_rows(store.rows(query(__name__, "problems"), asked), tests)
    there = {(row["problem_id"], row["suite_hash"]) for row in tests}
    return [one for one in read if (one.problem_id, one.suite_hash) in there and one.unjudgeable_reason is None]


def problems_of(store: Warehouse, suites: Sequence[str]) -> dict[str, Problem]:
    """By suite: a problem that is judged by it, where its tests are all there."""
    found = {problem.suite_hash: problem for problem in stored_problems(store, suites)}
    return {suite: found[suite] for suite in suites if suite in found}


def offered(config: SandboxConfig) -> Packages:
    """What programs find besides the standard library, as far as it may decide a verdict: a part of suites' identity.

    Packages by version, modules imported before a program's time begins, and the image that holds the packages, whose
    content is not looked at.
    """
    image = [f"image {config.image}"] if config.packages and config.image is not None else []
    loaded = [f"preimport {name}" for name in sorted(config.preimports)]
    return (*installed_packages(config.packages), *loaded, *image)


def settings_for(store: Warehouse, wanted: Iterable[Packages]) -> dict[Packages, SandboxConfig]:
    """By what programs are offered: the sandbox of the newest run that offers just this.

    Earlier versions knew of packages alone: for their suites, without such a run, that of one with the same packages.
    """
    packages = set(wanted)
    exact: dict[Packages, SandboxConfig] = {}
    alike: dict[Packages, SandboxConfig] = {(): SandboxConfig()}
    for row in store.rows(query(__name__, "settings")):
        with suppress(ConfigError):  # of a version whose configuration was another one
            config = validate(json.loads(row["config_json"])).sandbox
            exact.setdefault(offered(config), config)
            alike.setdefault(installed_packages(config.packages), config)
    known = alike | exact
    return {name: known[name] for name in packages if name in known}
