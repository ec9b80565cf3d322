"""One row of `benchmarks/training_step.py`: a step of TRL's A2PO trainer, which regresses the log-ratio (squared loss).

Runs in an environment of its own and imports nothing of this project: `ENV/bin/python training_step_trl.py TASK.json`.
Sampling is replaced by the task's sequences; everything else of the step is TRL's.
"""

from __future__ import annotations

import itertools
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl.experimental.a2po import A2POConfig, A2POTrainer


def tokenizer() -> Any:
    """Any tokenizer: the sequences are token ids already."""
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"<s>": 0, "</s>": 1}, unk_token="<s>")))
    made.pad_token, made.eos_token = "<s>", "</s>"
    return made


def padded(rows: list[Any]) -> dict[str, Any]:
    """Prompts padded at the left, responses at the right, as the trainer makes them."""
    before, after = (max(len(row[part]) for row in rows) for part in (0, 1))
    ids = [[0] * (before - len(p)) + p + r + [0] * (after - len(r)) for p, r, *_ in rows]
    mask = [[0] * (before - len(p)) + [1] * len(p + r) + [0] * (after - len(r)) for p, r, *_ in rows]
    rewards = torch.tensor([1.0 if terminal == 0 else 0.0 for *_, terminal in rows])
    given = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "logits_to_keep": after}
    return given | {"rewards": rewards, "v_star": torch.zeros(len(rows))}


class GivenSequences(A2POTrainer):
    """The trainer with the task's sequences in place of what it would sample."""

    given: Any

    def _prepare_inputs(self, inputs: Any) -> dict[str, Any]:  # noqa: ARG002
        batch = next(self.given)
        given = [batch[name] for name in ("input_ids", "attention_mask", "logits_to_keep")]
        with torch.no_grad():
            return batch | {"ref_logps": self._get_sequence_logps(self.ref_model, *given)}


class Clock(TrainerCallback):
    """CPU seconds of every step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.process_time() - self._began)


def model(task: dict[str, Any]) -> Any:
    """The checkpoint that the task names, or the benchmark's random Llama."""
    if task["folder"]:
        return LlamaForCausalLM.from_pretrained(task["folder"], dtype=torch.float32)
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    sizes = dict(zip((*names, "num_key_value_heads"), task["shape"], strict=True))
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True))


def main() -> None:
    """Prints seconds, memory and the first loss as JSON."""
    torch.set_num_threads(1)
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    count = len(task["sequences"])
    size = task["micro_batch"]
    parts = [padded(task["sequences"][start : start + size]) for start in range(0, count, size)]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        settings = A2POConfig(
            folder, per_device_train_batch_size=size, gradient_accumulation_steps=len(parts),
            max_steps=task["steps"] + 1, gradient_checkpointing=False, bf16=False, use_cpu=True, report_to=[],
            logging_steps=1, save_strategy="no", disable_tqdm=True, learning_rate=1e-4, remove_unused_columns=False,
        )  # fmt: skip
        trainer = GivenSequences(
            model(task), lambda **_: [], settings, Dataset.from_dict({"prompt": ["x"] * count}),
            processing_class=tokenizer(), callbacks=[clock],
        )  # fmt: skip
        few = padded(task["sequences"][: max(1, task["warm_up"] // len(parts))])
        trainer.given = itertools.chain([few] * len(parts), itertools.cycle(parts))
        trainer._optimal_values = {}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        trainer.train()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    found = {"seconds": statistics.median(clock.seconds[1:]), "memory_mib": (peak - before) / 1024}
    print(json.dumps(found | {"first_loss": losses[0]}))


if __name__ == "__main__":
    main()
