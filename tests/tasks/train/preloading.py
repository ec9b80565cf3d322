"""Imported by the fork server alone: what every trainer process would else import again."""

from __future__ import annotations

import deepspeed.ops
import torch.utils.tensorboard

from tasks.train.trainer import loop

assert deepspeed.ops.__compatible_ops__  # found out by compiling, once for all
__all__ = ["deepspeed", "loop", "torch"]
