"""Which text each token of a response adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def token_texts(tokenizer: Any, token_ids: Sequence[int]) -> list[str]:
    """The text each token adds; together they are the decoded response. Part of a character adds nothing yet."""
    texts: list[str] = []
    so_far = ""
    for end in range(1, len(token_ids) + 1):
        decoded = str(tokenizer.decode(token_ids[:end], skip_special_tokens=True))
        if decoded.endswith("\ufffd") and end < len(token_ids):
            texts.append("")
            continue
        texts.append(decoded[len(so_far) :])
        so_far = decoded
    return texts
