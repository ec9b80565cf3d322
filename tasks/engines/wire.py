"""How an engine process and whoever started it speak: frames over a socket, a JSON header and arrays of numbers.

A frame is its mark, the lengths of header and body, the header as JSON, the body as little-endian numbers. The header's
"arrays" says kind and length of each array in the body. Nothing in a frame is ever executed: no pickle.
Floats travel as float64, so that what arrives is what was sent, bit for bit.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.checkpoints.errors import EngineError
from tasks.engines.protocol import Completion, Request, ScoredSequence

STREAMS = "-"
"""In place of a socket's number: standard input and output."""
VERSION = 2
"""Raised when a frame means something else than before; both sides must agree."""
_HEAD = struct.Struct("<4sIQ")
_MARK = b"SPOE"
_KINDS = {"i": np.dtype("<i4"), "f": np.dtype("<f8")}

Array = NDArray[Any]
Frame = tuple[dict[str, Any], list[Array]]
"""Header and arrays."""


class Connection(Protocol):
    """What frames pass through: a socket, or two pipes."""

    def sendall(self, data: bytes, /) -> None:
        """Write all of `data`."""
        ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """Read as much as there is, at most as much as fits; 0 at the end."""
        ...


class Streams:
    """Two file descriptors as a connection."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    def sendall(self, data: bytes) -> None:
        """Write all of `data`."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._outgoing, rest) :]

    def recv_into(self, buffer: memoryview) -> int:
        """Read as much as there is, at most as much as fits; 0 at the end."""
        return os.readv(self._incoming, [buffer])


class Garbled(EngineError):
    """What arrived is no frame: something else writes into the socket, or the other side is of another version."""


def send(connection: Connection, header: dict[str, Any], arrays: Sequence[Array] = ()) -> None:
    """Write one frame. Raises OSError when the other side is gone."""
    parts = [np.ascontiguousarray(array, _KINDS[_kind(array)]) for array in arrays]
    head = json.dumps(header | {"arrays": [[_kind(part), len(part)] for part in parts]}).encode()
    body = b"".join(part.tobytes() for part in parts)
    connection.sendall(_HEAD.pack(_MARK, len(head), len(body)) + head + body)


def receive(connection: Connection) -> Frame | None:
    """The next frame; None when the other side has closed. Raises Garbled."""
    head = _exactly(connection, _HEAD.size)
    if head is None:
        return None
    mark, header_length, body_length = _HEAD.unpack(head)
    if mark != _MARK:
        raise Garbled(f"a frame begins with {mark!r}: something else writes into the engine process's socket")
    text, body = _exactly(connection, header_length), _exactly(connection, body_length)
    if text is None or body is None:
        return None
    header: dict[str, Any] = json.loads(text)
    arrays: list[Array] = []
    at = 0
    for kind, length in header.pop("arrays"):
        arrays.append(np.frombuffer(body, _KINDS[kind], length, at))
        at += length * _KINDS[kind].itemsize
    return header, arrays


def requests_out(requests: Sequence[Request]) -> tuple[list[list[Any]], list[Array]]:
    """Requests as a list for the header and arrays: their prompts."""
    settings = [[r.n, r.seed, r.temperature, r.top_p, r.max_tokens, r.stop_text, r.entropies] for r in requests]
    return settings, _joined([r.prompt_ids for r in requests], np.int32)


def requests_in(settings: Iterable[Sequence[Any]], arrays: Sequence[Array]) -> list[Request]:
    """What `requests_out` has made."""
    prompts = [tuple(ids) for ids in _parted(arrays)]
    return [Request(prompt, *each) for prompt, each in zip(prompts, settings, strict=True)]


def completion_out(completion: Completion, request: int) -> tuple[dict[str, Any], list[Array]]:
    """A completion of request number `request`."""
    header = {"is": "completion", "request": request, "index": completion.index, "seed": completion.seed}
    header["finish_reason"] = completion.finish_reason
    floats = [completion.logprobs] if completion.entropies is None else [completion.logprobs, completion.entropies]
    return header, [np.asarray(completion.token_ids, np.int32), *(np.asarray(each, np.float64) for each in floats)]


def completion_in(header: dict[str, Any], arrays: Sequence[Array]) -> Completion:
    """What `completion_out` has made."""
    ids, logprobs, *rest = (tuple(array.tolist()) for array in arrays)
    reason: Literal["stop", "length"] = header["finish_reason"]
    entropies = rest[0] if rest else None
    return Completion(header["request"], header["index"], ids, logprobs, reason, header["seed"], entropies)


def sequences_out(sequences: Sequence[ScoredSequence]) -> list[Array]:
    """Prompts and responses."""
    return [*_joined([p for p, _ in sequences], np.int32), *_joined([r for _, r in sequences], np.int32)]


def sequences_in(arrays: Sequence[Array]) -> list[ScoredSequence]:
    """What `sequences_out` has made."""
    return list(zip(_parted(arrays[:2]), _parted(arrays[2:]), strict=True))


def lists_out(lists: Sequence[Sequence[float]]) -> list[Array]:
    """Lists of floats."""
    return _joined(lists, np.float64)


def lists_in(arrays: Sequence[Array]) -> list[list[float]]:
    """What `lists_out` has made."""
    return _parted(arrays)


def _joined(lists: Sequence[Sequence[Any]], kind: type[np.generic]) -> list[Array]:
    """The lists' lengths, and all their numbers one after the other."""
    lengths = np.asarray([len(each) for each in lists], np.int32)
    return [lengths, np.asarray([number for each in lists for number in each], kind)]


def _parted(arrays: Sequence[Array]) -> list[list[Any]]:
    lengths, numbers = arrays
    ends = np.cumsum(lengths).tolist()
    flat = numbers.tolist()
    return [flat[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def _kind(array: Array) -> str:
    return "f" if array.dtype.kind == "f" else "i"


def _exactly(connection: Connection, length: int) -> bytes | None:
    """So many bytes; None when the other side closes before."""
    found = bytearray(length)
    view, got = memoryview(found), 0
    while got < length:
        try:
            count = connection.recv_into(view[got:])
        except ConnectionError:
            return None
        if not count:
            return None
        got += count
    return bytes(found)
