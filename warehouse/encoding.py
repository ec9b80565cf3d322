"""Rows to Arrow tables to Parquet bytes: frozen schemas, validation, and the encodings chosen by measurement.

Token ids and short repeated texts are dictionary-encoded, floats are byte-stream-split, everything is zstd level 1
(figures in docs/evidence/benchmarks.md). Row groups are small, so the newest rows are found without reading the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from warehouse.errors import InvalidRows, UnknownTable
from warehouse.schema import PROVENANCE, SCHEMA_VERSION, TABLES, Column, TableSchema

ROW_GROUP_ROWS: Final = 2048
pc: Any = pyarrow.compute  # its functions are made at import, where no type checker sees them
_ARROW: Final[dict[str, pa.DataType]] = {
    "VARCHAR": pa.string(),
    "BIGINT": pa.int64(),
    "INTEGER": pa.int32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "INTEGER[]": pa.list_(pa.int32()),
    "FLOAT[]": pa.list_(pa.float32()),
    "VARCHAR[]": pa.list_(pa.string()),
    'STRUCT("input" VARCHAR, "output" VARCHAR)[]': pa.list_(
        pa.struct([pa.field("input", pa.string()), pa.field("output", pa.string())])
    ),
}
_LISTS_OF_ONE_LENGTH: Final = {
    "trajectories": ("token_ids", "sampled_logprobs"),
    "eval_samples": ("token_ids", "sampled_logprobs"),
    "train_batches": ("trajectory_ids", "sources"),
}
_UNREPEATED: Final = (
    *("text", "statement", "program", "input", "expected", "detail", "output", "config_json", "manifest_json"),
)


def table_named(name: str) -> TableSchema:
    """The table of that name; raises UnknownTable."""
    if name not in TABLES:
        raise UnknownTable(f"there is no table {name!r}; the tables are {', '.join(TABLES)}")
    return TABLES[name]


@cache
def arrow_schema(name: str) -> pa.Schema:
    """The frozen Arrow schema of a table; every field's metadata holds its meaning."""
    table = table_named(name)
    return pa.schema([_field(column) for column in (*table.columns, *PROVENANCE)])


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, _ARROW[column.type], nullable=not column.required, metadata={"doc": column.meaning})


def to_arrow(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    run_id: str | Sequence[str],
    batch_id: str,
    now: datetime | Sequence[datetime],
) -> pa.Table:
    """`rows` in the table's schema with their provenance; raises InvalidRows naming table, row and field.

    Run and time are those of all rows, or one for each.
    """
    table = table_named(name)
    own = {column.name for column in table.columns}
    for number, row in enumerate(rows):
        if not own.issuperset(row):
            unknown = sorted(set(row) - own)
            raise InvalidRows(f"table {name!r}, row {number}: no such field {unknown[0]!r}", code="UnknownField")
    schema = arrow_schema(name)
    arrays = [_column(name, column, rows, schema.field(column.name).type) for column in table.columns]
    stamp: tuple[Any, ...] = (run_id, batch_id, now, SCHEMA_VERSION)
    for column, value in zip(PROVENANCE, stamp, strict=True):
        kind = schema.field(column.name).type
        each = isinstance(value, list | tuple)
        arrays.append(pa.array(value, kind) if each else pa.repeat(pa.scalar(value, kind), len(rows)))
    built = pa.Table.from_arrays(arrays, schema=schema)
    _check_lists(name, built)
    return built


def check(name: str, rows: Sequence[Mapping[str, Any]], *, origin: str) -> None:
    """Raise InvalidRows, naming `origin`, when any of the rows does not fit the table."""
    try:
        to_arrow(name, rows, run_id="check", batch_id="check", now=datetime.fromtimestamp(0, UTC))
    except InvalidRows as error:
        raise InvalidRows(f"{origin}: {error}", code=error.code) from None


def _column(table: str, column: Column, rows: Sequence[Mapping[str, Any]], arrow: pa.DataType) -> pa.Array:
    values = [row.get(column.name) for row in rows]
    try:
        array = pa.array(values, arrow)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError):
        raise _misfit(table, column, values, arrow) from None
    if column.required and array.null_count:
        number = pc.index(array.is_null(), True).as_py()
        raise InvalidRows(
            f"table {table!r}, row {number}: field {column.name!r} is missing or null", code="MissingField"
        )
    if column.choices:
        known = pc.is_in(array, pa.array([*column.choices, None], pa.string()))
        if not pc.all(known).as_py() and len(array):
            number = pc.index(known, False).as_py()
            allowed = ", ".join(column.choices)
            raise InvalidRows(
                f"table {table!r}, row {number}: field {column.name!r} is {values[number]!r}, not one of {allowed}",
                code="UnknownChoice",
            )
    if column.name == "reward":
        _check_rewards(table, values)
    return array


def _misfit(table: str, column: Column, values: list[Any], arrow: pa.DataType) -> InvalidRows:
    for number, value in enumerate(values):
        try:
            pa.array([value], arrow)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError):
            shown = repr(value)
            shown = shown if len(shown) <= 80 else shown[:77] + "..."
            return InvalidRows(
                f"table {table!r}, row {number}: field {column.name!r} holds {shown} "
                f"({type(value).__name__}), which is not {column.type}",
                code="WrongType",
            )
    return InvalidRows(f"table {table!r}: field {column.name!r} does not fit {column.type}", code="WrongType")


def _check_rewards(table: str, values: list[Any]) -> None:
    for number, value in enumerate(values):
        if value is not None and (not math.isfinite(value) or not -1 <= value <= 0):
            raise InvalidRows(
                f"table {table!r}, row {number}: field 'reward' is {value!r}, outside [-1, 0]", code="OutOfRange"
            )


def _check_lists(name: str, built: pa.Table) -> None:
    if name not in _LISTS_OF_ONE_LENGTH:
        return
    first, second = _LISTS_OF_ONE_LENGTH[name]
    one, two = (pc.list_value_length(built.column(field)) for field in (first, second))
    same = pc.fill_null(pc.equal(one, two), True)
    if built.num_rows and not pc.all(same).as_py():
        number = pc.index(same, False).as_py()
        raise InvalidRows(
            f"table {name!r}, row {number}: {second!r} has {two[number].as_py()} elements, "
            f"{first!r} has {one[number].as_py()}",
            code="UnequalLengths",
        )


def from_arrow(name: str, found: pa.Table) -> pa.Table:
    """`found` (of an equal or older version) in today's schema; raises InvalidRows when a column does not fit."""
    schema = arrow_schema(name)
    arrays: list[Any] = []
    for field in schema:
        if field.name not in found.column_names:
            if not field.nullable:
                raise InvalidRows(f"table {name!r}: the field {field.name!r} is missing", code="MissingField")
            arrays.append(pa.nulls(found.num_rows, field.type))
            continue
        try:
            arrays.append(found.column(field.name).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidRows(
                f"table {name!r}: the field {field.name!r} does not fit: {error}", code="WrongType"
            ) from None
    unknown = sorted(set(found.column_names) - set(schema.names))
    if unknown:
        raise InvalidRows(f"table {name!r}: no such field {unknown[0]!r}", code="UnknownField")
    return pa.Table.from_arrays(arrays, schema=schema)


def parquet_bytes(name: str, table: pa.Table) -> memoryview:
    """The table as one Parquet file."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **_writer_options(name)) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
    return memoryview(sink.getvalue())


@cache
def _writer_options(name: str) -> dict[str, Any]:
    """Dictionary for token ids and repeated texts, byte-stream-split for the floats of lists.

    Long texts and the elements of lists have no statistics: nobody asks for a range of them, and the catalog would
    keep a smallest and a largest whole text for every file.
    """
    dictionary: list[str] = []
    split: list[str] = []
    statistics: list[str] = []
    for column in (*table_named(name).columns, *PROVENANCE):
        if not column.type.endswith("[]") and column.name not in _UNREPEATED:
            statistics.append(column.name)
        if column.type == "INTEGER[]":
            dictionary.append(f"{column.name}.list.element")
        elif column.type == "FLOAT[]":
            split.append(f"{column.name}.list.element")
        elif column.type == "VARCHAR" and column.name not in _UNREPEATED:
            dictionary.append(column.name)
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": dictionary,
        "use_byte_stream_split": split,
        "write_statistics": statistics,
        "store_schema": False,
    }
