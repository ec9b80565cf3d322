"""Sampling with transformers in this process: each distinct prompt is computed and stored once.

The model's own code runs unchanged; only its attention function is replaced (`shared_prefix`). The batch stays full:
finished rows leave at once and waiting ones take their places. Memory is bounded by `max_batch` rows.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tasks.checkpoints import adapter as adapters
from tasks.checkpoints import checkpoint as checkpoints
from tasks.checkpoints.adapted_weights import AdaptedWeights, Adapter, read
from tasks.checkpoints.errors import EngineError, UnsupportedArchitecture
from tasks.engines import packed_linear, shared_prefix
from tasks.engines.canary import MEAN_DRIFT, Drift
from tasks.engines.decoding_batch import DecodingRows, Prompt, Sample, StopTest, distinct_prompts
from tasks.engines.positions import does_not_fit, most_positions, too_few
from tasks.engines.prefill import WORTH_SHARING, prefill
from tasks.engines.prefix_store import PrefixStore, Tokens, common_length
from tasks.engines.protocol import Completion, InvalidRequest, Request, RequestReader, ScoredSequence
from tasks.engines.shared_prefix import SharedPrefixCache
from tasks.engines.stop_text import StopText

_SCORED_TOKENS = 8192
PARITY = 2.0
"""A few tokens after a meaningless prompt may be apart by this many times what a response may: in bfloat16 those of
SmolLM2 are by 0.04 to 0.1 nats, where responses to real prompts are by 0.01 to 0.025."""
_AT_ONCE = 256
"""Tokens of prompts computed at once when rows are free: thin matrix products are slow ones."""


class TransformersEngine:
    """The embedded engine, for every causal model whose attention transformers lets one replace."""

    name = "transformers"
    logprob_kind: Literal["raw", "processed"] = "raw"
    rolling = False

    def __init__(
        self,
        checkpoint: Path,
        *,
        dtype: str,
        max_batch: int = 256,
        prefix_store_bytes: int = 256 << 20,
        device: str | None = None,
    ) -> None:
        """Load `checkpoint` (an ordinary folder). Raises MissingModel or UnsupportedArchitecture.

        `prefix_store_bytes` bounds what is kept of prompts from call to call.
        """
        shared_prefix.register()
        self._dtype = dtype
        self._max_batch = max_batch
        self._store = PrefixStore(prefix_store_bytes)
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._model: Any = None
        self._weights: AdaptedWeights | None = None
        self._base_id = ""
        self._stop_text: StopText | None = None
        self.policy_id = ""
        self.refresh(checkpoint)

    @property
    def kept_bytes(self) -> int:
        """Memory that what is kept of prompts takes."""
        return self._store.nbytes

    def refresh(self, checkpoint: Path) -> None:
        """Load the weights of `checkpoint`; a failure leaves the old ones in place.

        Of an adapter whose base is loaded, only the adapter is read.
        """
        policy, base = checkpoints.policy_id(checkpoint), checkpoints.base_id(checkpoint)
        adapter = read(checkpoint) if adapters.is_adapter(checkpoint) else Adapter()
        stop_ids = checkpoints.stop_ids(checkpoint)
        model, weights = self._model, self._weights
        if model is None or weights is None or base != self._base_id:
            model = self._opened(adapters.base_of(checkpoint), base)
            weights = AdaptedWeights(model)
        self._exchange(model, weights, adapter)
        self._model, self._weights, self._base_id = model, weights, base
        self._stop_ids, self.policy_id = stop_ids, policy
        self._folder, self._stop_text = checkpoint, None
        self._store.clear()

    def _opened(self, folder: Path, expected: str) -> Any:
        """The model of an ordinary folder, of which `expected` is the policy id."""
        checkpoints.require_policy(folder, expected)
        model: Any = checkpoints.load_weights(folder, self._dtype).to(self._device)
        _require_plain_attention(model)
        model.set_attn_implementation(shared_prefix.IMPLEMENTATION)
        return model

    def _exchange(self, model: Any, weights: AdaptedWeights, adapter: Adapter) -> None:
        """Put `adapter` into the weights; they stay as they were when the model does not compute right with it."""
        before = weights.put(adapter)
        try:
            packed_linear.pack(model)
            _require_parity(model, PARITY * MEAN_DRIFT[self._dtype])
        except BaseException:
            weights.put(before)
            packed_linear.pack(model)
            raise

    def close(self) -> None:
        """Release the weights, on a GPU to other processes, too."""
        self._model = self._weights = None
        self._store.clear()
        if torch.cuda.is_initialized():
            gc.collect()
            torch.cuda.empty_cache()

    def sample(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        """The requests' responses, each as soon as it is finished; those up to a None are decoded together."""
        longest, remedy = most_positions(self._loaded().config), too_few(self._loaded())
        reader = RequestReader(requests, longest=longest, remedy=remedy)
        while taken := reader.take():
            prompts = distinct_prompts(taken, first=reader.read - len(taken))
            stop_test = self._stop_test(taken)
            model = self._loaded()
            yield from _Decoding(model, self._store, prompts, self._max_batch, self._stop_ids, stop_test).run()

    def score(self, sequences: Sequence[ScoredSequence]) -> list[list[float]]:
        """Raw log-probabilities of each response's tokens, by full forward passes over right-padded batches."""
        return [logprobs for logprobs, _ in self.evaluated(sequences)]

    def evaluated(self, sequences: Sequence[ScoredSequence]) -> list[tuple[list[float], list[float]]]:
        """Log-probabilities and entropies per response token, longest sequences first, so that little is padding."""
        model = self._loaded()
        _require_positions(model, sequences)
        order = sorted(range(len(sequences)), key=lambda number: -sum(map(len, sequences[number])))
        found: list[tuple[list[float], list[float]]] = [([], []) for _ in sequences]
        while order:
            longest = max(1, sum(map(len, sequences[order[0]])))
            count = max(1, _SCORED_TOKENS // longest)
            now, order = order[:count], order[count:]
            for number, values in zip(now, _evaluate(model, [sequences[i] for i in now]), strict=True):
                found[number] = values
        return found

    def _stop_test(self, requests: Sequence[Request]) -> StopTest:
        if self._stop_text is None and any(request.stop_text for request in requests):
            self._stop_text = StopText(checkpoints.load_tokenizer(self._folder))
        return self._stop_text or _never

    def _loaded(self) -> Any:
        if self._model is None:
            raise EngineError("the engine is closed; open another one", code="EngineClosed")
        return self._model


class _Decoding:
    """One call of `sample`: the queue of prompts, the live rows and their cache.

    Twice as many prompts are held as a full batch has on average, so that a few slow rows of many prompts neither fill
    the memory nor often keep the batch from being full. Prompts are taken in the order of their tokens, so that those
    that begin alike follow each other.
    """

    def __init__(
        self,
        model: Any,
        store: PrefixStore,
        prompts: Sequence[Prompt],
        max_batch: int,
        stop_ids: Sequence[int],
        stop_test: StopTest,
    ) -> None:
        ordered = sorted(prompts, key=lambda prompt: prompt.token_ids)
        wanted = sum(len(prompt.samples) for prompt in prompts)
        capacity = min(max_batch, wanted)
        longest = max(sample.max_tokens for prompt in prompts for sample in prompt.samples)
        self._model, self._store = model, store
        self._device = model.device
        self._most_groups = min(capacity, len(prompts), 2 * -(-capacity * len(prompts) // wanted) + 2)
        self._rows = DecodingRows(capacity, longest, stop_ids, stop_test)
        self._trunk = _trunk([prompt.token_ids for prompt in ordered])
        self._has_trunk = False
        self._cache = SharedPrefixCache(
            groups=self._most_groups,
            longest=max(len(prompt.token_ids) for prompt in prompts) - len(self._trunk),
            rows=capacity,
            suffix=longest,
            device=self._device,
        )
        self._queue = deque(ordered)
        self._groups = 0
        self._ready: deque[_Ready] = deque()

    @torch.inference_mode()
    def run(self) -> Iterator[Completion]:
        rows = self._rows
        while True:
            yield from self._admit()
            if not rows.count:
                return
            rows.draw(np.arange(rows.count), self._forward())
            yield from self._retire()

    def _admit(self) -> Iterator[Completion]:
        """Fill the free rows; each new row draws its first token from its prompt's logits."""
        while self._rows.free:
            if not self._ready and not self._prefill():
                return
            ready = self._ready[0]
            samples = list(islice(ready.waiting, self._rows.free))
            if not samples:
                self._ready.popleft()
                self._drop_empty_groups()
                continue
            rows = self._rows.add(ready.group, ready.prompt.token_ids, samples)
            self._rows.draw(rows, ready.logits_V.expand(len(rows), -1))
            yield from self._retire()

    def _prefill(self) -> bool:
        """Compute the next prompts, several at once; False when there are none, or no room for one."""
        prompts: list[Prompt] = []
        tokens = 0
        while self._queue and self._groups + len(prompts) < self._most_groups and tokens < _AT_ONCE:
            prompts.append(self._queue.popleft())
            ids = prompts[-1].token_ids
            tokens += len(ids) - self._store.length(ids)
        if not prompts:
            return False
        logits = prefill(self._model, self._store, [prompt.token_ids for prompt in prompts])
        if self._trunk and not self._has_trunk:
            self._cache.set_trunk(*self._store.read(self._trunk))
            self._has_trunk = True
        for prompt, logits_V in zip(prompts, logits, strict=True):
            self._cache.set_group(self._groups, *self._store.read(prompt.token_ids, len(self._trunk)))
            self._ready.append(_Ready(prompt, iter(prompt.samples), self._groups, logits_V))
            self._groups += 1
        self._store.trim()
        return True

    def _forward(self) -> Tensor:
        """Next-token logits (B, V) of the live rows, after storing their newest tokens."""
        rows = self._rows
        live = slice(0, rows.count)
        drawn = torch.from_numpy(rows.drawn[live] - 1).to(self._device)
        position = torch.from_numpy(rows.prompt_length[live]).to(self._device) + drawn
        self._cache.start_step(torch.from_numpy(rows.group[live]).to(self._device), drawn, self._groups)
        ids = torch.from_numpy(rows.last_token).to(self._device)[:, None]
        return self._model(ids, position_ids=position[:, None], use_cache=False, decoding=self._cache).logits[:, -1]

    def _retire(self) -> Iterator[Completion]:
        finished = self._rows.finished()
        if not len(finished):
            return
        done = list(self._rows.completions(finished))
        movers, holes = self._rows.remove(finished)
        self._cache.move_rows(torch.from_numpy(movers), torch.from_numpy(holes))
        self._drop_empty_groups()
        yield from done

    def _drop_empty_groups(self) -> None:
        """Give the slots of prompts without live or waiting rows to the last ones."""
        rows = self._rows
        in_use = set(rows.group[: rows.count].tolist()) | {ready.group for ready in self._ready}
        for empty in sorted(set(range(self._groups)) - in_use, reverse=True):
            last = self._groups - 1
            if empty != last:
                self._cache.move_group(last, empty)
                live = rows.group[: rows.count]
                live[live == last] = empty
                for ready in self._ready:
                    ready.group = empty if ready.group == last else ready.group
            self._groups = last


@dataclass(slots=True)
class _Ready:
    """A computed prompt with samples that wait for a row; `logits_V` are those after its last token."""

    prompt: Prompt
    waiting: Iterator[Sample]
    group: int
    logits_V: Tensor


def _trunk(ordered: Sequence[Tokens]) -> Tokens:
    """What all prompts begin with, at most all but the last token of each; empty where that is not worth a pass."""
    if len(ordered) == 1:
        return ()
    most = min(map(len, ordered)) - 1
    shared = min(most, common_length(ordered[0], ordered[-1]))
    return ordered[0][:shared] if shared >= WORTH_SHARING else ()


@torch.inference_mode()
def _evaluate(model: Any, sequences: Sequence[ScoredSequence]) -> list[tuple[list[float], list[float]]]:
    """Log-probability of, and entropy before, every response token; the head is applied to responses only."""
    longest = max(len(prompt) + len(response) for prompt, response in sequences)
    ids = torch.zeros(len(sequences), longest, dtype=torch.long)
    for row, (prompt, response) in enumerate(sequences):
        ids[row, : len(prompt) + len(response)] = torch.tensor([*prompt, *response])
    most = max(len(response) for _, response in sequences)
    positions = torch.zeros(len(sequences), max(1, most), dtype=torch.long)
    for row, (prompt, response) in enumerate(sequences):
        positions[row, : len(response)] = torch.arange(len(prompt) - 1, len(prompt) + len(response) - 1)
    ids, positions = ids.to(model.device), positions.to(model.device)
    hidden = model.base_model(ids, use_cache=False).last_hidden_state
    chosen = hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))
    targets = ids.gather(1, (positions + 1).clamp(max=longest - 1))
    found: list[tuple[list[float], list[float]]] = []
    for row, (_, response) in enumerate(sequences):
        logp_TV = model.get_output_embeddings()(chosen[row, : len(response)]).float().log_softmax(dim=-1)
        sampled_T = logp_TV.gather(1, targets[row, : len(response), None])[:, 0]
        found.append((sampled_T.tolist(), torch.special.entr(logp_TV.exp()).sum(dim=-1).tolist()))
    return found


def _require_positions(model: Any, sequences: Sequence[ScoredSequence]) -> None:
    if reason := does_not_fit(max((sum(map(len, one)) for one in sequences), default=0), model):
        raise InvalidRequest(reason)


def _never(_text: str, _token_ids: Sequence[int]) -> bool:
    return False


def _require_plain_attention(model: Any) -> None:
    """Raise UnsupportedArchitecture where the shared-prefix attention would compute something else."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    reasons = {
        "its attention cannot be replaced": not model._can_set_attn_implementation(),
        f"it has layers of kind {', '.join(sorted(kinds))}": bool(kinds),
        "its attention is soft-capped": bool(getattr(config, "attn_logit_softcapping", None)),
        "its logits are scaled or soft-capped after the head": bool(
            getattr(config, "final_logit_softcapping", None)
            or getattr(config, "logits_scaling", None)
            or getattr(config, "logit_scale", None) not in (None, 1)
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise _unsupported(model, reason)


def _require_parity(model: Any, most: float) -> None:
    """Decode a short sequence both ways; raise UnsupportedArchitecture when they differ by more than noise."""
    vocabulary = int(model.config.vocab_size)
    prompt = tuple(number * 7 % vocabulary for number in range(1, 6))
    try:
        wanted = distinct_prompts([Request(prompt, 2, seed=0, max_tokens=8)])
        drawn = list(_Decoding(model, PrefixStore(0), wanted, 2, (), _never).run())
    except (NotImplementedError, TypeError, LookupError, AttributeError) as error:
        raise _unsupported(model, f"{type(error).__name__}: {error}", "CannotDecode") from error
    expected = _reference_scores(model, [(prompt, completion.token_ids) for completion in drawn])
    while_sampling = [value for completion in drawn for value in completion.logprobs]
    found = Drift.between(while_sampling, [value for score in expected for value in score])
    if not found.within(most):
        raise _unsupported(model, f"log-probabilities while sampling are off by {found}", "Inexact")


def _reference_scores(model: Any, sequences: Sequence[ScoredSequence]) -> list[list[float]]:
    """Scores by the model with transformers' own attention and nothing of this module."""
    model.set_attn_implementation("sdpa")
    try:
        scores: list[list[float]] = []
        with torch.inference_mode(), packed_linear.unpacked(model):
            for prompt, response in sequences:
                ids = torch.tensor([[*prompt, *response]], device=model.device)
                logp = model(ids, use_cache=False).logits[0].float().log_softmax(dim=-1)
                first = len(prompt) - 1
                scores.append([float(logp[first + step, token]) for step, token in enumerate(response)])
        return scores
    finally:
        model.set_attn_implementation(shared_prefix.IMPLEMENTATION)


def _unsupported(model: Any, reason: str, code: str = "") -> UnsupportedArchitecture:
    return UnsupportedArchitecture(
        f"the transformers engine cannot run {type(model).__name__}: {reason}; set engine.kind to 'vllm', "
        f"or use a model of the Llama family",
        code=code,
    )
