"""A row holds every beginning once, and says who attends to whom."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasks.scoring.prefix_tree import Row, Segment, common_lengths, separate_row, shared_row
from tests.tasks.scoring.trees import sequences

Sequences = list[tuple[int, ...]]


def attended(row: Row) -> dict[int, set[int]]:
    """The tokens that each token of the row attends to, by what the segments say."""
    reach = {token: s.reach for s in row.segments for token in range(s.start, s.stop)}
    return {q: {k for k in range(q + 1) if q < reach[k]} for q in range(len(row.tokens))}


@given(sequences())
def test_every_distinct_beginning_is_one_token_of_the_row(found: Sequences) -> None:
    beginnings = {sequence[: i + 1] for sequence in found for i in range(len(sequence))}
    row = shared_row(found)
    assert len(row.tokens) == len(beginnings)
    ordered = sorted(found)
    assert sum(map(len, ordered)) - sum(common_lengths(ordered)) == len(beginnings)


@given(sequences())
def test_sequences_are_found_again_at_their_places_and_positions(found: Sequences) -> None:
    for row in (shared_row(found), separate_row(found)):
        for sequence, places in zip(found, row.places, strict=True):
            assert tuple(row.tokens[place] for place in places) == sequence
            assert [row.positions[place] for place in places] == list(range(len(sequence)))


@given(sequences())
def test_a_token_attends_to_what_precedes_it_in_its_sequences_and_to_nothing_else(found: Sequences) -> None:
    for row in (shared_row(found), separate_row(found)):
        seen = attended(row)
        assert [s.start for s in row.segments] == [0, *(s.stop for s in row.segments[:-1])]
        for places in row.places:
            for i, place in enumerate(places):
                assert seen[place] == set(places[: i + 1])


@given(sequences().flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))))
def test_the_row_does_not_depend_on_the_order_of_the_sequences(pair: tuple[Sequences, Sequences]) -> None:
    first, second = map(shared_row, pair)
    assert (first.tokens, first.segments) == (second.tokens, second.segments)


def test_a_trajectory_left_at_many_places_stands_in_one_piece() -> None:
    trunk = tuple(range(2, 42))
    rollouts = [(*trunk[:cut], 1, 1) for cut in range(1, 37)]
    assert shared_row([trunk, *rollouts]).tokens[: len(trunk)] == trunk


def test_a_sequence_that_begins_another_adds_nothing() -> None:
    row = shared_row([(1, 2, 3), (1, 2), (1, 2, 3)])
    assert row.tokens == (1, 2, 3)
    assert row.segments == (Segment(0, 3, 3),) or row.segments == (Segment(0, 2, 3), Segment(2, 3, 3))
    assert row.places == ((0, 1, 2), (0, 1), (0, 1, 2))


def test_thousands_of_nested_beginnings_are_laid_out() -> None:
    row = shared_row([tuple(range(length)) for length in range(1, 1500)])
    assert row.tokens == tuple(range(1499))
