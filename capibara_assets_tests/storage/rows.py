"""A record type with every kind of column, for the tests of this folder."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from capibara_assets.storage.records import Record


class Row(Record):
    schema_name = "Row"
    schema_version = 1
    key = ("row_id",)
    volatile = frozenset({"source_file"})

    row_id: str = Field(description="name of the row")
    count: int | None = Field(description="a counter", ge=0)
    score: float = Field(description="any float, NaN too")
    kept: bool = Field(description="a flag")
    when: datetime | None = Field(description="a time")
    tags: list[str] = Field(description="strings, in order")
    sizes: list[int] | None = Field(description="integers or nothing")
    weights: list[float] = Field(description="floats")
    kind: Literal["a", "b"] = Field(description="one of two")
    source_file: str | None = Field(description="where it was read")
