"""Imported by the fork server alone: what every trainer process would else import again."""

from __future__ import annotations

import deepspeed
import torch.utils.tensorboard

from tasks.train.trainer import loop

__all__ = ["deepspeed", "loop", "torch"]
