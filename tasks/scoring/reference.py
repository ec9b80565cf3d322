"""Log-probabilities under pi_0: computed once per trajectory, kept under the fingerprint of what computed them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.config import TrainConfig
from tasks.engines.checkpoint import policy_id, tokenizer_hash
from tasks.scoring import lora
from tasks.scoring.errors import StoredLogprobsMismatch
from tasks.scoring.example import Example
from tasks.scoring.packing import Pack, lay_out
from tasks.scoring.policy import Policy
from warehouse import Warehouse
from warehouse.queries import query

CODE_VERSION = 1
"""Raised when the computation changes in a way that changes its results."""

STORED = query(__name__, "stored")


def fingerprint(reference: Path, config: TrainConfig, dtype: str, device: str) -> str:
    """Identity of weights, tokenizer, dtype, attention kernel and code that reference log-probabilities come from."""
    parts = (CODE_VERSION, policy_id(reference), tokenizer_hash(reference), dtype, config.packing, device)
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:16]


class Reference:
    """Evaluates pi_0 by the same class that evaluates pi_theta; of a policy with adapters, it is the part without."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._adapters = lora.adapted(policy)

    def logprobs(self, pack: Pack, stored: Mapping[str, Sequence[float]]) -> tuple[Tensor, dict[str, list[float]]]:
        """log pi_0 of the pack's response tokens (shape N), and those that had to be computed, by trajectory."""
        missing = [example for example in pack.examples if example.trajectory_id not in stored]
        fresh: dict[str, Tensor] = {}
        if missing:
            part = pack if len(missing) == len(pack.examples) else self._lay_out(missing, pack)
            pieces = self.evaluate(part).split([len(example.response_ids) for example in missing])
            fresh = {example.trajectory_id: piece for example, piece in zip(missing, pieces, strict=True)}
        device = pack.ids.device
        rows = [
            fresh[e.trajectory_id]
            if e.trajectory_id in fresh
            else torch.tensor(stored[e.trajectory_id], dtype=torch.float32, device=device)
            for e in pack.examples
        ]
        return torch.cat(rows), {identity: piece.tolist() for identity, piece in fresh.items()}

    @torch.no_grad()
    def evaluate(self, pack: Pack) -> Tensor:
        """log pi_0 of the pack's response tokens, computed now. Shape N."""
        with lora.disabled(self._adapters):
            return self.policy(pack)[0]

    def _lay_out(self, examples: Sequence[Example], like: Pack) -> Pack:
        return lay_out(examples, self.policy.layout).to(like.ids.device)


class ReferenceStore:
    """What is known of log pi_0, in memory and in the warehouse; used by the first process only."""

    def __init__(self, warehouse: Warehouse, fingerprint: str) -> None:
        self.warehouse = warehouse
        self.fingerprint = fingerprint
        self._known: dict[str, Sequence[float]] = {}
        self._asked: set[str] = set()

    def lookup(self, examples: Iterable[Example]) -> dict[str, Sequence[float]]:
        """The stored log-probabilities of these trajectories, as far as there are any. Raises
        StoredLogprobsMismatch.
        """
        examples = list(examples)
        ids = sorted({example.trajectory_id for example in examples} - self._asked)
        if ids:
            for row in self.warehouse.rows(STORED, (self.fingerprint, ids)):
                self._known[str(row["trajectory_id"])] = row["logprobs"]
            self._asked.update(ids)
        found = {e.trajectory_id: self._known[e.trajectory_id] for e in examples if e.trajectory_id in self._known}
        for example in examples:
            stored = found.get(example.trajectory_id)
            if stored is not None and len(stored) != len(example.response_ids):
                raise StoredLogprobsMismatch(
                    example.trajectory_id,
                    f"trajectory {example.trajectory_id!r} has {len(example.response_ids)} response tokens but "
                    f"{len(stored)} stored reference log-probabilities; quarantine the batch that stored them",
                )
        return found

    def add(self, computed: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
        """Remember what was computed; returns the rows to append."""
        self._known |= computed
        self._asked |= set(computed)
        return [
            {"trajectory_id": identity, "fingerprint": self.fingerprint, "logprobs": list(logprobs)}
            for identity, logprobs in sorted(computed.items())
        ]
