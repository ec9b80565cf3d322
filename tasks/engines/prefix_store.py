"""Keys and values of token sequences that begin alike, each beginning once: a radix tree with a bound in bytes.

A node holds the tokens that all sequences below it continue with; what a sequence shares with no other is a leaf.
When the bound is passed, the leaves that were read longest ago go first, so that common beginnings stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

LayerTensors = list[Tensor]
"""Keys or values by layer, each (J, L, D): J key-value heads, L tokens, D head size."""
Tokens = tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Node:
    tokens: Tokens
    keys: LayerTensors
    values: LayerTensors
    used: int = 0
    children: dict[int, _Node] = field(default_factory=dict[int, "_Node"])

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))


class PrefixStore:
    """What has been computed under the present weights; `clear` it when they change."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` bounds what is kept after `trim`."""
        self._most = most_bytes
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._root = _Node((), [], [])
        self._clock = 0
        self.nbytes = 0
        """Memory of all keys and values held."""

    def length(self, ids: Tokens) -> int:
        """How many of the first tokens of `ids` are stored."""
        return sum(count for _, count in self._walk(ids))

    def read(self, ids: Tokens, start: int = 0) -> tuple[LayerTensors, LayerTensors]:
        """Keys and values of tokens `start` and later of `ids`, all of which must be stored."""
        pieces: list[tuple[LayerTensors, LayerTensors]] = []
        position = 0
        for node, count in self._walk(ids):
            self._clock += 1
            node.used = self._clock
            first = max(0, start - position)
            if first < count:
                pieces.append(([k[:, first:count] for k in node.keys], [v[:, first:count] for v in node.values]))
            position += count
        if position < len(ids):
            raise KeyError(f"{position} of {len(ids)} tokens are stored")
        return _joined([keys for keys, _ in pieces]), _joined([values for _, values in pieces])

    def add(self, ids: Tokens, start: int, keys: LayerTensors, values: LayerTensors) -> None:
        """Store the tokens of `ids` from `start` on; those before it must be stored, those after it may be."""
        path = list(self._walk(ids))
        stored = sum(count for _, count in path)
        if stored < start:
            raise KeyError(f"only {stored} tokens are stored, not the {start} that come before")
        if stored == len(ids):
            return
        parent = self._root
        for above, (node, count) in zip([self._root, *(node for node, _ in path)], path, strict=False):
            parent = node if count == len(node.tokens) else self._split(above, node, count)
        fresh = slice(stored - start, None)
        node = _Node(ids[stored:], _own(keys, fresh), _own(values, fresh))
        self._clock += 1
        node.used = self._clock
        parent.children[node.tokens[0]] = node
        self.nbytes += node.nbytes

    def trim(self) -> None:
        """Drop leaves, longest unread first, until the bound is kept."""
        while self.nbytes > self._most:
            leaves = [(parent, node) for parent, node in self._edges() if not node.children]
            for parent, leaf in sorted(leaves, key=lambda edge: edge[1].used):
                if self.nbytes <= self._most:
                    return
                del parent.children[leaf.tokens[0]]
                self.nbytes -= leaf.nbytes

    def _walk(self, ids: Tokens) -> Iterator[tuple[_Node, int]]:
        """The nodes along `ids`, each with the number of its tokens that agree; only the last may be cut short."""
        node, position = self._root, 0
        while position < len(ids):
            child = node.children.get(ids[position])
            if child is None:
                return
            count = common_length(child.tokens, ids[position : position + len(child.tokens)])
            yield child, count
            if count < len(child.tokens):
                return
            node, position = child, position + count

    def _split(self, parent: _Node, node: _Node, count: int) -> _Node:
        """Cut `node`, a child of `parent`, after `count` tokens; returns the upper half."""
        head = slice(0, count)
        upper = _Node(node.tokens[head], _own(node.keys, head), _own(node.values, head), node.used)
        parent.children[upper.tokens[0]] = upper
        tail = slice(count, None)
        node.tokens, node.keys, node.values = node.tokens[tail], _own(node.keys, tail), _own(node.values, tail)
        upper.children[node.tokens[0]] = node
        return upper

    def _edges(self) -> Iterator[tuple[_Node, _Node]]:
        """Every node but the root, with its parent."""
        waiting = [self._root]
        while waiting:
            parent = waiting.pop()
            for node in parent.children.values():
                yield parent, node
                waiting.append(node)


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many first tokens two sequences have in common."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _own(tensors: LayerTensors, part: slice) -> LayerTensors:
    """Copies, so that what they were cut from can be released."""
    return [tensor[:, part].clone(memory_format=torch.contiguous_format) for tensor in tensors]


def _joined(pieces: Sequence[LayerTensors]) -> LayerTensors:
    if not pieces:
        return []
    return pieces[0] if len(pieces) == 1 else [torch.cat(layer, dim=1) for layer in zip(*pieces, strict=True)]
