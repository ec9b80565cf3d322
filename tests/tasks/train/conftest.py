"""A tiny random Llama, a temporary warehouse with problems, counts, online and offline trajectories, and jobs."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from sandbox import TestCase
from tasks.checkpoints.checkpoint import policy_id
from tasks.config import RunConfig, validate
from tasks.problems.problem import Problem, rows
from tasks.sampling.reference_counts import CountsFilter, not_counted
from tasks.scoring.example import Example
from tasks.train.shared.job import TrainJob
from tests.tasks.forked_training import trainings_forked
from warehouse import Warehouse

VOCABULARY = 48
END = 1
PROBLEMS = 6
RUN = "run-a"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def forked_processes() -> Iterator[None]:
    """Trainers and workers of this test are forked from one process that has imported everything."""
    with trainings_forked():
        yield


def tiny_model(seed: int = 0, *, vocabulary: int = VOCABULARY, tied: bool = True) -> Any:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.1,
        bos_token_id=0,
        eos_token_id=END,
        pad_token_id=0,
        tie_word_embeddings=tied,
    )
    return LlamaForCausalLM(config).eval()


def save_reference(folder: Path, model: Any | None = None) -> Path:
    """A checkpoint folder with weights and a word-level tokenizer."""
    (model or tiny_model()).save_pretrained(folder)
    vocabulary = {"<s>": 0, "</s>": END} | {f"w{i}": i for i in range(2, VOCABULARY)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<s>"))
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<s>")
    wrapped.chat_template = "{{ messages[0].content }}"
    wrapped.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reference(tmp_path_factory.mktemp("reference"))


def draw_ids(source: random.Random, low: int, high: int) -> tuple[int, ...]:
    return tuple(source.randrange(2, VOCABULARY) for _ in range(source.randint(low, high)))


def examples(count: int, *, seed: int = 0, source: str = "online") -> list[Example]:
    """Random examples of uneven length, half of them failures."""
    chance = random.Random(seed)
    return [
        Example(
            trajectory_id=f"{source}-{i}",
            problem_id=f"p{i % PROBLEMS}",
            source=source,  # type: ignore[arg-type]
            prompt_ids=draw_ids(chance, 1, 12),
            response_ids=draw_ids(chance, 1, 17),
            terminal=0.0 if i % 2 else -11.5,
            y0=-2.0 - i % 3,
            stopped=True,
            behaviour_logprobs=None,
        )
        for i in range(count)
    ]


def config(**train: Any) -> RunConfig:
    """A small run configuration; keyword arguments change its training section."""
    settings: dict[str, Any] = {
        "steps": 6,
        "batch_size": 8,
        "micro_batch_tokens": 64,
        "model_update_interval": 2,
        "snapshot_interval": 4,
        "checkpoint_interval": 2,
        "keep_checkpoints": 2,
        "rollout_batch": 8,
        "responses_per_prompt": 2,
        "max_batches_ahead": 2,
        "optimizer": {"learning_rate": 1e-3, "warmup_steps": 2},
        "report_to": [],
    }
    return validate(
        {
            "seed": 3,
            "train": settings | train,
            "engine": {"max_response_tokens": 12, "max_batch": 16},
            "problems": {"train": PROBLEMS},
        }
    )


def trajectory(chance: random.Random, number: int, source: str) -> dict[str, Any]:
    """A row of `trajectories`."""
    ids = (*draw_ids(chance, 1, 14), END)
    return {
        "trajectory_id": f"{source}-{number:04d}",
        "problem_id": f"p{number % PROBLEMS}",
        "prompt_id": f"q{number % PROBLEMS}",
        "source": source,
        "token_ids": list(ids),
        "sampled_logprobs": [-1.0] * len(ids),
        "logprob_kind": "raw",
        "finish_reason": "stop",
        "reward": 0.0 if source != "online" or chance.random() < 0.5 else -1.0,
        "verdict": "accepted",
        "temperature": 1.0,
        "top_p": 1.0,
        "tests_passed": 1,
        "tests_total": 2,
    }


@cache
def _filled(reference: Path, offline: int, successes: tuple[int, ...]) -> tuple[tempfile.TemporaryDirectory[str], Any]:
    """A warehouse without online trajectories, and the state of the random numbers then."""
    folder = tempfile.TemporaryDirectory(prefix="filled-")
    chance = random.Random(7)
    problems = [
        Problem(f"p{i}", "set", "train", f"p{i}", f"w{i + 2} w3 w4", hidden_tests=(TestCase("1", "1"),))
        for i in range(PROBLEMS)
    ]
    tables = rows(problems)
    prompts = [
        {"prompt_id": f"q{i}", "problem_id": f"p{i}", "token_ids": [*[i + 2, 3, 4][: 1 + i % 3], 5], "template_id": "t"}
        for i in range(PROBLEMS)
    ]
    counts = [
        {
            "problem_id": problem.problem_id,
            "reference": policy_id(reference),
            "sampling": "s",
            "template_id": "t",
            "suite_hash": problem.suite_hash,
            "n": 100,
            "k": k,
        }
        for problem, k in zip(problems, successes, strict=True)
    ]
    kept = [trajectory(chance, i, "reference") for i in range(offline)]
    corpus = [
        {"corpus_id": "c", "trajectory_id": t["trajectory_id"], "problem_id": t["problem_id"], "source": "reference"}
        for t in kept
    ]
    values = [
        {"trajectory_id": t["trajectory_id"], "position": position, "reference": policy_id(reference), "n": 10, "k": k}
        for t in kept[:5]
        for position, k in ((1, 3), (len(t["token_ids"]), 10))
    ]
    with Warehouse.open(Path(folder.name) / "warehouse") as warehouse:
        warehouse.append("problems", tables, run_id="setup")
        warehouse.append("prompts", {"prompts": prompts, "reference_counts": counts}, run_id="setup")
        warehouse.append("corpus", {"trajectories": kept, "corpus": corpus, "token_values": values}, run_id="setup")
    return folder, chance.getstate()


def fill(
    location: Path,
    reference: Path,
    *,
    online: int,
    offline: int = 20,
    successes: Sequence[int] = range(5, 5 + PROBLEMS),
) -> None:
    """Problems p0.. with prompts q0.. and counts (of 100 samples each, so many `successes`), an offline corpus, and
    online trajectories in batches of 8.
    """
    made, state = _filled(reference, offline, tuple(successes))
    chance = random.Random()
    chance.setstate(state)
    shutil.copytree(Path(made.name) / "warehouse", location)
    if not online:
        return
    with Warehouse.open(location) as warehouse:
        for start in range(0, online, 8):
            batch = [trajectory(chance, i, "online") for i in range(start, min(start + 8, online))]
            warehouse.stage(f"rollout/{RUN}/0/{start // 8:08d}", {"trajectories": batch}, run_id=RUN)
        warehouse.commit()


def make_job(folder: Path, reference: Path, run: RunConfig, *, run_id: str = RUN, name: str = "run") -> TrainJob:
    """A job over the warehouse in `folder`."""
    return TrainJob(
        run_id=run_id,
        warehouse=str(folder / "warehouse"),
        run_dir=folder / name,
        reference=reference,
        config=run,
        counts=CountsFilter(
            reference=policy_id(reference),
            sampling="s",
            template_id="t",
            problems_batch="problems",
            prompts_batch="prompts",
            left_out=not_counted(run, run_id),
        ),
        problems_batch="problems",
        prompts_batch="prompts",
        corpus_id="c",
    )


@pytest.fixture(scope="session")
def stocked(tmp_path_factory: pytest.TempPathFactory, reference: Path) -> Path:
    """A folder whose warehouse holds all online trajectories that six steps need."""
    folder = tmp_path_factory.mktemp("stocked")
    fill(folder / "warehouse", reference, online=24)
    return folder
