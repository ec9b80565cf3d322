"""Whose server listens on a port of this machine, told by the record that its home keeps of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

from flows.server import record


def home_served_at(port: int) -> Path | None:
    """The home whose embedded server listens on `port`; None when none does, or another user's."""
    with suppress(psutil.Error):
        for found in psutil.net_connections("tcp"):
            if found.status == psutil.CONN_LISTEN and found.laddr and found.laddr.port == port and found.pid:
                folder = psutil.Process(found.pid).environ().get("SPO_HOME", "")
                if Path(folder).is_absolute() and _recorded_port(Path(folder)) == port:
                    return Path(folder)
    return None


def _recorded_port(home: Path) -> int | None:
    with suppress(OSError):  # it may be another user's
        found = record.stored(home)
        return found.get("port") if found.get("home") == record.identity(home) else None
    return None
