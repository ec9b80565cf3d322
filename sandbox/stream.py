"""The way of submissions through the workers: identical programs once, at most so many on their way."""

from __future__ import annotations

import hashlib
import itertools
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from sandbox.records import Judgement, Submission, Verdict, VerdictStore

REMEMBERED = 50_000
"""Judgements one stream remembers for later identical programs."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A submission for a worker. `known` answers whether a program of this code hash has been judged already."""

    submission: Submission
    key: Key
    known: Callable[[str], Judgement | None]
    done: queue.SimpleQueue[tuple[Job, str, Judgement | BaseException]]


class Stream:
    """One call of `judge_stream`. The store is asked by several threads, but by one at a time."""

    def __init__(self, jobs: queue.SimpleQueue[Job | None], store: VerdictStore | None, most: int) -> None:
        self._jobs, self._store, self._most = jobs, store, most
        self._done: queue.SimpleQueue[tuple[Job, str, Judgement | BaseException]] = queue.SimpleQueue()
        self._waiting: dict[Key, list[int]] = {}
        self._memory: OrderedDict[Key, Judgement] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, submissions: Iterable[Submission]) -> Iterator[tuple[int, Judgement]]:
        """(position, judgement) as they finish."""
        source = enumerate(submissions)
        ready: deque[tuple[int, Judgement]] = deque()
        while True:
            batch = list(itertools.islice(source, self._most - len(self._waiting)))
            ready.extend(self._admit(batch))
            while ready:
                yield ready.popleft()
            if self._waiting:
                ready.extend(self._collect())
            elif not batch:
                return

    def _admit(self, batch: list[tuple[int, Submission]]) -> Iterator[tuple[int, Judgement]]:
        """Send to the workers what has not been judged; yields what has."""
        keys = [(text_key(submission.program), submission.suite.suite_id) for _, submission in batch]
        known = self._lookup([key for key in keys if key not in self._waiting])
        for (position, submission), key in zip(batch, keys, strict=True):
            if key in known:
                yield position, replace(known[key], reused=True)
            elif key in self._waiting:
                self._waiting[key].append(position)
            else:
                self._waiting[key] = [position]
                suite_id = submission.suite.suite_id
                self._jobs.put(Job(submission, key, lambda h, s=suite_id: self._known(h, s), self._done))

    def _collect(self) -> Iterator[tuple[int, Judgement]]:
        """Wait for one outcome; yields it for every submission it belongs to."""
        job, code_hash, outcome = self._done.get()
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome.verdict is not Verdict.infra and not outcome.reused:
            self._remember(job.key, code_hash, outcome)
        first, *others = self._waiting.pop(job.key)
        yield first, outcome
        for position in others:
            yield position, replace(outcome, reused=True)

    def _known(self, code_hash: str, suite_id: str) -> Judgement | None:
        key = (code_key(code_hash), suite_id)
        return self._lookup([key]).get(key)

    def _lookup(self, keys: list[Key]) -> dict[Key, Judgement]:
        with self._lock:
            found = {key: self._memory[key] for key in keys if key in self._memory}
            missing = list(dict.fromkeys(key for key in keys if key not in found))
            if self._store is not None and missing:
                found.update(self._store.get(missing))
            return found

    def _remember(self, key: Key, code_hash: str, outcome: Judgement) -> None:
        entries = {key: outcome}
        if code_hash:
            entries[code_key(code_hash), key[1]] = outcome
        with self._lock:
            self._memory.update(entries)
            while len(self._memory) > REMEMBERED:
                self._memory.popitem(last=False)
            if self._store is not None:
                self._store.put(entries)


def text_key(program: str) -> str:
    """Program key of a text."""
    return "text-" + hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def code_key(code_hash: str) -> str:
    """Program key of a code object; the hash names its Python version."""
    return f"code-{code_hash}"
