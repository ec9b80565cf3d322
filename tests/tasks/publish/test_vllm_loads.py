"""A published folder answers the same in plain transformers and in plain vLLM, greedily; in vLLM's own environment."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.checkpoints import checkpoint
from tests.tasks.engines.conftest import build, save, save_tokenizer, write_adapter

if importlib.util.find_spec("vllm") is None and os.environ.get("SPO_REQUIRE_VLLM") != "1":
    pytest.skip("vLLM is not installed in this environment (docs/guides/engines.md says how)", allow_module_level=True)

PROMPTS = ["12 + 30", "sum(1, 2, 3)", "# 4"]
TOKENS = 24
ALONE = """
assert not [name for name in sys.modules if name.partition(".")[0] in ("tasks", "warehouse", "flows")]
"""
TRANSFORMERS = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, prompts, most = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
found = []
for prompt in prompts:
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    ids.pop("token_type_ids", None)
    answer = model.generate(**ids, max_new_tokens=most, do_sample=False)
    found.append(answer[0, ids["input_ids"].shape[1]:].tolist())
print(json.dumps(found))
"""
VLLM = """
import json, sys
from vllm import LLM, SamplingParams
folder, prompts, most = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
model = LLM(folder, dtype="float32", enforce_eager=True, max_model_len=128, kv_cache_memory_bytes=1 << 27,
            enable_chunked_prefill=False, max_num_batched_tokens=2048)
tokenizer = model.get_tokenizer()
ids = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
answers = model.generate([{"prompt_token_ids": one} for one in ids], SamplingParams(temperature=0, max_tokens=most))
print(json.dumps([list(answer.outputs[0].token_ids) for answer in answers]))
"""


def answers(program: str, folder: Path) -> list[list[int]]:
    """What a process that knows nothing of the project prints."""
    own = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own
    command = [sys.executable, "-P", "-c", program + ALONE, str(folder), json.dumps(PROMPTS), str(TOKENS)]
    result = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(next(line for line in result.stdout.splitlines() if line.startswith("[[")))


def test_plain_transformers_and_plain_vllm_give_the_same_greedy_answers(tmp_path: Path) -> None:
    base = save(build("llama_wide"), tmp_path / "base")
    save_tokenizer(base)
    adapter = write_adapter(tmp_path / "adapter", base, seed=1)
    published = tmp_path / "published"
    published.mkdir()
    checkpoint.write_merged(adapter, "float32", published)
    found = answers(TRANSFORMERS, published)
    assert found == answers(VLLM, published)
    assert found != answers(TRANSFORMERS, base)
    assert any(len(one) > 3 for one in found)
