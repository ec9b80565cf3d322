"""The order in which training goes through a source whose trajectories are all there from the start."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


class EpochOrder:
    """Endless deterministic pass over ids: every id once per epoch, reshuffled each epoch."""

    def __init__(self, ids: Sequence[str], *, seed: int, source: str, epoch: int = 0, used: int = 0) -> None:
        self.ids = sorted(ids)
        self.seed, self.source = seed, source
        self.epoch, self.used = epoch, used
        self._order = self._shuffled()

    def take(self, count: int) -> list[str]:
        """The next `count` ids."""
        taken: list[str] = []
        while len(taken) < count:
            if self.used >= len(self._order):
                self.epoch, self.used = self.epoch + 1, 0
                self._order = self._shuffled()
            part = self._order[self.used : self.used + count - len(taken)]
            self.used += len(part)
            taken += part
        return taken

    def upcoming(self, count: int) -> list[str]:
        """At most `count` ids that come next in this epoch."""
        return self._order[self.used : self.used + count]

    def _shuffled(self) -> list[str]:
        start = f"{self.seed}/{self.source}/{self.epoch}/".encode()
        return sorted(
            self.ids, key=lambda identity: hashlib.blake2b(start + identity.encode(), digest_size=16).digest()
        )
