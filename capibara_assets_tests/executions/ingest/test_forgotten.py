"""Tombstones: a forgotten record does not come back, by whatever way it is read, and nothing else is lost with it."""

import gzip
import random
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.forgotten import (
    NOTHING,
    Forgotten,
    Tombstone,
    read_forgotten,
    tenant_digest,
    tombstone,
    write_tombstones,
)
from capibara_assets.executions.ingest.ingest import Ingest, Tables, ingest
from capibara_assets.executions.ingest.ledger import Ledger
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.storage.records import problems
from capibara_assets.storage.store import ArtifactStore
from capibara_assets_tests.executions.conftest import NOW, envelope, executed, line


def record(number: int, **changes: Any) -> bytes:
    values = {
        "execution_id": f"e{number:05d}",
        "sandbox_id": f"s{number // 3}",
        "timestamp": f"2026-10-05T10:{number // 60 % 60:02d}:{number % 60:02d}Z",
        "execution": executed(stdout=f"{number}\n"),
    }
    return line(envelope(changes.pop("code", f"x = {number % 7}"), **values | changes)) + b"\n"


def run_ingest(
    folder: Path, ledger: Path | None, forgotten: Forgotten = NOTHING, processes: int | None = None
) -> tuple[Tables, Ingest]:
    with ingest(folder, now=NOW, ledger=ledger, forgotten=forgotten, processes=processes) as tables:
        found = tables.load()
    assert [*problems(Execution, found.executions), *problems(Quarantined, found.quarantine)] == []
    assert problems(LogFile, found.files) == []
    for log in found.files.filter(kind="executions").iter_rows(named=True):
        ends = ("kept", "quarantined", "duplicates", "ignored", "pending", "forgotten")
        assert log["lines"] == sum(log[name] for name in ends), log
    return tables, found


def ids(found: Ingest) -> list[str]:
    return found.executions["execution_id"].to_list()


def buried(ledger: Path, *names: str, lines: tuple[str, ...] = ()) -> Forgotten:
    """Tombstones of executions, from what the ledger knows of them."""
    last = Ledger(ledger).last()
    assert last is not None
    index = pl.read_parquet(last.index)
    return Forgotten(tuple(tombstone(name, index.filter(execution_id=name), lines) for name in names))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"".join(record(i) for i in range(12)))
    return folder


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def test_a_forgotten_execution_goes_and_the_rest_is_as_if_it_had_never_been(logs: Path, ledger: Path) -> None:
    run_ingest(logs, ledger)
    gone = buried(ledger, "e00004")
    tables, found = run_ingest(logs, ledger, gone)
    assert ids(found) == [f"e{i:05d}" for i in range(12) if i != 4]
    assert (found.summary["forgotten"], found.files["forgotten"].to_list()) == (1, [1])
    (logs / "a.jsonl").write_bytes(b"".join(record(i) for i in range(12) if i != 4))
    _, never = run_ingest(logs, None)
    columns = [name for name in found.executions.columns if not name.startswith("source_")]
    assert found.executions.select(columns).equals(never.executions.select(columns))
    assert tables.lines_read == 0  # of its sandbox alone lines were read again, no line was new


def test_the_next_run_has_nothing_to_do_and_counts_the_same(logs: Path, ledger: Path) -> None:
    run_ingest(logs, ledger)
    gone = buried(ledger, "e00004")
    first, _ = run_ingest(logs, ledger, gone)
    second, found = run_ingest(logs, ledger, gone)
    assert (first.folder, first.summary) == (second.folder, second.summary)
    with (logs / "a.jsonl").open("ab") as file:
        file.write(record(12) + record(4))
    _, found = run_ingest(logs, ledger, gone)
    assert (found.summary["executions"], found.summary["forgotten"]) == (12, 2)


@pytest.mark.parametrize("ended", [True, False])
def test_the_last_line_of_a_growing_file_is_counted_once(logs: Path, ledger: Path, ended: bool) -> None:
    log = logs / "a.jsonl"
    run_ingest(logs, ledger)
    gone = buried(ledger, "e00011")
    text = log.read_bytes()
    log.write_bytes(text if ended else text[:-1])
    _, found = run_ingest(logs, ledger, gone)
    assert found.summary["forgotten"] == 1
    with log.open("ab") as file:
        file.write((b"" if ended else b"\n") + record(12))
    _, found = run_ingest(logs, ledger, gone)
    assert (found.summary["forgotten"], found.summary["executions"]) == (1, 12)


def test_it_does_not_come_back_in_an_archive(logs: Path, ledger: Path) -> None:
    run_ingest(logs, ledger)
    gone = buried(ledger, "e00004")
    with zipfile.ZipFile(logs / "copy.zip", "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr("a.jsonl", record(4) + record(20))
    with ingest(logs, now=NOW, ledger=ledger, forgotten=gone) as tables:
        found = tables.load()
    assert ids(found) == [f"e{i:05d}" for i in (*range(12), 20) if i != 4]
    assert found.summary["forgotten"] == 2


def test_copies_in_other_files_conflicts_and_other_ids_do_not_bring_it_back(logs: Path, ledger: Path) -> None:
    run_ingest(logs, ledger)
    gone = buried(ledger, "e00004")
    (logs / "copy.jsonl.gz").write_bytes(gzip.compress(record(4) + record(20)))
    (logs / "other.jsonl").write_bytes(record(4, code="y = 1") + record(4, execution_id="renamed") + record(21))
    _, found = run_ingest(logs, ledger, gone)
    assert {"e00004", "renamed"}.isdisjoint(ids(found)) and {"e00020", "e00021"} <= set(ids(found))
    assert found.quarantine.is_empty()
    assert dict(found.files.select("path", "forgotten").iter_rows()) == {
        "a.jsonl": 1, "copy.jsonl.gz": 1, "other.jsonl": 2,
    }  # fmt: skip
    _, afresh = run_ingest(logs, None, gone)
    assert afresh.executions.equals(found.executions)


def test_equal_code_of_another_time_or_sandbox_stays(logs: Path, ledger: Path) -> None:
    run_ingest(logs, ledger)
    gone = buried(ledger, "e00004")
    (logs / "b.jsonl").write_bytes(record(4, execution_id="later", timestamp="2026-10-06T10:00:00Z"))
    _, found = run_ingest(logs, ledger, gone)
    assert "later" in ids(found)


def test_torn_and_damaged_lines_of_it_leave_the_quarantine(logs: Path, ledger: Path) -> None:
    torn, nameless = record(4)[:-20] + b"\n", record(4)[60:]
    (logs / "torn.jsonl").write_bytes(record(30) + torn + nameless + record(31)[:-9] + b"\n")
    _, before = run_ingest(logs, ledger)
    assert before.quarantine.height == 3
    digest = before.quarantine.filter(line=3)["digest"][0]
    _, found = run_ingest(logs, ledger, buried(ledger, "e00004", lines=(digest,)))
    assert found.quarantine["line"].to_list() == [4]
    assert found.files.filter(path="torn.jsonl")["forgotten"].to_list() == [2]
    _, again = run_ingest(logs, ledger, buried(ledger, "e00004", lines=(digest,)))
    assert again.quarantine.equals(found.quarantine)


def test_one_whose_file_is_gone_is_forgotten_and_its_neighbours_stay(logs: Path, ledger: Path) -> None:
    run_ingest(logs, ledger)
    gone = buried(ledger, "e00004")
    (logs / "a.jsonl").rename(logs / ".a.jsonl")
    (logs / "b.jsonl").write_bytes(record(40))
    _, found = run_ingest(logs, ledger, gone)
    assert ids(found) == [f"e{i:05d}" for i in range(12) if i != 4] + ["e00040"]


def test_only_the_last_generation_is_kept(logs: Path, ledger: Path) -> None:
    run_ingest(logs, ledger)
    gone = buried(ledger, "e00004")
    with Ledger(ledger).reading():
        tables, _ = run_ingest(logs, ledger, gone)
    assert len(Ledger(ledger).keep_last_only()) == 1
    assert list((ledger / "generations").iterdir()) == [tables.folder]
    assert Ledger(ledger).keep_last_only() == []
    again, _ = run_ingest(logs, ledger, gone)
    assert again.folder == tables.folder


def test_without_the_tombstone_it_is_read_again(logs: Path, ledger: Path) -> None:
    run_ingest(logs, ledger)
    run_ingest(logs, ledger, buried(ledger, "e00004"))
    (logs / "a.jsonl").write_bytes(b"".join(record(i) for i in range(12)))  # as a copy of it would be
    _, found = run_ingest(logs, ledger)
    assert "e00004" in ids(found)


@pytest.mark.parametrize("seeds", [3, pytest.param(6, marks=pytest.mark.extended)])
def test_any_set_of_records_leaves_exactly_the_others(logs: Path, tmp_path: Path, seeds: int) -> None:
    for seed in range(seeds):
        chance, ledger = random.Random(seed), tmp_path / f"ledger{seed}"
        every = [f"e{i:05d}" for i in range(12)]
        run_ingest(logs, ledger)
        chosen = chance.sample(every, chance.randint(1, 12))
        one_by_one = Forgotten(tuple(stone for name in chosen for stone in buried(ledger, name).tombstones))
        _, found = run_ingest(logs, ledger, one_by_one)
        assert ids(found) == sorted(set(every) - set(chosen))
        assert found.summary["forgotten"] == len(chosen)


def test_tombstones_hold_no_id_and_no_code_and_are_read_back(logs: Path, ledger: Path, tmp_path: Path) -> None:
    run_ingest(logs, ledger)
    store, gone = ArtifactStore(tmp_path / "store"), buried(ledger, "e00004", "e00005")
    assert not read_forgotten(store)
    for stone in reversed(gone.tombstones):
        write_tombstones(store, [stone], "asked to")
        write_tombstones(store, [stone], "asked to")
    files = list((tmp_path / "store" / "tombstones").iterdir())
    assert len(files) == 2
    assert not any(b"e0000" in path.read_bytes() or b"x = 4" in path.read_bytes() for path in files)
    assert read_forgotten(store).digest == gone.digest == Forgotten(gone.tombstones[::-1]).digest
    assert read_forgotten(store).among(["e00003", "e00005", "e00004"]) == ["e00004", "e00005"]


def test_another_key_is_refused(logs: Path, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_ingest(logs, ledger)
    store = ArtifactStore(tmp_path / "store")
    write_tombstones(store, buried(ledger, "e00004").tombstones, "")
    monkeypatch.setenv("CAPIBARA_DIGEST_KEY", "another")
    with pytest.raises(InputError, match="another CAPIBARA_DIGEST_KEY"):
        read_forgotten(store)


ACME = Forgotten((Tombstone(tenant=tenant_digest("acme")),))


def test_a_forgotten_tenants_later_records_are_counted_and_in_no_table(logs: Path, ledger: Path) -> None:
    run_ingest(logs, ledger)
    new = record(20, tenant="acme") + record(21, tenant="acme ltd") + record(22)
    (logs / "b.jsonl").write_bytes(new)
    _, found = run_ingest(logs, ledger, ACME)
    assert ids(found) == [f"e{i:05d}" for i in (*range(12), 21, 22)]
    with (logs / "b.jsonl").open("ab") as file:  # no line ends it
        file.write((record(23, tenant="acme") + record(24, tenant="acme"))[:-1])
    _, found = run_ingest(logs, ledger, ACME)
    assert found.summary["forgotten"] == 3
    with (logs / "b.jsonl").open("ab") as file:
        file.write(b"\n" + record(25))
    first, found = run_ingest(logs, ledger, ACME)
    assert (found.summary["forgotten"], found.summary["executions"]) == (3, 15)
    _, afresh = run_ingest(logs, None, ACME, processes=2)
    assert afresh.executions.equals(found.executions) and afresh.summary["forgotten"] == 3
    assert run_ingest(logs, ledger, ACME)[0].folder == first.folder


def test_what_a_table_has_of_a_forgotten_tenant_goes_without_a_tombstone_for_each(logs: Path, ledger: Path) -> None:
    """As where another machine with its own ledger shares the store; also where the file is gone since."""
    (logs / "b.jsonl").write_bytes(record(20, tenant="acme") + record(21, tenant="other"))
    (logs / "gone.jsonl").write_bytes(record(22, tenant="acme") + record(23))
    run_ingest(logs, ledger)
    (logs / "gone.jsonl").unlink()
    tables, found = run_ingest(logs, ledger, ACME)
    assert ids(found) == [f"e{i:05d}" for i in (*range(12), 21, 23)] and tables.lines_read == 0
    assert found.summary["forgotten"] == 1


def test_a_tenant_whose_name_holds_a_secret_is_known_by_the_name_that_tables_have(logs: Path, ledger: Path) -> None:
    name = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    (logs / "b.jsonl").write_bytes(record(20, tenant=name))
    _, found = run_ingest(logs, ledger)
    [shown] = found.executions["tenant"].drop_nulls()
    assert shown != name
    gone = Forgotten((Tombstone(tenant=tenant_digest(shown)),))
    (logs / "b.jsonl").write_bytes(record(20, tenant=name) + record(21, tenant=name))
    _, found = run_ingest(logs, None, gone)
    assert (found.summary["forgotten"], found.summary["executions"]) == (2, 12)


@pytest.mark.parametrize("ledgered", [True, False])
def test_damaged_lines_that_name_a_forgotten_tenant_leave_the_quarantine(
    logs: Path, ledger: Path, ledgered: bool
) -> None:
    span = {"key": "tenant.id", "value": {"stringValue": "acme"}}
    damaged = [record(20, tenant="acme")[:-2] + b"\n", line({"sent": line({"tenant": "acme"}).decode()}) + b"\n"]
    damaged += [line({"attributes": [span]})[:-2] + b"\n", record(21, tenant="acme ltd")[:-2] + b"\n"]
    (logs / "torn.jsonl").write_bytes(record(30) + b"".join(damaged))
    if ledgered:
        _, before = run_ingest(logs, ledger)
        assert before.quarantine.height == 4
    _, found = run_ingest(logs, ledger, ACME)
    assert found.quarantine["line"].to_list() == [5]
    assert found.files.filter(path="torn.jsonl")["forgotten"].to_list() == [3]


def test_a_tombstone_of_a_tenant_does_not_name_it_and_is_read_back(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    write_tombstones(store, ACME.tombstones, "they left")
    [file] = (tmp_path / "store" / "tombstones").iterdir()
    assert b"acme" not in file.read_bytes()
    back = read_forgotten(store)
    assert back and back.digest == ACME.digest
    assert [back.holds_tenant(name) for name in ("acme", "acm", "acme ltd", None)] == [True, False, False, False]
