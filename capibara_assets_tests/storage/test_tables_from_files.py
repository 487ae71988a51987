"""Tables too large for memory are published from a Parquet file: same digest as from a frame, as strictly checked."""

from pathlib import Path

import polars as pl
import pytest

from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets.executions.schema import Execution
from capibara_assets.storage import store as store_module
from capibara_assets.storage.records import SchemaError, conform
from capibara_assets.storage.store import ArtifactStore, Table
from capibara_assets_tests.executions.conftest import NOW, envelope, line


@pytest.fixture
def rows(tmp_path: Path) -> pl.DataFrame:
    logs = tmp_path / "logs"
    logs.mkdir()
    text = b"".join(line(envelope(f"x = {i}", execution_id=f"e{i:03d}")) + b"\n" for i in range(50))
    (logs / "a.jsonl").write_bytes(text)
    return read_experience(logs, now=NOW).executions


def test_the_digest_is_that_of_the_rows(tmp_path: Path, rows: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_PART_ROWS", 7)
    conform(Execution, rows).write_parquet(tmp_path / "rows.parquet", compression="lz4", row_group_size=11)
    store = ArtifactStore(tmp_path / "store")
    published = store.publish("logs", None, tables={"t": Table(Execution, tmp_path / "rows.parquet")})
    assert published.digest == store.publish("logs", None, tables={"t": Table(Execution, rows)}).digest
    assert published.frame("t").equals(conform(Execution, rows))


def test_rows_out_of_order_twice_or_unfit_are_refused(
    tmp_path: Path, rows: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_PART_ROWS", 7)
    store = ArtifactStore(tmp_path / "store")
    for wrong, said in (
        (rows.reverse(), "not sorted"),
        (pl.concat([rows[:7], rows[6:]]), "not sorted"),
        (rows.with_columns(quality=2.0), "outside its bound"),
        (rows.drop("code"), "code is missing"),
    ):
        wrong.write_parquet(tmp_path / "wrong.parquet")
        with pytest.raises(SchemaError, match=said):
            store.publish("logs", None, tables={"t": Table(Execution, tmp_path / "wrong.parquet")})
    assert store.latest_digest("logs", None) is None
