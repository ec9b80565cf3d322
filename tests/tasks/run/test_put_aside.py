"""Quarantined batches of a stage are part of what it reads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tasks.run.put_aside import put_aside
from tasks.run.stage import Context
from warehouse import Warehouse
from warehouse.superseding import superseded


def test_own_quarantined_batches_are_named_and_those_that_others_stand_for_are_not(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "warehouse") as store:

        def leave_out(*rows: dict[str, Any]) -> None:
            store.append(f"out/{rows[0]['bad_batch_id']}", {"quarantine": list(rows)}, run_id="by hand")

        context = cast(Context, SimpleNamespace(warehouse=store))
        assert put_aside(context, "q0/a/") == {}
        leave_out({"bad_batch_id": "q0/b/1", "reason": "wrong"})
        leave_out(superseded("q0/a/1", "q0/a/1/rejudged-9"))
        assert put_aside(context, "q0/a/") == {}
        leave_out({"bad_batch_id": "q0/a/2", "reason": "wrong"})
        one = put_aside(context, "eval/a/", "q0/a/")
        assert list(one) == ["put_aside"]
        assert put_aside(context, "q0/a/") == one
        leave_out({"bad_batch_id": "q0/a/3", "reason": "wrong"})
        assert put_aside(context, "q0/a/") != one
        assert put_aside(context, "eval/a/") == {}
