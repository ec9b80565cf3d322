"""Stage `pivotal`: where in correct trajectories the chance of success jumps (section 3.1.3).

All searches advance together: each wave asks `pivotal_search` which prefixes are needed next, samples every one of them
in the same engine batches, and commits counts and rollouts as one batch. The counts of all waves, of all runs, are the
search's state, so that a killed stage continues where it was and no prefix is paid for twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tasks.checkpoints import checkpoint as checkpoints
from tasks.estimators import difference_p_value
from tasks.pivotal.search import Node, Outcome, PrefixCounts, Search, SearchConfig, search_state, wavefront
from tasks.run import prompt_set
from tasks.run.identity import digest
from tasks.run.judged_again import judged_again
from tasks.run.manifests import CorpusManifest, PivotalManifest, PrepareManifest
from tasks.run.prompt_set import PromptSet
from tasks.run.put_aside import end_put_aside, put_aside, rolled_out_and_put_aside
from tasks.run.sampling import SandboxFailing, counts, open_sampler, retry_batch_id, sampling, scored
from tasks.run.stage import Amount, Context, Outlook, Stage, turn
from tasks.sampling.assignment import Assignment
from tasks.sampling.reference_counts import REFERENCE_BEHAVIOUR
from tasks.sampling.sampler import Judged, Sampler, tables
from warehouse.queries import query

WAVE = "wave/"
"""`search_id` of counts; they add up per prefix."""
ANNOTATION = "annotation/"
"""`search_id` of finished searches: all that is known at each of a trajectory's positions, for the trainer."""
SEARCH = "pivotal/"
"""Prefix of the stage's batches."""
NODES_PER_BATCH = 256
"""Nodes sampled in one call and committed together: many, since the engine's batch runs empty at the end of each call;
not all, since a crash costs those not committed."""

Tokens: TypeAlias = dict[str, tuple[str, list[int]]]
"""Problem and response tokens by trajectory."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What is to be searched."""

    searches: list[Search]
    tokens: Tokens
    put_aside: Counter[str]
    """Rollouts in quarantine by prefix: the numbers of later ones at it are taken."""

    def start(self, prefix: str, seen: PrefixCounts) -> int:
        """Where the next rollouts at a prefix start: behind all that were ever drawn there."""
        return seen.get(prefix).n + self.put_aside[prefix]


SELECTION = query(__name__, "selection")
STORED = query(__name__, "stored")


def inputs(context: Context) -> dict[str, Any]:
    """The corpus and the reference policy's sampling."""
    return {
        "corpus_id": context.manifest(CorpusManifest).corpus_id,
        "prompts_batch": context.manifest(PrepareManifest).prompts_batch,
        "policy_id": context.manifest(PrepareManifest).policy_id,
        "sampling": sampling(context),
        **judged_again(context, "train"),
        **put_aside(context, f"{SEARCH}{context.manifest(PrepareManifest).policy_id}/"),
        **end_put_aside(context, "pivotal", SEARCH, "search_id"),
    }


def body(context: Context) -> PivotalManifest:
    """Search until no prefix is wanted, then write down what each trajectory's positions are worth."""
    config = context.config.pivotal
    if config.trajectories == 0:
        return PivotalManifest(search_id=None, snapshot=context.pin, summary="left out (pivotal.trajectories = 0)")
    prompts = prompt_set.load(context, "train")
    planned = plan(context, prompts)
    searches = planned.searches
    rule = SearchConfig.from_config(config, difference_p_value)
    paid = 0
    with turn(context, f"{SEARCH}{prompts.policy_id}"):  # searches side by side would draw and count the same rollouts
        seen = PrefixCounts(_stored(context, prompts))
        known = sum(seen.get(prefix).n for prefix in {prefix for search in searches for _, prefix in search.prefixes()})
        if wavefront(searches, seen, rule):
            with open_sampler(context, prompts.reference, REFERENCE_BEHAVIOUR) as sampler:
                paid = advance(context, prompts, planned, seen, rule, sampler)
    outcomes = [search_state(search, seen, rule) for search in searches]
    search_id = _annotate(context, prompts, searches, outcomes, seen)
    pivots = sum(p.position < s.length for s, outcome in zip(searches, outcomes, strict=True) for p in outcome.pivots)
    return PivotalManifest(
        rows=paid,
        search_id=search_id,
        pivots=pivots,
        snapshot=context.warehouse.snapshot(),
        reused=f"{known} rollouts of earlier searches" if known else "",
        summary=f"{pivots} pivotal tokens in {len(searches)} trajectories, {paid} new rollouts",
    )


def amount(outlook: Outlook) -> Amount:
    """Rollouts: as many a trajectory as in earlier searches; never measured, the most that the recipe allows."""
    search = outlook.config.pivotal
    most = search.trajectories * search.max_nodes * search.rollouts
    if outlook.context is None or most == 0:
        return Amount(most, "rollouts", "at most")
    rates = [e.rows / e.config.pivotal.trajectories for e in outlook.executions if e.config.pivotal.trajectories]
    if not rates:
        return Amount(most, "rollouts", "at most")
    likely = sorted(rates)[len(rates) // 2] * search.trajectories
    return Amount(min(most, round(likely)), "rollouts", f"as earlier searches; at most {most}")


def plan(context: Context, prompts: PromptSet) -> SearchPlan:
    """The searches of this run."""
    rows = context.warehouse.rows(
        SELECTION,
        {
            "corpus_id": context.manifest(CorpusManifest).corpus_id,
            "problem_ids": sorted(prompts.prompts),
            "longest": context.config.engine.max_response_tokens,
            "limit": context.config.pivotal.trajectories,
        },
    )
    known = counts(context, prompts)
    tokenizer = checkpoints.load_tokenizer(prompts.reference) if context.config.pivotal.line_ends else None
    searches: list[Search] = []
    for row in rows:
        prompt = prompts.prompts[row["problem_id"]]
        group = "/".join((prompt.prompt_id, prompt.problem.suite_hash, prompts.policy_id, sampling(context)))
        ends = line_ends(tokenizer, row["token_ids"]) if tokenizer else []
        start = known[row["problem_id"]]
        searches.append(Search.start(row["trajectory_id"], row["token_ids"], start, group=group, line_ends=ends))
    tokens = {row["trajectory_id"]: (row["problem_id"], list(row["token_ids"])) for row in rows}
    return SearchPlan(searches, tokens, rolled_out_and_put_aside(context, WAVE, reference=prompts.policy_id))


def line_ends(tokenizer: Any, token_ids: Sequence[int]) -> list[int]:
    """Positions right after the tokens that hold a line end."""
    ends = {token: "\n" in str(tokenizer.decode([token])) for token in set(token_ids)}
    return [position for position, token in enumerate(token_ids, start=1) if ends[token]]


def _stored(context: Context, prompts: PromptSet) -> dict[str, tuple[int, int]]:
    rows = context.warehouse.rows(STORED, [prompts.policy_id, WAVE])
    return {row["prefix_hash"]: (int(row["n"]), int(row["k"])) for row in rows}


def advance(
    context: Context,
    prompts: PromptSet,
    planned: SearchPlan,
    seen: PrefixCounts,
    rule: SearchConfig,
    sampler: Sampler,
) -> int:
    """Roll out wave after wave until no search wants more; the rollouts drawn."""
    paid, wave = 0, 0
    while nodes := wavefront(planned.searches, seen, rule):
        wave += 1
        chunks = [nodes[start : start + NODES_PER_BATCH] for start in range(0, len(nodes), NODES_PER_BATCH)]
        asked = [[_assignment(prompts, node, planned, seen) for node in chunk] for chunk in chunks]
        done = 0
        found = sampler.roll(asked, source="pivotal_rollout", step=lambda: 0)
        for chunk, judged in zip(chunks, found, strict=True):
            paid += _absorb(context, prompts, planned, chunk, seen, scored(judged))
            done += len(chunk)
            context.progress(done, len(nodes), "prefixes", f"wave {wave}, {paid} rollouts")
    return paid


def _absorb(
    context: Context,
    prompts: PromptSet,
    planned: SearchPlan,
    nodes: list[Node],
    seen: PrefixCounts,
    judged: list[Judged],
) -> int:
    """Commit counts and rollouts of the nodes as one batch, and remember what came of it; the rollouts."""
    tally = [[0, 0] for _ in nodes]
    for item in judged:
        if item.row["reward"] is not None:
            tally[item.assignment][0] += 1
            tally[item.assignment][1] += item.row["reward"] == 0
    if any(n == 0 for n, _ in tally):
        raise SandboxFailing("a prefix got no verdict at all from the sandbox; nothing of this wave was stored")
    work = [(node.prefix, planned.start(node.prefix, seen), node.rollouts) for node in nodes]
    unit = digest(prefixes_start_rollouts=work)
    rows = [
        {
            "trajectory_id": node.trajectory_id,
            "position": node.position,
            "prefix_hash": node.prefix,
            "reference": prompts.policy_id,
            "n": n,
            "k": k,
            "search_id": WAVE + unit,
        }
        for node, (n, k) in zip(nodes, tally, strict=True)
    ]
    batch = retry_batch_id(context, f"{SEARCH}{prompts.policy_id}/{unit}")
    context.warehouse.append(batch, {"token_values": rows, **tables(judged)}, run_id=context.run_id)
    for node, (n, k) in zip(nodes, tally, strict=True):
        seen.absorb(node.prefix, n, k)
    return len(judged)


def _assignment(prompts: PromptSet, node: Node, planned: SearchPlan, seen: PrefixCounts) -> Assignment:
    problem_id, token_ids = planned.tokens[node.trajectory_id]
    plain = prompts.assignment(problem_id, node.rollouts, "pivotal", node.prefix, planned.start(node.prefix, seen))
    return Assignment(
        plain.problem,
        plain.prompt_id,
        plain.prompt_ids,
        plain.n,
        plain.seed,
        prefix_ids=tuple(token_ids[: node.position]),
        parent_trajectory_id=node.trajectory_id,
    )


def _annotate(
    context: Context, prompts: PromptSet, searches: list[Search], outcomes: list[Outcome], seen: PrefixCounts
) -> str:
    rows: list[dict[str, Any]] = []
    for search, outcome in zip(searches, outcomes, strict=True):
        pivotal = {pivot.position for pivot in outcome.pivots}
        for position in sorted({*outcome.estimated, *(p for p in pivotal if p < search.length)}):
            known = seen.of(search, position)
            if known.n == 0:
                continue
            rows.append(
                {
                    "trajectory_id": search.trajectory_id,
                    "position": position,
                    "prefix_hash": search.prefix(position),
                    "reference": prompts.policy_id,
                    "n": known.n,
                    "k": known.k,
                    "pivotal": position in pivotal,
                }
            )
    search_id = ANNOTATION + digest(annotations=[list(row.items()) for row in rows])
    annotated = [row | {"search_id": search_id} for row in rows]
    batch = retry_batch_id(context, f"{SEARCH}{search_id}")
    context.warehouse.append(batch, {"token_values": annotated}, run_id=context.run_id)
    return search_id


STAGE = Stage(
    manifest=PivotalManifest,
    version=1,
    sections=("pivotal", "sandbox", "reference.dtype"),
    inputs=inputs,
    body=body,
    amount=amount,
)
