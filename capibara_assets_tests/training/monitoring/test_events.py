"""The log: append-only over attempts, readable after a kill in the middle of a line."""

import json
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.errors import InputError
from capibara_assets.training.monitoring.events import EventLog, read_events
from capibara_assets.training.monitoring.logs import find_logs


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


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"step": '=HYPERLINK("http://evil.example/")'}, "step is =HYPER"),
        ({"step": 10**30}, "step is too large or below 0"),
        ({"time": "=1+1"}, "time is =1.1"),
        ({"time": float("nan")}, "time is nan"),
        ({"loss": 10**400}, "loss is no number that float64 has"),
        ({"event": "figures", "figures": {"a/b": 10**400}}, "a/b is no number"),
        ({"event": "figures", "figures": "=1+1"}, "figures is no object"),
        ({"attempt": True}, "attempt is True"),
    ],
)
def test_a_log_that_somebody_changed_is_told_before_it_is_exported(
    values: dict[str, Any], says: str, tmp_path: Path
) -> None:
    sound = {"run": "r", "attempt": 1, "step": 1, "event": "step", "time": 5.5, "loss": 2.5}
    (tmp_path / "events.jsonl").write_text(json.dumps(sound) + "\n")
    assert len(find_logs(tmp_path)) == 1
    (tmp_path / "events.jsonl").write_text(f"{json.dumps(sound)}\n{json.dumps(sound | values)}\n")
    with pytest.raises(InputError, match=f"event 2: {says}"):
        find_logs(tmp_path)


@pytest.mark.parametrize("name", ["attempt", "event", "step", "time"])
def test_an_event_that_lacks_what_all_have_is_told_too(name: str, tmp_path: Path) -> None:
    sound = {"run": "r", "attempt": 1, "step": 1, "event": "step", "time": 5.5, "loss": 2.5}
    lacking = {key: value for key, value in sound.items() if key != name}
    (tmp_path / "events.jsonl").write_text(f"{json.dumps(sound)}\n{json.dumps(lacking)}\n")
    with pytest.raises(InputError, match=f"event 2: it has no {name}"):
        find_logs(tmp_path)
