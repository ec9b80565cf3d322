"""One trajectory's page as a single HTML file, which needs no server and loads nothing: `spo show`."""

from __future__ import annotations

import base64
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tasks.explorer import response_rows
from tasks.explorer.address import Address, NotFound
from tasks.explorer.bundle import said
from tasks.explorer.look import Look
from tasks.explorer.pages import Explorer
from tasks.explorer.rendering import FOLDER
from tasks.explorer.trajectory import ESTIMATES, POLICIES, SEARCHED, context_of, stored_folders
from warehouse.queries import query
from warehouse.reading.readers import Readers

BEGINNING_SO = query(__name__, "beginning_so")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A trajectory, and the policy whose own values are shown along it (none: what sampled it, as stored)."""

    trajectory_id: str
    policy_id: str = ""
    colour: str = ""
    """What its tokens are coloured by; empty: the first that is known."""


def searched(readers: Readers, home: Path, limit: int = 20) -> list[dict[str, Any]]:
    """Trajectories with estimates, most pivotal tokens first: id, problem, tokens, positions estimated, pivotal."""
    with readers.session() as session:
        look = Look(session, Address("/searched"), home)
        rows = look.rows(SEARCHED)[:limit]
        known = response_rows.described(look, [row["trajectory_id"] for row in rows])
    return [
        {
            "trajectory": row["trajectory_id"][:12],
            "problem": known[row["trajectory_id"]]["problem_id"],
            "tokens": known[row["trajectory_id"]]["tokens"],
            "estimated": row["estimated"],
            "pivotal": row["pivotal"],
        }
        for row in rows
        if row["trajectory_id"] in known
    ]


def chosen(readers: Readers, home: Path, identity: str, policy: str | None, *, values: bool = True) -> Chosen:
    """The trajectory and policy whose ids begin with `identity` and `policy`. Raises NotFound.

    Without a policy it is the newest that was trained from the same pi_0 and whose checkpoint is there; none without
    `values`.
    """
    with readers.session() as session:
        look = Look(session, Address("/trajectory"), home)
        row = response_rows.trajectory(look, identity)
        own = "" if not values else _newest(look, row) if policy is None else _beginning(look, policy)
        colour = "success" if look.rows(ESTIMATES, id=row["trajectory_id"]) else ""
    return Chosen(row["trajectory_id"], own, colour)


def _newest(look: Look, row: dict[str, Any]) -> str:
    reference = context_of(look, row)["reference"]
    trained = [one["policy_id"] for one in look.rows(POLICIES, reference=reference)]
    there = stored_folders(look, [*trained, reference or ""])
    return next((one for one in trained if one in there), "") if reference in there else ""


def _beginning(look: Look, policy: str) -> str:
    found = [row["policy_id"] for row in look.rows(BEGINNING_SO, id=policy)]
    if len(found) != 1:
        what = f"{len(found)} policies begin" if found else "no policy begins"
        raise NotFound(f"{what} with {policy!r}; `spo sql 'SELECT policy_id, run_id, step FROM policies'` lists them")
    return str(found[0])


def write(explorer: Explorer, wanted: Chosen, page: Path) -> None:
    """Write the page of `wanted`, once its values are computed. Raises NotFound."""
    filters = {"id": wanted.trajectory_id, "policy": wanted.policy_id, "colour": wanted.colour}
    query_text = urlencode({name: value for name, value in filters.items() if value})
    while True:
        reply = explorer.reply("/trajectory", query_text, linker=lambda _: None, frozen="written by spo show")
        if reply.wait_s is None:
            break
        time.sleep(reply.wait_s)
    if reply.status != 200:
        raise NotFound(said(reply.body))
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(_with_its_files(reply.body), encoding="utf-8")


def _with_its_files(page: str) -> str:
    """The page with style sheet and script in it, and a policy that lets nothing else in."""
    style, script = ((FOLDER / "static" / name).read_text(encoding="utf-8") for name in ("explorer.css", "explorer.js"))
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{known}'"
    charset = '<meta charset="utf-8">'
    for linked, inside in (
        (charset, f'{charset}\n<meta http-equiv="Content-Security-Policy" content="{allowed}">'),
        ('<link rel="stylesheet" href="static/explorer.css">', f"<style>\n{style}</style>"),
        ('<script src="static/explorer.js" defer></script>', ""),
        ("</body>", f"<script>{script}</script>\n</body>"),
    ):
        before, found, after = page.rpartition(linked)
        if not found:
            raise ValueError(f"the page's frame has no {linked}: tasks/explorer/templates/frame.html has changed")
        page = before + inside + after
    return page
