"""The record of a home's embedded server and worker, `embedded.json`: which processes they are, on which machine."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from flows.server.processes import alive
from flows.settings import home

NAME = "embedded.json"


def read() -> dict[str, Any]:
    """The record of this home's processes: empty when there is none, or it is another home's or machine's."""
    found = stored(home())
    return found if found.get("home") == identity(home()) and _of_this_machine(found) else {}


def write(record: dict[str, Any]) -> None:
    """Keep the record as that of this home on this machine."""
    temporary = _file().with_suffix(".tmp")
    temporary.write_text(json.dumps(record | {"home": identity(home()), "host": socket.gethostname()}))
    temporary.replace(_file())


def remove() -> None:
    """Keep none any more."""
    _file().unlink(missing_ok=True)


def stored(folder: Path) -> dict[str, Any]:
    """What stands in the home `folder`, whosoever record it is; empty when nothing does."""
    try:
        return json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def identity(folder: Path) -> str:
    """What tells a home from a copy of it."""
    return str(folder.resolve())


def other_machine() -> str | None:
    """The name of the other machine on which the server of this home was started; None when there is none."""
    found = stored(home())
    return None if found.get("home") != identity(home()) or _of_this_machine(found) else str(found["host"])


def foreign_record() -> str | None:
    """What to say of a record that is another home's or machine's; None when there is none."""
    found = stored(home())
    if not found:
        return None
    if found.get("home") == identity(home()):
        elsewhere = f"{_file()} tells of a server of this home on {found.get('host')}, which cannot be seen from here"
        return None if _of_this_machine(found) else elsewhere
    return (
        f"{_file()} tells of the server of {found.get('home', 'an unknown home')}: this folder is a copy or was "
        f"moved, so that server is left alone; `spo up` starts one for {home()}"
    )


def _of_this_machine(record: dict[str, Any]) -> bool:
    """Whether the processes were started on this machine, whatever its name is by now.

    That two containers share a boot does not tell: each sees its own processes alone.
    """
    here = socket.gethostname()
    seen = (alive(record.get(name)) is not None for name in ("server", "worker"))
    return record.get("host", here) == here or any(seen)


def _file() -> Path:
    return home() / NAME
