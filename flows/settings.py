"""Where things are: the environment variables `SPO_*`, read in one place.

| variable | meaning | default |
|---|---|---|
| SPO_HOME | everything the project writes | `./.spo` |
| SPO_WAREHOUSE | the warehouse | `$SPO_HOME/warehouse` |
| PREFECT_API_URL | the Prefect server, embedded or elsewhere | `http://127.0.0.1:$SPO_PORT/api` |
| SPO_PORT | port of the embedded Prefect server, for `spo` alone | 4200 |
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

RECIPES = Path(__file__).parent / "recipes"
DEFAULT_RECIPE = "tiny"
DEFAULT_PORT = 4200
"""The embedded server's, and in prefect.toml."""
POOL = "spo"
"""Work pool of every deployment."""


def home() -> Path:
    """Folder for everything the project writes."""
    return Path(os.environ.get("SPO_HOME", ".spo")).absolute()


def warehouse_location() -> str:
    """Location of the warehouse: a folder, or what `SPO_WAREHOUSE` says."""
    return os.environ.get("SPO_WAREHOUSE") or str(home() / "warehouse")


def warehouse_shown() -> str:
    """Location of the warehouse for people and logs: without a password."""
    from warehouse.location import parse_location

    return str(parse_location(warehouse_location()))


def port() -> int:
    """Port of the embedded Prefect server."""
    return urlsplit(api_url()).port or 80


def api_url() -> str:
    """API of the Prefect server: `PREFECT_API_URL` when set, else the embedded one."""
    return os.environ.get("PREFECT_API_URL") or f"http://127.0.0.1:{os.environ.get('SPO_PORT', DEFAULT_PORT)}/api"


def server_elsewhere() -> bool:
    """Whether `PREFECT_API_URL` names a server on another machine."""
    return urlsplit(api_url()).hostname not in {"127.0.0.1", "localhost"}


def recipe_names() -> list[str]:
    """Names of the recipes that ship with the project."""
    return sorted(str(path.relative_to(RECIPES).with_suffix("")) for path in RECIPES.rglob("*.toml"))
