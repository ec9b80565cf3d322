"""How long does it take until a run that cannot work is refused?

    python -m benchmarks.bad_inputs

Each bad input is given to `spo run` in a folder of its own, with nothing running; the table has the wall-clock seconds
until the command has ended, Python's start included, and what it said first. Names on the hub are asked at an address
where nothing answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).parents[1] / "flows" / "recipes"
WORDS = ["Read", "an", "integer", "Print", "it", "plus", "Task", "<end>", "<unk>"]


def problem(number: int, program: str | None = "print(int(input()) + 1)") -> dict[str, Any]:
    """A problem in the own layout with this solution, if any."""
    solutions = [{"code": program, "language": "python3", "correct": True}] if program else []
    tests = {"input_tests": ["1\n", "7\n"], "output_tests": ["2\n", "8\n"]}
    return {"problem_id": f"p{number}", "statement": f"Task {number}: print n + 1.", "solutions": solutions, **tests}


def problems(folder: Path, records: list[dict[str, Any]], more: str = "") -> dict[str, Any]:
    """The overrides for a file of these records."""
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + more, encoding="utf-8")
    none = {"problems.evaluation": 0, "evaluate.during_training": False}
    return {"problems.source": "jsonl", "problems.path": str(path), **none}


def model(folder: Path, **config: Any) -> Path:
    """A tiny checkpoint folder whose tokenizer has no chat template."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 7} | config))
    save_file({"weight": torch.zeros(64, 64)}, str(folder / "model.safetensors"))
    return folder


def truncated(folder: Path) -> dict[str, Any]:
    """A checkpoint whose weights were cut off."""
    weights = model(folder) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    return {"reference.model": str(folder)}


HUMAN_ONLY: dict[str, Any] = {"corpus.sources": ["human"], "corpus.reference_samples": 0}


def everything(folder: Path) -> dict[str, Any]:
    """Several faults at once."""
    return problems(folder, [problem(0, None), {"problem_id": "x"}]) | truncated(folder) | HUMAN_ONLY


HOPELESS = [problem(n, "print(0)") for n in range(4)]
CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "a misspelt field": lambda _: {"train.stepz": 3},
    "a limit of 0 s (`sandbox.cpu_limit_s`)": lambda _: {"sandbox.cpu_limit_s": 0},
    "a file of problems that is not there": lambda f: problems(f, []) | {"problems.path": str(f / "absent.jsonl")},
    "a record without a statement": lambda f: problems(f, [problem(0), {"problem_id": "x"}]),
    "a file that is not UTF-8": lambda f: problems(f, [problem(0), problem(1)]) | _spoilt(f),
    "one training problem": lambda f: problems(f, [problem(0)]),
    "problems whose own solutions fail": lambda f: problems(f, HOPELESS),
    "a model folder that is not there": lambda f: {"reference.model": str(f / "absent")},
    "a model without an end token": lambda f: {"reference.model": str(model(f, eos_token_id=None))},
    "weights that were cut off": truncated,
    "`reference.template` chat without a chat template": lambda f: {
        "reference.model": str(model(f)),
        "reference.template": "chat",
    },
    "a model on a hub that does not answer": lambda _: {"reference.model": "somebody/model"},
    "a data set on a hub that does not answer": lambda _: {"problems.source": "taco", "problems.hub": "BAAI/TACO"},
    "a source of the mix without a search": lambda _: {"pivotal.trajectories": 0},
    "a source of the mix that stays empty": lambda f: problems(f, [problem(0, None), problem(1, None)]) | HUMAN_ONLY,
    "`engine.kind` vllm where it is not installed": lambda _: {"engine.kind": "vllm"},
    "several of these at once": everything,
}


def _spoilt(folder: Path) -> dict[str, Any]:
    path = folder / "problems.jsonl"
    path.write_bytes(path.read_bytes() + b'{"problem_id": "\xef"}\n')
    return {}


def refusal(overrides: dict[str, Any], folder: Path) -> tuple[float, str]:
    """Seconds until `spo run tiny` with these overrides has ended, and what it said; an error where it went on."""
    settings = [word for name, value in overrides.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    environment = {**os.environ, "SPO_HOME": str(folder / "home"), "SPO_PORT": "9", "COLUMNS": "500"}
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(folder / "hub")}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "run", "tiny", *settings], env=environment, capture_output=True, text=True
    )
    seconds = time.perf_counter() - began
    if done.returncode != 1 or (folder / "home").exists():
        raise RuntimeError(f"{overrides} was not refused: {done.stdout}{done.stderr}")
    return seconds, done.stderr.strip().removeprefix("error: ").replace(str(folder), "FOLDER").replace(
        str(RECIPES), "RECIPES"
    )


def main() -> None:
    """Print the table."""
    print("| what is wrong | s | what is said |\n|---|---|---|")
    for name, make in CASES.items():
        with tempfile.TemporaryDirectory() as made:
            seconds, said = refusal(make(Path(made)), Path(made))
        first = " ".join(line.strip() for line in said.splitlines()[:2])
        print(f"| {name} | {seconds:.1f} | {first if len(first) <= 110 else first[:107] + '...'} |", flush=True)


if __name__ == "__main__":
    main()
