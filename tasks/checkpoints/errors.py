"""Errors of models on disk and of the engines that run them."""

from __future__ import annotations

from tasks.errors import CodedError


class EngineError(CodedError):
    """Sampling is impossible; the message says which model or request, and what to do."""


class MissingModel(EngineError):
    """No such checkpoint, or a part of it is missing."""


class UnsupportedArchitecture(EngineError):
    """This engine cannot run this model correctly."""
