"""Files of responses from elsewhere: JSON Lines or Parquet, each row a response (docs/guides/corpus.md)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from tasks.corpus.ingestion import ExternalResponse
from tasks.problems.records import Record, files_of, read_records

SOURCES = {"online": "prior_spo", "prior_spo": "prior_spo", "prior_ppo": "prior_ppo", "human": "human"} | {
    "other_model": "other_model",
    "reference": "other_model",
}
"""What a row may call itself, and what the corpus calls it: another run's pi_0 is another model here."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file holds for the run's problems."""

    items: list[ExternalResponse]
    left_out: dict[str, int]
    """Rows that were not taken, by reason."""
    retokenized: int
    """Rows that came with token ids of another tokenizer."""


def read(path: Path, problems: Container[str], tokenizer_hash: str) -> Imported:
    """The responses in a file, folder or pattern. Raises InvalidProblem (names file, line and field)."""
    items: list[ExternalResponse] = []
    left_out: Counter[str] = Counter()
    retokenized = 0
    for record in read_records(path):
        if record.text("problem_id") not in problems:
            left_out[f"{path.name}: no training problem of this run"] += 1
            continue
        item = _item(record, tokenizer_hash)
        retokenized += bool(record.items("token_ids")) and item.token_ids is None
        items.append(item)
    return Imported(items, dict(left_out), retokenized)


def check_record(record: Record) -> None:
    """Raise InvalidProblem (names file, line and field) unless the record is a response that can be taken in."""
    record.text("problem_id")
    _item(record, "")


def content_hash(path: Path) -> str:
    """Identity of what the files hold. Raises InvalidProblem."""
    digest = hashlib.sha256()
    for file in files_of(path):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:24]


def _item(record: Record, tokenizer_hash: str) -> ExternalResponse:
    source = record.text("source", "other_model")
    if source not in SOURCES:
        raise record.error("source", f"must be one of {', '.join(SOURCES)}, is {source!r}")
    program = record.text("program", "") or record.text("code", "")
    text = record.text("text", "")
    if bool(program) == bool(text):
        raise record.error("text", "and 'program' exclude each other" if text else "is missing, and so is 'program'")
    finish = record.text("finish_reason", "stop")
    if finish not in {"stop", "length"}:
        raise record.error("finish_reason", f"must be stop or length, is {finish!r}")
    return ExternalResponse(
        record.text("problem_id"),
        SOURCES[source],
        record.text("model", "") or source,
        program or text,
        is_program=bool(program),
        finished=finish == "stop",
        token_ids=_own_tokens(record, tokenizer_hash),
    )


def _own_tokens(record: Record, tokenizer_hash: str) -> tuple[int, ...] | None:
    """The row's token ids if they are the policy's."""
    ids = record.items("token_ids")
    if not ids or record.text("tokenizer_hash", "") != tokenizer_hash:
        return None
    if not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in ids):
        raise record.error("token_ids", "must be a list of token numbers")
    return tuple(ids)
