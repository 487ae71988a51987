"""What one session shows to be a secret is replaced in all others, whichever is read first."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.executions.ingest.ingest import ingest, ledger_name
from capibara_assets.executions.ingest.ledger import LEDGERS, seen_secrets
from capibara_assets_tests.executions.conftest import NOW, executed
from capibara_assets_tests.executions.ingest.test_ledger import record, run_ingest

VALUE = "kT9x2LmQ8vR4wZ7p"
TELLS = f'api_key = "{VALUE}"'


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def ledger(tmp_path: Path, logs: Path) -> Path:
    return tmp_path.joinpath("work", *LEDGERS, ledger_name(logs))


BARE: dict[str, dict[str, Any]] = {
    "a task": {"task": f"Call the service with {VALUE} please"},
    "captured output": {"execution": executed(stdout=f"{VALUE}\n")},
    "an error": {"execution": executed(error=("ValueError", f"bad {VALUE}", f"Traceback\nValueError: bad {VALUE}"))},
    "code": {"code": f"print('{VALUE}')"},
}


@pytest.mark.parametrize("order", ["a", "c"])
@pytest.mark.parametrize("place", list(BARE))
def test_a_value_of_one_session_is_replaced_in_another(logs: Path, ledger: Path, place: str, order: str) -> None:
    (logs / "b.jsonl").write_bytes(record(10, "bare", **BARE[place]) + record(11, "other"))
    (logs / f"{order}.jsonl").write_bytes(record(0, "tells", code=TELLS))
    tables, executions = run_ingest(logs, ledger)
    told, bare, other = executions.sort("execution_id").rows(named=True)
    assert VALUE not in json.dumps([told, bare, other], default=str)
    assert bare["secrets"] >= 1 and "<SECRET:0>" in json.dumps(bare, default=str)
    assert told["code"] == 'api_key = "<SECRET:1>"' and other["secrets"] == 0
    assert tables.summary["secrets"] == executions["secrets"].sum()
    assert not any(VALUE.encode() in path.read_bytes() for path in ledger.rglob("*") if path.is_file())


def test_it_is_replaced_in_rows_that_were_read_before_it_was_known(logs: Path, ledger: Path) -> None:
    (logs / "a.jsonl").write_bytes(record(0, "bare", **BARE["a task"]) + record(1, "other"))
    assert run_ingest(logs, ledger)[1]["secrets"].sum() == 0
    (logs / "b.jsonl").write_bytes(record(2, "tells", code=TELLS))
    _, executions = run_ingest(logs, ledger)
    assert executions["secrets"].to_list() == [1, 0, 1]
    assert executions.equals(run_ingest(logs, None)[1])
    (logs / "c.jsonl").write_bytes(record(3, "late", **BARE["captured output"]))
    _, executions = run_ingest(logs, ledger)
    assert executions["secrets"].to_list() == [1, 0, 1, 1] and executions.equals(run_ingest(logs, None)[1])
    assert executions["record_digest"].n_unique() == 4


def test_the_quarantine_shows_it_neither(logs: Path, ledger: Path) -> None:
    (logs / "a.jsonl").write_bytes(record(0, "tells", code=TELLS) + b'{"torn": "' + VALUE.encode() + b'", \n')
    with ingest(logs, now=NOW, ledger=ledger) as tables:
        (text,) = tables.table("quarantine")["text"]
    assert text == '{"torn": "<SECRET:0>", '


def test_a_token_in_an_id_of_a_bullet_or_the_name_of_a_file_is_in_no_table(logs: Path, ledger: Path) -> None:
    """Two files that differ in their tokens stay two; the file is found again by its name."""
    tokens = ["ghp_" + letter * 4 + "R4wZ7pkT9x2LmQ8vR4wZ7pkT9x2LmQ8v" for letter in "ab"]
    for number, token in enumerate(tokens):
        line = record(number, f"s{number}", code=f'token = "{token}"', bullet_ids=[token, "a/str-00001"])
        logs.joinpath(f"run-{token}.jsonl").write_bytes(line + b'{"torn": \n')
    for _ in range(2):
        with ingest(logs, now=NOW, ledger=ledger) as tables:
            rows = [tables.table(name) for name in ("executions", "quarantine", "files")]
            assert tables.summary["files"] == 2
        assert not any(token in frame.write_json() for token in tokens for frame in rows)
        assert rows[0]["source_file"].n_unique() == rows[1]["file"].n_unique() == 2
        assert all(first.startswith("GITHUB_TOKEN-") for first, _ in rows[0]["bullet_ids"])
        assert not any(t.encode() in path.read_bytes() for t in tokens for path in ledger.rglob("*") if path.is_file())


@pytest.mark.parametrize("order", ["a", "z"])
@pytest.mark.parametrize("file", [f"run-{VALUE}.jsonl", "plain.jsonl"])
def test_who_calls_the_name_of_anothers_file_or_tenant_a_secret_stops_nobody(
    logs: Path, ledger: Path, order: str, file: str
) -> None:
    """Neither if both are read at once nor if the other's rows are in the ledger already, or come later."""
    named = record(0, "plain", tenant=None if VALUE in file else f"org-{VALUE}")
    hostile = record(1, "hostile", code=TELLS)
    files = {file: named, f"{order}.jsonl": hostile}
    for later in (set(files), {file}, {f"{order}.jsonl"}):
        for name in sorted(files, key=lambda name: name in later):
            logs.joinpath(name).write_bytes(files[name])
            run_ingest(logs, ledger)
        assert not seen_secrets(ledger.parents[2])
        for path in (*logs.iterdir(), *ledger.rglob("*")):
            path.unlink() if path.is_file() else None


@pytest.mark.parametrize("name", ["tenant", "agent_id"])
def test_a_name_that_is_a_secret_gets_another_and_names_stay_different(logs: Path, name: str) -> None:
    tokens = ["ghp_" + letter * 4 + "R4wZ7pkT9x2LmQ8vR4wZ7pkT9x2LmQ8v" for letter in "ab"]
    lines = [record(n, f"s{n}", **{name: token}) for n, token in enumerate([*tokens, tokens[0], "acme"])]
    (logs / "a.jsonl").write_bytes(b"".join(lines))
    _, executions = run_ingest(logs, None)
    first, second, again, plain = executions.sort("execution_id")[name]
    assert first.startswith("GITHUB_TOKEN-") and second.startswith("GITHUB_TOKEN-")
    assert first == again != second and plain == "acme"
    assert executions["secrets"].to_list() == [1, 1, 1, 0]


def test_nobody_makes_the_name_of_anothers_session_disappear(logs: Path, ledger: Path) -> None:
    """A log's author who calls somebody's sandbox a secret would have it replaced in everybody's texts."""
    named = record(0, VALUE, task=f"Go on in sandbox {VALUE} as before")
    (logs / "a.jsonl").write_bytes(named + record(1, "hostile", code=TELLS))
    _, executions = run_ingest(logs, ledger)
    assert executions["task"][0] == f"Go on in sandbox {VALUE} as before"
    assert not seen_secrets(ledger.parents[2])


def test_what_the_ledgers_know_is_known_to_other_readers(logs: Path, ledger: Path) -> None:
    assert not seen_secrets(ledger.parents[2])
    (logs / "a.jsonl").write_bytes(record(0, "tells", code=TELLS))
    run_ingest(logs, ledger)
    assert seen_secrets(ledger.parents[2]).find(VALUE)
    assert pl.read_parquet(next(ledger.glob("generations/*/seen.parquet"))).columns == ["digest", "length", "kind"]
