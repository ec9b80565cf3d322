"""Sampled responses on their way to a verdict: identical programs are judged once, and whoever samples never waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from sandbox import Judgement, Submission, Verdict
from tasks.sampling.assignment import SampledDraft
from tasks.sampling.background_judging import BackgroundJudging, Judging


class Known(Protocol):
    """Verdicts by (program hash, suite hash)."""

    def get(self, key: tuple[str, str]) -> Judgement | None:
        """The known judgement."""
        ...

    def put(self, key: tuple[str, str], judgement: Judgement) -> None:
        """Remember a judgement."""
        ...


Decided = tuple[SampledDraft, Judgement | None, bool]
"""A draft, its judgement (None: cut off), and whether it was made for this very draft."""


class AwaitedVerdicts:
    """Drafts that wait for the judge."""

    def __init__(self, judge: Judging, known: Known) -> None:
        self.count = 0
        """Drafts that wait."""
        self._known = known
        self._judging = BackgroundJudging(judge)
        self._waiting: dict[tuple[str, str], list[SampledDraft]] = {}
        self._sent: dict[int, tuple[str, str]] = {}
        self._submitted = 0

    def add(self, draft: SampledDraft) -> Iterator[Decided]:
        """Have a draft judged; itself where nothing needs to be judged, and what was decided meanwhile."""
        known = self._known.get(draft.key)
        if draft.completion.finish_reason == "length":
            yield draft, None, False
        elif known is not None:
            yield draft, known, False
        else:
            self.count += 1
            same = self._waiting.setdefault(draft.key, [])
            same.append(draft)
            if len(same) == 1:
                self._sent[self._submitted] = draft.key
                self._submitted += 1
                self._judging.submit(Submission(draft.program, draft.suite))
        yield from self._decided(self._judging.ready())

    def wait(self, most_s: float | None) -> Iterator[Decided]:
        """What the next judgement decides, once it is there, or nothing after `most_s`; some drafts must wait."""
        judged = self._judging.next(most_s)
        yield from self._decided([] if judged is None else [judged])

    def abandon(self) -> None:
        """Let the judge take nothing more; harmless at the end."""
        self._judging.abandon()

    def _decided(self, found: Iterable[tuple[int, Judgement]]) -> Iterator[Decided]:
        for number, judgement in found:
            key = self._sent.pop(number)
            self._known.put(key, judgement)
            first, *others = self._waiting.pop(key)
            self.count -= 1 + len(others)
            yield first, judgement, judgement.verdict != Verdict.infra
            yield from ((other, judgement, False) for other in others)
