"""Placeholders in commands and host names of a recipe, filled where the run goes on.

`{host}` and `{index}` stand for the machine and the number of a process, `{env:NAME}` for an environment variable: what
differs from one job of a cluster to the next does not belong into the settings that a run keeps.

Errors
------
InvalidConfig
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tasks.config.base import InvalidConfig

_PLACEHOLDER = re.compile(r"\{(?:env:(?P<variable>[A-Za-z_]\w*)|(?P<name>\w+))\}")


def filled(parts: Iterable[str], setting: str, **values: object) -> tuple[str, ...]:
    """The parts with `values` and environment variables in place; other braces stay. Raises InvalidConfig.

    `setting` is where the parts come from, for the message.
    """

    def value(found: re.Match[str]) -> str:
        variable, name = found["variable"], found["name"]
        if variable is None:
            return str(values.get(name, found[0]))
        if not os.environ.get(variable):
            raise InvalidConfig(
                f"{setting} says {found[0]}, but the environment variable {variable} is not set here; "
                f"set it where the run's worker starts (scripts/slurm.sh does)"
            )
        return os.environ[variable]

    return tuple(_PLACEHOLDER.sub(value, part) for part in parts)
