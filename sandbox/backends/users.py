"""Users for runners that root starts: each runner its own, whichever judge of whichever process it belongs to.

The kernel counts processes per user, so two runners of one user could take each other's threads. A user is taken by a
lock on a file of its number; the kernel gives it back when the process that holds it ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sandbox.errors import SandboxUnavailable

FIRST_UID, UIDS = 60100, 900
FOLDERS = ("/run/lock", "/run", "/tmp", "/dev/shm")
"""Where the locks may be; the first that root can write, the same for all judges of a machine."""


class UsersExhausted(SandboxUnavailable):
    """Every user is taken, or the locks cannot be trusted."""


class UserLease:
    """A user taken until `release`."""

    def __init__(self, uid: int, lock: int) -> None:
        self.uid, self._lock = uid, lock

    def release(self) -> None:
        """Give the user back; harmless when done twice."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


class UserReserve:
    """The users that may be taken on this machine."""

    def __init__(self, first: int = FIRST_UID, count: int = UIDS, folder: Path | None = None) -> None:
        self._first, self._count, self._folder = first, count, folder

    def take(self) -> UserLease:
        """A user nobody else has, searched from a place that differs between processes. UsersExhausted if none is."""
        folder = trusted(self._folder or lock_folder())
        for step in range(self._count):
            uid = self._first + (os.getpid() * 7 + step) % self._count
            lock = os.open(folder / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            return UserLease(uid, lock)
        raise UsersExhausted(f"all {self._count} users for runners are taken (locks in {folder}); end some judges")


def lock_folder() -> Path:
    """Folder of the locks."""
    found = next((path for path in FOLDERS if os.path.isdir(path) and os.access(path, os.W_OK)), None)
    if found is None:
        raise UsersExhausted(f"no place for the locks of users: none of {', '.join(FOLDERS)} can be written")
    return Path(found, "spo-sandbox-users")


def trusted(folder: Path) -> Path:
    """The folder, made if need be, if it is this user's alone."""
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise UsersExhausted(f"{folder} belongs to user {state.st_uid} or can be written by others; remove it")
    return folder
