"""Runners as child processes: inside bubblewrap where it works, else behind the runner's own walls alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sandbox.backends.users import UserReserve
from sandbox.channel import Channel, ProcessChannel
from sandbox.errors import SandboxUnavailable

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/",
    "OMP_NUM_THREADS": "1",
}
INTERPRETER_FLAGS = ("-s", "-S", "-B", "-P", "-u")
PROCESSES = 96
"""Processes and threads of one runner that has a user of its own."""
SHARED_PROCESSES = 1024
"""Room for threads above what the caller's user runs already, where the runner cannot have a user of its own."""


class EmbeddedBackend:
    """Local runners. `outer`: `bubblewrap`, `none` (the runner's own walls), or `auto`: bubblewrap where it works.

    `packages`: folders that hold packages for programs to import; everything in them can be read.
    """

    name = "embedded"
    memory_bytes: int | None = None

    def __init__(self, outer: Literal["auto", "bubblewrap", "none"] = "auto", packages: tuple[str, ...] = ()) -> None:
        refusal = "" if outer == "none" else bubblewrap_refusal()
        if outer == "bubblewrap" and refusal:
            raise SandboxUnavailable(f"bubblewrap does not work here: {refusal}; install it or use outer='none'")
        self._wrapped = outer != "none" and not refusal
        self._packages = packages
        self._users = UserReserve()
        self.walls: tuple[str, ...] = ("bubblewrap",) if self._wrapped else ()

    def launch(self, bootstrap: str) -> tuple[Channel, dict[str, Any]]:
        """Start an interpreter with a clean environment, wrapped if possible."""
        command = [interpreter(), *INTERPRETER_FLAGS, "-c", bootstrap]
        config: dict[str, Any] = {"uid": 0, "packages": list(self._packages)}
        if self._wrapped:
            command = [*bubblewrap_command(self._packages), *command]
        if os.getuid() != 0:
            return ProcessChannel(command, ENVIRONMENT), config | {"processes": tasks_of_user() + SHARED_PROCESSES}
        user = self._users.take()
        try:
            channel = ProcessChannel(command, ENVIRONMENT, user.release)
        except BaseException:
            user.release()
            raise
        return channel, config | {"uid": user.uid, "processes": PROCESSES}

    def close(self) -> None:
        """Nothing is held."""


@cache
def interpreter() -> str:
    """The running interpreter outside any virtual environment."""
    return os.path.realpath(sys.executable)


def bubblewrap_command(packages: tuple[str, ...]) -> list[str]:
    """bwrap with its own process, network, IPC and mount namespaces over a read-only view of the interpreter."""
    command = [
        shutil.which("bwrap") or "bwrap",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    if os.getuid() != 0:
        command.append("--unshare-user")
    visible = ["/usr", "/lib", "/lib64", "/lib32", "/bin", "/etc/ld.so.cache", "/etc/localtime"]
    visible += [p for p in {sys.base_prefix, sys.base_exec_prefix, *packages} if not Path(p).is_relative_to("/usr")]
    for parent in sorted({str(parent) for path in visible for parent in Path(path).parents} - {"/"}):
        command += ["--perms", "0755", "--dir", parent]
    for path in visible:
        command += ["--ro-bind-try", path, path]
    command += ["--dev", "/dev", "--ro-bind", "/dev/null", "/dev/zero"]  # /dev/zero can be mapped as shared memory
    command += ["--proc", "/proc", "--remount-ro", "/dev", "--chdir", "/", "--remount-ro", "/"]
    return [*command, "--die-with-parent", "--new-session", "--"]


@cache
def bubblewrap_refusal() -> str:
    """Why bubblewrap cannot be used; empty where it can. Asked once per process."""
    if not shutil.which("bwrap"):
        return "no `bwrap` on the path"
    command = [*bubblewrap_command(()), interpreter(), *INTERPRETER_FLAGS, "-c", "pass"]
    try:
        trial = subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if trial.returncode == 0 else trial.stderr.decode("utf-8", "replace").strip()[-300:] or "it fails"


def tasks_of_user() -> int:
    """Processes and threads this user runs now."""
    uid, count = os.getuid(), 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.stat(f"/proc/{entry}").st_uid == uid:
                    count += os.stat(f"/proc/{entry}/task").st_nlink - 2
            except OSError:
                continue  # it ended meanwhile
    return count
