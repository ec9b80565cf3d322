"""Where things are: the environment variables `SPO_*`, read in one place.

| variable | meaning | default |
|---|---|---|
| SPO_HOME | everything the project writes | `./.spo` |
| SPO_WAREHOUSE | the warehouse | `$SPO_HOME/warehouse` |
| PREFECT_API_URL | the Prefect server, embedded or elsewhere | `http://127.0.0.1:$SPO_PORT/api` |
| SPO_PORT | port of the embedded Prefect server, for `spo` alone | 4200 |
| SPO_CANCEL_ON_TERM | 1: SIGTERM cancels the flow run that a command watches (flows/cli/watch.py) | |
"""

from __future__ import annotations

import os
import re
from itertools import takewhile
from pathlib import Path
from urllib.parse import urlsplit

from tasks.errors import CodedError

RECIPES = Path(__file__).parent / "recipes"
DEFAULT_RECIPE = "tiny"
DEFAULT_PORT = 4200
"""The embedded server's, and in prefect.toml."""
LOCAL = ("127.0.0.1", "localhost")
"""Names of this machine."""
POOL = "spo"
"""Work pool of every deployment."""


class BadSetting(CodedError):
    """An environment variable says what cannot be."""


def home() -> Path:
    """Folder for everything the project writes."""
    return Path(os.environ.get("SPO_HOME") or ".spo").absolute()


def warehouse_location() -> str:
    """Location of the warehouse: a folder, or what `SPO_WAREHOUSE` says, with relative folders starting here.

    A worker, which has it from its environment, works in another folder.
    """
    given = os.environ.get("SPO_WAREHOUSE")
    if not given or given.startswith(("postgresql://", "postgres://")):
        return given or str(home() / "warehouse")
    from warehouse.location import parse_location

    return str(parse_location(given))


def warehouse_shown() -> str:
    """Location of the warehouse for people and logs: without a password."""
    from warehouse.location import parse_location

    return str(parse_location(warehouse_location()))


def port() -> int:
    """Port of the embedded Prefect server. Raises BadSetting."""
    return urlsplit(api_url()).port or 80


def api_url() -> str:
    """API of the Prefect server: `PREFECT_API_URL` when set, else the embedded one. Raises BadSetting."""
    if given := os.environ.get("PREFECT_API_URL"):
        return _checked(given)
    number = os.environ.get("SPO_PORT") or str(DEFAULT_PORT)
    if not (number.isascii() and number.isdecimal() and 0 < int(number) < 65536):
        raise BadSetting(f"SPO_PORT is {number!r}, which is no port: give it a number from 1 to 65535, or unset it")
    return _embedded(int(number))


def _checked(address: str) -> str:
    try:
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return address
        reason = "it is no address that begins with http:// or https:// and names a machine"
    except ValueError as error:
        reason = str(error)
    raise BadSetting(f"PREFECT_API_URL is {address!r}: {reason}; an example is {_embedded(DEFAULT_PORT)}")


def _embedded(number: int) -> str:
    return f"http://127.0.0.1:{number}/api"


def server_elsewhere() -> bool:
    """Whether `PREFECT_API_URL` names a server on another machine."""
    return urlsplit(api_url()).hostname not in LOCAL


def without_proxy() -> dict[str, str]:
    """The environment variables that keep a proxy from standing between this machine and its own server."""
    listed = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = [host for host in listed.split(",") if host.strip()]
    value = ",".join([*hosts, *(host for host in LOCAL if host not in hosts)])
    return {"NO_PROXY": value, "no_proxy": value}


def recipe_names() -> list[str]:
    """Names of the recipes that ship with the project."""
    return sorted(str(path.relative_to(RECIPES).with_suffix("")) for path in RECIPES.rglob("*.toml"))


def recipe_meaning(name: str) -> str:
    """What a recipe that ships is for: the first sentence of the comment that its file begins with."""
    lines = (RECIPES / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    prose = takewhile(re.compile(r"# ?\S").match, lines)  # an indented line is a command
    comment = " ".join(line.removeprefix("#").strip() for line in prose)
    return re.split(r"(?<=\.) (?=[A-Z])", comment, maxsplit=1)[0]
