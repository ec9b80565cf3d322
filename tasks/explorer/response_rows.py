"""Rows of single responses: their small columns from memory, the rest from the lake by when they arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.explorer.address import NotFound
from tasks.explorer.look import Look
from warehouse import TABLES
from warehouse.queries import query

PLACES = query(__name__, "places")
RESPONSES = query(__name__, "responses")
TRAJECTORY = query(__name__, "trajectory")
SAMPLE = query(__name__, "sample")
BEGINNING_SO = query(__name__, "beginning_so")
TEXTS = query(__name__, "texts")


def described(look: Look, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Problem, verdict, author and age of each trajectory that is there."""
    if not ids:
        return {}
    look.session.need_responses()
    return {row["trajectory_id"]: row for row in look.rows(RESPONSES, ids=list(ids))}


def trajectory(look: Look, identity: str) -> dict[str, Any]:
    """Every column of a trajectory; `identity` may be the beginning of its id. Raises NotFound."""
    moments = _moments(look, [identity])
    if not moments:
        found = [row["trajectory_id"] for row in look.rows(BEGINNING_SO, id=identity)]
        if len(found) != 1:
            what = f"{len(found)} trajectories begin" if found else "no trajectory begins"
            raise NotFound(f"{what} with {identity[:80]!r} at this snapshot")
        (identity,) = found
        moments = _moments(look, [identity])
    row = look.row(TRAJECTORY, id=identity, moments=moments)
    if row is None:
        raise NotFound(f"there is no trajectory {identity[:80]!r} at this snapshot")
    return row


def sample(look: Look, policy: str, problem: str, number: int) -> dict[str, Any]:
    """A sample of an evaluation in the columns of a trajectory; those that it lacks are None.

    Its seed, prompt and way of sampling are those of the address. Raises BadAddress and NotFound.
    """
    look.session.need_responses()
    seed = look.address.number("seed", 0) or 0
    asked = {"prompt": look.address.text("prompt"), "way": look.address.text("way"), "seed": seed}
    row = look.row(SAMPLE, policy=policy, problem=problem, sample=number, **asked)
    if row is None:
        raise NotFound(f"there is no sample {number} of policy {policy[:20]!r} on {problem[:80]!r} at this snapshot")
    missing = dict.fromkeys(column.name for column in TABLES["trajectories"].columns)
    return {**missing, **row, "source": "evaluation", "policy_start": policy}


def texts(look: Look, problem: str, programs: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The text and identities of programs, by their number in memory.

    `programs` are rows with `program`, and `first_at` or `first_eval_at`, when each arrived first.
    """
    if not programs:
        return {}
    values = {
        "problem": problem,
        "programs": [row["program"] for row in programs],
        "moments": sorted({row["first_at"] for row in programs if row["first_at"] is not None}),
        "eval_moments": sorted({row["first_eval_at"] for row in programs if row["first_at"] is None}),
    }
    return {row["program"]: row for row in look.rows(TEXTS, **values)}


def _moments(look: Look, ids: Sequence[str]) -> list[Any]:
    look.session.need_responses()
    return [row["created_at"] for row in look.rows(PLACES, ids=list(ids))]
