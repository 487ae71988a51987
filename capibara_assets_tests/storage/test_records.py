"""Typed tables: shapes, clear errors, and a digest of content alone."""

import hashlib
import struct
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from capibara_assets.storage.digests import canonical_json
from capibara_assets.storage.records import (
    Record,
    SchemaError,
    conform,
    frame_digest,
    json_schema,
    polars_schema,
    problems,
    table,
)
from capibara_assets_tests.storage.rows import Row

text = st.text(st.characters(codec="utf-8"), max_size=8)
rows = st.lists(
    st.builds(
        Row,
        row_id=text,
        count=st.none() | st.integers(0, 2**63 - 1),
        score=st.floats(),
        kept=st.booleans(),
        when=st.none() | st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC)),
        tags=st.lists(text, max_size=3),
        sizes=st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
        weights=st.lists(st.floats(), max_size=2),
        kind=st.sampled_from(["a", "b"]),
        source_file=st.none() | text,
    ),
    unique_by=lambda row: row.row_id,
    max_size=6,
)


def row(**changes: Any) -> Row:
    values: dict[str, Any] = {
        "row_id": "r1", "count": 1, "score": 0.5, "kept": True, "when": None, "tags": [], "sizes": None,
        "weights": [], "kind": "a", "source_file": None,
    }  # fmt: skip
    return Row(**{**values, **changes})


@given(rows, st.randoms(use_true_random=False))
def test_order_chunks_and_volatile_columns_do_not_change_digest(records: list[Row], random: Any) -> None:
    frame = table(Row, records)
    assert problems(Row, frame) == []
    shuffled = list(records)
    random.shuffle(shuffled)
    assert table(Row, shuffled).equals(frame, null_equal=True)
    mixed = frame.sample(fraction=1.0, shuffle=True, seed=3).with_columns(source_file=pl.lit("elsewhere"))
    chunked = pl.concat([mixed[:2], mixed[2:]], rechunk=False)
    assert frame_digest(Row, chunked) == frame_digest(Row, frame)
    assert conform(Row, chunked.select(reversed(chunked.columns))).drop("source_file").equals(frame.drop("source_file"))


@given(rows, rows)
def test_equal_digest_means_equal_content(left: list[Row], right: list[Row]) -> None:
    def content(records: list[Row]) -> set[str]:
        return {
            repr(record.model_copy(update={"score": record.score + 0.0, "source_file": None})) for record in records
        }

    same = frame_digest(Row, table(Row, left)) == frame_digest(Row, table(Row, right))
    if any(-0.0 in record.weights for record in (*left, *right)):
        return  # repr tells the two zeros apart, the digest does not
    assert same == (content(left) == content(right))


@pytest.mark.parametrize(
    "change",
    [
        {"count": None}, {"count": 0}, {"score": float("nan")}, {"score": 0.5000000000000001}, {"kept": False},
        {"when": datetime(2026, 1, 1, tzinfo=UTC)}, {"tags": [""]}, {"tags": ["ab"]}, {"tags": ["a", "b"]},
        {"sizes": []}, {"sizes": [1, 11]}, {"sizes": [11, 1]}, {"weights": [1.0]}, {"kind": "b"}, {"row_id": "r2"},
    ],
)  # fmt: skip
def test_each_column_counts(change: dict[str, Any]) -> None:
    assert frame_digest(Row, table(Row, [row(**change)])) != frame_digest(Row, table(Row, [row()]))


def test_rows_beyond_one_slice_are_all_in_digest() -> None:
    frame = pl.concat([table(Row, [row()])] * 50_000).with_columns(row_id=pl.int_range(50_000).cast(pl.String))
    changed = frame.with_columns(count=pl.when(pl.col("row_id") == "49999").then(7).otherwise(pl.col("count")))
    assert frame_digest(Row, frame) == frame_digest(Row, frame.reverse())
    assert frame_digest(Row, frame) != frame_digest(Row, changed)


def test_digest_is_the_documented_one() -> None:
    """A change here changes the data version of everything ever published."""
    known = [
        row(row_id="r2", tags=["é", ""], sizes=[1, -2], weights=[0.5], when=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        row(score=1.0),
    ]
    half, one = struct.unpack("<qq", struct.pack("<dd", 0.5, 1.0))
    rows = [
        f"2:r11:119:{one}1:1~0[~0[1:a",
        f"2:r21:119:{half}1:17:10000002[2:é0:2[1:12:-21[19:{half}1:a",
    ]
    names = "row_id String|count Int64|score Float64|kept Boolean|when Datetime(time_unit='us', time_zone='UTC')"
    names += "|tags List(String)|sizes List(Int64)|weights List(Float64)|kind String"
    columns = [column.split(" ", 1) for column in names.split("|")]
    digests = sorted(hashlib.sha256(text.encode()).digest() for text in rows)
    header = canonical_json({"schema": "Row", "version": 1, "columns": columns})
    assert frame_digest(Row, table(Row, known)) == hashlib.sha256(header + b"".join(digests)).hexdigest()


def test_empty_table_is_typed() -> None:
    empty = table(Row, [])
    assert dict(empty.schema) == polars_schema(Row)
    assert problems(Row, empty) == []
    assert len(frame_digest(Row, empty)) == 64


def test_times_come_out_in_utc() -> None:
    east = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert table(Row, [row(when=east)])["when"][0] == datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(SchemaError, match=r"Row\.when: row 1 "):
        table(Row, [row(), row(row_id="r2", when=datetime(2026, 1, 1))])


def test_integers_beyond_64_bits_are_refused_with_their_row() -> None:
    with pytest.raises(SchemaError, match=r"Row\.count: row 1 holds 1180591620717411303424"):
        table(Row, [row(), row(row_id="r2", count=2**70)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": pl.lit("many")}, r"Row\.count: row 0 holds 'many'"),
        ({"count": pl.lit(1.5)}, r"Row\.count: row 0 holds 1\.5"),
        ({"count": pl.lit(-1)}, r"Row\.count: outside its bound Ge\(ge=0\) in 2 rows, first row 0 \(row_id=r1\)"),
        ({"kind": pl.lit("c")}, r"Row\.kind: not one of \['a', 'b'\]"),
        ({"kept": pl.lit(None)}, r"Row\.kept: null in 2 rows"),
        ({"tags": pl.lit(["x", None], dtype=pl.List(pl.String))}, r"Row\.tags: null inside a list"),
        ({"row_id": pl.lit("same")}, r"key \('row_id',\) is not unique in 2 rows: row_id=same"),
        ({"when": pl.lit(datetime(2026, 1, 1))}, r"Row\.when: times without a zone"),
        ({"extra": pl.lit(1)}, r"unknown columns \['extra'\]"),
    ],
)
def test_conform_names_column_and_row(change: dict[str, pl.Expr], message: str) -> None:
    frame = table(Row, [row(), row(row_id="r2")]).with_columns(**change)
    with pytest.raises(SchemaError, match=message):
        conform(Row, frame)
    assert problems(Row, frame)


def test_conform_casts_without_loss() -> None:
    narrow = table(Row, [row()]).with_columns(pl.col("count").cast(pl.Float32), pl.col("score").cast(pl.Float32))
    assert conform(Row, narrow).equals(table(Row, [row()]))
    assert problems(Row, narrow) == [
        "Row: column count is Float32, expected Int64",
        "Row: column score is Float32, expected Float64",
    ]


class Grown(Row):
    """A later version of `Row`."""

    schema_name: ClassVar[str] = "Grown"
    schema_version: ClassVar[int] = 2
    note: str | None = Field(None, description="Came later")
    wanted: int = Field(description="Came later, without a default")


def test_columns_that_came_later_get_their_default() -> None:
    before = table(Row, [row()])
    grown = conform(Grown, before.with_columns(wanted=1))
    assert grown["note"].to_list() == [None] and grown["note"].dtype == pl.String
    with pytest.raises(SchemaError, match=r"missing columns \['wanted'\]"):
        conform(Grown, before)


def test_json_schema_carries_version_and_key() -> None:
    schema = json_schema(Row)
    assert (schema["x-schema-version"], schema["x-key"], schema["x-volatile"]) == (1, ["row_id"], ["source_file"])
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == set(Row.model_fields)


def test_a_record_type_that_cannot_be_a_table_is_refused_at_definition() -> None:
    with pytest.raises(TypeError, match="is no column type"):

        class Nested(Record):
            schema_name: ClassVar[str] = "Nested"
            schema_version = 1
            key = ("inner",)
            inner: dict[str, int] = Field(description="no column")

    with pytest.raises(TypeError, match="may not be None"):

        class NullableKey(Record):
            schema_name: ClassVar[str] = "NullableKey"
            schema_version = 1
            key = ("name",)
            name: str | None = Field(description="key")
