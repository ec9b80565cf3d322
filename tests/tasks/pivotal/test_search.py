"""The wavefront: what it asks for, when it stops, and that it never pays twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from tasks.config import PivotalConfig
from tasks.estimators import difference_p_value
from tasks.pivotal.search import (
    Comparison,
    Count,
    Node,
    Outcome,
    PrefixCounts,
    Search,
    SearchConfig,
    search_state,
    split_point,
    wavefront,
)

Curve = Callable[[int], float]


def rule(**changes: object) -> SearchConfig:
    return SearchConfig(
        **{"p_value": difference_p_value, "looks": (10,), "confidence": 0.9, "max_rollouts": 10_000} | changes
    )  # type: ignore[arg-type]


def search(name: str = "t", length: int = 64, prompt: tuple[int, int] = (800, 0), **options: object) -> Search:
    return Search.start(name, range(length), prompt, group="problem", **options)  # type: ignore[arg-type]


def step_at(*jumps: tuple[int, float], start: float = 0.0) -> Curve:
    """S_t that starts at `start` and has the given value from each position on."""
    return lambda position: ([start] + [value for at, value in jumps if position >= at])[-1]


def drive(
    searches: list[Search], curve: Curve, a_rule: SearchConfig, seed: int = 0
) -> tuple[list[Outcome], list[list[Node]]]:
    """Run to the end; rollouts of a prefix depend on its name and how many it had, not on the order of asking."""
    seen, waves = PrefixCounts(), []
    while nodes := wavefront(searches, seen, a_rule):
        waves.append(nodes)
        for node in nodes:
            roll(seen, node, curve, seed)
    return [search_state(one, seen, a_rule) for one in searches], waves


def roll(seen: PrefixCounts, node: Node, curve: Curve, seed: int) -> None:
    draws = random.Random(f"{seed}/{node.prefix}/{seen.get(node.prefix).n}")
    seen.absorb(node.prefix, node.rollouts, sum(draws.random() < curve(node.position) for _ in range(node.rollouts)))


def test_single_certain_jump_is_found_at_its_token_in_logarithmically_many_nodes() -> None:
    for token in range(1, 65):
        (outcome,), waves = drive([search()], step_at((token, 1.0)), rule())
        assert [pivot.position for pivot in outcome.pivots] == [token]
        assert len(outcome.estimated) <= 7
        assert len(waves) <= 7


def test_two_jumps_are_both_found() -> None:
    (outcome,), _ = drive([search()], step_at((17, 0.5), (50, 1.0)), rule(looks=(200,)))
    assert [pivot.position for pivot in outcome.pivots] == [17, 50]
    assert outcome.pivots[0].change == pytest.approx(0.5, abs=0.15)


def test_a_pivot_that_lowers_the_success_probability_is_found() -> None:
    (outcome,), _ = drive([search()], step_at((20, 1.0), (30, 0.4), (60, 1.0)), rule(looks=(100,)))
    assert {pivot.position: pivot.change > 0 for pivot in outcome.pivots} == {20: True, 30: False, 60: True}


def test_prompt_that_already_succeeds_needs_no_rollouts() -> None:
    (outcome,), waves = drive([search(prompt=(800, 700))], step_at(start=0.9), rule())
    assert waves == []
    assert outcome.pivots == ()


def test_unknown_prompt_is_rolled_out_first() -> None:
    nodes = wavefront([search(prompt=(0, 0))], PrefixCounts(), rule())
    assert [(node.position, node.rollouts) for node in nodes] == [(0, 10)]


def test_insignificant_difference_is_not_split() -> None:
    verdict = rule().compare(Count(10, 4), Count(10, 6))
    assert verdict is Comparison.alike
    assert rule(confidence=0.1).compare(Count(10, 3), Count(10, 6)) is Comparison.different


def test_significant_but_small_difference_is_not_split() -> None:
    assert rule().compare(Count(1000, 400), Count(1000, 500)) is Comparison.alike


def test_known_end_differs_from_any_failure_that_is_large_enough() -> None:
    end = Count(1, 1, exact=True)
    assert rule().compare(Count(10, 8), end) is Comparison.different
    assert rule().compare(Count(10, 9), end) is Comparison.alike


def test_one_token_trajectory_is_decided_without_rollouts() -> None:
    (outcome,), waves = drive([search(length=1, prompt=(800, 80))], step_at(), rule())
    assert waves == []
    assert [pivot.position for pivot in outcome.pivots] == [1]


def test_budget_stops_the_search_and_says_so() -> None:
    (outcome,), _ = drive(
        [search(length=1000)], lambda position: (position // 100) / 10, rule(max_rollouts=500, looks=(100,))
    )
    assert outcome.spent <= 500
    assert outcome.out_of_budget
    (enough,), _ = drive([search()], step_at((30, 1.0)), rule(max_rollouts=100))
    assert not enough.out_of_budget


def test_largest_difference_is_paid_first_when_the_budget_is_short() -> None:
    seen, one, tight = PrefixCounts(), search(prompt=(800, 0)), rule(max_rollouts=20)
    seen.absorb(one.prefix(32), 10, 7)
    assert [node.position for node in wavefront([one], seen, tight)] == [16]


def test_stopping_after_any_wave_and_resuming_from_stored_counts_gives_the_same_end_and_pays_nothing_twice() -> None:
    searches = [search(f"t{i}", 40 + i, line_ends=(7, 20)) for i in range(5)]
    curve, a_rule = step_at((11, 0.4), (33, 0.9)), rule(looks=(5, 10, 20))
    whole, waves = drive(searches, curve, a_rule)
    for stop in range(len(waves)):
        seen, paid = PrefixCounts(), Counter[str]()
        for _ in range(stop):
            for node in wavefront(searches, seen, a_rule):
                roll(seen, node, curve, 0)
        stored = {node.prefix: seen.get(node.prefix) for wave in waves for node in wave}
        resumed = PrefixCounts({prefix: (count.n, count.k) for prefix, count in stored.items() if count.n})
        while nodes := wavefront(searches, resumed, a_rule):
            for node in nodes:
                paid[node.prefix] += node.rollouts
                roll(resumed, node, curve, 0)
        assert [search_state(one, resumed, a_rule) for one in searches] == whole
        total = sum(node.rollouts for wave in waves for node in wave)
        assert sum(paid.values()) + sum(count.n for count in stored.values()) == total


def test_half_a_wave_absorbed_asks_for_the_rest_only() -> None:
    searches = [Search.start(f"t{i}", [i] * 30, (800, 0), group="p") for i in range(6)]
    seen, a_rule = PrefixCounts(), rule()
    first = wavefront(searches, seen, a_rule)
    for node in first[:3]:
        seen.absorb(node.prefix, node.rollouts, 0)
    again = wavefront(searches, seen, a_rule)
    assert [node for node in again if node.position == 15] == first[3:]


def test_missing_rollouts_are_asked_for_again() -> None:
    seen, one = PrefixCounts(), search()
    (node,) = wavefront([one], seen, rule())
    seen.absorb(node.prefix, 7, 0)
    assert [(n.position, n.rollouts) for n in wavefront([one], seen, rule())] == [(node.position, 3)]


def test_order_of_searches_changes_nothing() -> None:
    searches = [search(f"t{i}", 30 + 3 * i) for i in range(8)]
    curve = step_at((9, 0.5), (21, 0.9))
    forward, _ = drive(searches, curve, rule())
    backward, _ = drive(searches[::-1], curve, rule())
    assert forward == backward[::-1]


def test_prefix_shared_by_two_trajectories_of_a_prompt_is_paid_once() -> None:
    a = Search.start("a", [1, 2, 3, 4, 5, 6], (800, 0), group="p")
    b = Search.start("b", [1, 2, 3, 9, 9, 9], (800, 0), group="p")
    other = Search.start("c", [1, 2, 3, 9, 9, 9], (800, 0), group="another problem")
    assert [node.trajectory_id for node in wavefront([a, b, other], PrefixCounts(), rule())] == ["a", "c"]


def test_prefix_names_depend_on_group_and_tokens_only() -> None:
    a, b = search("a", 20), search("b", 30)
    assert a.prefix(12) == b.prefix(12) != a.prefix(13)
    assert Search.start("a", range(20), (1, 0), group="q").prefix(12) != a.prefix(12)


@pytest.mark.parametrize(
    "first,last,line_ends,expected",
    [(0, 10, (), 5), (0, 10, (4,), 4), (0, 10, (1,), 5), (0, 10, (4, 6), 4), (3, 5, (4,), 4), (0, 2, (), 1)],
)
def test_split_prefers_line_ends_in_the_middle_half(
    first: int, last: int, line_ends: tuple[int, ...], expected: int
) -> None:
    assert split_point(first, last, line_ends) == expected


def test_sequential_rule_stops_clear_nodes_early_and_tops_up_doubtful_ones() -> None:
    sequential = rule(looks=(5, 20))
    assert sequential.compare(Count(5, 0), Count(5, 5)) is Comparison.different
    assert sequential.compare(Count(5, 2), Count(5, 4)) is Comparison.unclear
    assert sequential.compare(Count(20, 8), Count(20, 10)) is Comparison.alike


def test_rule_of_a_recipe_tests_once_unless_looks_are_given() -> None:
    assert SearchConfig.from_config(PivotalConfig(method="bisection"), difference_p_value).looks == (10,)
    assert SearchConfig.from_config(PivotalConfig(), difference_p_value).looks == (10, 20, 40)
    assert SearchConfig.from_config(PivotalConfig(looks=(5, 15)), difference_p_value).looks == (5, 15)
    assert SearchConfig.from_config(PivotalConfig(), difference_p_value).max_rollouts == 320


@pytest.mark.parametrize("looks", [(), (5, 5), (0,), (10, 5)])
def test_looks_that_do_not_increase_are_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="looks"):
        rule(looks=looks)


def test_empty_trajectory_and_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="no response tokens"):
        Search.start("t", [], (1, 0), group="p")
    with pytest.raises(ValueError, match="impossible"):
        Count(3, 4)
