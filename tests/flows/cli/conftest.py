"""The command `spo` in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner, Result

from flows.cli.main import app
from sandbox import SandboxError
from tasks.errors import CodedError
from warehouse import WarehouseError

Spo = Callable[..., Result]
USAGE = "usage"
"""Stands for the code of an error in how a command was written, which the command line itself reports."""


@pytest.fixture
def spo(tmp_path: Path) -> Spo:
    """`spo ...` with the home in `tmp_path`, or the one that is given."""

    def invoke(*arguments: str, home: Path = tmp_path) -> Result:
        unset = {"SPO_WAREHOUSE": None, "SPO_PORT": None, "PREFECT_API_URL": None}
        with patch.dict(os.environ):
            return CliRunner(env={"SPO_HOME": str(home), **unset}).invoke(app, arguments)

    return invoke


def code(result: Result) -> str:
    """The code of the error that a command ended with; empty when it ended well."""
    error = result.exception
    if isinstance(error, (CodedError, WarehouseError, SandboxError)):
        return error.code
    assert error is None or isinstance(error, SystemExit), repr(error)
    return {0: "", 2: USAGE}[result.exit_code]
