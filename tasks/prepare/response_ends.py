"""Whether sampling stops where responses end: else each runs to the length limit, for hours, and teaches that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.checkpoints import checkpoint
from tasks.problems.prompt import ChatTemplate, Template, end_of, ends_of_turn
from tasks.run.errors import StageError


def require_own_end(folder: Path, tokenizer: Any, template: Template) -> None:
    """Raise StageError where programs of others would end with a token at which sampling does not stop."""
    own, stops = end_of(template, tokenizer), checkpoint.stop_ids(folder)
    if template.stop_mark is None and own not in stops:
        token = tokenizer.convert_ids_to_tokens(own)
        raise StageError(
            f"the tokenizer in {folder} ends responses with token {own} ({token!r}), at which sampling would not stop: "
            f"{_add(stops)}"
        )


def require_end_of_turn(folder: Path, tokenizer: Any, template: Template) -> None:
    """Raise StageError where the chat template ends answers with special tokens at none of which sampling stops."""
    ends, stops = ends_of_turn(tokenizer) if isinstance(template, ChatTemplate) else (), checkpoint.stop_ids(folder)
    if ends and not set(ends) & set(stops):
        token = tokenizer.convert_ids_to_tokens(ends[0])
        raise StageError(
            f"the chat template in {folder} ends answers with token {ends[0]} ({token!r}), at which sampling would not "
            f"stop, so that every answer could run to the length limit: set reference.template to 'few_shot' if the "
            f"model was never trained on conversations, else {_add(stops)}"
        )


def _add(stops: tuple[int, ...]) -> str:
    return f"add it to eos_token_id in generation_config.json (now {', '.join(map(str, stops))})"
