"""Verdicts that need not be made again, within a bounded memory: what does not fit is read from the warehouse again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import sandbox
from sandbox import Judgement, Verdict
from warehouse.queries import query

KNOWN_VERDICTS = query(__name__, "known_verdicts")
VERDICT_BYTES = 210
"""Bytes of a verdict in memory with its keys, measured with tracemalloc."""
SUITES_AHEAD = 128
"""Expected suites that are read with one that is new: a question costs as much as the warehouse is large."""


class VerdictReader(Protocol):
    """What reads known verdicts: a `warehouse.Warehouse`."""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a query."""
        ...


class KnownVerdicts:
    """Verdicts by (program hash, suite hash): those of the warehouse, read suite by suite, and those made here.

    Only verdicts of this sandbox version count, and an infrastructure failure is never one. Beyond `most_mb` the suites
    that were not read for the longest time are forgotten, never those of the last `read`; one that is wanted again is
    read again. A program whose verdict was forgotten before it was stored would be judged a second time.
    """

    def __init__(
        self, warehouse: VerdictReader | None = None, *, most_mb: float = 256, suites_ahead: int = SUITES_AHEAD
    ) -> None:
        """Without a warehouse only the verdicts made here are known, and none is forgotten."""
        self._warehouse = warehouse
        self._most = int(most_mb * 1_000_000) // VERDICT_BYTES
        self._suites_ahead = suites_ahead
        self._known: dict[str, dict[str, Judgement]] = {}
        """By suite, the one that was read last at the end; then by program."""
        self._read: set[str] = set()
        self._expected: deque[str] = deque()
        self._count = 0

    @property
    def count(self) -> int:
        """Verdicts in memory."""
        return self._count

    def expect(self, suites: Iterable[str]) -> None:
        """Say for which suites verdicts will be asked in time: some are read with each new one, while there is room."""
        self._expected.extend(dict.fromkeys(suites))

    def read(self, suites: Iterable[str]) -> None:
        """Make the warehouse's verdicts for these suites known."""
        if self._warehouse is None:
            return
        wanted = sorted(set(suites))
        if new := [suite for suite in wanted if suite not in self._read]:
            new += self._ahead(new)
            for row in self._warehouse.rows(KNOWN_VERDICTS, [sandbox.VERSION, str(Verdict.infra), new]):
                judgement = Judgement(Verdict(row["verdict"]), row["tests_passed"], row["tests_total"], reused=True)
                self._store(row["program_hash"], row["suite_hash"], judgement)
            self._read.update(new)
        for suite in wanted:
            self._known[suite] = self._known.pop(suite, {})
        self._forget(set(wanted))

    def _ahead(self, new: Sequence[str]) -> list[str]:
        """The next of the expected suites that are not known yet."""
        ahead: list[str] = []
        while self._expected and len(ahead) < self._suites_ahead and 2 * self._count < self._most:
            suite = self._expected.popleft()
            if suite not in self._read and suite not in new:
                ahead.append(suite)
        return ahead

    def get(self, key: tuple[str, str]) -> Judgement | None:
        """The known judgement of a program by a suite."""
        program, suite = key
        return self._known.get(suite, {}).get(program)

    def put(self, key: tuple[str, str], judgement: Judgement) -> None:
        """Remember a judgement, unless the sandbox itself failed."""
        if judgement.verdict != Verdict.infra:
            self._store(*key, judgement)

    def _store(self, program: str, suite: str, judgement: Judgement) -> None:
        known = self._known.setdefault(suite, {})
        self._count += program not in known
        known[program] = judgement

    def _forget(self, needed: set[str]) -> None:
        for suite in list(self._known):
            if self._count <= self._most or suite in needed:
                return  # the needed ones are the last
            self._count -= len(self._known.pop(suite))
            self._read.discard(suite)
