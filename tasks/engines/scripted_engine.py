"""A deterministic engine without a model, for tests and dry runs: it draws from written responses.

Its policy is exact: given a prompt, every scripted response (end token included) has the same probability, so that a
token's probability is the share of the responses with the same beginning that go on with it. Temperature and top-p
change nothing.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from tasks.checkpoints import checkpoint as checkpoints
from tasks.checkpoints.errors import EngineError
from tasks.engines.protocol import Completion, Request, RequestReader, ScoredSequence
from tasks.engines.randomness import sample_seed, stream_key, uniforms

Responses = Sequence[tuple[int, ...]]
SCRIPT_FILE = "script.json"
DRY_RUN_PROGRAMS = ("print(input())", "print(1)", "x = int(input())\nprint(x + 1)", "print('", "raise ValueError")
"""What a checkpoint without a script answers: a few short programs, one of which does not compile."""


class ScriptedEngine:
    """Draws uniformly from the responses written for a prompt, or else from the default ones."""

    name = "scripted"
    logprob_kind: Literal["raw", "processed"] = "raw"
    rolling = True

    def __init__(
        self,
        default: Responses,
        by_prompt: Mapping[tuple[int, ...], Responses] | None = None,
        *,
        policy_id: str = "scripted",
        stop_ids: Sequence[int] = (),
    ) -> None:
        self.policy_id = policy_id
        self._default = tuple(default)
        self._by_prompt = dict(by_prompt or {})
        self._stop_ids = frozenset(stop_ids)
        if not self._default:
            raise EngineError("a script needs at least one default response")

    @classmethod
    def open(cls, checkpoint: Path) -> ScriptedEngine:
        """The script `script.json` of the folder, else `DRY_RUN_PROGRAMS` in its tokenizer.

        The file holds {"stop_ids": [...], "default": [[...], ...], "by_prompt": [[prompt ids, [[...], ...]], ...]}.
        """
        stop_ids = checkpoints.stop_ids(checkpoint)
        policy = checkpoints.policy_id(checkpoint)
        path = checkpoint / SCRIPT_FILE
        if path.is_file():
            script = json.loads(path.read_text(encoding="utf-8"))
            by_prompt = {tuple(prompt): _tuples(responses) for prompt, responses in script.get("by_prompt", [])}
            return cls(_tuples(script["default"]), by_prompt, policy_id=policy, stop_ids=script["stop_ids"])
        tokenizer = checkpoints.load_tokenizer(checkpoint)
        programs = [tokenizer.encode(text, add_special_tokens=False) for text in DRY_RUN_PROGRAMS]
        return cls([(*ids, stop_ids[0]) for ids in programs], policy_id=policy, stop_ids=stop_ids)

    def sample(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        """The requests' responses in order."""
        reader = RequestReader(requests)
        while taken := reader.take(1):
            number, request = reader.read - 1, taken[0]
            responses = self._responses(request.prompt_ids)
            for index in range(request.n):
                seed = sample_seed(request.seed, index)
                key = np.array([stream_key(seed, request.prompt_ids)], dtype=np.uint64)
                chosen = int(uniforms(key, np.zeros(1))[0] * len(responses))
                ids = responses[chosen][: request.max_tokens]
                reason = "stop" if ids[-1] in self._stop_ids else "length"
                entropies = _entropies(responses, ids) if request.entropies else None
                yield Completion(number, index, ids, tuple(_logprobs(responses, ids)), reason, seed, entropies)

    def score(self, sequences: Sequence[ScoredSequence]) -> list[list[float]]:
        """Exact log-probabilities; minus infinity from the first token that no response has there."""
        return [_logprobs(self._responses(tuple(prompt)), tuple(response)) for prompt, response in sequences]

    def refresh(self, checkpoint: Path) -> None:
        """Take the policy id of `checkpoint`, and its script where it has one."""
        other = ScriptedEngine.open(checkpoint)
        self.policy_id = other.policy_id
        if (checkpoint / SCRIPT_FILE).is_file():
            self._default, self._by_prompt, self._stop_ids = other._default, other._by_prompt, other._stop_ids

    def close(self) -> None:
        """Nothing to release."""

    def _responses(self, prompt_ids: tuple[int, ...]) -> Responses:
        return self._by_prompt.get(prompt_ids, self._default)


def _logprobs(responses: Responses, ids: tuple[int, ...]) -> list[float]:
    logprobs: list[float] = []
    for position, matching in enumerate(_matching(responses, ids)):
        chances = _next_tokens(matching, position)
        logprobs.append(math.log(chances[ids[position]]) if ids[position] in chances else -math.inf)
    return logprobs


def _entropies(responses: Responses, ids: tuple[int, ...]) -> tuple[float, ...]:
    chances = [_next_tokens(matching, position) for position, matching in enumerate(_matching(responses, ids))]
    return tuple(sum(-p * math.log(p) for p in each.values()) for each in chances)


def _matching(responses: Responses, ids: tuple[int, ...]) -> list[Responses]:
    """The responses that begin as `ids` does, before each of its tokens."""
    return [[r for r in responses if r[:position] == ids[:position]] for position in range(len(ids))]


def _next_tokens(matching: Responses, position: int) -> dict[int | None, float]:
    """Probability of each next token; None stands for a response that has ended."""
    counts = Counter(r[position] if position < len(r) else None for r in matching)
    return {token: count / len(matching) for token, count in counts.items()}


def _tuples(responses: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    return [tuple(response) for response in responses]
