"""Entropies along responses, each prompt computed once, against full forward passes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tasks.engines.prefill import PackedPieces
from tasks.engines.protocol import ScoredSequence
from tasks.engines.transformers_engine import TransformersEngine
from tests.tasks.engines.conftest import VOCABULARY, build, save

COMMON = tuple(number * 11 % VOCABULARY for number in range(2, 42))


def sequences(prompts: int, responses: int) -> list[ScoredSequence]:
    """Prompts that begin alike, each with responses of several lengths, in no order."""
    chance = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(chance.randrange(VOCABULARY) for _ in range(count))

    asked = [(*COMMON, *ids(1 + number)) for number in range(prompts)]
    made: list[ScoredSequence] = [(prompt, ids(1 + (turn * 7) % 20)) for prompt in asked for turn in range(responses)]
    chance.shuffle(made)
    return made


def full(engine: TransformersEngine, asked: list[ScoredSequence]) -> list[float | None]:
    return [sum(found) / len(found) if found else None for _, found in engine.evaluated(asked)]


@pytest.mark.parametrize("kind", ["llama", "llama_untied", "qwen2", "qwen3", "mistral", "gpt2"])
def test_entropies_are_those_of_full_forward_passes(kind: str, tmp_path: Path) -> None:
    engine = TransformersEngine(save(build(kind), tmp_path), dtype="float32", max_batch=8)
    asked = [*sequences(20, 4), ((5,), (6, 7)), ((5,), ()), (COMMON[:1], (4,)), (COMMON, (3,))]
    found = engine.entropies(asked)
    assert found[81] is None
    assert [v for v in found if v] == pytest.approx([v for v in full(engine, asked) if v], abs=1e-5)
    assert engine.entropies([]) == []


def test_a_response_longer_than_a_pass_is_one_piece(engine: TransformersEngine) -> None:
    asked: list[ScoredSequence] = [(COMMON, tuple(3 + number % 50 for number in range(700))), (COMMON, (4, 5))]
    assert engine.entropies(asked) == pytest.approx(full(engine, asked), abs=1e-5)


def test_prompts_are_computed_once_and_an_entropy_does_not_depend_on_the_others(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TransformersEngine(llama_folder, dtype="float32", max_batch=8)
    asked = sequences(20, 4)
    alone = [engine.entropies([sequence])[0] for sequence in asked[:10]]
    computed: list[int] = []
    make = PackedPieces.__init__

    def counting(self: PackedPieces, *given: object) -> None:
        make(self, *given)  # type: ignore[arg-type]
        computed.append(sum(part.stop - part.start for part in self.parts))

    monkeypatch.setattr(PackedPieces, "__init__", counting)
    engine.refresh(llama_folder)
    assert engine.entropies(asked)[:10] == alone
    whole = sum(len(prompt) + len(response) for prompt, response in asked)
    distinct = len(COMMON) + sum(len(prompt) - len(COMMON) for prompt in {tuple(prompt) for prompt, _ in asked})
    assert sum(computed) <= distinct + sum(len(response) + 1 for _, response in asked) < whole / 3
