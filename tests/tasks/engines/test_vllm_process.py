"""vLLM under an interpreter of its own, driven from an environment that has no vLLM."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tasks.config import EngineConfig
from tasks.engines import open_engine
from tasks.engines.protocol import Request
from tasks.engines.vllm_environment import vllm_fault, vllm_version
from tests.tasks.engines.conftest import build, save, save_tokenizer

PYTHON = Path(__file__).parents[3] / ".venv-vllm" / "bin" / "python"

pytestmark = pytest.mark.slow

if not PYTHON.exists():
    pytest.skip("scripts/install_vllm.sh has made no .venv-vllm", allow_module_level=True)


def test_the_interpreter_says_which_vllm_it_has() -> None:
    assert vllm_fault(str(PYTHON)) == ""
    works, said = vllm_version(PYTHON)
    assert works
    assert said.startswith("vllm")


def test_samples_scores_and_refreshes_pass_between_two_environments(tmp_path: Path) -> None:
    folders = [save(build("llama_wide", seed), tmp_path / str(seed)) for seed in (0, 1)]
    for folder in folders:
        save_tokenizer(folder)
    settings = EngineConfig(kind="vllm", python=str(PYTHON), max_batch=8)
    here = open_engine(EngineConfig(), folders[0], dtype="float32")
    engine = open_engine(settings, folders[0], dtype="float32")
    assert (engine.name, engine.policy_id, engine.rolling) == ("vllm", here.policy_id, True)
    wanted = [Request((3, 4, 5 + number), 2, seed=number, max_tokens=8) for number in range(20)]
    for folder in folders:
        engine.refresh(folder)
        here.refresh(folder)
        found = list(engine.sample(wanted))
        assert len(found) == 40
        sequences = [(wanted[item.request].prompt_ids, item.token_ids) for item in found]
        expected = here.score(sequences)
        for item, score in zip(found, expected, strict=True):
            assert item.logprobs == pytest.approx(score, abs=1e-4)
    engine.close()
    here.close()
    assert "vllm" not in sys.modules
    assert os.environ.get("VLLM_CONFIGURE_LOGGING") is None
