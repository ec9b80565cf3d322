"""Errors by their code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(code: str, *named: object) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expects an error of this code (an error without one has the name of its class) that names these values."""
    with pytest.raises(Exception) as caught:
        yield caught
    found = getattr(caught.value, "code", type(caught.value).__name__)
    assert found == code, repr(caught.value)
    assert [value for value in named if str(value) not in str(caught.value)] == []
