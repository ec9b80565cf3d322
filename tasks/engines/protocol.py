"""What every sampling engine does: token ids in, token ids and their log-probabilities out.

Errors
------
EngineError
    MissingModel            no such checkpoint, or a part of it is missing
    UnsupportedArchitecture this engine cannot run this model correctly
    InvalidRequest          a request that no engine can serve
    EngineDrift             the engine's weights do not compute what they should
    EngineDied              the process of the engine has ended; another one may work
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tasks.checkpoints.errors import EngineError

FinishReason = Literal["stop", "length"]
ScoredSequence = tuple[Sequence[int], Sequence[int]]
"""Prompt ids and response ids."""


def not_finite(broken: int, responses: int) -> EngineError:
    """The error where weights give no probabilities, to be raised."""
    return EngineError(
        f"the policy's logits of {broken} of {responses} responses are no finite numbers: its weights are "
        "broken or too large for its dtype; look at grad_norm in `train_steps`, or take an earlier checkpoint",
        code="NotFinite",
    )


class InvalidRequest(EngineError, ValueError):
    """A request that no engine can serve."""


class EngineDrift(EngineError):
    """The engine's log-probabilities differ from the expected ones by more than float noise."""


class EngineDied(EngineError):
    """The process of the engine has ended; another one may work."""


@dataclass(frozen=True, slots=True)
class Request:
    """`n` responses to one prompt.

    `prompt_ids` may end in a response prefix. `temperature` 0 is greedy. `top_p` keeps the smallest set of tokens
    whose tempered probability reaches it (tokens tied with the last one are kept). `seed`, the prompt and a sample's
    index alone decide its randomness: neither the other requests nor their order do. Two requests with the same
    prompt and seed therefore draw the same responses. A response also ends with the token that completes `stop_text`.
    With `entropies`, completions say what the policy's entropy was before each token, where the engine can know it.
    """

    prompt_ids: tuple[int, ...]
    n: int
    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 96
    stop_text: str = ""
    entropies: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """One response: with `finish_reason` "stop", the last of `token_ids` is the end token, or completes the stop text.

    `request` and `index` say which request of the call and which of its n samples. `logprobs` are of the sampled
    tokens, in nats, of the kind the engine's `logprob_kind` names. A request of the same prompt with n = 1 and this
    `seed` draws this response again.
    """

    request: int
    index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    seed: int
    entropies: tuple[float, ...] | None = None
    """Of the untempered policy before each of `token_ids`, nats; None where not asked for, or not to be known."""


class SamplingEngine(Protocol):
    """Samples from and scores under one set of weights."""

    name: str
    """Recorded with every trajectory."""
    logprob_kind: Literal["raw", "processed"]
    """`raw`: before temperature and top-p; `processed`: of the distribution that was sampled."""
    rolling: bool
    """Whether it takes further requests while it decodes; otherwise it finishes what it has read first."""
    policy_id: str
    """Fingerprint of the weights loaded now."""

    def sample(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        """The requests' responses, each as soon as it is finished; order is not defined.

        `requests` is read when there is room. None in it says that there is no request for now: it is read again once
        something has finished. The call ends when nothing is under way and `requests` has none, for now or at all.
        `Completion.request` counts the requests as they were read, without the Nones.
        """
        ...

    def score(self, sequences: Sequence[ScoredSequence]) -> list[list[float]]:
        """Raw log-probabilities (nats) of each response's tokens, given its prompt."""
        ...

    def refresh(self, checkpoint: Path) -> None:
        """Load other weights of the same architecture; nothing computed with the old ones is reused."""
        ...

    def close(self) -> None:
        """Release the weights and any process; the engine cannot be used afterwards."""
        ...


VLLM_ROOM = (
    "of the engine, so responses would end early and count as failures: raise engine.vllm.max_model_len, as far as the "
    "model goes, or ask for less (engine.max_response_tokens, problems.max_prompt_tokens)"
)
"""What to say of requests that are longer than vLLM was told to hold."""


class RequestReader:
    """Reads the requests of a call of `sample` and checks them, all at once where they are a sequence."""

    def __init__(
        self, requests: Iterable[Request | None], *, longest: int | None = None, remedy: str = VLLM_ROOM
    ) -> None:
        """`longest`: most tokens of a prompt and its response together; `remedy`: whose they are, and what to do.

        Raises InvalidRequest.
        """
        if isinstance(requests, Sequence):
            check_requests(requests, longest=longest, remedy=remedy)
        self._source = iter(requests)
        self._longest, self._remedy = longest, remedy
        self.read = 0
        """Requests read so far: the number of the next one."""

    def take(self, most: int | None = None) -> list[Request]:
        """The next requests up to a None, of at most `most` samples where they have one each; empty: none for now.

        Raises InvalidRequest.
        """
        taken: list[Request] = []
        samples = 0
        while most is None or samples < most:
            request = next(self._source, None)
            if request is None:
                break
            problem = _problem(request, self._longest, self._remedy)
            if problem:
                raise InvalidRequest(f"request {self.read}: {problem}")
            taken.append(request)
            self.read += 1
            samples += request.n
        return taken


def check_requests(requests: Iterable[Request | None], *, longest: int | None = None, remedy: str = VLLM_ROOM) -> None:
    """Raise InvalidRequest naming the first request that cannot be served."""
    whole = [request for request in requests if request is not None]
    for number, request in enumerate(whole):
        problem = _problem(request, longest, remedy)
        if problem:
            raise InvalidRequest(f"request {number} of {len(whole)}: {problem}")


def _problem(request: Request, longest: int | None, remedy: str) -> str | None:
    if not request.prompt_ids:
        return "its prompt is empty; every prompt needs at least one token"
    if request.n < 1 or request.max_tokens < 1:
        return f"n and max_tokens must be at least 1, got {request.n} and {request.max_tokens}"
    if not request.temperature >= 0 or not 0 < request.top_p <= 1:
        return f"needs temperature >= 0 and 0 < top_p <= 1, got {request.temperature} and {request.top_p}"
    if longest is not None and len(request.prompt_ids) + request.max_tokens > longest:
        return (
            f"its prompt of {len(request.prompt_ids)} tokens and a response of {request.max_tokens} do not fit the "
            f"{longest} {remedy}"
        )
    return None
