"""A character tokenizer, a scripted engine and a problem that asks for the double of a number."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from sandbox import TestCase
from tasks.engines.scripted_engine import ScriptedEngine
from tasks.problems.problem import Problem

END = 0
RIGHT = "print(2 * int(input()))"
SAME = "print(2*int(input()))  # the same program"
WRONG = "print(int(input()))"
BROKEN = "print("


def character_tokenizer() -> Any:
    """One token per ASCII character; token 0 ends a response."""
    characters = ["\n", *map(chr, range(32, 127))]
    vocabulary = {"<end>": END} | {character: number for number, character in enumerate(characters, start=1)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return character_tokenizer()


@pytest.fixture
def problem() -> Problem:
    return Problem(
        "double",
        "tests",
        "train",
        "double",
        "Print the double.",
        hidden_tests=(TestCase("2", "4"), TestCase("5", "10")),
    )


def response(tokenizer: Any, text: str, *, end: bool = True) -> tuple[int, ...]:
    """`text` as response tokens."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    return (*ids, END) if end else tuple(ids)


def scripted(tokenizer: Any, *texts: str) -> ScriptedEngine:
    """An engine that answers every prompt with one of `texts`."""
    return ScriptedEngine([response(tokenizer, text) for text in texts], stop_ids=[END])
