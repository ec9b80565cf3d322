"""Imported by the fork server alone: what every trainer process would else import again."""

from __future__ import annotations

import deepspeed.ops
import deepspeed.runtime.superoffload.superoffload_stage3
import deepspeed.runtime.zero.muon.muon_optimizer
import deepspeed.runtime.zero.stage3
import deepspeed.runtime.zero.stage_1_and_2
import torch._dynamo
import torch._inductor.compile_fx
import torch.utils.tensorboard

from tasks.train.trainer import loop

assert deepspeed.ops.__compatible_ops__  # found out by compiling, once for all
__all__ = ["deepspeed", "loop", "torch"]
