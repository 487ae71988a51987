"""The spill gives back what all processes wrote, however often it is asked, and nothing of it can be read on disk."""

from pathlib import Path

import polars as pl

from capibara_assets.executions.ingest.spill import Spill, new_key

SCHEMA = {"text": pl.String()}


def texts(spill: Spill, part: int = 0) -> set[str]:
    return set(spill.frame("rows", part, SCHEMA)["text"])


def test_what_was_read_before_is_no_more_than_what_was_there_then(tmp_path: Path) -> None:
    key = new_key()
    one, other = Spill(tmp_path, key, "one"), Spill(tmp_path, key, "other")
    other.add("rows", 0, pl.DataFrame({"text": ["a secret"]}))
    other.flush()
    assert texts(one) == texts(one) == {"a secret"}
    one.add("rows", 0, pl.DataFrame({"text": ["another"]}))
    one.add("rows", 1, pl.DataFrame({"text": ["elsewhere"]}))
    one.flush()
    assert (texts(one), texts(one, 1), texts(one)) == ({"a secret", "another"}, {"elsewhere"}, {"a secret", "another"})
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    one.drop("rows", 0)
    assert texts(one) == set()
