from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import warehouse
from sandbox import Judge, Judgement, Limits, SandboxError, Submission, Verdict
from tasks.config import BehaviourConfig, SandboxConfig
from tasks.engines.scripted_engine import ScriptedEngine
from tasks.problems.problem import Problem
from tasks.problems.prompt import FewShotTemplate
from tasks.programs.extraction import program_hash
from tasks.sampling.assignment import Assignment
from tasks.sampling.sampler import (
    Judged,
    KnownVerdicts,
    Sampler,
    drawn_temperature,
    eval_sample_row,
    sampling_label,
    tables,
)
from tests.refusals import refused
from tests.tasks.sampling.conftest import BROKEN, END, RIGHT, SAME, WRONG, response, scripted

PROMPT = (5, 6, 7)


class CountingJudge:
    """The real judge, counting what it is asked; `verdict` replaces its answers."""

    def __init__(self, judge: Judge, verdict: Verdict | None = None) -> None:
        self._judge, self._verdict = judge, verdict
        self.seen: list[Submission] = []

    def judge_stream(self, submissions: Any) -> Any:
        def watched() -> Any:
            for submission in submissions:
                self.seen.append(submission)
                yield submission

        for number, judgement in self._judge.judge_stream(watched()):
            yield number, Judgement(self._verdict, 0, 2, detail="as the test wants") if self._verdict else judgement


def sampler(engine: Any, tokenizer: Any, judge: Any, **changes: Any) -> Sampler:
    settings = {"behaviour": BehaviourConfig(temperature=(1, 1), top_p=1), "max_response_tokens": 60} | changes
    return Sampler(engine, tokenizer, judge, **settings)


def assigned(problem: Problem, n: int, **changes: Any) -> Assignment:
    return replace(Assignment(problem, "prompt-1", PROMPT, n, seed=3), **changes)


def run(sampler: Sampler, *assignments: Assignment) -> list[Judged]:
    return list(sampler.run(assignments, source="online", worker="worker-1", step=4))


def test_rewards_follow_the_verdicts(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    engine = scripted(tokenizer, RIGHT, WRONG, BROKEN)
    rows = [item.row for item in run(sampler(engine, tokenizer, judge), assigned(problem, 30))]
    found = {(row["text"], row["verdict"], row["reward"], row["tests_passed"]) for row in rows}
    assert found == {
        (RIGHT, "accepted", 0.0, 2),
        (WRONG, "wrong_answer", -1.0, 0),
        (BROKEN, "compile_error", -1.0, 0),
    }
    assert len(rows) == 30


class PatientJudge:
    """Gives no verdict before everything has been sampled."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.all_sampled = threading.Event()

    def judge_stream(self, submissions: Any) -> Any:
        def taken() -> Any:
            for submission in submissions:
                assert self.all_sampled.wait(30), "sampling waits for a verdict"
                yield submission

        yield from self._judge.judge_stream(taken())


def test_sampling_never_waits_for_a_verdict(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    patient = PatientJudge(judge)
    programs = [f"print({number})" for number in range(40)]

    def sampled(done: int, wanted: int) -> None:
        if done == wanted:
            patient.all_sampled.set()

    drawing = sampler(scripted(tokenizer, *programs), tokenizer, patient)
    judged = list(drawing.run([assigned(problem, 40)], source="online", progress=sampled))
    assert len(judged) == 40
    assert all(item.row["reward"] == -1.0 for item in judged)


def test_a_judge_that_fails_stops_the_sampling(problem: Problem, tokenizer: Any) -> None:
    class Failing:
        def judge_stream(self, submissions: Any) -> Any:
            next(iter(submissions))
            raise SandboxError("no walls")
            yield

    with refused("SandboxError"):
        run(sampler(scripted(tokenizer, RIGHT), tokenizer, Failing()), assigned(problem, 5))


def test_sampling_can_be_given_up_half_way(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    drawing = sampler(scripted(tokenizer, RIGHT, WRONG), tokenizer, judge)
    for _ in range(2):
        rows = drawing.run([assigned(problem, 30)], source="online")
        assert next(rows).row["verdict"] in ("accepted", "wrong_answer")
        rows.close()
    assert len(run(drawing, assigned(problem, 30))) == 30


def test_identical_programs_are_judged_once_and_give_one_verdict_row(
    problem: Problem, tokenizer: Any, judge: Judge
) -> None:
    counting = CountingJudge(judge)
    judged = run(sampler(scripted(tokenizer, RIGHT, SAME, WRONG), tokenizer, counting), assigned(problem, 40))
    assert sorted(program_hash(s.program) for s in counting.seen) == sorted(map(program_hash, (RIGHT, WRONG)))
    assert {row["program_hash"] for row in tables(judged)["verdicts"]} == {program_hash(RIGHT), program_hash(WRONG)}
    assert len(tables(judged)["verdicts"]) == 2
    assert len(tables(judged)["trajectories"]) == 40


def test_a_response_cut_off_fails_and_never_reaches_the_sandbox(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    counting = CountingJudge(judge)
    short = sampler(scripted(tokenizer, RIGHT), tokenizer, counting, max_response_tokens=10)
    (item,) = run(short, assigned(problem, 1))
    assert counting.seen == []
    assert (item.row["verdict"], item.row["reward"], item.row["finish_reason"]) == ("cut_off", -1.0, "length")
    assert item.row["token_ids"] == list(response(tokenizer, RIGHT)[:10])
    assert item.verdict_row is None


def test_an_infrastructure_failure_leaves_the_response_unscored_and_is_not_remembered(
    problem: Problem, tokenizer: Any, judge: Judge
) -> None:
    counting = CountingJudge(judge, Verdict.infra)
    unlucky = sampler(scripted(tokenizer, RIGHT), tokenizer, counting)
    for _ in range(2):
        (item,) = run(unlucky, assigned(problem, 1))
        assert (item.row["verdict"], item.row["reward"], item.verdict_row) == ("infra", None, None)
        assert item.detail == "as the test wants"
    assert len(counting.seen) == 2


def test_verdicts_of_the_warehouse_are_used_by_the_next_sampler(
    problem: Problem, tokenizer: Any, judge: Judge, tmp_path: Path
) -> None:
    engine = scripted(tokenizer, RIGHT, WRONG)
    with warehouse.Warehouse.open(tmp_path) as store:
        first = run(sampler(engine, tokenizer, judge, known=KnownVerdicts(store)), assigned(problem, 20))
        store.append("batch-1", tables(first), run_id="run-1")
        counting = CountingJudge(judge)
        again = sampler(engine, tokenizer, counting, known=KnownVerdicts(store))
        second = run(again, assigned(problem, 20, seed=8))
        assert counting.seen == []
        assert tables(second)["verdicts"] == []
        assert {item.row["verdict"] for item in second} == {"accepted", "wrong_answer"}
        store.append("batch-2", tables(second), run_id="run-1")
        assert store.value("SELECT count(*) FROM trajectories") == 40


def test_other_limits_are_another_suite_and_judged_anew(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    known, counting = KnownVerdicts(), CountingJudge(judge)
    engine = scripted(tokenizer, RIGHT)
    (plain,) = run(sampler(engine, tokenizer, counting, known=known), assigned(problem, 1))
    limits = SandboxConfig(cpu_limit_s=1.0, memory_limit_mb=256)
    (limited,) = run(sampler(engine, tokenizer, counting, known=known, sandbox_config=limits), assigned(problem, 1))
    assert [s.suite.limits for s in counting.seen] == [Limits(), Limits(cpu_s=1.0, memory_bytes=256 << 20)]
    assert plain.row["suite_hash"] != limited.row["suite_hash"]


def test_a_prefix_is_continued_and_kept_in_the_row(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    whole = response(tokenizer, RIGHT)
    prefix, rest = whole[:8], whole[8:]
    engine = ScriptedEngine([response(tokenizer, WRONG)], {PROMPT + prefix: (rest,)}, stop_ids=[END])
    wanted = assigned(problem, 2, prefix_ids=prefix, parent_trajectory_id="parent")
    for item in run(sampler(engine, tokenizer, judge), wanted):
        row = item.row
        assert (row["token_ids"], row["prefix_tokens"], row["prompt_tokens"]) == (list(whole), 8, 3)
        assert row["sampled_logprobs"] == [None] * 8 + [0.0] * len(rest)
        assert (row["reward"], row["parent_trajectory_id"]) == (0.0, "parent")


def test_a_prefix_that_leaves_no_room_is_an_error(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    with pytest.raises(ValueError):
        run(sampler(scripted(tokenizer, RIGHT), tokenizer, judge), assigned(problem, 1, prefix_ids=(1,) * 60))


def test_a_stop_mark_ends_a_response_in_place_of_the_end_token(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    engine = scripted(tokenizer, RIGHT + "\n\n# Task: something else\nprint(3)")
    (item,) = run(sampler(engine, tokenizer, judge, template=FewShotTemplate()), assigned(problem, 1))
    kept = response(tokenizer, RIGHT + "\n\n# Task:", end=False)
    assert (item.row["token_ids"], item.row["finish_reason"]) == (list(kept), "stop")
    assert len(item.row["sampled_logprobs"]) == len(kept)
    assert item.row["reward"] == 0.0


def test_the_same_seed_gives_the_same_rows_and_another_seed_other_ones(
    problem: Problem, tokenizer: Any, judge: Judge
) -> None:
    drawing = sampler(
        scripted(tokenizer, RIGHT, WRONG), tokenizer, judge, behaviour=BehaviourConfig(temperature=(0.1, 0.8))
    )
    first, again, other = (
        {item.row["trajectory_id"] for item in run(drawing, assigned(problem, 12, seed=seed))} for seed in (3, 3, 4)
    )
    assert first == again
    assert len(first | other) == 24


def test_temperatures_are_uniform_between_the_bounds() -> None:
    behaviour = BehaviourConfig(temperature=(0.1, 0.8))
    drawn = [drawn_temperature(behaviour, seed) for seed in range(4000)]
    assert min(drawn) >= 0.1
    assert max(drawn) <= 0.8
    assert sum(drawn) / len(drawn) == pytest.approx(0.45, abs=0.01)
    assert drawn_temperature(BehaviourConfig(temperature=(0.4, 0.4)), 7) == 0.4


def test_rows_name_their_origin(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    (item,) = run(sampler(scripted(tokenizer, RIGHT), tokenizer, judge), assigned(problem, 1))
    expected = {
        "source": "online",
        "worker": "worker-1",
        "step": 4,
        "policy_start": "scripted",
        "policy_end": "scripted",
        "engine": "scripted",
        "logprob_kind": "raw",
        "seed": 3,
        "top_p": 1.0,
        "temperature": 1.0,
    }
    assert {name: item.row[name] for name in expected} == expected


def test_progress_counts_every_response(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    told: list[tuple[int, int]] = []
    drawing = sampler(scripted(tokenizer, RIGHT, WRONG), tokenizer, judge)
    for _ in drawing.run([assigned(problem, 5)], source="online", progress=lambda *counts: told.append(counts)):
        pass
    assert told == [(number, 5) for number in range(1, 6)]


def test_progress_follows_the_sampling_also_when_every_verdict_is_known(
    problem: Problem, tokenizer: Any, judge: Judge
) -> None:
    engine = scripted(tokenizer, RIGHT)
    told: list[int] = []
    told_at_sample: list[int] = []

    class Watched:
        name, logprob_kind, policy_id = engine.name, engine.logprob_kind, engine.policy_id

        def sample(self, requests: Any) -> Any:
            for completion in engine.sample(requests):
                told_at_sample.append(len(told))
                yield completion

    drawing = sampler(Watched(), tokenizer, judge)
    run(drawing, assigned(problem, 1))
    told_at_sample.clear()
    again = drawing.run([assigned(problem, 6)], source="online", progress=lambda done, _: told.append(done))
    assert len(list(again)) == 6
    assert told_at_sample == [0, 1, 2, 3, 4, 5]


def test_evaluation_rows_fit_the_warehouse(problem: Problem, tokenizer: Any, judge: Judge, tmp_path: Path) -> None:
    drawing = sampler(scripted(tokenizer, RIGHT, WRONG), tokenizer, judge)
    label = sampling_label(drawing.behaviour, 60)
    rows = [eval_sample_row(item, problem, label) for item in run(drawing, assigned(problem, 6))]
    with warehouse.Warehouse.open(tmp_path) as store:
        store.append("eval-1", {"eval_samples": rows}, run_id="run-1")
        found = store.rows("SELECT sample, sampling, policy_id FROM eval_samples ORDER BY sample")
    assert [row["sample"] for row in found] == list(range(6))
    assert {(row["sampling"], row["policy_id"]) for row in found} == {("T=1 top_p=1 max=60", "scripted")}


def test_an_unjudgeable_problem_is_refused_by_name(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    broken = replace(problem, unjudgeable_reason="needs a special checker")
    with refused("ValueError", "'double'"):
        run(sampler(scripted(tokenizer, RIGHT), tokenizer, judge), assigned(broken, 1))


def test_the_script_ends_with_its_end_token(tokenizer: Any) -> None:
    assert response(tokenizer, RIGHT)[-1] == END
    assert tokenizer.decode(response(tokenizer, RIGHT), skip_special_tokens=True) == RIGHT


def test_programs_are_judged_while_others_are_still_sampled(problem: Problem, tokenizer: Any, judge: Judge) -> None:
    engine = scripted(tokenizer, *(f"print({number} * int(input()))" for number in range(40)))
    sampled: list[int] = []
    one_is_judged = threading.Event()

    class Watched:
        name, logprob_kind, policy_id = engine.name, engine.logprob_kind, engine.policy_id

        def sample(self, requests: Any) -> Any:
            """The first ten at once; the others only when a verdict has come, however slow the judge is."""
            for completion in engine.sample(requests):
                if len(sampled) == 10:
                    assert one_is_judged.wait(120), "nothing is judged before all is sampled"
                sampled.append(completion.index)
                yield completion

    class Announcing:
        def judge_stream(self, submissions: Any) -> Any:
            for found in judge.judge_stream(submissions):
                yield found
                one_is_judged.set()

    judged = sampler(Watched(), tokenizer, Announcing()).run([assigned(problem, 100)], source="online")
    next(judged)
    assert len(sampled) <= 11
    assert len(list(judged)) == 99
