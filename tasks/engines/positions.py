"""How many tokens a model has positions for: prompt and response together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.config import RunConfig

VLLM_LONGEST = 4096
"""Positions that vLLM is given where `engine.vllm.max_model_len` does not say, or the model's own if they are fewer."""


def engine_positions(config: RunConfig) -> int | None:
    """Positions that the engine is given, whatever the model has; None where it takes the model's own."""
    if config.engine.kind != "vllm":
        return None
    given = config.engine.vllm.get("max_model_len")
    return given if isinstance(given, int) else VLLM_LONGEST


def longest_prompt(config: RunConfig, checkpoint: Path) -> tuple[int, str]:
    """Most tokens of a prompt, and why where it is not `problems.max_prompt_tokens` but the positions of the engine.

    A prompt needs room beside it for a response of `engine.max_response_tokens`, or the engine refuses it.
    """
    from transformers import AutoConfig

    asked, response = config.problems.max_prompt_tokens, config.engine.max_response_tokens
    bounds = most_positions(AutoConfig.from_pretrained(checkpoint).get_text_config()), engine_positions(config)
    positions = min((bound for bound in bounds if bound is not None), default=None)
    if positions is None or positions - response >= asked:
        return asked, ""
    return (
        max(0, positions - response),
        f": the engine has {positions} positions, of which engine.max_response_tokens takes {response}",
    )


def most_positions(config: Any) -> int | None:
    """Most tokens of a sequence by the model's configuration; None where it names no limit.

    With longrope the length before it was stretched: beyond it, the frequencies of all sequences of a batch change with
    the longest one, so that what is computed of a sequence depends on what is beside it.
    """
    rope: Any = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    stretched = rope.get("rope_type", rope.get("type")) == "longrope"
    before = rope.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
    found = before if stretched and before else None
    for name in ("max_position_embeddings", "n_positions"):
        found = found or getattr(config, name, None)
    return None if found is None else int(found)


def does_not_fit(longest: int, model: Any) -> str | None:
    """Why a prompt and response of `longest` tokens cannot be computed, and what to do; None where they can."""
    most = most_positions(model.config)
    if most is None or longest <= most:
        return None
    return f"a prompt and response of {longest} tokens do not fit the {most} {too_few(model)}"


def too_few(model: Any) -> str:
    """Whose positions they are, and what to do: the end of a message that tells how many."""
    return (
        f"positions of {type(model).__name__}, beyond which it computes nothing sound: lower "
        f"problems.max_prompt_tokens or engine.max_response_tokens"
    )
