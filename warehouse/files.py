"""Durable files: written whole, synced, and visible under their name only when complete.

Errors: StorageFull and StorageLost, always before anything is acknowledged.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from warehouse.errors import StorageFull, StorageLost, WarehouseBusy

POLL_S = 0.01


def write_durably(path: Path, content: bytes | memoryview) -> None:
    """Write, sync, rename, sync the folder."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise storage_error(error, path) from error


def storage_error(error: OSError, path: Path) -> StorageFull | StorageLost:
    """What an operating system's error means for a batch."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(f"no space left writing {path}; the batch was not stored: free space and run it again")
    return StorageLost(f"cannot write {path}: {error.strerror}; the batch was not stored")


@contextmanager
def file_lock(path: Path, *, timeout_s: float, what: str) -> Iterator[None]:
    """Exclusive lock on a file; it is released when this process ends, however it ends.

    Raises WarehouseBusy naming the holder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = os.pread(descriptor, 400, 0).decode(errors="replace") or "an unknown process"
                    raise WarehouseBusy(
                        f"{what} was not free within {timeout_s:g} s; it is held by {holder}"
                    ) from None
                time.sleep(POLL_S)
        holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%FT%TZ", time.gmtime())})
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
