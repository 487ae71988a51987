"""Versions of imports and journals that are still needed stay."""

import fcntl
import os
import time
from pathlib import Path

import dagster as dg
import pytest

from capibara_assets.domains import Domain
from capibara_assets.lineage.unneeded import discard, sweep_journals, unused
from capibara_assets_tests.published import Published

SQL = Domain.SQL


def test_an_import_behind_a_result_in_use_stays_and_others_go(tmp_path: Path):
    with dg.DagsterInstance.ephemeral() as instance:
        published = Published.afresh(instance, tmp_path)
        imports = [published.put("imported_examples", SQL, documents={"lines": {"edition": i}}) for i in range(3)]
        source = {"imported_examples|sql": imports[1].digest}
        dataset = published.put("moe_dataset", SQL, documents={"statistics": {}}, upstream=source)
        trained = published.put(
            "trained_adapters", SQL, documents={"summary": {}}, upstream={"moe_dataset|sql": dataset.digest}
        )
        store = published.store.open()
        roots = [("trained_adapters", SQL.value, trained.digest), ("imported_examples", "sql", imports[2].digest)]
        freed = discard(store, unused(store, roots))
        assert freed.removed == (f"imported_examples[sql] {imports[0].digest[:12]}",)
        assert {one.digest for one in store.list("imported_examples")} == {one.digest for one in imports[1:]}
        published.put("imported_examples", SQL, documents={"lines": {"edition": 0}})  # it may come back
        assert store.open("imported_examples", SQL, imports[0].digest).document("lines") == {"edition": 0}


@pytest.mark.parametrize(
    ("finished", "swept"), [({}, False), ({"sql": 90.0}, True), ({"sql": 50.0}, False), ({"sql": 110.0}, True)]
)
def test_only_journals_of_evaluations_that_finished_long_ago_go(
    finished: dict[str, float], swept: bool, tmp_path: Path
):
    """The journal was written at second 60: an evaluation that was published before that is not the one at work."""
    start = time.time() - 1000
    journal = tmp_path / "answers.jsonl"
    journal.write_text("{}\n")
    os.utime(journal, (start + 60, start + 60))
    at = {domain: start + seconds for domain, seconds in finished.items()}
    assert bool(sweep_journals({"sql": tmp_path}, at, older_than_s=100).removed) == swept
    assert journal.exists() != swept


def test_a_fresh_evaluation_and_one_that_writes_keep_their_journals(tmp_path: Path):
    journal = tmp_path / "answers.jsonl"
    journal.write_text("{}\n")
    os.utime(journal, (0, 0))
    assert not sweep_journals({"sql": tmp_path}, {"sql": time.time()}, older_than_s=100).removed
    with journal.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not sweep_journals({"sql": tmp_path}, {"sql": 10.0}, older_than_s=100).removed
    assert sweep_journals({"sql": tmp_path}, {"sql": 10.0}, older_than_s=100).bytes == 3
