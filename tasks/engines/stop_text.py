"""Responses that end with a text instead of a token: which token completes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SLACK = 8
"""Tokens looked at beyond one per character: special tokens and parts of characters decode to nothing."""


class StopText:
    """Tests whether the newest token completes a stop text, in the words of one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._closers: dict[str, frozenset[int]] = {}

    def __call__(self, text: str, token_ids: Sequence[int]) -> bool:
        """Whether `text` occurs in the decoded tokens' end; only tokens that hold its last character are looked at."""
        if token_ids[-1] not in self._closing(text):
            return False
        tail = list(token_ids[-(len(text) + _SLACK) :])
        return text in str(self._tokenizer.decode(tail, skip_special_tokens=True))

    def _closing(self, text: str) -> frozenset[int]:
        if text not in self._closers:
            pieces = self._tokenizer.batch_decode([[token] for token in range(len(self._tokenizer))])
            self._closers[text] = frozenset(token for token, piece in enumerate(pieces) if text[-1] in piece)
        return self._closers[text]
