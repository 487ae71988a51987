"""Making the experience again where only some tasks changed."""

import gzip
import json
from pathlib import Path

import pytest

from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import Domain
from workshop.experience.__main__ import main
from workshop.experience.generate import portable
from workshop.experience.plan import plan
from workshop.experience.standing import changed, standing_lines

LOGS = resources_root() / "experience" / "e2b_logs"


def rewritten(day: Path, old: str, new: str) -> None:
    text = gzip.decompress(day.read_bytes()).decode()
    assert old in text
    day.write_bytes(gzip.compress(text.replace(old, new).encode(), 9, mtime=0))


def test_what_ships_is_what_its_tasks_say_now() -> None:
    sessions = [session for session in plan() if session.variant.family.language == "sql"]
    assert changed(sessions, standing_lines(LOGS, sessions)) == []


def test_a_session_without_lines_or_with_another_task_has_changed(tmp_path: Path) -> None:
    one, other = plan({Domain.SQL: 2})
    lines = standing_lines(LOGS, [one, other])
    task = json.loads(lines[other.sandbox_id][0])["task"]
    lines[other.sandbox_id] = [
        line.replace(json.dumps(task)[1:-1], "Another task.") for line in lines[other.sandbox_id]
    ]
    assert changed([one, other], lines) == [other]
    assert changed([one, other], {}) == [one, other]


def test_only_the_changed_session_runs_and_the_others_lines_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "e2b_logs"
    logs.mkdir()
    one, other = plan({Domain.SQL: 2})
    for number, session in enumerate((one, other)):
        lines = standing_lines(LOGS, [session])[session.sandbox_id]
        (logs / f"executions-{number}.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    rewritten(logs / "executions-1.jsonl.gz", '"task": "', '"task": "Please: ')
    assert main(["--out", str(tmp_path), "--only", "sql=2", "--changed"]) == 0
    assert "1 sessions run" in capsys.readouterr().out
    again = standing_lines(logs, [one, other])
    assert again[one.sandbox_id] == [portable(line) for line in standing_lines(LOGS, [one])[one.sandbox_id]]
    assert changed([one, other], again) == []
