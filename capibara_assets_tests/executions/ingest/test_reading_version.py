"""What a line of any format becomes is what `READING_VERSION` stands for: a ledger of another reading is read again."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.executions.ingest import ledger
from capibara_assets.executions.ingest.ingest import ingest
from capibara_assets_tests.executions.conftest import NOW, envelope, executed, line
from capibara_assets_tests.executions.formats.test_detection import CODE_TRACE, ENTRY, EVENT
from capibara_assets_tests.executions.formats.test_notebooks import RAISED, code, notebook, shown, stream

KNOWN_LOGS = Path(__file__).parent / "known_logs"
SECRET = "e2b" + "_" + "0123456789abcdef" * 2 + "01234567"
KNOWN = {
    "executions": "7e887b08465107a6",
    "quarantine": "0c3c56e0d4a32f56",
    "files": "175cb6bebe9127a8",
    "summary": "9bda40091867dfb1",
}


def write_logs(folder: Path) -> None:
    """A day of real executions in three languages, and one file of each other format and of each kind of trouble."""
    shutil.copytree(KNOWN_LOGS, folder)
    python = envelope("print(f(2))", execution_id="sdk-1", execution=executed("4\n"))
    javascript = envelope("f(1)", execution_id="sdk-2", language="js") | {
        "execution": {"results": [{"text": "1"}], "logs": {"stdout": ["a"], "stderr": []}},
        "messages": [{"role": "user", "content": "Double the number and print it, please"}],
    }
    failed = envelope("f(2)", execution_id="sdk-3", execution=executed(error=("NameError", "f", "Traceback: f")))
    mended = envelope("f = abs\nf(2)", execution_id="sdk-4", timestamp="2026-10-05T00:16:00Z")
    timeout = envelope("while 1: pass", execution_id="sdk-5", execution=None) | {
        "exception": {"name": "TimeoutException", "message": "deadline"}
    }
    secret = envelope("key = 'me@example.org 93.184.216.34'", execution_id="sdk-6", execution=executed(SECRET))
    records = [line(one) for one in (python, javascript, failed, mended, timeout, secret)]
    troubles = [
        records[0],  # a copy
        line(failed | {"code": "g(3)"}),  # another record under the same id
        b'{"torn',
        b"",
        line(envelope(code=3)),
        line(envelope(execution_id="later", timestamp="2030-01-01T00:00:00Z")),
        b'{"sandbox_id": "\xff"}',
    ]
    (folder / "lines.jsonl").write_bytes(b"\n".join([*records, *troubles]) + b"\n")
    (folder / "events.jsonl").write_bytes(line(EVENT) + b"\n" + line(ENTRY) + b"\n")
    cells = (code("x = 1\nx", stream("1\n"), shown("1")), code("x / 0", RAISED, count=2), code("never()", count=None))
    (folder / "analysis.ipynb").write_text(json.dumps(notebook(*cells), indent=1))
    (folder / "trace.json").write_bytes(line(CODE_TRACE) + b"\n")
    (folder / "notes.txt").write_text("neither of these\n")


def digest_of(value: pl.DataFrame | dict[str, Any]) -> str:
    rows = value.rows(named=True) if isinstance(value, pl.DataFrame) else value
    return hashlib.sha256(json.dumps(rows, sort_keys=True, default=str).encode("utf-8", "surrogatepass")).hexdigest()[
        :16
    ]


def test_a_change_of_what_is_read_raises_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAPIBARA_DIGEST_KEY", raising=False)
    write_logs(tmp_path / "logs")
    with ingest(tmp_path / "logs", now=NOW, processes=1, also=("email", "ip")) as tables:
        read = tables.load()
    assert set(read.executions["language"]) == {"python", "javascript", "sql"}
    assert set(read.executions["outcome"]) == {"ok", "error", "timeout"}
    (redacted,) = read.executions.filter(execution_id="sdk-6").select("code", "stdout").rows()
    assert redacted == ("key = '<EMAIL:1> <IP:1>'", "<E2B_API_KEY:1>")
    assert len(read.summary["reasons"]) == 5
    found = {name: digest_of(getattr(read, name)) for name in ("executions", "quarantine", "files", "summary")}
    assert found == KNOWN, (
        "Lines are read, redacted or labelled otherwise than READING_VERSION in ingest/ledger.py stands for: raise"
        " it there, so that ledgers are read again, and put what was found here into KNOWN"
    )


def test_a_ledger_of_this_version_and_key_is_current_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").write_bytes(line(envelope()) + b"\n")
    monkeypatch.delenv("CAPIBARA_DIGEST_KEY", raising=False)
    fingerprints = [ledger.fingerprint()]

    def lines_read() -> int:
        with ingest(tmp_path / "logs", now=NOW, processes=1, ledger=tmp_path / "ledger") as tables:
            return tables.lines_read

    assert [lines_read(), lines_read()] == [1, 0]
    monkeypatch.setenv("CAPIBARA_DIGEST_KEY", "of our own")
    fingerprints.append(ledger.fingerprint())
    assert [lines_read(), lines_read()] == [1, 0]
    for key in ("of our own", None):
        monkeypatch.setenv("CAPIBARA_DIGEST_KEY", key) if key else monkeypatch.delenv("CAPIBARA_DIGEST_KEY")
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "READING_VERSION", "another")
            fingerprints.append(ledger.fingerprint())
            assert lines_read() == 1
    assert len(set(fingerprints)) == len(fingerprints)
