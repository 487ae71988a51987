"""Tables are written a range of keys at a time: of the last one each row comes once, in its range."""

import random
from pathlib import Path

import polars as pl
import pytest

from capibara_assets.executions.ingest import tables


def test_each_row_of_the_last_table_comes_in_its_range_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP", 4)
    chance = random.Random(5)
    for count in (0, 1, 4, 9, 40):
        ids = sorted(f"e{number:02d}" for number in chance.sample(range(100), count))
        pl.DataFrame({"execution_id": ids}, schema={"execution_id": pl.String}).write_parquet(
            tmp_path / "t", row_group_size=4
        )
        for cuts in (0, 1, 3, 12):
            ranges = ["", *sorted(f"e{number:02d}" for number in chance.sample(range(120), cuts))]
            found = [part["execution_id"].to_list() for part in tables._by_range(tmp_path / "t", ranges)]
            ends = [*ranges[1:], "~"]
            wanted = [[one for one in ids if begin <= one < end] for begin, end in zip(ranges, ends, strict=True)]
            assert found == wanted
