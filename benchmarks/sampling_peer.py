"""Tokens that llama.cpp or vLLM draws, run by `benchmarks.sampling` in that peer's own environment.

    python benchmarks/sampling_peer.py TASK.json

The task names the peer, its model, the prompts, `samples` of each and `tokens` a response. Prints "ready" when loaded
and warm, waits for a line, and prints tokens and seconds as JSON (CPU seconds with one thread, else wall seconds).
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Task = dict[str, Any]


class LlamaCpp:
    """llama.cpp's batched decoding. A prompt is computed once and its cache copied to each of its samples.

    Every sample has its own cache stream: with one for all, every token reads the whole of it, which is twice as slow.
    """

    def __init__(self, task: Task) -> None:
        self._lib: Any = importlib.import_module("llama_cpp")
        self._task = task
        self._quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self._lib.llama_log_set(self._quiet, None)
        self._lib.llama_backend_init()
        source, weights = Path(task["model"]), Path(task["converted"])
        if not weights.exists():
            given = self._lib.llama_model_quantize_default_params()
            given.ftype, given.allow_requantize = 0, True  # float32
            self._lib.llama_model_quantize(bytes(source), bytes(weights), ctypes.byref(given))
        self._model = self._lib.llama_model_load_from_file(bytes(weights), self._lib.llama_model_default_params())
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self._samplers: list[Any] = []
        lib = self._lib
        rows, longest = task["batch"], len(task["prompts"][0]) + task["tokens"]
        given = lib.llama_context_default_params()
        given.n_seq_max, given.kv_unified = rows, False
        given.n_ctx = rows * (-(-longest // 32) * 32)
        given.n_batch = given.n_ubatch = 512
        given.n_threads = given.n_threads_batch = task["threads"]
        self._context = lib.llama_init_from_model(self._model, given)
        assert self._context, "llama.cpp opened no context"
        self._memory = lib.llama_get_memory(self._context)
        self._batch = lib.llama_batch_init(512, 0, 1)
        for row in range(rows):
            chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
            if task["top_p"] < 1:
                lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_p(task["top_p"], 1))
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dist(row))
            self._samplers.append(chain)

    def draw(self) -> int:
        """Tokens drawn, as many prompts at once as fill a batch."""
        task = self._task
        per_prompt = min(task["samples"], task["batch"])
        at_once, drawn = max(1, task["batch"] // per_prompt), 0
        for _ in range(-(-task["samples"] // per_prompt)):
            for first in range(0, len(task["prompts"]), at_once):
                drawn += self._wave(task["prompts"][first : first + at_once], per_prompt)
        return drawn

    def _wave(self, prompts: Sequence[Sequence[int]], samples: int) -> int:
        """`samples` responses of each prompt; the beginning that all prompts share is computed once."""
        lib = self._lib
        lib.llama_memory_clear(self._memory, True)
        alike = itertools.takewhile(lambda tokens: len(set(tokens)) == 1, zip(*prompts, strict=True))
        common = [tokens[0] for tokens in alike] if len(prompts) > 1 else []
        self._compute(0, common, 0)
        for number in range(1, len(prompts)):
            lib.llama_memory_seq_cp(self._memory, 0, number * samples, -1, -1)
        current: list[int] = []
        for number, prompt in enumerate(prompts):
            first = number * samples
            self._compute(first, prompt[len(common) :], len(common))
            last = lib.llama_get_logits_ith(self._context, -1)
            assert last, "llama.cpp returned no logits"
            current += [self._drawn(first + index, -1) for index in range(samples)]
            for index in range(1, samples):
                lib.llama_memory_seq_cp(self._memory, first, first + index, -1, -1)
        for step in range(1, self._task["tokens"]):
            at = len(prompts[0]) + step - 1
            self._decode([(token, at, row, True) for row, token in enumerate(current)])
            current = [self._drawn(row, row) for row in range(len(current))]
        return len(current) * self._task["tokens"]

    def _drawn(self, row: int, index: int) -> int:
        return int(self._lib.llama_sampler_sample(self._samplers[row], self._context, index))

    def _compute(self, row: int, tokens: Sequence[int], start: int) -> None:
        for first in range(0, len(tokens), 512):
            part = tokens[first : first + 512]
            last = first + len(part) == len(tokens)
            end = len(part) - 1
            self._decode([(token, start + first + i, row, last and i == end) for i, token in enumerate(part)])

    def _decode(self, rows: Sequence[tuple[int, int, int, bool]]) -> None:
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, at, row, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, at, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, row
        failed = self._lib.llama_decode(self._context, batch)
        assert not failed, f"llama_decode returned {failed}"


class Vllm:
    """vLLM with prefix caching, all prompts in one call."""

    def __init__(self, task: Task) -> None:
        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "VLLM_CONFIGURE_LOGGING": "0"}
        os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "4", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        os.environ["OMP_NUM_THREADS"] = str(task["threads"])
        vllm: Any = importlib.import_module("vllm")
        self._task = task
        longest = len(task["prompts"][0]) + task["tokens"] + 1
        sizes = {"max_num_seqs": task["batch"], "max_model_len": longest, "enable_prefix_caching": True}
        self._engine = vllm.LLM(model=task["model"], dtype=task["dtype"], skip_tokenizer_init=True, **sizes)
        importlib.import_module("torch").set_num_threads(task["threads"])
        self._settings = vllm.SamplingParams(
            n=task["samples"], top_p=task["top_p"], max_tokens=task["tokens"], ignore_eos=True, detokenize=False
        )

    def draw(self, prompts: Sequence[Sequence[int]] = ()) -> int:
        """Tokens drawn, for the task's prompts if no others are given."""
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts or self._task["prompts"]]
        found = self._engine.generate(inputs, self._settings, use_tqdm=False)
        return sum(len(drawn.token_ids) for output in found for drawn in output.outputs)


def main() -> None:
    """Draw once for few tokens, then for the task; print what the second took."""
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    clock: Callable[[], float] = time.process_time if task["threads"] == 1 else time.perf_counter
    peer: LlamaCpp | Vllm = {"llama.cpp": LlamaCpp, "vllm": Vllm}[task["peer"]](task)
    if isinstance(peer, Vllm):
        peer.draw([[1, 2, 3] * 10])
    print("ready", flush=True)
    sys.stdin.readline()
    began = clock()
    tokens = peer.draw()
    print(json.dumps({"tokens": tokens, "seconds": clock() - began}))


if __name__ == "__main__":
    main()
