"""Whether sampling stops where responses end: else each runs to the length limit, for hours, and teaches that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.engines import checkpoint
from tasks.problems.prompt import ChatTemplate, Template
from tasks.run.errors import StageError

_ANSWER = "The answer is 7."


def require_own_end(folder: Path, tokenizer: Any, template: Template) -> None:
    """Raise StageError where programs of others would end with a token at which sampling does not stop."""
    own, stops = tokenizer.eos_token_id, checkpoint.stop_ids(folder)
    if template.stop_mark is None and own not in stops:
        raise StageError(
            f"the tokenizer in {folder} ends responses with token {own} ({tokenizer.eos_token!r}), at which sampling "
            f"would not stop: {_add(stops)}"
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


def ends_of_turn(tokenizer: Any) -> tuple[int, ...]:
    """The special tokens that the chat template writes behind an answer; none if it shows no answers."""
    turns = [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": _ANSWER}]
    _, found, behind = str(tokenizer.apply_chat_template(turns, tokenize=False)).rpartition(_ANSWER)
    if not found:
        return ()
    special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    special |= set(tokenizer.all_special_ids)
    return tuple(int(token) for token in tokenizer(behind, add_special_tokens=False)["input_ids"] if token in special)


def _add(stops: tuple[int, ...]) -> str:
    return f"add it to eos_token_id in generation_config.json (now {', '.join(map(str, stops))})"
