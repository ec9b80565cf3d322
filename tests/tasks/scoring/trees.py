"""Sequences that begin alike, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

TOKENS = 5

_token = st.integers(0, TOKENS - 1)
_piece = st.lists(_token, max_size=12).map(tuple)


@st.composite
def sequences(draw: st.DrawFn, *, shortest: int = 1, most: int = 8) -> list[tuple[int, ...]]:
    """Some sequences, each of which goes on from a beginning of another one, of itself, or of nothing."""
    found: list[tuple[int, ...]] = []
    for _ in range(draw(st.integers(1, most))):
        begun = draw(st.sampled_from([(), *found]))
        kept = draw(st.integers(0, len(begun)))
        rest = draw(_piece)
        missing = max(0, shortest - kept - len(rest))
        found.append((*begun[:kept], *rest, *(draw(_token) for _ in range(missing))))
    return found
