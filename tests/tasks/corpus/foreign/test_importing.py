"""Rollouts of other programs, in files that these programs wrote (fixtures/write.py), become judged trajectories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.checkpoints import checkpoint
from tasks.extras.importing.formats.response import ForeignResponse, Found, Naming, RefusedRow
from tasks.extras.importing.rollouts import READERS, UNJUDGED, Account, Claims, Source, import_rollouts
from tasks.problems.hub import HubPlace
from tasks.problems.records import InvalidProblem
from tasks.run import prompt_set, runs
from tasks.run.sampling import SandboxFailing
from tasks.run.stage import Context
from tests.tasks.conftest import Lab, judge_broken_at, judgements_lost

FIXTURES = Path(__file__).parent / "fixtures"
RIGHT = "t = 1\nfor x in map(int, input()):\n    if x % 3 > 0:\n        t *= x\nprint(t)"
PRODUCT = "miniature/digits.not_threes.-.product"
POEM = "answers no problem of the run: neither its name nor a statement in its prompt is known"
HELD_OUT = "answers an evaluation problem of the run, which is never trained on"


@pytest.fixture
def lab(prepared: Lab) -> Lab:
    return prepared


def imported(lab: Lab, source: Source) -> Account:
    with lab.store() as store:
        return import_rollouts(Context("micro-1", runs.load_config(store, "micro-1"), store, lab.home), source)


def fixture(format: str, name: str, **choices: Any) -> Source:
    return Source(format, FIXTURES / name, **choices)


def read(format: str, name: str, **columns: str) -> list[Found]:
    return list(READERS[format](FIXTURES / name, Naming(columns)))


def where(rows: dict[str, list[str]]) -> dict[str, list[str]]:
    return {reason: [place.rsplit("/", 1)[-1] for place in places] for reason, places in rows.items()}


def test_every_row_of_verifiers_traces_is_taken_or_refused_with_its_line_and_reason(lab: Lab) -> None:
    account = imported(lab, fixture("verifiers", "traces"))
    assert (account.rows, account.new, account.known, account.refusals) == (9, 4, 0, 5)
    assert account.verdicts == {"accepted": 3, "wrong_answer": 1}
    assert account.writers == {"some/model": 4}
    assert (account.judged, account.reused) == (3, 1)
    assert where(account.refused) == {
        POEM: ["traces.jsonl:5"],
        HELD_OUT: ["traces.jsonl:6"],
        "field 'nodes' hold 2 sampled messages: a rollout must be one answer": ["traces.jsonl:7"],
        "field 'errors' say that the rollout failed: the server went away": ["traces.jsonl:8"],
        "not valid JSON: Expecting value: line 2 column 1 (char 13)": ["traces.jsonl:9"],
    }
    assert [place.rsplit("/", 1)[-1] for place in account.disagreeing] == ["traces.jsonl:3"]
    assert (account.with_logprobs, account.without_logprobs, account.retokenized) == (0, 4, 4)


@pytest.mark.parametrize(
    "format, name, taken, verdicts, writer",
    [
        ("verifiers", "results", 4, {"accepted": 3, "cut_off": 1}, "an/older-model"),
        ("verl", "verl.jsonl", 4, {"accepted": 3, "wrong_answer": 1}, "unnamed (verl)"),
        ("oapl", "oapl.parquet", 4, {"accepted": 3, "wrong_answer": 1}, "unnamed (oapl)"),
        ("inspect", "log.eval", 2, {"accepted": 2}, "mockllm/model"),
        ("inspect", "log.json", 2, {"accepted": 2}, "mockllm/model"),
    ],
)
def test_files_of_each_format_are_judged_here_and_keep_who_drew_them(
    lab: Lab, format: str, name: str, taken: int, verdicts: dict[str, int], writer: str
) -> None:
    account = imported(lab, fixture(format, name))
    assert account.new == taken
    assert account.verdicts == verdicts
    assert account.writers == {writer: taken}
    assert set(account.refused) == {POEM, HELD_OUT}
    assert account.rows == account.new + account.known + account.refusals
    with lab.store() as store:
        rows = store.rows("SELECT run_id, engine, source, sampled_logprobs, logprob_kind, text FROM trajectories")
    assert len(rows) == taken
    assert {(row["run_id"], row["engine"], row["source"]) for row in rows} == {("import", writer, "other_model")}
    assert {(row["sampled_logprobs"], row["logprob_kind"]) for row in rows} == {(None, "none")}


def test_completions_that_trl_logged_are_accounted_for(lab: Lab) -> None:
    account = imported(lab, fixture("trl", "trl.parquet", model="a tiny policy"))
    rows = pq.read_table(FIXTURES / "trl.parquet").to_pylist()
    assert account.rows == len(rows) == account.new + account.refusals
    assert account.new > 0
    assert account.writers == {"a tiny policy": account.new}
    assert account.compared == account.new
    assert not account.disagreeing or all(":" in place for place in account.disagreeing)


def test_a_reward_of_trl_is_that_of_its_one_function_also_where_it_says_nothing(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "completion": "c", "format_reward": 1.0, "code_reward": value} for value in (None, 0.0)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "two.parquet")
    one = [{name: row[name] for name in ("prompt", "completion", "code_reward")} for row in rows]
    pq.write_table(pa.Table.from_pylist(one), tmp_path / "one.parquet")
    found = [[row.reward for row in READERS["trl"](tmp_path / f"{n}.parquet", Naming({}))] for n in ("two", "one")]
    assert found == [[None, None], [None, 0.0]]


def test_importing_twice_adds_nothing_and_says_so(lab: Lab) -> None:
    first = imported(lab, fixture("verl", "verl.jsonl"))
    rows = lab.value("SELECT count(*) FROM trajectories")
    again = imported(lab, fixture("verl", "verl.jsonl"))
    assert (again.new, again.known, again.judged) == (0, first.new, 0)
    assert again.verdicts == first.verdicts
    assert lab.value("SELECT count(*) FROM trajectories") == rows


def test_what_the_sandbox_fails_on_is_not_taken_in_but_judged_by_the_next_import(lab: Lab) -> None:
    source = fixture("verl", "verl.jsonl")
    with judgements_lost(lambda given: range(len(given) - 3, len(given))), pytest.raises(SandboxFailing):
        imported(lab, source)
    assert lab.value("SELECT count(*) FROM trajectories") == 0
    with judgements_lost(lambda given: [len(given) - 1]):
        first = imported(lab, source)
    assert len(first.refused[UNJUDGED]) == 1
    assert lab.value("SELECT count(*) FROM trajectories WHERE reward IS NULL") == 0
    again = imported(lab, source)
    assert (again.new, again.judged) == (1, 1)
    assert lab.value("SELECT count(*) FROM trajectories") == first.new + 1
    assert imported(lab, source).new == 0


def test_what_was_put_aside_is_taken_in_when_it_is_imported_again(lab: Lab) -> None:
    first = imported(lab, fixture("verl", "verl.jsonl"))
    with lab.store() as store:
        bad = store.rows("SELECT DISTINCT batch_id AS bad_batch_id, 'by hand' AS reason FROM trajectories")
        store.append("bad", {"quarantine": bad}, run_id="by hand")
        assert store.value("SELECT count(*) FROM trajectories") == 0
    again = imported(lab, fixture("verl", "verl.jsonl"))
    assert (again.new, again.known, again.verdicts) == (first.new, 0, first.verdicts)
    assert imported(lab, fixture("verl", "verl.jsonl")).new == 0


def test_an_import_that_was_stopped_goes_on_where_it_was(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.corpus.ingestion.PROBLEMS_PER_BATCH", 1)
    with judge_broken_at(call=2):
        imported(lab, fixture("verl", "verl.jsonl"))
    stored = lab.value("SELECT count(*) FROM trajectories")
    assert 0 < stored < 4
    account = imported(lab, fixture("verl", "verl.jsonl"))
    assert (account.new, account.known) == (4 - stored, stored)


def test_rewards_can_be_believed_instead_of_judging(lab: Lab) -> None:
    account = imported(lab, fixture("verl", "verl.jsonl", claims=Claims(believed=True)))
    assert account.verdicts == {"claimed": 4}
    assert (account.judged, account.compared) == (0, 0)
    assert lab.value("SELECT count(*) FROM verdicts WHERE verdict = 'claimed'") == 0
    assert lab.value("SELECT count(*) FROM trajectories WHERE reward = 0") == 2


def traced(lab: Lab, text: str, ids: list[int], logprobs: list[float]) -> Path:
    """A trace of one answer with these tokens."""
    row = json.loads((FIXTURES / "traces" / "traces.jsonl").read_text().splitlines()[0])
    node = row["traces"][0]["nodes"][1]
    node["message"]["content"] = text
    node |= {"token_ids": [7, *ids], "mask": [False, *[True] * len(ids)], "logprobs": logprobs}
    path = lab.home / "own.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path


def own_tokens(lab: Lab, text: str) -> list[int]:
    with lab.store() as store:
        context = Context("micro-1", runs.load_config(store, "micro-1"), store, lab.home)
        tokenizer = checkpoint.load_tokenizer(prompt_set.load(context, "train").reference)
    return [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def test_tokens_of_the_policys_own_tokenizer_stay_with_their_logprobs(lab: Lab) -> None:
    ids = own_tokens(lab, RIGHT)
    logprobs = [-0.5 - place for place in range(len(ids))]
    account = imported(lab, Source("verifiers", traced(lab, RIGHT, ids, logprobs)))
    assert (account.with_logprobs, account.retokenized) == (1, 0)
    with lab.store() as store:
        (row,) = store.rows("SELECT token_ids, sampled_logprobs, logprob_kind FROM trajectories")
    assert row == {"token_ids": ids, "sampled_logprobs": logprobs, "logprob_kind": "raw"}


def test_tokens_that_say_another_text_are_made_anew_without_logprobs(lab: Lab) -> None:
    ids = own_tokens(lab, RIGHT)
    other = [ids[0] + 1, *ids[1:]]
    account = imported(lab, Source("verifiers", traced(lab, RIGHT, other, [-1.0] * len(ids))))
    assert (account.with_logprobs, account.retokenized) == (0, 1)
    assert lab.value("SELECT token_ids FROM trajectories") == ids


def test_a_text_that_the_tokenizer_cannot_give_back_is_refused(lab: Lab) -> None:
    account = imported(lab, Source("verifiers", traced(lab, RIGHT + "<|answer|>", [1], [])))
    assert list(account.refused) == ["the policy's tokenizer does not give the text back"]
    assert lab.value("SELECT count(*) FROM trajectories") == 0


def test_columns_can_be_named_for_any_rows(lab: Lab, tmp_path: Path) -> None:
    rows = [
        {"meta": json.dumps({"task": PRODUCT}), "answer": RIGHT, "by": "someone", "ok": 1.0, "why": "stop"},
        {"meta": json.dumps({"task": PRODUCT}), "answer": RIGHT, "by": "someone", "ok": 1.0, "why": "length"},
        {"meta": "{}", "answer": RIGHT, "by": "someone", "ok": 1.0, "why": "stop"},
        {"meta": json.dumps({"task": PRODUCT}), "answer": "", "by": "someone", "ok": 0.0, "why": "stop"},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    columns = {"problem_id": "meta.task", "program": "answer", "model": "by", "reward": "ok", "finish_reason": "why"}
    account = imported(lab, Source("columns", tmp_path / "rows.parquet", naming=Naming(columns)))
    assert account.verdicts == {"accepted": 1, "cut_off": 1}
    assert account.writers == {"someone": 2}
    assert [place.rsplit(":", 1)[-1] for places in account.refused.values() for place in places] == ["3", "4"]


def test_a_data_set_of_the_hub_layout_is_read_through_the_library(lab: Lab, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    folder = tmp_path / "set"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist([{"problem_id": PRODUCT, "answer": RIGHT}]), folder / "train.parquet")
    place = HubPlace(str(folder))
    account = imported(lab, Source("columns", hub=place, naming=Naming({"program": "answer"}), model="m"))
    assert (account.rows, account.verdicts) == (1, {"accepted": 1})


def test_the_account_is_kept_in_the_warehouse(lab: Lab) -> None:
    account = imported(lab, fixture("oapl", "oapl.parquet"))
    with lab.store() as store:
        (event,) = store.rows("SELECT message, payload_json FROM run_events WHERE kind = 'imported'")
    assert event["message"] == "oapl.parquet (oapl): 4 of 6 rows taken, 2 refused"
    assert json.loads(event["payload_json"])["refused"] == account.refused


def test_an_import_joins_the_corpus_of_the_run_and_moves_its_key(lab: Lab) -> None:
    with lab.store() as store:
        context = Context("micro-1", runs.load_config(store, "micro-1"), store, lab.home)
        from tasks.corpus import stage

        before = stage.inputs(context)["earlier"]
        import_rollouts(context, fixture("verl", "verl.jsonl"))
        assert stage.inputs(context)["earlier"] != before
    manifest = lab.run("micro-1", "corpus")["corpus"].manifest
    assert manifest.flow["other_model"]["came in"] == 4


def test_rows_of_two_messages_and_of_reasoning_apart_are_refused(tmp_path: Path) -> None:
    both = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    apart = [{"role": "assistant", "content": "a", "reasoning_content": "hm"}]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps({"prompt": "p", "completion": one}) + "\n" for one in (both, apart, "a")))
    two, reasoning, good = READERS["verifiers"](path, Naming())
    assert isinstance(two, RefusedRow)
    assert "2 messages" in two.reason
    assert isinstance(reasoning, RefusedRow)
    assert "is kept apart from the answer" in reasoning.reason
    assert isinstance(good, ForeignResponse)


def test_a_damaged_group_of_oapl_is_refused(tmp_path: Path) -> None:
    (row,) = pq.read_table(FIXTURES / "oapl.parquet").slice(0, 1).to_pylist()
    pq.write_table(pa.Table.from_pylist([row | {"precomputed_reward": 0.25}]), tmp_path / "damaged.parquet")
    (found,) = READERS["oapl"](tmp_path / "damaged.parquet", Naming())
    assert isinstance(found, RefusedRow)
    assert "is none of 'response_rewards'" in found.reason


def test_inspects_grades_and_attachments_are_resolved(tmp_path: Path) -> None:
    log = json.loads((FIXTURES / "log.json").read_text())
    sample = log["samples"][0]
    message = sample["output"]["choices"][0]["message"]
    sample["attachments"], message["content"] = {"abc": message["content"]}, "attachment://abc"
    (tmp_path / "log.json").write_text(json.dumps(log))
    first = next(READERS["inspect"](tmp_path / "log.json", Naming()))
    assert isinstance(first, ForeignResponse)
    assert (first.text, first.reward) == (RIGHT, 1.0)


def test_both_kinds_of_inspect_log_say_the_same() -> None:
    zipped, whole = read("inspect", "log.eval"), read("inspect", "log.json")
    assert [row.text for row in zipped if isinstance(row, ForeignResponse)] == [
        row.text for row in whole if isinstance(row, ForeignResponse)
    ]


@pytest.mark.parametrize("format", sorted(READERS))
def test_a_file_that_is_not_there_is_named(format: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidProblem):
        list(READERS[format](tmp_path / "nothing.jsonl", Naming({"text": "text"})))


def test_plain_rows_need_the_column_of_the_answer(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblem):
        list(READERS["columns"](tmp_path, Naming()))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (
            [{"role": "user", "content": "```python\nprint(1)\n```"}, {"role": "assistant", "content": "No."}],
            "2 messages",
        ),
        ([{"role": "user", "content": "Print 1."}], "1 messages"),
        ([], "0 messages"),
    ],
)
def test_a_named_column_of_messages_is_one_answer_or_refused(
    messages: list[dict[str, str]], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    own = {"problem_id": "p", "messages": [{"role": "assistant", "content": "print(1)"}]}
    path.write_text("".join(json.dumps(row) + "\n" for row in (own | {"messages": messages}, own)))
    refused, taken = READERS["columns"](path, Naming({"text": "messages"}))
    assert isinstance(refused, RefusedRow)
    assert words in refused.reason
    assert isinstance(taken, ForeignResponse)
    assert taken.text == "print(1)"
