"""A foreign response in the policy's tokens: its own where they are the same, made anew where that is exact."""

from __future__ import annotations

from typing import Any

from tasks.errors import CodedError
from tasks.extras.importing.formats.response import ForeignResponse
from tasks.problems.prompt import Template, encode_text


class NotExact(CodedError):
    """The policy's tokenizer cannot write this response as it is; the message says why."""


class PolicyTokens:
    """Puts responses into the tokens of one policy."""

    def __init__(self, tokenizer: Any, template: Template, stop_ids: tuple[int, ...]) -> None:
        self._tokenizer, self._template, self._stop_ids = tokenizer, template, frozenset(stop_ids)
        self._size = len(tokenizer)

    def of(self, response: ForeignResponse) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
        """The tokens, and their log-probabilities where the row's tokens are the policy's. Raises NotExact."""
        if response.token_ids is not None and self._are_own(response.token_ids, response):
            return response.token_ids, response.logprobs
        return self._made(response), None

    def _are_own(self, ids: tuple[int, ...], response: ForeignResponse) -> bool:
        """Whether the ids are this tokenizer's: they say the text, and end where a response of the policy ends."""
        if response.is_program or not all(0 <= token < self._size for token in ids):
            return False
        if self._decoded(ids) != response.text:
            return False
        if self._template.stop_mark is not None:
            return not response.finished
        return (ids[-1] in self._stop_ids) == response.finished

    def _made(self, response: ForeignResponse) -> tuple[int, ...]:
        text = self._template.response_from_program(response.text) if response.is_program else response.text
        ids = tuple(encode_text(self._template, self._tokenizer, text, ended=response.finished))
        if not self._says(self._decoded(ids), text, finished=response.finished):
            raise NotExact("the policy's tokenizer does not give the text back")
        return ids

    def _says(self, decoded: str, text: str, *, finished: bool) -> bool:
        mark = self._template.stop_mark
        if mark is None or not finished:
            return decoded == text
        whole = text if mark in text else f"{text.rstrip()}\n{mark}"
        return mark in decoded and whole.startswith(decoded)

    def _decoded(self, ids: tuple[int, ...]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))
