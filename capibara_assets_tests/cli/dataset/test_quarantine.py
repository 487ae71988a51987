"""`capibara quarantine` on a deployment of its own: list, show, and a retry that reads the source again."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.cli.dataset.quarantine import quarantine
from capibara_assets.cli.graph.run import run
from capibara_assets.errors import InputError
from capibara_assets_tests.executions.conftest import envelope, line

SECRET = "e2b" + "_" + "0123456789abcdef" * 2 + "01234567"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experience of three good lines and three bad ones, read once."""
    folder = tmp_path / "experience" / "e2b_logs"
    folder.mkdir(parents=True)
    bad = line(envelope(f"key = '{SECRET}'", execution_id="torn"))[:-40]
    lines = [*(line(envelope(execution_id=f"e{i}")) for i in range(3)), bad, b"[]", line({"sandbox_id": "s"})]
    (folder / "a.jsonl").write_bytes(b"".join(each + b"\n" for each in lines))
    for name, value in {"HOME": tmp_path / "home", "EXPERIENCE": folder.parent}.items():
        monkeypatch.setenv(f"CAPIBARA_{name}", str(value))
    monkeypatch.setenv("DAGSTER_HOME", "")
    invoke(run, "--select", "e2b_logs")
    return folder


def invoke(command: object, *arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)  # type: ignore[arg-type]
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(*arguments: str) -> list[dict]:
    found = json.loads(invoke(quarantine, *arguments, "--json"))
    return found if isinstance(found, list) else found["lines"]


def test_list_show_and_retry(logs: Path) -> None:
    found = rows("list")
    assert [(row["line"], row["reason"]) for row in found] == [
        (4, "invalid_json"),
        (5, "not_an_object"),
        (6, "missing:execution_id"),
    ]
    assert "3 in quarantine; invalid_json: 1" in invoke(quarantine, "list")
    assert rows("list", "--reason", "invalid_json", "--limit", "5") == found[:1]
    shown = invoke(quarantine, "show", found[0]["quarantine_id"][:8])
    assert "<E2B_API_KEY:1>" in shown
    assert SECRET not in shown
    with pytest.raises(InputError, match="names nothing in quarantine"):
        invoke(quarantine, "show", "zzz")

    assert {row["outcome"] for row in rows("retry")} == {"invalid_json", "not_an_object", "missing:execution_id"}
    log = logs / "a.jsonl"
    mended = log.read_bytes().split(b"\n")
    mended[3] = line(envelope(f"key = '{SECRET}'", execution_id="torn"))
    log.write_bytes(b"\n".join(mended))
    assert [row["outcome"] for row in rows("retry", found[0]["quarantine_id"])] == ["valid"]
    assert [row["line"] for row in rows("list")] == [5, 6]
    log.unlink()
    assert {row["outcome"] for row in rows("retry")} == {"source_gone"}


def test_where_only_playbooks_were_read_their_entries_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = tmp_path / "experience" / "playbooks" / "a" / "playbook.txt"
    book.parent.mkdir(parents=True)
    book.write_text("## S\n[b-1] helpful=-3 harmful=0 :: SQL: x.\n[b-2] helpful=3 harmful=0 :: SQL: advice.\n")
    for name, value in {"HOME": tmp_path / "home", "EXPERIENCE": tmp_path / "experience"}.items():
        monkeypatch.setenv(f"CAPIBARA_{name}", str(value))
    monkeypatch.setenv("DAGSTER_HOME", "")
    with pytest.raises(InputError, match="e2b_logs is not materialized yet"):
        invoke(quarantine, "list")
    said = invoke(run, "--select", "ace_playbooks")
    assert "1 entry of playbooks left out" in said
    (row,) = rows("list")
    assert (row["file"], row["line"]) == ("playbooks/a/playbook.txt", 2)
    assert "1 in quarantine" in invoke(quarantine, "list")
    assert f"file: {row['file']}" in invoke(quarantine, "show", row["quarantine_id"][:8])
    with pytest.raises(InputError, match="e2b_logs is not materialized yet"):
        invoke(quarantine, "retry")


def test_a_playbook_is_not_called_none_before_playbooks_were_read(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPIBARA_HOME", str(logs.parent.parent / "another"))
    (logs.parent / "e2b_logs" / "book.txt").write_text("## TIPS\n[str-00001] helpful=1 harmful=0 :: Read on.\n")
    said = invoke(run, "--select", "e2b_logs")
    assert "1 file not read, no log by content; playbooks are not read yet (first: e2b_logs/book.txt)" in said
    (row,) = [row for row in rows("list") if row["reason"] == "not_read"]
    assert row["detail"].endswith("whether it is a playbook, `capibara run --select ace_playbooks` tells")


@pytest.mark.parametrize("playbooks", [True, False])
def test_files_beside_the_folders_that_are_read_are_told(logs: Path, playbooks: bool) -> None:
    folder = logs.parent
    (folder / "my.log").write_bytes(line(envelope(execution_id="beside")) + b"\n")
    (folder / "older" / ".hidden").mkdir(parents=True)
    for name in ("README.md", "older/b.jsonl", "older/.hidden/c.jsonl", ".d.jsonl"):
        (folder / name).write_bytes(line(envelope(execution_id="beside")) + b"\n")
    book = folder / "playbooks" / "book.md" if playbooks else folder / "book.md"
    book.parent.mkdir(exist_ok=True)
    book.write_text("## STRATEGIES\n[str-00001] helpful=1 harmful=0 :: Read the whole error first.\n")
    said = invoke(run, "--select", "e2b_logs,ace_playbooks")
    assert "2 files not read, beside e2b_logs/ (first: my.log): capibara quarantine list" in said
    found = [row for row in rows("list") if row["reason"] == "not_read"]
    assert [row["file"] for row in found] == ["my.log", "older/b.jsonl"]
    assert all("move it there if it is one" in row["detail"] for row in found)
    page = (folder.parent / "home" / "report.html").read_text()
    assert "2 files not read, beside e2b_logs/" in page
    (folder / "my.log").rename(logs / "my.log")
    assert "1 file not read, beside e2b_logs/ (first: older/b.jsonl)" in invoke(run, "--select", "e2b_logs")
