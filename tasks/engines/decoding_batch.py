"""The rows being decoded: what each is, what it has drawn so far, and how rows come and go.

Finished rows leave holes that the last rows are moved into, so that the live rows are always the first `rows` ones and
a step costs what they cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.engines.protocol import Completion, Request, not_finite
from tasks.engines.randomness import sample_seed, stream_key, uniforms
from tasks.engines.token_sampling import choose, entropies_of

StopTest = Callable[[str, Sequence[int]], bool]
"""Whether the newest of some tokens completes a stop text."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One response to draw: the `index`-th of request number `request`."""

    request: int
    index: int
    seed: int
    temperature: float
    top_p: float
    max_tokens: int
    stop_text: str
    entropies: bool


_NO_SAMPLE = Sample(-1, -1, 0, 1.0, 1.0, 0, "", entropies=False)
"""What a row that is not live holds."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A distinct prompt and every sample wanted of it, over all requests."""

    token_ids: tuple[int, ...]
    samples: tuple[Sample, ...]


def distinct_prompts(requests: Sequence[Request], first: int = 0) -> list[Prompt]:
    """The requests' distinct prompts in order of first appearance, with their samples; numbers count from `first`."""
    samples: dict[tuple[int, ...], list[Sample]] = {}
    for number, request in enumerate(requests, start=first):
        wanted = samples.setdefault(tuple(request.prompt_ids), [])
        for index in range(request.n):
            seed = sample_seed(request.seed, index)
            settings = (request.temperature, request.top_p, request.max_tokens, request.stop_text, request.entropies)
            wanted.append(Sample(number, index, seed, *settings))
    return [Prompt(token_ids, tuple(wanted)) for token_ids, wanted in samples.items()]


class DecodingRows:
    """State of at most `capacity` rows; arrays are indexed by row, of which the first `count` are live."""

    def __init__(self, capacity: int, longest: int, stop_ids: Sequence[int], stop_test: StopTest) -> None:
        self.count = 0
        self._stop_test = stop_test
        self._stop_ids = np.asarray(stop_ids, dtype=np.int64)
        self._samples = [_NO_SAMPLE] * capacity
        self._key = np.zeros(capacity, dtype=np.uint64)
        self._temperature = np.ones(capacity, dtype=np.float32)
        self._top_p = np.ones(capacity, dtype=np.float32)
        self._has_stop_text = np.zeros(capacity, dtype=np.bool_)
        self._limit = np.zeros(capacity, dtype=np.int64)
        self._tokens = np.zeros((capacity, longest), dtype=np.int64)
        self._logprobs = np.zeros((capacity, longest), dtype=np.float32)
        self._entropies = np.zeros((capacity, longest), dtype=np.float32)
        self._wants_entropies = np.zeros(capacity, dtype=np.bool_)
        self.drawn = np.zeros(capacity, dtype=np.int64)
        """Tokens drawn so far."""
        self.group = np.zeros(capacity, dtype=np.int64)
        """Slot of the row's prompt."""
        self.prompt_length = np.zeros(capacity, dtype=np.int64)

    @property
    def free(self) -> int:
        """Rows that can still be added."""
        return len(self._samples) - self.count

    @property
    def last_token(self) -> NDArray[np.int64]:
        """The newest token of every live row."""
        return self._tokens[np.arange(self.count), self.drawn[: self.count] - 1]

    def add(self, group: int, prompt_ids: tuple[int, ...], samples: Sequence[Sample]) -> NDArray[np.int64]:
        """Append rows for `samples` of the prompt in slot `group`; their row numbers."""
        rows = np.arange(self.count, self.count + len(samples))
        self.count += len(samples)
        for row, sample in zip(rows.tolist(), samples, strict=True):
            self._samples[row] = sample
            self._key[row] = stream_key(sample.seed, prompt_ids)
        self._temperature[rows] = [sample.temperature for sample in samples]
        self._top_p[rows] = [sample.top_p for sample in samples]
        self._has_stop_text[rows] = [bool(sample.stop_text) for sample in samples]
        self._limit[rows] = [sample.max_tokens for sample in samples]
        self._wants_entropies[rows] = [sample.entropies for sample in samples]
        self.drawn[rows] = 0
        self.group[rows] = group
        self.prompt_length[rows] = len(prompt_ids)
        return rows

    def draw(self, rows: NDArray[np.int64], logits_BV: Tensor) -> None:
        """Append one token to each of `rows`, sampled from their logits.

        Raises EngineError where logits are NaN or infinite: no token could be drawn from them.
        """
        uniform = uniforms(self._key[rows], self.drawn[rows])
        device = logits_BV.device
        tokens, logprobs = choose(
            logits_BV,
            torch.from_numpy(self._temperature[rows]).to(device),
            torch.from_numpy(self._top_p[rows]).to(device),
            torch.from_numpy(uniform.astype(np.float32)).to(device),
        )
        self._tokens[rows, self.drawn[rows]] = tokens.cpu().numpy()
        self._logprobs[rows, self.drawn[rows]] = found = logprobs.cpu().numpy()
        if broken := int((~np.isfinite(found)).sum()):
            raise not_finite(broken, len(found))
        if self._wants_entropies[rows].any():
            self._entropies[rows, self.drawn[rows]] = entropies_of(logits_BV).cpu().numpy()
        self.drawn[rows] += 1

    def finished(self) -> NDArray[np.int64]:
        """Live rows whose newest token ends them."""
        live = slice(0, self.count)
        ended = np.isin(self.last_token, self._stop_ids) | (self.drawn[live] >= self._limit[live])
        for row in np.flatnonzero(self._has_stop_text[live] & ~ended).tolist():
            ended[row] = self._text_ended(row)
        return np.flatnonzero(ended)

    def completions(self, rows: NDArray[np.int64]) -> Iterator[Completion]:
        """What `rows` have drawn."""
        for row in rows.tolist():
            sample, length = self._samples[row], self.drawn[row]
            tokens = tuple(self._tokens[row, :length].tolist())
            logprobs = tuple(self._logprobs[row, :length].tolist())
            reason = "stop" if tokens[-1] in self._stop_ids or self._text_ended(row) else "length"
            entropies = tuple(self._entropies[row, :length].tolist()) if sample.entropies else None
            yield Completion(sample.request, sample.index, tokens, logprobs, reason, sample.seed, entropies)

    def _text_ended(self, row: int) -> bool:
        sample = self._samples[row]
        if not sample.stop_text:
            return False
        return self._stop_test(sample.stop_text, self._tokens[row, : self.drawn[row]].tolist())

    def remove(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Drop `rows`; returns which rows moved and where to, for whoever keeps arrays of their own."""
        remaining = self.count - len(rows)
        holes = rows[rows < remaining]
        movers = np.setdiff1d(np.arange(remaining, self.count), rows, assume_unique=True)
        for array in (
            *(self._key, self._temperature, self._top_p, self._limit, self._tokens, self._logprobs, self._entropies),
            *(self._wants_entropies, self.drawn, self.group, self.prompt_length, self._has_stop_text),
        ):
            array[holes] = array[movers]
        for source, target in zip(movers.tolist(), holes.tolist(), strict=True):
            self._samples[target] = self._samples[source]
        self.count = remaining
        return movers, holes
