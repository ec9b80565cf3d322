"""Seconds until a run that cannot work is refused, and the first lines of its message.

    python -m benchmarks.bad_inputs [--only WORD ...]

Each bad input goes to `spo run tiny` in a folder of its own, with nothing running. Seconds are wall seconds until the
command has ended, Python's start included. Hubs are requested at an address that does not answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness

WORDS = ["Read", "an", "integer", "Print", "it", "plus", "Task", "<end>", "<unk>"]
HUMAN_ONLY: dict[str, Any] = {"corpus.sources": ["human"], "corpus.reference_samples": 0}
INCOMPLETE = {"problem_id": "x"}
Settings = dict[str, Any]


def problem(number: int, program: str | None = "print(int(input()) + 1)") -> dict[str, Any]:
    """A problem in the own layout with this solution, if any."""
    solutions = [{"code": program, "language": "python3", "correct": True}] if program else []
    tests = {"input_tests": ["1\n", "7\n"], "output_tests": ["2\n", "8\n"]}
    return {"problem_id": f"p{number}", "statement": f"Task {number}: print n + 1.", "solutions": solutions, **tests}


def problems(folder: Path, *records: dict[str, Any], end: bytes = b"") -> Settings:
    """Settings for a file of these records."""
    path = folder / "problems.jsonl"
    path.write_bytes("".join(json.dumps(record) + "\n" for record in records).encode() + end)
    none = {"problems.evaluation": 0, "evaluate.during_training": False}
    return {"problems.source": "jsonl", "problems.path": str(path), **none}


def model(folder: Path, cut: int = 0, **config: Any) -> Settings:
    """Settings for a tiny checkpoint without a chat template, whose weights lack their last `cut` bytes."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 7} | config))
    weights = folder / "model.safetensors"
    save_file({"weight": torch.zeros(64, 64)}, str(weights))
    weights.write_bytes(weights.read_bytes()[: -cut or None])
    return {"reference.model": str(folder)}


CASES: dict[str, Callable[[Path], Settings]] = {
    "a misspelt field": lambda _: {"train.stepz": 3},
    "a limit of 0 s (`sandbox.cpu_limit_s`)": lambda _: {"sandbox.cpu_limit_s": 0},
    "a missing file of problems": lambda f: problems(f) | {"problems.path": str(f / "absent.jsonl")},
    "a record without a statement": lambda f: problems(f, problem(0), INCOMPLETE),
    "a file that is not UTF-8": lambda f: problems(f, problem(0), problem(1), end=b'{"problem_id": "\xef"}\n'),
    "one training problem": lambda f: problems(f, problem(0)),
    "problems whose own solutions fail": lambda f: problems(f, *(problem(n, "print(0)") for n in range(4))),
    "a missing model folder": lambda f: {"reference.model": str(f / "absent")},
    "a model without an end token": lambda f: model(f, eos_token_id=None),
    "weights that were cut off": lambda f: model(f, cut=1000),
    "`reference.template` chat without a chat template": lambda f: model(f) | {"reference.template": "chat"},
    "a model on a hub that does not answer": lambda _: {"reference.model": "somebody/model"},
    "a data set on a hub that does not answer": lambda _: {"problems.source": "taco", "problems.hub": "BAAI/TACO"},
    "a source of the mix without a search": lambda _: {"pivotal.trajectories": 0},
    "a source of the mix that stays empty": lambda f: problems(f, problem(0, None), problem(1, None)) | HUMAN_ONLY,
    "`engine.kind` vllm where it is not installed": lambda _: {"engine.kind": "vllm"},
    "several of these at once": lambda f: problems(f, problem(0, None), INCOMPLETE) | model(f, cut=1000) | HUMAN_ONLY,
}


def refusal(overrides: Settings, folder: Path) -> tuple[float, str]:
    """Seconds until the command has ended and its message. Raises RuntimeError if the run was not refused."""
    settings = [word for name, value in overrides.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    environment = os.environ | {"SPO_HOME": str(folder / "home"), "SPO_PORT": "9", "COLUMNS": "500"}
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(folder / "hub")}
    command = [sys.executable, "-m", "flows.cli", "run", "tiny", *settings]
    began = harness.clock(wall=True)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = harness.clock(wall=True) - began
    if done.returncode != 1 or (folder / "home").exists():
        raise RuntimeError(f"{overrides} was not refused: {done.stdout}{done.stderr}")
    return seconds, done.stderr.strip().removeprefix("error: ").replace(str(folder), "FOLDER")


def rows(only: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for each case."""
    for name, make in CASES.items():
        if any(word in name for word in only):
            with tempfile.TemporaryDirectory() as made:
                seconds, message = refusal(make(Path(made)), Path(made))
            first = " ".join(line.strip() for line in message.splitlines()[:2])
            yield {"bad input": name, "s": f"{seconds:.1f}", "message": first[:110]}


if __name__ == "__main__":
    harness.show(rows(harness.options(__doc__, only=[""]).only))
