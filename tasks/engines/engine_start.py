"""Starting an engine's process: here with a socket of its own, or by a command that brings it to another machine.

A command such as ssh or srun passes on standard input and output alone, so the frames of wire.py go through these.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import tasks
from tasks.checkpoints.errors import EngineError
from tasks.engines import wire

SERVE = ("-P", "-m", "tasks.engines.serve")


def start_here(
    python: str | None, environment: Mapping[str, str], theirs: socket.socket, sources: Path
) -> subprocess.Popen[bytes]:
    """Start the engine's side of the socket under `python` (None: this interpreter), in a session of its own.

    `environment` is set beside what this process has. `sources` is an empty folder. Raises EngineError.
    """
    # Only the package `tasks` is put before the interpreter's own packages: those of this one are not for it.
    (sources / "tasks").symlink_to(_package(), target_is_directory=True)
    paths = [str(sources), *filter(None, [os.environ.get("PYTHONPATH")])]
    also = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    try:
        return subprocess.Popen(
            [python or sys.executable, *SERVE, str(theirs.fileno())],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
            pass_fds=[theirs.fileno()], env={**os.environ, **also, **environment},
        )  # fmt: skip
    except OSError as error:
        raise EngineError(
            f"the engine's interpreter {python or sys.executable} cannot be started ({error}); set engine.python to "
            f"one that has what the engine needs (scripts/install_vllm.sh makes one for vLLM), or leave it out",
            code="InterpreterMissing",
        ) from error


def start_by(
    launcher: Sequence[str], python: str | None, environment: Mapping[str, str], theirs: socket.socket
) -> subprocess.Popen[bytes]:
    """Start `launcher` with the engine's command behind it, for a machine that shares this one's files and no more.

    `environment` is set beside what that machine has. Raises EngineError.
    """
    package = _package()
    if python is not None and "site-packages" in package.parts:
        raise EngineError(
            "engine.python with shards.launcher needs this project as a checkout: where it is installed, packages of "
            "this interpreter stand beside it, which are not for another one",
            code="CheckoutMissing",
        )
    wanted = {"PYTHONPATH": str(package.parent), "PYTHONUNBUFFERED": "1", **environment}
    settings = [f"{name}={value}" for name, value in wanted.items()]
    command = [*launcher, "env", *settings, python or sys.executable, *SERVE, wire.STREAMS]
    end = theirs.fileno()
    try:
        return subprocess.Popen(command, stdin=end, stdout=end, stderr=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise EngineError(
            f"shards.launcher cannot be started ({error}): {shlex.join(command)}", code="LauncherMissing"
        ) from error


def _package() -> Path:
    return Path(tasks.__path__[0]).absolute()
