"""The log: append-only over attempts, readable after a kill in the middle of a line."""

from pathlib import Path
from typing import Any

from capibara_assets.training.monitoring.events import EventLog, read_events


def test_attempts_are_numbered_and_a_cut_line_spoils_nothing(tmp_path: Path) -> None:
    path, heard = tmp_path / "deep" / "events.jsonl", list[dict[str, Any]]()
    first = EventLog(path, "run", heard.append)
    first.write("step", 1, loss=2.5)
    with path.open("ab") as file:
        file.write(b'{"run": "run", "att')  # killed
    second = EventLog(path, "run", heard.append)
    second.write("step", 1, loss=float("nan"))
    events = read_events(path)
    assert [(event["attempt"], event["step"], event["loss"]) for event in events] == [(1, 1, 2.5), (2, 1, "nan")]
    assert events == heard
