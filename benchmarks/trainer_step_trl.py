"""One row of `benchmarks/trainer_step.py`: a step of TRL's A2PO trainer, which regresses the log-ratio (squared loss).

Runs in an environment of its own and imports nothing of this project: `ENV/bin/python trainer_step_trl.py TASK.json`.
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
from collections.abc import Iterator
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
    prompts = [row[0] for row in rows]
    responses = [row[1] for row in rows]
    before, after = max(map(len, prompts)), max(map(len, responses))
    ids = [[0] * (before - len(p)) + p + r + [0] * (after - len(r)) for p, r in zip(prompts, responses, strict=True)]
    mask = [
        [0] * (before - len(p)) + [1] * (len(p) + len(r)) + [0] * (after - len(r))
        for p, r in zip(prompts, responses, strict=True)
    ]
    return {
        "input_ids": torch.tensor(ids),
        "attention_mask": torch.tensor(mask),
        "logits_to_keep": after,
        "rewards": torch.tensor([1.0 if row[3] == 0 else 0.0 for row in rows]),
        "v_star": torch.zeros(len(prompts)),
    }


class GivenSequences(A2POTrainer):
    """The trainer with the task's sequences in place of what it would sample."""

    given: Iterator[dict[str, Any]]

    def _prepare_inputs(self, inputs: Any) -> dict[str, Any]:  # noqa: ARG002
        batch = next(self.given)
        with torch.no_grad():
            ref_logps = self._get_sequence_logps(
                self.ref_model, batch["input_ids"], batch["attention_mask"], batch["logits_to_keep"]
            )
        return batch | {"ref_logps": ref_logps}


class Clock(TrainerCallback):
    """CPU seconds of every step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.process_time() - self._began)


def model(task: dict[str, Any]) -> Any:
    """The checkpoint that the task names, or the benchmark's random Llama."""
    if "folder" in task:
        return LlamaForCausalLM.from_pretrained(task["folder"], dtype=torch.float32)
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=task["vocabulary"],
            hidden_size=task["hidden"],
            intermediate_size=4 * task["hidden"],
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
    )


def main() -> None:
    """Print seconds, memory and the first loss as JSON."""
    torch.set_num_threads(1)
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    count = len(task["sequences"])
    size = task.get("micro_batch", count)
    parts = [padded(task["sequences"][start : start + size]) for start in range(0, count, size)]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        settings = A2POConfig(
            folder,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=len(parts),
            max_steps=task["steps"] + 1,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to=[],
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            learning_rate=1e-4,
            remove_unused_columns=False,
        )
        trainer = GivenSequences(
            model(task),
            lambda **_: [],
            settings,
            Dataset.from_dict({"prompt": ["x"] * count}),
            processing_class=tokenizer(),
            callbacks=[clock],
        )
        few = padded(task["sequences"][: max(1, task.get("warm_up", count) // len(parts))])
        trainer.given = itertools.chain([few] * len(parts), itertools.cycle(parts))
        trainer._optimal_values = {}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        trainer.train()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    found = {
        "seconds": statistics.median(clock.seconds[1:]),
        "memory_mib": (peak - before) / 1024,
        "first_loss": losses[0],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
