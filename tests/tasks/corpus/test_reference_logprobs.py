"""The corpus stage's reference model is gone when its work is done."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.corpus import reference_logprobs
from tasks.scoring import reference as references
from tests.tasks.train.conftest import config, save_reference


def test_the_weights_of_the_reference_are_released_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[weakref.ref[Any]] = []
    load = references.load_reference

    def loading(*given: Any) -> references.Reference:
        found = load(*given)
        held.append(weakref.ref(found.policy))
        held.extend(weakref.ref(parameter) for parameter in found.policy.parameters())
        return found

    monkeypatch.setattr(references, "load_reference", loading)
    folder = save_reference(tmp_path / "reference")
    prompts = SimpleNamespace(reference=folder, prompts={"p": SimpleNamespace(token_ids=(2, 3))})
    rows = [{"trajectory_id": "t", "problem_id": "p", "token_ids": [4, 5, 1]}]
    with reference_logprobs._scorer(SimpleNamespace(config=config()), prompts) as score:  # type: ignore[arg-type]
        assert len(score(rows)["t"]) == 3
        assert all(one() is not None for one in held)
    assert len(held) > 5
    assert [one() for one in held] == [None] * len(held)
    with pytest.raises(AttributeError):
        score(rows)
