"""The sensor over files that are dropped, grow, are still being written, or come late."""

import json
import os
import time
from pathlib import Path

import dagster as dg
import pytest

from capibara_assets.automation.sensors import QUIET_SECONDS, new_experience
from capibara_assets.definitions import defs
from capibara_assets.resources import Experience


def drop(path: Path, text: str = "{}\n", age: float = 60.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    moment = time.time() - age
    os.utime(path, (moment, moment))
    return path


def tick(folder: Path, cursor: str | None) -> tuple[list[dg.RunRequest], str | None, str | None]:
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(
            instance=instance, cursor=cursor, definitions=defs, resources={"experience": Experience(folder=str(folder))}
        ) as context,
    ):
        data = new_experience.evaluate_tick(context)
        return data.run_requests or [], data.cursor or cursor, data.skip_message


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    drop(tmp_path / "e2b_logs" / "a.jsonl")
    drop(tmp_path / "playbooks" / "p.txt")
    return tmp_path


def assets(requests: list[dg.RunRequest]) -> set[str]:
    return {key.to_user_string() for request in requests for key in request.asset_selection or ()}


def test_first_look_reads_both_then_nothing(folder: Path):
    requests, cursor, _ = tick(folder, None)
    assert assets(requests) == {"e2b_logs", "ace_playbooks"}
    requests, _, skip = tick(folder, cursor)
    assert not requests and "1 files" in (skip or "")


def test_a_dropped_file_wakes_the_ledger_alone(folder: Path):
    _, cursor, _ = tick(folder, None)
    drop(folder / "e2b_logs" / "b.jsonl")
    requests, cursor, _ = tick(folder, cursor)
    assert assets(requests) == {"e2b_logs"} and len(requests) == 1
    assert not tick(folder, cursor)[0]


def test_a_late_file_with_an_old_time_is_not_missed(folder: Path):
    _, cursor, _ = tick(folder, None)
    drop(folder / "e2b_logs" / "late.jsonl", age=86_400.0)
    assert assets(tick(folder, cursor)[0]) == {"e2b_logs"}


def test_a_grown_and_a_replaced_file_get_run_keys_of_their_own(folder: Path):
    first, cursor, _ = tick(folder, None)
    drop(folder / "e2b_logs" / "a.jsonl", "{}\n{}\n", age=50.0)
    grown, cursor, _ = tick(folder, cursor)
    drop(folder / "e2b_logs" / "a.jsonl", "{}\n[]\n", age=40.0)
    replaced, _, _ = tick(folder, cursor)
    keys = [request.run_key for request in (*first, *grown, *replaced)]
    assert len(set(keys)) == len(keys) == 4


def test_a_file_still_being_written_waits(folder: Path):
    _, cursor, _ = tick(folder, None)
    path = drop(folder / "e2b_logs" / "hot.jsonl", age=0.0)
    drop(folder / "e2b_logs" / ".hidden.jsonl")
    drop(folder / "e2b_logs" / "upload.jsonl.part")
    requests, cursor, skip = tick(folder, cursor)
    assert not requests and "1 still being written" in (skip or "")
    moment = time.time() - 2 * QUIET_SECONDS
    os.utime(path, (moment, moment))
    assert assets(tick(folder, cursor)[0]) == {"e2b_logs"}


def test_a_missing_folder_is_a_reason_not_an_exception(tmp_path: Path):
    requests, _, skip = tick(tmp_path / "nowhere", None)
    assert not requests and "does not exist" in (skip or "")


def test_the_cursor_stays_small(tmp_path: Path):
    for number in range(2_000):
        drop(tmp_path / "e2b_logs" / f"{number % 20}" / f"{number}.jsonl")
    _, cursor, _ = tick(tmp_path, None)
    assert len(cursor or "") < 200 and "e2b_logs" in json.loads(cursor or "")
