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
    return [json.loads(text) for text in invoke(quarantine, *arguments, "--json").splitlines()]


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
