"""`capibara experience export`: folders that agents' readers take, and a last line that says what is missing."""

import errno
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.cli.dataset.experience import experience, export_sessions
from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets_tests.datasets.conftest import frame, run
from capibara_assets_tests.executions.export.test_trajectories import NOW

ROWS = frame(
    [
        run("a1", "key = '<API_KEY:1>'\nprint(7)", "a", stdout="7\n", task="Print it.", duration_ms=2.5),
        run("a2", "1 / 0", "a", outcome="error", error_name="ZeroDivisionError", stderr="late\n", minute=1),
        run("b1", "SELECT 7", "b", language="sql", domains=["sql"], result_text="7"),
    ]
)


@pytest.mark.parametrize("form", ["atif", "adp"])
def test_an_export_is_an_experience(form: str, tmp_path: Path) -> None:
    """A folder as it is written is read again: every execution, nothing in quarantine, placeholders as they were."""
    report = export_sessions(ROWS, form, tmp_path / "out" / "e2b_logs", None, None)
    assert (report["sessions"], report["executions"], report["beside"]["outcome"]) == (2, 3, 3)
    assert report["said"].startswith(f"{form.upper()} has no place for duration_ms (1), ")
    back = read_experience(tmp_path / "out", now=NOW)
    assert back.quarantine.is_empty() and set(back.files["kind"]) == {"executions"}
    columns = ["code", "stdout", "stderr", "result_text", "outcome", "task", "licence", "source"]
    ordered = back.executions.sort("timestamp", "code").select(columns)
    assert sorted(ordered.rows(), key=str) == sorted(ROWS.select(columns).rows(), key=str)


def test_a_selection_into_an_empty_folder(tmp_path: Path) -> None:
    assert export_sessions(ROWS, "atif", tmp_path / "sql", "sql", None)["executions"] == 1
    (made,) = (tmp_path / "sql").iterdir()
    assert json.loads(made.read_text())["session_id"] == "b"
    with pytest.raises(InputError, match="is no empty folder"):
        export_sessions(ROWS, "adp", tmp_path / "sql", None, "a")
    with pytest.raises(InputError, match="unknown domain poetry"):
        export_sessions(ROWS, "adp", tmp_path / "new", "poetry", None)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("form", ["atif", "adp"])
def test_what_could_not_be_written_whole_can_be_written_again(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumped = json.dumps

    def full(value: dict[str, object], **options: object) -> str:
        if "SELECT 7" in dumped(value):
            raise OSError(errno.ENOSPC, "No space left on device")
        return dumped(value, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("capibara_assets.executions.export.trajectories.json.dumps", full)
        with pytest.raises(OSError, match="No space left"):
            export_sessions(ROWS, form, tmp_path / "out", None, None)
    assert list((tmp_path / "out").iterdir()) == []
    assert export_sessions(ROWS, form, tmp_path / "out", None, None)["executions"] == 3


def test_without_a_table_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DAGSTER_HOME", "")
    with pytest.raises(InputError, match="e2b_logs is not materialized yet"):
        CliRunner().invoke(experience, ["export", "--format", "adp", "--out", "out"], catch_exceptions=False)
