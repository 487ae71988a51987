"""Exactly once over many runs: grown, copied, replaced, vanished files; lost ledgers, two runs at once, kill -9."""

import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.errors import InputError
from capibara_assets.executions.formats.envelope_reader import Recorded
from capibara_assets.executions.formats.lines import BLOCK
from capibara_assets.executions.ingest import ingest as ingest_module
from capibara_assets.executions.ingest.ingest import Tables, ingest
from capibara_assets.executions.ingest.intake import FileTask, Intake
from capibara_assets.executions.ingest.ledger import Ledger, LedgerGeneration
from capibara_assets.executions.labels.classify import Label, classify_session
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.storage.records import problems
from capibara_assets_tests.executions.conftest import NOW, envelope, executed, line

ROOT = Path(__file__).resolve().parents[3]
SECRET = "e2b" + "_" + "0123456789abcdef" * 2 + "01234567"


def record(number: int, sandbox: str | None = None, **changes: Any) -> bytes:
    values = {
        "execution_id": f"e{number:05d}",
        "sandbox_id": sandbox or f"s{number // 3}",
        "timestamp": f"2026-10-05T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z",
    }
    code = changes.pop("code", f"x = {number % 7}")
    return line(envelope(code, **values | changes)) + b"\n"


def run_ingest(folder: Path, ledger: Path | None, **options: Any) -> tuple[Tables, pl.DataFrame]:
    with ingest(folder, now=NOW, ledger=ledger, **options) as tables:
        found = tables.load()
    assert problems(Execution, found.executions) == []
    assert problems(Quarantined, found.quarantine) == []
    assert problems(LogFile, found.files) == []
    for log in found.files.filter(kind="executions").iter_rows(named=True):
        ends = ("kept", "quarantined", "duplicates", "ignored", "pending")
        assert log["lines"] == sum(log[name] for name in ends), log
    return tables, found.executions


def numbers(executions: pl.DataFrame) -> list[int]:
    return [int(name[1:]) for name in executions["execution_id"]]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def test_a_second_run_reads_nothing_and_gives_the_same_bytes(logs: Path, ledger: Path) -> None:
    (logs / "a.jsonl").write_bytes(b"".join(record(i) for i in range(10)))
    (logs / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(record(i) for i in range(8, 20))))
    first, executions = run_ingest(logs, ledger)
    data = first.path("executions").read_bytes()
    assert (first.lines_read, numbers(executions)) == (22, list(range(20)))
    second, _ = run_ingest(logs, ledger)
    assert (second.lines_read, second.path("executions").read_bytes()) == (0, data)
    assert second.summary == first.summary


def test_a_generation_stays_while_it_is_the_last_or_is_read(logs: Path, ledger: Path) -> None:
    folders = []
    with ExitStack() as reading:
        for number in range(4):
            (logs / f"{number}.jsonl").write_bytes(record(number))
            folders.append(run_ingest(logs, ledger)[0].folder)
            if number == 1:
                reading.enter_context(Ledger(ledger).reading())
        assert [folder.exists() for folder in folders] == [False, True, False, True]
    (ledger / "generations" / ".DS_Store").write_text("a file manager's")
    again, _ = run_ingest(logs, ledger)
    assert again.lines_read == 0, "nothing is new"
    assert [folder.exists() for folder in folders] == [False, False, False, True]


def test_the_tables_of_a_run_are_there_until_its_block_ends(logs: Path, ledger: Path) -> None:
    (logs / "a.jsonl").write_bytes(record(1))
    with ingest(logs, now=NOW, ledger=ledger) as tables:
        (logs / "b.jsonl").write_bytes(record(2))
        run_ingest(logs, ledger)
        assert numbers(tables.load().executions) == [1]


def test_a_reader_gets_the_newest_generation_where_one_went_meanwhile(
    logs: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (logs / "a.jsonl").write_bytes(record(1))
    run_ingest(logs, ledger)
    find, arrive = Ledger.last, iter([True])

    def last(self: Ledger) -> LedgerGeneration | None:
        found = find(self)
        if next(arrive, False):
            (logs / "b.jsonl").write_bytes(record(2))
            run_ingest(logs, ledger)
        return found

    monkeypatch.setattr(Ledger, "last", last)
    with Ledger(ledger).reading() as generation:
        assert generation is not None and len(pl.read_parquet(generation.executions)) == 2


def test_only_the_tail_of_a_grown_file_is_read(logs: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logs / "a.jsonl"
    log.write_bytes(b"".join(record(i) for i in range(9)))
    run_ingest(logs, ledger)
    with log.open("ab") as file:
        file.write(b"".join(record(i) for i in range(9, 14)))
    grown, executions = run_ingest(logs, ledger)
    assert (grown.lines_read, numbers(executions)) == (5, list(range(14)))
    assert executions["source_line"].to_list() == list(range(1, 15))
    whole, afresh = run_ingest(logs, None)
    assert executions.equals(afresh)
    assert (grown.summary, grown.path("files").name) == (whole.summary, "files.parquet")


@pytest.mark.parametrize(
    "size", [BLOCK + 17, *(pytest.param(size, marks=pytest.mark.extended) for size in (3, 700, BLOCK - 5, 2 * BLOCK))]
)
def test_a_file_may_grow_byte_by_byte_across_blocks(logs: Path, ledger: Path, size: int) -> None:
    # No letters: redaction looks for the beginnings of all kinds of secrets in each, which is not what is tested here
    text = b"".join(record(i, task="7 " * 4500) for i in range(260))
    log = logs / "a.jsonl"
    for end in (*range(size, len(text), len(text) // 4), len(text)):
        log.write_bytes(text[:end]) if not log.exists() else _append(log, text[log.stat().st_size : end])
        tables, executions = run_ingest(logs, ledger)
        assert numbers(executions) == list(range(text[:end].count(b"\n") + (text[end - 1 : end + 1] == b"}\n")))
        assert tables.path("files").exists()
    _, afresh = run_ingest(logs, None)
    assert executions.equals(afresh)


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_line_without_its_end_waits_and_may_turn_out_to_be_damaged(logs: Path, ledger: Path) -> None:
    log, whole = logs / "a.jsonl", record(1)
    log.write_bytes(record(0) + whole[:40])
    tables, executions = run_ingest(logs, ledger)
    assert (numbers(executions), tables.summary["pending"]) == ([0], 1)
    _append(log, whole[40:-1])
    tables, executions = run_ingest(logs, ledger)
    assert (numbers(executions), tables.summary["pending"]) == ([0, 1], 0), "whole, though its end has not come"
    _append(log, b"\n" + record(2))
    tables, executions = run_ingest(logs, ledger)
    assert (numbers(executions), tables.summary["lines"], tables.summary["duplicates"]) == ([0, 1, 2], 3, 0)
    _append(log, b'{"torn\n' + record(3))
    tables, executions = run_ingest(logs, ledger)
    assert (numbers(executions), tables.summary["reasons"]) == ([0, 1, 2, 3], {"invalid_json": 1})
    assert run_ingest(logs, ledger)[0].summary["quarantined"] == 1


def test_a_file_replaced_under_its_name_loses_nothing(logs: Path, ledger: Path, tmp_path: Path) -> None:
    log = logs / "a.jsonl"
    log.write_bytes(b"".join(record(i) for i in range(6)))
    run_ingest(logs, ledger)
    for longer in (b"".join(record(i) for i in range(100, 120)), record(200)):
        (tmp_path / "new").write_bytes(longer)
        (tmp_path / "new").replace(log)
        _, executions = run_ingest(logs, ledger)
    assert numbers(executions) == [*range(6), *range(100, 120), 200]


def test_a_file_rewritten_in_place_and_longer_is_read_whole(logs: Path, ledger: Path) -> None:
    log = logs / "a.jsonl"
    log.write_bytes(b"".join(record(i) for i in range(6)))
    run_ingest(logs, ledger)
    log.write_bytes(b"".join(record(i) for i in range(50, 70)))
    assert numbers(run_ingest(logs, ledger)[1]) == [*range(6), *range(50, 70)]


@pytest.mark.parametrize("seeds", [3, pytest.param(6, marks=pytest.mark.extended)])
def test_the_order_of_files_and_the_history_of_runs_leave_no_trace(tmp_path: Path, seeds: int) -> None:
    """Secrets are numbered over the sandbox, copies over all code, conflicts over all ids: whatever came first."""
    rows = [
        record(i, "one", execution=executed(stdout=f"{SECRET[:-2]}{i % 4:02d}\n")) if i % 5 == 0 else record(i)
        for i in range(40)
    ]
    rows += [record(3, timestamp="2026-10-09T00:00:00Z"), rows[7], rows[10]]
    digests = set()
    for seed in range(seeds):
        chance = random.Random(seed)
        order = rows[:] if seed == 0 else chance.sample(rows, len(rows))
        folder = tmp_path / f"logs-{seed}"
        folder.mkdir()
        for cut in range(0, len(order), 9):
            (folder / f"{chance.random()}.jsonl").write_bytes(b"".join(order[cut : cut + 9]))
            if seed % 2:
                run_ingest(folder, tmp_path / f"ledger-{seed}")
        tables, executions = run_ingest(folder, tmp_path / f"ledger-{seed}")
        assert tables.summary["reasons"] == {"conflicting_execution_id": 1}
        assert "<E2B_API_KEY:4>" in "".join(executions["stdout"])
        digests.add(executions.drop("source_file", "source_line", "source_offset").write_json())
    assert len(digests) == 1


def test_what_cannot_be_read_again_stays_as_it_was_redacted(logs: Path, ledger: Path) -> None:
    (logs / "a.jsonl").write_bytes(record(0, "one", execution=executed(stdout=SECRET)))
    run_ingest(logs, ledger)
    (logs / "a.jsonl").unlink()
    (logs / "b.jsonl").write_bytes(record(1, "one"))
    tables, executions = run_ingest(logs, ledger)
    assert executions["stdout"].to_list() == ["<E2B_API_KEY:1>", ""]
    assert executions["secrets"].to_list() == [1, 0]
    assert tables.summary["files"] == 1
    (logs / "a.jsonl").write_bytes(record(0, "one", execution=executed(stdout=SECRET)))
    _, back = run_ingest(logs, ledger)
    assert back.equals(run_ingest(logs, None)[1])


def test_older_lines_of_a_session_are_read_again_only_where_a_secret_stood(
    logs: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[str, int]] = []
    fetch = Intake.fetch

    def fetch_and_note(self: Intake, task: FileTask) -> None:
        fetched.append((task.name, len(task.only)))
        fetch(self, task)

    monkeypatch.setattr(Intake, "fetch", fetch_and_note)
    (logs / "a.jsonl").write_bytes(record(0, "plain") + record(1, "held") + record(2, "held", code=f"key = '{SECRET}'"))
    run_ingest(logs, ledger)
    (logs / "b.jsonl").write_bytes(record(10, "plain"))
    _, executions = run_ingest(logs, ledger)
    assert fetched == []
    (logs / "c.jsonl").write_bytes(record(11, "held", timestamp="2026-10-01T00:00:00Z", code=f"k = '{SECRET[:-1]}8'"))
    _, executions = run_ingest(logs, ledger)
    assert fetched == [("a.jsonl", 1)]
    assert executions.equals(run_ingest(logs, None)[1])


def test_a_value_that_is_found_later_is_replaced_in_what_was_read_before(logs: Path, ledger: Path) -> None:
    value = "kT9x2LmQ8vR4wZ7p"
    (logs / "a.jsonl").write_bytes(record(0, "one", execution=executed(stdout=value), bullet_ids=["str-00001"]))
    (logs / "b.jsonl").write_bytes(record(1, "one", execution=executed(stdout=value)))
    assert run_ingest(logs, ledger)[1]["secrets"].to_list() == [0, 0]
    (logs / "a.jsonl").unlink()
    (logs / "c.jsonl").write_bytes(record(2, "one", code=f'api_key = "{value}"'))
    tables, executions = run_ingest(logs, ledger)
    assert executions["secrets"].to_list() == [1, 1, 1]
    assert executions["bullet_ids"].to_list() == [["str-00001"], [], []]
    assert not any(value.encode() in path.read_bytes() for path in tables.folder.iterdir())
    (logs / "a.jsonl").write_bytes(record(0, "one", execution=executed(stdout=value), bullet_ids=["str-00001"]))
    assert run_ingest(logs, None)[1].drop("source_file").equals(executions.drop("source_file"))


def test_an_earlier_copy_of_a_text_changes_the_score_of_the_later_ones_alone(
    logs: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (logs / "a.jsonl").write_bytes(b"".join(record(i, f"s{i}", code="print(total + 1)") for i in range(1, 9)))
    run_ingest(logs, ledger)
    labelled: list[str] = []

    def classify_and_note(session: Sequence[Recorded]) -> list[Label]:
        labelled.append(session[0].sandbox_id)
        return classify_session(session)

    monkeypatch.setattr("capibara_assets.executions.ingest.sandbox_rows.classify_session", classify_and_note)
    (logs / "b.jsonl").write_bytes(record(0, "earlier", code="print(total + 1)"))
    _, executions = run_ingest(logs, ledger)
    assert labelled == ["earlier"]
    assert executions["quality"].is_sorted(descending=True) and executions["quality"].n_unique() == 9
    assert executions.equals(run_ingest(logs, None)[1])


def test_a_lost_damaged_or_older_ledger_costs_time_only(
    logs: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (logs / "a.jsonl").write_bytes(b"".join(record(i) for i in range(12)))
    _, executions = run_ingest(logs, ledger)
    for damage in (
        lambda: (ledger / "current.json").write_bytes(b'{"gener'),
        lambda: [os.truncate(path, 10) for path in (ledger / "generations").glob("*/index.parquet")],
        lambda: shutil.rmtree(ledger / "generations"),
        lambda: monkeypatch.setattr("capibara_assets.executions.ingest.ledger.fingerprint", lambda: "of other code"),
    ):
        damage()
        tables, again = run_ingest(logs, ledger)
        assert again.equals(executions)
        assert tables.lines_read == 12
    assert run_ingest(logs, ledger)[0].lines_read == 0


def test_a_record_of_the_future_is_read_again(logs: Path, ledger: Path) -> None:
    (logs / "a.jsonl").write_bytes(record(0) + record(1, timestamp="2027-01-01T00:00:00Z"))
    tables, executions = run_ingest(logs, ledger)
    assert (numbers(executions), tables.summary["reasons"]) == ([0], {"future_timestamp": 1})
    with ingest(logs, now=NOW + timedelta(days=90), ledger=ledger) as later:
        assert (later.summary["executions"], later.summary["quarantined"]) == (2, 0)


def test_processes_and_partitions_change_nothing(
    logs: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for part in range(8):
        text = b"".join(record(i, f"s{i % 11}") for i in range(part * 40, part * 40 + 60)) + b"{torn\n"
        (logs / f"{part}.jsonl").write_bytes(text)
    _, alone = run_ingest(logs, None, processes=1)
    monkeypatch.setattr(ingest_module, "_BUCKET", 5000)
    monkeypatch.setattr(ingest_module, "_INDEX_ROWS", 20)
    monkeypatch.setattr(ingest_module, "_RANGE_ROWS", 64)
    _, many = run_ingest(logs, ledger, processes=2)
    assert alone.equals(many)
    # what two wrote serves one as well
    assert run_ingest(logs, ledger, processes=1)[0].lines_read == 0
    _append(logs / "3.jsonl", record(900, "s3"))
    grown, more = run_ingest(logs, ledger, processes=1)
    assert grown.lines_read == 1
    assert more.equals(run_ingest(logs, None, processes=1)[1])


# A file without a main guard, which most ways to start worker processes need.
SCRIPT = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from capibara_assets.executions.ingest.ingest import ingest
folder, ledger, processes = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
with ingest(folder, now=datetime(2026, 11, 20, tzinfo=UTC), ledger=ledger, processes=processes) as tables:
    print(tables.summary["executions"], tables.lines_read)
"""


def start(logs: Path, ledger: Path, processes: int = 1) -> "subprocess.Popen[bytes]":
    (script := ledger.parent / "script.py").write_text(SCRIPT)
    command = [sys.executable, script, logs, ledger, str(processes)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )


def listed(folder: Path) -> set[Path]:
    """All files and folders below a folder while a run removes some of them."""
    while True:
        with suppress(FileNotFoundError):  # a folder went between its listing and that of its content
            return set(folder.rglob("*"))


def holds_secret(path: Path) -> bool:
    """Whether a file holds the secret; one that a dying worker has just removed holds none."""
    with suppress(FileNotFoundError):
        return path.is_file() and SECRET.encode() in path.read_bytes()
    return False


def test_an_equal_line_counts_once_where_a_line_of_its_session_is_gone(logs: Path, ledger: Path) -> None:
    (logs / "a.jsonl").write_bytes(record(0, "one"))
    run_ingest(logs, ledger)
    (logs / "a.jsonl").unlink()
    for name in "bc":
        (logs / f"{name}.jsonl").write_bytes(record(1, "one"))
    assert numbers(run_ingest(logs, ledger)[1]) == [0, 1]


@pytest.mark.parametrize("attempts", [2, pytest.param(7, marks=pytest.mark.extended)])
def test_killed_runs_leave_no_secret_and_the_next_one_finds_everything(logs: Path, ledger: Path, attempts: int) -> None:
    """kill -9 at any moment, while files grow: at the end each execution is there once, and no secret was ever left."""
    chance, written, killed = random.Random(7), 0, 0
    for attempt in range(attempts):
        for name in "ab":
            rows = [record(i, "one", execution=executed(stdout=SECRET)) for i in range(written, written + 150)]
            _append(logs / f"{name}.jsonl", b"".join(rows))
            written += 150
        before = listed(ledger)
        process = start(logs, ledger, 1 if attempt % 3 == 2 else 2)
        while process.poll() is None and listed(ledger) == before:  # it still imports
            time.sleep(0.01)
        time.sleep(chance.random() * 0.5 * attempt / attempts)  # the first one at once, or a late one hits none
        killed += process.poll() is None
        # the whole group, or only the process that asks: its workers may go on for a moment
        if process.poll() is None:
            (os.killpg if attempt % 2 else os.kill)(process.pid, signal.SIGKILL)
        process.communicate()
        assert not any(map(holds_secret, listed(ledger)))
    assert killed, "none was hit at work"
    _, executions = run_ingest(logs, ledger)
    assert numbers(executions) == list(range(written))
    assert executions.equals(run_ingest(logs, None)[1])
    assert not (ledger / "scratch").exists()


def test_two_runs_at_once_are_one_after_the_other_also_a_scripts_with_workers(logs: Path, ledger: Path) -> None:
    for name in "abc":
        (logs / f"{name}.jsonl").write_bytes(b"".join(record(i) for i in range(ord(name) * 10, ord(name) * 10 + 15)))
    other = start(logs, ledger, 2)
    while other.poll() is None and not ledger.exists():  # it still imports
        time.sleep(0.01)
    tables, executions = run_ingest(logs, ledger)
    found, read = map(int, other.communicate()[0].split())
    assert other.returncode == 0
    assert found == len(executions) == 35
    assert {read, tables.lines_read} == {0, 45}, "the later one read again what the earlier one had read"


def test_a_file_that_cannot_be_read_is_named(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (logs / "a.jsonl").write_bytes(record(0))

    def refuse(self: object, task: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("capibara_assets.executions.ingest.intake.Intake.read", refuse)
    with pytest.raises(InputError, match=r"cannot read .*a\.jsonl: Permission denied"):
        run_ingest(logs, None)
