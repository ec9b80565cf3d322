"""The stages' names in the order they run in; what each of them is stands in `tasks.stages`."""

from __future__ import annotations

from typing import Literal, get_args

StageName = Literal["prepare", "q0", "corpus", "pivotal", "train", "evaluate", "report"]
STAGE_NAMES: tuple[StageName, ...] = get_args(StageName)
NEED_EARLIER_STAGES: tuple[StageName, ...] = ("pivotal", "train", "evaluate", "report")
"""Stages that read what a stage other than `prepare` leaves for the same run."""
