"""Files of responses from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.corpus import files
from tasks.problems.records import InvalidProblem

ROW: dict[str, Any] = {"problem_id": "p", "text": "Think.\n```python\nprint(1)\n```"}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_texts_and_programs_are_read_with_their_source_and_writer(tmp_path: Path) -> None:
    rows = [ROW, {"problem_id": "p", "program": "print(2)", "source": "human", "model": "a friend"}]
    text, program = files.read(write(tmp_path / "a.jsonl", rows), {"p"}, "own").items
    assert (text.source, text.origin, text.is_program) == ("other_model", "other_model", False)
    assert (program.source, program.origin, program.is_program) == ("human", "a friend", True)


def test_parquet_is_read_like_json_lines(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([ROW]), tmp_path / "a.parquet")
    lines = files.read(write(tmp_path / "a.jsonl", [ROW]), {"p"}, "own").items
    assert files.read(tmp_path / "a.parquet", {"p"}, "own").items == lines


def test_token_ids_are_taken_from_the_policys_own_tokenizer_only(tmp_path: Path) -> None:
    rows = [ROW | {"token_ids": [1, 2], "tokenizer_hash": name} for name in ("own", "other")]
    read = files.read(write(tmp_path / "a.jsonl", rows), {"p"}, "own")
    assert [item.token_ids for item in read.items] == [(1, 2), None]
    assert read.retokenized == 1


def test_rows_for_other_problems_are_counted(tmp_path: Path) -> None:
    read = files.read(write(tmp_path / "a.jsonl", [ROW, ROW | {"problem_id": "q"}]), {"p"}, "own")
    assert (len(read.items), read.left_out) == (1, {"a.jsonl: no training problem of this run": 1})


def test_another_runs_own_names_of_sources_are_understood(tmp_path: Path) -> None:
    rows = [ROW | {"source": name} for name in ("online", "reference")]
    read = files.read(write(tmp_path / "a.jsonl", rows), {"p"}, "own")
    assert [item.source for item in read.items] == ["prior_spo", "other_model"]


@pytest.mark.parametrize(
    "change, field",
    [
        ({"text": ""}, "text"),
        ({"program": "print(1)"}, "text"),
        ({"source": "the moon"}, "source"),
        ({"finish_reason": "tired"}, "finish_reason"),
        ({"token_ids": ["a"], "tokenizer_hash": "own"}, "token_ids"),
        ({"problem_id": None}, "problem_id"),
    ],
)
def test_a_malformed_row_is_named(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidProblem, match=rf"a\.jsonl:2: field '{field}'"):
        files.read(write(tmp_path / "a.jsonl", [ROW, ROW | change]), {"p"}, "own")


def test_the_content_decides_a_files_identity(tmp_path: Path) -> None:
    one, same = write(tmp_path / "a.jsonl", [ROW]), write(tmp_path / "b.jsonl", [ROW])
    assert files.content_hash(one) == files.content_hash(same)
    assert files.content_hash(write(tmp_path / "a.jsonl", [ROW, ROW])) != files.content_hash(same)
