"""Redacted values are found in what a deployment keeps elsewhere: in objects and in databases of servers."""

import gzip

import fsspec
import polars as pl
import pytest
import sqlalchemy as sql

from capibara_assets.executions.secrets.seen import SeenSecrets, seen_rows
from capibara_assets.lineage.history import Traces, scrub_objects
from capibara_assets.lineage.secret_scan import NOTE, scan_database, scan_objects

KEY, VALUE = b"a key", "kT9x2LmQ8vR4wZ7p"
BUCKET = "memory://secret-scan/store"


@pytest.fixture
def seen() -> SeenSecrets:
    return SeenSecrets.of(seen_rows([(VALUE, "API_KEY")], KEY), KEY)


def test_objects_of_a_bucket_are_searched_as_files_are(seen: SeenSecrets) -> None:
    system = fsspec.filesystem("memory")
    table = pl.DataFrame({"code": ["x = 1", f"x = {VALUE!r}"]})
    with system.open("/secret-scan/store/tables/a.parquet", "wb") as file:
        table.write_parquet(file)
    system.pipe_file("/secret-scan/store/log.gz", gzip.compress(f"key {VALUE}".encode()))
    system.pipe_file("/secret-scan/store/b.out", f"fine\n{VALUE}\n".encode())
    system.pipe_file("/secret-scan/store/clean.json", b"{}")
    system.pipe_file("/secret-scan/elsewhere", VALUE.encode())
    try:
        found = scan_objects(BUCKET, seen)
        assert [one.place for one in found] == [f"{BUCKET}/{name}" for name in ("b.out", "log.gz", "tables/a.parquet")]
        assert all(one.kinds == ("API_KEY",) and VALUE not in repr(one) for one in found)
        scrub_objects(BUCKET, Traces((VALUE,), frozenset(), NOTE))
        assert system.cat_file("/secret-scan/store/b.out") == f"fine\n{NOTE}\n".encode()
        assert f"{BUCKET}/b.out" not in {one.place for one in scan_objects(BUCKET, seen)}
    finally:
        system.rm("/secret-scan", recursive=True)


def test_texts_of_a_server_are_searched_by_column(seen: SeenSecrets) -> None:
    engine = sql.create_engine("sqlite://")
    with engine.begin() as connection:
        connection.execute(sql.text("CREATE TABLE kvs (key TEXT PRIMARY KEY, value TEXT)"))
        rows = [{"key": f"k{n}", "value": f"read {VALUE} last" if n == 1500 else "read"} for n in range(2000)]
        connection.execute(sql.insert(sql.table("kvs", sql.column("key"), sql.column("value"))), rows)
        (found,) = scan_database("runs", connection, seen)
    assert found.place == "runs: kvs.value" and found.kinds == ("API_KEY",) and VALUE not in repr(found)
