from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.engines.prefix_store import LayerTensors, PrefixStore, Tokens, common_length

LAYERS, PAIRS, SIZE = 2, 1, 2
TOKEN_BYTES = 2 * LAYERS * PAIRS * SIZE * 4


def tensors(ids: Tokens, start: int = 0) -> tuple[LayerTensors, LayerTensors]:
    """Keys and values that tell every beginning from every other one."""
    marks = [float(hash(ids[: end + 1]) % 100_003) for end in range(start, len(ids))]
    layers = [torch.tensor(marks).repeat(SIZE, 1).T[None] + layer for layer in range(LAYERS)]
    return layers, [-layer for layer in layers]


def put(store: PrefixStore, ids: Tokens) -> None:
    start = store.length(ids)
    store.add(ids, start, *tensors(ids, start))


def holds(store: PrefixStore, ids: Tokens, start: int = 0) -> bool:
    pairs = zip(store.read(ids, start), tensors(ids, start), strict=True)
    return all(torch.equal(a, b) for found, expected in pairs for a, b in zip(found, expected, strict=True))


sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), min_size=1, max_size=12)


@given(sequences, st.integers(0, 8))
def test_everything_stored_is_read_back_and_each_beginning_is_stored_once(added: list[Tokens], start: int) -> None:
    store = PrefixStore(1 << 30)
    for ids in added:
        put(store, ids)
    assert all(holds(store, ids, min(start, len(ids) - 1)) for ids in added)
    beginnings = {ids[:end] for ids in added for end in range(1, len(ids) + 1)}
    assert store.nbytes == TOKEN_BYTES * len(beginnings)
    for ids in [*added, (2, 1, 0, 1), (1, 1, 1, 1)]:
        known = max((end for end in range(1, len(ids) + 1) if ids[:end] in beginnings), default=0)
        assert store.length(ids) == known


@given(sequences, st.integers(0, 30))
def test_the_bound_holds_after_trimming_and_what_is_left_is_whole(added: list[Tokens], most: int) -> None:
    store = PrefixStore(most * TOKEN_BYTES)
    for ids in added:
        put(store, ids)
        store.trim()
        assert store.nbytes <= most * TOKEN_BYTES
        assert store.length(ids) == 0 or holds(store, ids[: store.length(ids)])


def test_what_was_read_longest_ago_goes_first_and_a_common_beginning_last() -> None:
    store = PrefixStore(7 * TOKEN_BYTES)
    common = (1, 2, 3)
    for last in ((4, 4), (5, 5), (6, 6)):
        put(store, common + last)
    store.read((*common, 4, 4))
    store.trim()
    assert [store.length((*common, last, last)) for last in (4, 5, 6)] == [5, 3, 5]


def test_a_cleared_store_holds_nothing() -> None:
    store = PrefixStore(1 << 20)
    put(store, (1, 2, 3))
    store.clear()
    assert (store.nbytes, store.length((1, 2, 3))) == (0, 0)


def test_what_is_not_stored_is_not_read_and_nothing_is_stored_after_a_gap() -> None:
    store = PrefixStore(1 << 20)
    put(store, (1, 2, 3))
    with pytest.raises(KeyError, match="3 of 4"):
        store.read((1, 2, 3, 4))
    with pytest.raises(KeyError, match="only 3"):
        store.add((1, 2, 3, 4, 5), 4, *tensors((1, 2, 3, 4, 5), 4))


def test_stored_tensors_do_not_keep_the_pass_alive_that_made_them() -> None:
    store = PrefixStore(1 << 20)
    big = torch.zeros(1, 1000, 2)
    store.add((1, 2), 0, [big[:, 5:7]], [big[:, 5:7]])
    assert all(tensor.untyped_storage().nbytes() == 16 for tensor in store.read((1, 2))[0])


@pytest.mark.parametrize(("one", "other", "length"), [((), (1,), 0), ((1, 2), (1, 2, 3), 2), ((1, 5), (1, 6), 1)])
def test_common_length_counts_first_tokens_in_common(one: Tokens, other: Tokens, length: int) -> None:
    assert common_length(one, other) == common_length(other, one) == length
