"""Log-probabilities under pi_0: computed once per trajectory, kept under the fingerprint of what computed them."""

from __future__ import annotations

import gc
import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tasks.checkpoints.checkpoint import policy_id, tokenizer_hash
from tasks.config import TrainConfig
from tasks.scoring import lora
from tasks.scoring.errors import StoredLogprobsMismatch
from tasks.scoring.example import Example
from tasks.scoring.offloading import offload
from tasks.scoring.packing import Pack, lay_out
from tasks.scoring.policy import Policy, load_policy
from warehouse.queries import query

CODE_VERSION = 1
"""Raised when the computation changes in a way that changes its results."""

FLOAT_BYTES = array("f").itemsize
ENTRY_BYTES = 200
"""Bytes of an entry beside its numbers, measured with tracemalloc."""

STORED, SCORED_BY = query(__name__, "stored"), query(__name__, "scored_by")


class RowReader(Protocol):
    """What reads stored log-probabilities: a `warehouse.Warehouse`."""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a query."""
        ...


def fingerprint(reference: Path, config: TrainConfig, dtype: str, device: str) -> str:
    """Identity of weights, tokenizer, dtype, attention kernel and code that reference log-probabilities come from."""
    parts = (CODE_VERSION, policy_id(reference), tokenizer_hash(reference), dtype, config.packing, device)
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:16]


class Reference:
    """Evaluates pi_0 by the same class that evaluates pi_theta; of a policy with adapters, it is the part without."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._adapters = lora.adapted(policy)

    def close(self) -> None:
        """Release the weights, on a GPU to other processes, too; it cannot be asked any more."""
        del self.policy
        self._adapters = []
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

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

    @property
    def device(self) -> torch.device:
        """Where packs are evaluated."""
        return self.policy.head.weight.device

    @property
    def waits_elsewhere(self) -> bool:
        """Whether weights are in main memory between the passes, so that no other pass finds them on the device."""
        return next(self.policy.causal_lm.parameters()).device != self.device

    @torch.no_grad()
    def evaluate(self, pack: Pack) -> Tensor:
        """log pi_0 of the pack's response tokens, computed now. Shape N."""
        with lora.disabled(self._adapters):
            return self.policy(pack)[0]

    def _lay_out(self, examples: Sequence[Example], like: Pack) -> Pack:
        return lay_out(examples, self.policy.layout).to(like.ids.device)


def load_reference(folder: Path, config: TrainConfig, dtype: str, device: torch.device) -> Reference:
    """pi_0 from a checkpoint folder, to be evaluated on `device`; `config` says where its layers wait."""
    policy = load_policy(folder, config, dtype, trained=False)
    if not waits_in_main_memory(config, device):
        return Reference(policy.to(device))
    policy.head.weight = nn.Parameter(policy.head.weight.detach().to(device), requires_grad=False)  # used all the time
    offload(policy.causal_lm.base_model, device)
    return Reference(policy)


def waits_in_main_memory(config: TrainConfig, device: torch.device) -> bool:
    """True if the layers of pi_0 wait in main memory and not on `device`."""
    if config.reference_weights == "auto":
        return config.zero_stage == 3 and device.type == "cuda"
    return config.reference_weights == "cpu"


class ReferenceStore:
    """What is known of log pi_0: all of it in the warehouse, the last of it in memory; used by the first process only.

    Beyond `most_mb` what was not asked for the longest time is forgotten and, when it is wanted again, read again.
    """

    def __init__(
        self,
        warehouse: RowReader,
        fingerprint: str,
        *,
        run_id: str | None = None,
        most_mb: int = 1024,
        unseen: int = 0,
    ) -> None:
        """`run_id`: the run whose own numbers are taken where others have scored the same. Of what it samples, only
        what it had scored by now is looked for in the warehouse.

        `unseen`: of what is added, so many of the newest may not be visible in the warehouse yet and stay.
        """
        self.warehouse = warehouse
        self.fingerprint = fingerprint
        self._run_id = run_id
        self._most = most_mb * 1_000_000
        self._unseen = unseen
        self._scored = None if run_id is None else self._scored_by(run_id)
        """Of the run's own trajectories those that may be in the warehouse and not in memory; None: any of them."""
        self._known: dict[str, array[float]] = {}
        """By trajectory, the one that was asked for last at the end."""
        self._bytes = 0
        self._absent: set[str] = set()
        """Asked for, not there, and not added since."""

    @property
    def count(self) -> int:
        """Trajectories in memory."""
        return len(self._known)

    @property
    def memory_bytes(self) -> int:
        """About what the trajectories in memory take."""
        return self._bytes

    def lookup(self, examples: Iterable[Example], *, ahead: Iterable[Example] = ()) -> dict[str, Sequence[float]]:
        """The stored log-probabilities of these trajectories, as far as there are any. Raises
        StoredLogprobsMismatch.

        `ahead`: those that will be asked for soon, which are read with what is missing, as far as there is room.
        """
        examples = list(examples)
        asked = {one.trajectory_id for one in examples if self._may_be_stored(one)}
        missing = asked - self._known.keys() - self._absent
        if missing:
            self._read(missing | self._soon(ahead))
        found: dict[str, Sequence[float]] = {}
        for example in examples:
            stored = self._known.get(example.trajectory_id)
            if stored is None:
                continue
            if len(stored) != len(example.response_ids):
                raise StoredLogprobsMismatch(
                    example.trajectory_id,
                    f"trajectory {example.trajectory_id!r} has {len(example.response_ids)} response tokens but "
                    f"{len(stored)} stored reference log-probabilities; quarantine the batch that stored them",
                )
            self._keep(example.trajectory_id, stored)
            found[example.trajectory_id] = stored
        self._forget()
        return found

    def _scored_by(self, run_id: str) -> set[str]:
        rows = self.warehouse.rows(SCORED_BY, (self.fingerprint, run_id))
        return {str(row["trajectory_id"]) for row in rows}

    def _may_be_stored(self, one: Example) -> bool:
        return one.sampled_step is None or self._scored is None or one.trajectory_id in self._scored

    def _read(self, wanted: set[str]) -> None:
        """Remember what the warehouse has of these, and what it does not have, which is not asked for again."""
        for row in self.warehouse.rows(STORED, (self.fingerprint, sorted(wanted), self._run_id)):
            self._keep(str(row["trajectory_id"]), array("f", row["logprobs"]))
        self._absent |= wanted - self._known.keys()

    def _soon(self, ahead: Iterable[Example]) -> set[str]:
        """Those of the trajectories ahead that are not in memory, as many as half of it holds."""
        soon: set[str] = set()
        room = self._most // 2 - self._bytes
        for one in ahead:
            if one.trajectory_id in self._known or one.trajectory_id in self._absent or one.sampled_step is not None:
                continue
            room -= _size(one.response_ids)
            if room < 0:
                break
            soon.add(one.trajectory_id)
        return soon

    def add(self, computed: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
        """Remember what was computed; returns the rows to append."""
        for identity, logprobs in computed.items():
            self._keep(identity, array("f", logprobs))
        self._absent -= computed.keys()
        self._forget()
        return [
            {"trajectory_id": identity, "fingerprint": self.fingerprint, "logprobs": list(logprobs)}
            for identity, logprobs in sorted(computed.items())
        ]

    def _keep(self, identity: str, logprobs: array[float]) -> None:
        old = self._known.pop(identity, None)
        self._bytes += _size(logprobs) - (0 if old is None else _size(old))
        self._known[identity] = logprobs

    def _forget(self) -> None:
        while self._bytes > self._most and len(self._known) > self._unseen:
            identity = next(iter(self._known))
            self._bytes -= _size(self._known.pop(identity))
            if self._scored is not None:
                self._scored.add(identity)


def _size(tokens: Sequence[float]) -> int:
    """Bytes that the log-probabilities of so many tokens take in memory."""
    return len(tokens) * FLOAT_BYTES + ENTRY_BYTES
