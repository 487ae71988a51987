"""One typed model per table: the source of its Polars schema, its JSON Schema, its checks and its content digest."""

import hashlib
import types
import typing
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar, Literal, get_args, get_origin

import numpy as np
import polars as pl
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from capibara_assets.storage.digests import canonical_json

_SCALARS: dict[Any, pl.DataType] = {
    str: pl.String(),
    int: pl.Int64(),
    float: pl.Float64(),
    bool: pl.Boolean(),
    datetime: pl.Datetime("us", "UTC"),
}
_DIGEST_ROWS = 20_000  # rows encoded at once: bounds the memory of a digest
_INT64 = range(-(2**63), 2**63)


class SchemaError(Exception):
    """A table does not have the shape its record type promises; the message names column and row."""


class Record(BaseModel):
    """Base of every table's row type.

    Subclasses set `schema_name`, `schema_version` and `key` (the columns that sort the table and are unique together)
    and may set `volatile`: columns that are outside the content digest, such as the name of a source file.
    Fields are str, int (64 bits), float, bool, datetime (with a zone), Literal strings, or lists of str, int, float;
    each may be `| None`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_name: ClassVar[str]
    schema_version: ClassVar[int]
    key: ClassVar[tuple[str, ...]]
    volatile: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for attribute in ("schema_name", "schema_version", "key"):
            if not hasattr(cls, attribute):
                raise TypeError(f"{cls.__name__} needs the class variable {attribute}")
        unknown = sorted((set(cls.key) | cls.volatile) - set(cls.model_fields))
        if unknown or not cls.key:
            raise TypeError(f"{cls.__name__}: key and volatile must name fields, these are none: {unknown}")
        for name, field in cls.model_fields.items():
            _, nullable = _column_type(cls, name, field)
            if nullable and name in cls.key:
                raise TypeError(f"{cls.__name__}.{name} is in the key and so may not be None")
            if not field.description:
                raise TypeError(f"{cls.__name__}.{name} needs a description")


def polars_schema(model: type[Record]) -> dict[str, pl.DataType]:
    """Column name -> Polars type, in field order."""
    return {name: _column_type(model, name, field)[0] for name, field in model.model_fields.items()}


def table(model: type[Record], records: Iterable[Record]) -> pl.DataFrame:
    """Records as a typed table sorted by the key (typed also when there are none).

    Raises:
        SchemaError: an integer beyond 64 bits, a time without a zone, or a key that occurs twice.
    """
    rows = list(records)
    columns = {}
    for name, dtype in polars_schema(model).items():
        values = [getattr(row, name) for row in rows]
        try:
            columns[name] = pl.Series(name, _plain(values, dtype), dtype=dtype, strict=True)
        except (OverflowError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
            raise SchemaError(_unfit(model, name, values, dtype, error)) from error
    return conform(model, pl.DataFrame(columns, schema=polars_schema(model)))


def conform(model: type[Record], frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows with the model's columns, order and types, sorted by the key.

    Lossless casts only (a float with a fraction does not become an int). A table of an earlier version lacks columns
    that came later: those with a default get it.

    Raises:
        SchemaError: a column is missing or unknown, a value does not fit its type, is null where it may not be,
            breaks a bound, or the key is not unique; the message names the column and the first such row.
    """
    schema = polars_schema(model)
    later = {name: field.default for name, field in model.model_fields.items() if not field.is_required()}
    frame = frame.with_columns(pl.lit(later[c]).alias(c) for c in schema if c in later and c not in frame.columns)
    missing, unknown = [c for c in schema if c not in frame.columns], [c for c in frame.columns if c not in schema]
    if missing or unknown:
        raise SchemaError(f"{model.schema_name}: missing columns {missing}, unknown columns {unknown}")
    shaped = pl.DataFrame({name: _cast(model, frame[name], dtype) for name, dtype in schema.items()}, schema=schema)
    if faults := problems(model, shaped):
        raise SchemaError("; ".join(faults))
    return shaped.sort(model.key, maintain_order=True)


def problems(model: type[Record], frame: pl.DataFrame) -> list[str]:
    """Problems of a table as text; empty if it is valid.

    Vectorised: columns and types first; when they fit, nulls, allowed values, bounds and the key's uniqueness.
    """
    schema, name, found = polars_schema(model), model.schema_name, frame.schema
    faults = [f"{name}: column {column} is missing" for column in schema if column not in found]
    faults += [f"{name}: column {column} is unknown" for column in found if column not in schema]
    faults += [
        f"{name}: column {column} is {found[column]}, expected {dtype}"
        for column, dtype in schema.items()
        if column in found and found[column] != dtype
    ]
    if faults:
        return faults
    rules = _row_rules(model)
    broken = frame.select(_broken(model)).row(0) if rules else ()
    for (column, (rule, message)), some in zip(rules, broken, strict=True):
        if some:
            bad = frame.select(rule.arg_true()).to_series()
            row = int(bad[0])
            where = f"first row {row} ({_row_name(model, frame, row)})"
            faults.append(f"{name}.{column}: {message} in {len(bad)} rows, {where}")
    twice = frame.select(pl.struct(model.key).is_duplicated().arg_true()).to_series()
    if len(twice):
        row = int(twice[0])
        faults.append(f"{name}: key {model.key} is not unique in {len(twice)} rows: {_row_name(model, frame, row)}")
    return faults


def json_schema(model: type[Record]) -> dict[str, Any]:
    """The row type as JSON Schema, with `x-schema-version`, `x-key` and `x-volatile`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(),
        "title": model.schema_name,
        "x-schema-version": model.schema_version,
        "x-key": list(model.key),
        "x-volatile": sorted(model.volatile),
    }


def frame_digest(model: type[Record], frame: pl.DataFrame) -> str:
    """SHA-256 of a table's content: the sorted digests of its rows under its schema.

    Independent of the order of rows, of chunking and of the Parquet writer; volatile columns are left out.
    Floats count by their bits, with one NaN and one zero.
    """
    return frames_digest(model, [frame])


def frames_digest(model: type[Record], frames: Iterable[pl.DataFrame]) -> str:
    """`frame_digest` of a table that comes in parts; holds 32 bytes a row."""
    columns = {name: dtype for name, dtype in polars_schema(model).items() if name not in model.volatile}
    header = {
        "schema": model.schema_name,
        "version": model.schema_version,
        "columns": [[name, str(dtype)] for name, dtype in columns.items()],
    }
    rows = bytearray()
    for frame in frames:
        for part in frame.select(list(columns)).iter_slices(_DIGEST_ROWS):
            encoded = pl.select(pl.concat_str([_encoded(part[name]) for name in columns])).to_series()
            rows += b"".join(hashlib.sha256(row.encode("utf-8")).digest() for row in encoded.to_list())
    ordered = np.frombuffer(rows, dtype="S32")
    ordered.sort()  # in place: the only copy
    digest = hashlib.sha256(canonical_json(header))
    digest.update(rows)
    return digest.hexdigest()


@cache
def _row_rules(model: type[Record]) -> tuple[tuple[str, tuple[pl.Expr, str]], ...]:
    """(column, (expression that is true where a row is bad, what is bad about it))."""
    rules: list[tuple[str, tuple[pl.Expr, str]]] = []
    for name, field in model.model_fields.items():
        column, (dtype, nullable) = pl.col(name), _column_type(model, name, field)
        if not nullable:
            rules.append((name, (column.is_null(), "null")))
        if isinstance(dtype, pl.List):
            rules.append((name, (column.list.eval(pl.element().is_null()).list.any(), "null inside a list")))
        if allowed := _literals(field):
            rules.append((name, (~column.is_in(list(allowed)), f"not one of {sorted(allowed)}")))
        for bound in field.metadata:
            rules += [(name, rule) for rule in _bound_rules(column, bound)]
    return tuple((name, (rule.fill_null(False), message)) for name, (rule, message) in rules)


@cache
def _broken(model: type[Record]) -> tuple[pl.Expr, ...]:
    """For each rule whether any row is bad: together they take a fifth of the time."""
    return tuple(rule.any().alias(str(number)) for number, (_, (rule, _)) in enumerate(_row_rules(model)))


def _bound_rules(column: pl.Expr, bound: Any) -> list[tuple[pl.Expr, str]]:
    """The pydantic bound as an expression; a NaN breaks every bound."""
    match bound:
        case Ge():
            outside = column < pl.lit(bound.ge)
        case Gt():
            outside = column <= pl.lit(bound.gt)
        case Le():
            outside = column > pl.lit(bound.le)
        case Lt():
            outside = column >= pl.lit(bound.lt)
        case _:
            return []
    return [(outside | column.cast(pl.Float64).is_nan(), f"outside its bound {bound}")]


def _column_type(model: type[Record], name: str, field: FieldInfo) -> tuple[pl.DataType, bool]:
    """(Polars type, may be null) of a field."""
    inner, nullable = _without_none(field.annotation)
    if get_origin(inner) is Literal and all(isinstance(value, str) for value in get_args(inner)):
        return pl.String(), nullable
    if get_origin(inner) is list and get_args(inner)[0] in (str, int, float):
        return pl.List(_SCALARS[get_args(inner)[0]]), nullable
    if inner in _SCALARS:
        return _SCALARS[inner], nullable
    raise TypeError(f"{model.__name__}.{name}: {field.annotation} is no column type")


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (typing.Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        if len(members) == 1:
            return members[0], len(members) < len(get_args(annotation))
    return annotation, False


def _literals(field: FieldInfo) -> tuple[str, ...]:
    inner, _ = _without_none(field.annotation)
    return get_args(inner) if get_origin(inner) is Literal else ()


def _plain(values: list[Any], dtype: pl.DataType) -> list[Any]:
    """Times as UTC; everything else unchanged."""
    if not isinstance(dtype, pl.Datetime):
        return values
    if any(value is not None and value.tzinfo is None for value in values):
        raise ValueError("a time without a zone")
    return [value if value is None else value.astimezone(UTC) for value in values]


def _unfit(model: type[Record], name: str, values: Sequence[Any], dtype: pl.DataType, error: Exception) -> str:
    for row, value in enumerate(values):
        beyond = isinstance(value, int) and value not in _INT64
        if beyond or (isinstance(value, datetime) and value.tzinfo is None):
            return f"{model.schema_name}.{name}: row {row} holds {value!r}, which is no {dtype}"
    return f"{model.schema_name}.{name}: not all values are {dtype}: {error}"


def _cast(model: type[Record], column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """A lossless cast; raises SchemaError with the first row that does not fit."""
    if column.dtype == dtype:
        return column
    if isinstance(column.dtype, pl.Datetime) and isinstance(dtype, pl.Datetime) and column.dtype.time_zone is None:
        raise SchemaError(f"{model.schema_name}.{column.name}: times without a zone, expected {dtype}")
    if isinstance(dtype, pl.Datetime) and not isinstance(column.dtype, (pl.Datetime, pl.Null)):
        raise SchemaError(f"{model.schema_name}.{column.name}: {column.dtype}, expected {dtype}")
    try:
        cast = column.cast(dtype, strict=True)
    except pl.exceptions.PolarsError:
        cast = column.cast(dtype, strict=False)
        bad = column.is_not_null() & cast.is_null()
    else:
        numeric = column.dtype.is_float() and dtype.is_integer()
        bad = cast.cast(column.dtype) != column if numeric else pl.Series([False])
    lost = bad.fill_null(False).arg_true()
    if len(lost):
        row = int(lost[0])
        raise SchemaError(f"{model.schema_name}.{column.name}: row {row} holds {column[row]!r}, which is no {dtype}")
    return cast


def _row_name(model: type[Record], frame: pl.DataFrame, row: int) -> str:
    return ", ".join(f"{column}={str(frame[column][row])[:80]}" for column in model.key)


def _encoded(column: pl.Series) -> pl.Series:
    """Each value as an unambiguous string: length-prefixed, null apart from every value."""
    if isinstance(column.dtype, pl.List):
        lengths = column.list.len().cast(pl.String)
        flat = column.explode(empty_as_null=False, keep_nulls=False)
        offsets = column.list.len().fill_null(0).to_numpy().astype(np.int64)
        owner = np.repeat(np.arange(len(column)), offsets)
        joined = (
            pl.DataFrame({"owner": owner, "item": _encoded(flat)})
            .group_by("owner", maintain_order=True)
            .agg(pl.col("item").str.join(""))
        )
        rows = pl.DataFrame({"owner": np.arange(len(column)), "length": lengths}).join(joined, on="owner", how="left")
        body = rows.select(pl.col("length") + "[" + pl.col("item").fill_null("")).to_series()
        return body.fill_null("~")
    if isinstance(column.dtype, pl.String):
        text = column
    elif isinstance(column.dtype, pl.Float64):
        # + 0.0 makes one zero of the two; NaN of any payload becomes one
        values = column.fill_null(0.0).to_numpy() + 0.0
        bits = np.where(np.isnan(values), np.float64("nan"), values).view(np.int64)
        text = pl.select(pl.when(column.is_not_null()).then(pl.Series(bits).cast(pl.String))).to_series()
    else:
        text = column.to_physical().cast(pl.Int64).cast(pl.String)
    lengths = text.str.len_bytes().cast(pl.String)
    return (lengths + ":" + text).fill_null("~")
