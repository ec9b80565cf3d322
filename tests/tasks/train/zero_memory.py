"""Bytes of weights, gradients and optimizer state on each rank under ZeRO 0 to 3, in bfloat16.

    python -m tests.tasks.train.zero_memory STAGE RANKS    # a small model under DeepSpeed, on the first rank

Tensors of DeepSpeed are counted on torch's fake process group, in one process that believes itself the first of so
many. Buckets of communication (5e8 numbers each by default) and activations come on top; here buckets are small.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

WEIGHT, ADDED_UP, OPTIMIZER = 2, 4, 12
"""Bytes a parameter: bfloat16; float32, in which gradients are added up; float32 weights and both moments of AdamW."""
GRADIENT = 2
"""The backward pass's own gradient in bfloat16, of which stages 2 and 3 hold only a bucket."""
LLAMA_8B = {
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": False,
}  # fmt: skip
SMALL = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True,
}  # fmt: skip


def parameters(shape: dict[str, Any]) -> int:
    """Parameters of a Llama of this shape."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in LlamaForCausalLM(LlamaConfig(**shape)).parameters())


def bytes_per_parameter(stage: int, ranks: int) -> float:
    """Bytes of a parameter on each rank while a gradient exists. Stage 0 is stage 1 in bfloat16 (train.zero_stage)."""
    if stage < 2:
        return WEIGHT + GRADIENT + ADDED_UP + OPTIMIZER / ranks
    divided = ADDED_UP + OPTIMIZER
    return WEIGHT + divided / ranks if stage == 2 else (WEIGHT + divided) / ranks


def measured(stage: int, ranks: int) -> float:
    """Bytes a parameter that DeepSpeed holds on the first of `ranks` ranks, in the second step, before its update."""
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(ranks))
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    import deepspeed
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="fake", auto_mpi_discovery=False, verbose=False)
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SMALL)).to(torch.bfloat16)
    count = sum(parameter.numel() for parameter in model.parameters())
    few = dict.fromkeys(("reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size"), 1000)
    few |= {"stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 1000}
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": max(stage, 1), "overlap_comm": False} | few,
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine: Any = deepspeed.initialize(model=model, optimizer=optimizer, config=settings, dist_init_required=False)[0]
    ids = torch.randint(0, SMALL["vocab_size"], (1, 16))
    for last in (False, True):
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        if not last:
            engine.step()
    return held_bytes() / count


def held_bytes() -> int:
    """Bytes of all tensors of this process, each storage once."""
    gc.collect()
    found = [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]
    found += [one.grad for one in found if one.is_leaf and one.grad is not None]
    return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in found}.values())


if __name__ == "__main__":
    print(measured(*map(int, sys.argv[1:])))
