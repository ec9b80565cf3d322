"""verifiers and prime-rl: `traces.jsonl`, an episode a line; before verifiers 0.2 `results.jsonl`, a rollout a line.

Source: the classes Episode, Trace and MessageNode of verifiers 0.4 and `state_to_output` of verifiers 0.1. In a trace
messages are nodes of a graph; each has the tokens that it adds, and the sampled ones are marked and have their
log-probabilities, rounded to four decimals. prime-rl writes the same traces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.extras.importing.formats.response import (
    CUT_OFF,
    ForeignResponse,
    Found,
    Naming,
    RefusedRow,
    answer,
    asked,
    at,
    content,
    messages,
    names_at,
    number,
    response,
    rows_of,
    understood,
)
from tasks.problems.records import InvalidProblem, Record

FILES = ("traces.jsonl", "results.jsonl")
NAMES = ("problem_id", "task_id", "question_id", "name", "id")


def read(path: Path, naming: Naming) -> Iterator[Found]:
    """The rollouts of a file, or of the traces and results in a folder. Raises InvalidProblem."""
    files = [path] if path.is_file() else sorted(file for name in FILES for file in path.rglob(name))
    if not files:
        raise InvalidProblem(f"{path}: cannot be read: no such file, and no folder with {' or '.join(FILES)}")
    for file in files:
        drawn_by = _metadata(file.with_name("metadata.json"))

        def row(record: Record, naming: Naming, drawn_by: str = drawn_by) -> Iterator[Found]:
            if "traces" in record.data or "nodes" in record.data:
                yield from _episode(record, naming)
            else:
                yield _result(record, naming, drawn_by)

        yield from rows_of(file, naming, row)


def _metadata(path: Path) -> str:
    """The model that the file beside older results names."""
    if not path.is_file():
        return ""
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["model"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidProblem(f"{path}: cannot be read: it names no model ({error})") from error


def _episode(record: Record, naming: Naming) -> Iterator[Found]:
    if "nodes" in record.data:
        yield from understood(record, naming, lambda one, naming: [_trace(one, naming)])
        return
    traces = record.records("traces")
    if not traces:
        yield RefusedRow(record.where, "an episode without a trace")
    for trace in traces:
        yield from understood(Record(record.where, trace.data), naming, lambda one, naming: [_trace(one, naming)])


def _trace(trace: Record, naming: Naming) -> ForeignResponse:
    errors = trace.records("errors")
    if errors:
        raise trace.error("errors", f"say that the rollout failed: {errors[0].text('message', '')[:200]}")
    nodes = trace.records("nodes")
    sampled = [place for place, node in enumerate(nodes) if node.flag("sampled")]
    if len(sampled) != 1:
        raise trace.error("nodes", f"hold {len(sampled)} sampled messages: a rollout must be one answer")
    node = nodes[sampled[0]]
    said = node.record("message")
    if said.data.get("tool_calls"):
        raise said.error("tool_calls", "are made: a rollout must be one answer")
    call: Record = next((c for c in trace.records("calls") if c.data.get("node") == sampled[0]), Record("", {}))
    mask = node.items("mask")
    ids = [token for token, drawn in zip(node.items("token_ids"), mask, strict=False) if drawn]
    return response(
        trace,
        naming,
        text=content(said),
        prompt=asked(n.record("message") for n in _before(nodes, sampled[0])),
        problem_ids=names_at(trace, *(f"task.data.{name}" for name in NAMES), "task.key"),
        model=call.text("model", "") or str(at(trace, "agent.config.model") or ""),
        finished=call.text("finish_reason", "stop") not in CUT_OFF,
        reward=_reward(trace),
        token_ids=ids,
        logprobs=node.items("logprobs"),
        temperature=number(call, "sampling.temperature", at(call, "sampling.temperature")),
        top_p=number(call, "sampling.top_p", at(call, "sampling.top_p")),
    )


def _before(nodes: list[Record], place: int) -> list[Record]:
    """The messages that led to a node, from the first on."""
    path: list[Record] = []
    parent: Any = nodes[place].data.get("parent")
    while isinstance(parent, int) and 0 <= parent < len(nodes) and len(path) < len(nodes):
        path.append(nodes[parent])
        parent = nodes[parent].data.get("parent")
    return path[::-1]


def _reward(trace: Record) -> float | None:
    """The sum of the trace's weighted rewards; None where it has none."""
    given = trace.record("rewards")
    rewards = [given.record(name) for name in given.data if given.data[name] is not None]
    return sum(map(_weighted, rewards)) if rewards else None


def _weighted(reward: Record) -> float:
    score = number(reward, "score", reward.data.get("score"))
    weight = number(reward, "weight", reward.data.get("weight", 1.0))
    return (score or 0.0) * (weight or 0.0)


def _result(record: Record, naming: Naming, drawn_by: str) -> ForeignResponse:
    if record.data.get("error"):
        raise record.error("error", f"says that the rollout failed: {str(record.data['error'])[:200]}")
    if naming.columns.keys().isdisjoint({"text", "program"}) and record.data.get("completion") is None:
        raise record.error("completion", "is missing: there is no answer")
    turns = messages(record, "completion")
    step = Record(record.where, at(record, "trajectory.0.tokens") or {})
    return response(
        record,
        naming,
        text=content(answer(turns)) if turns else "",
        prompt=asked(messages(record, "prompt")),
        problem_ids=names_at(record, *(f"info.{name}" for name in NAMES), "example_id"),
        model=drawn_by,
        finished=not record.flag("is_truncated"),
        reward=number(record, "reward", record.data.get("reward")),
        token_ids=step.items("completion_ids"),
        logprobs=step.items("completion_logprobs"),
    )
