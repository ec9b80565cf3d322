"""What a worker's responses say of Q0: counts of what was drawn from pi_0 in Q0's way, for later runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tasks.sampling.reference_counts import CountsFilter, reference_counts
from tasks.sampling.sampler import Judged
from warehouse import Warehouse
from warehouse.queries import query

COUNTED_BEFORE = query(__name__, "counted_before")


def evidence(
    warehouse: Warehouse, batch: str, judged: Iterable[Judged], counts: CountsFilter, *, max_response_tokens: int
) -> list[dict[str, Any]]:
    """Rows of `reference_counts` for the responses of `batch`, without those that another batch has.

    Another run of the same seed draws the same responses while it samples with pi_0; they count once.
    """
    drawn = {item.row["trajectory_id"]: item for item in judged if item.row["policy_start"] == counts.reference}
    asked = {"ids": list(drawn), "reference": counts.reference, "batch": batch}
    for row in warehouse.rows(COUNTED_BEFORE, asked) if drawn else ():
        del drawn[row["trajectory_id"]]
    return reference_counts(
        drawn.values(),
        reference=counts.reference,
        template_id=counts.template_id,
        max_response_tokens=max_response_tokens,
    )
