"""The sensor over files that are dropped, grow, are still being written, or come late."""

import json
import os
import time
from contextlib import nullcontext
from pathlib import Path

import dagster as dg
import pytest
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from capibara_assets.automation.sensors import (
    PATIENCE_SECONDS,
    QUIET_SECONDS,
    heavy_automation,
    light_automation,
    new_experience,
)
from capibara_assets.definitions import defs
from capibara_assets.resources import Experience
from capibara_assets.storage.mirror import file_system
from capibara_assets_tests.storage.test_remote import emulator  # noqa: F401


def drop(path: Path, text: str = "{}\n", age: float = 60.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    moment = time.time() - age
    os.utime(path, (moment, moment))
    return path


def tick(
    folder: Path | str, cursor: str | None, instance: dg.DagsterInstance | None = None
) -> tuple[list[dg.RunRequest], str | None, str | None]:
    with (
        nullcontext(instance) if instance is not None else dg.DagsterInstance.ephemeral() as instance,
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


def run_of(instance: dg.DagsterInstance, request: dg.RunRequest, status: dg.DagsterRunStatus) -> dg.DagsterRun:
    """A run such as the daemon starts for a request."""
    return instance.add_run(dg.DagsterRun(job_name="__ASSET_JOB", tags=dict(request.tags), status=status))


def test_content_that_returns_is_read_again(folder: Path):
    first, cursor, _ = tick(folder, None)
    moved = drop(folder / "e2b_logs" / "b.jsonl")
    second, cursor, _ = tick(folder, cursor)
    moved.unlink()
    third, _, _ = tick(folder, cursor)
    keys = [request.run_key for request in (*first, *second, *third)]
    assert len(keys) == len(set(keys)) == 4


def test_while_a_run_is_going_new_files_wait_for_its_end(folder: Path):
    with dg.DagsterInstance.ephemeral() as instance:
        requests, cursor, _ = tick(folder, None, instance)
        runs = [run_of(instance, request, dg.DagsterRunStatus.STARTED) for request in requests]
        drop(folder / "e2b_logs" / "b.jsonl")
        requests, cursor, skip = tick(folder, cursor, instance)
        assert not requests and "e2b_logs: 2 files" in (skip or "") and "run 1 is going" in (skip or "")
        for run in runs:
            instance.handle_new_event(_ended(run))
        requests, cursor, _ = tick(folder, cursor, instance)
        assert assets(requests) == {"e2b_logs"}


def test_a_run_that_was_made_but_never_queued_does_not_block_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A daemon that is killed between the two leaves such a run."""
    with dg.DagsterInstance.ephemeral() as instance:
        requests, cursor, _ = tick(folder, None, instance)
        for request in requests:
            run_of(instance, request, dg.DagsterRunStatus.NOT_STARTED)
        assert not tick(folder, cursor, instance)[0]
        later = time.time() + PATIENCE_SECONDS + 1
        monkeypatch.setattr("capibara_assets.automation.sensors.time.time", lambda: later)
        assert assets(tick(folder, cursor, instance)[0]) == {"e2b_logs", "ace_playbooks"}


def _ended(run: dg.DagsterRun) -> dg.EventLogEntry:
    event = dg.DagsterEvent("PIPELINE_SUCCESS", run.job_name)
    return dg.EventLogEntry(None, 10, "", run.run_id, time.time(), job_name=run.job_name, dagster_event=event)


def test_a_run_that_failed_is_asked_for_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    with dg.DagsterInstance.ephemeral() as instance:
        requests, cursor, _ = tick(folder, None, instance)
        for request in requests:
            run_of(instance, request, dg.DagsterRunStatus.FAILURE)
        nothing, cursor, skip = tick(folder, cursor, instance)
        assert not nothing and "failed, again in" in (skip or "")
        now = time.time() + 120
        monkeypatch.setattr("capibara_assets.automation.sensors.time.time", lambda: now)
        again, cursor, _ = tick(folder, cursor, instance)
        assert assets(again) == {"e2b_logs", "ace_playbooks"}
        assert not {request.run_key for request in again} & {request.run_key for request in requests}
        for request in again:
            run_of(instance, request, dg.DagsterRunStatus.SUCCESS)
        nothing, cursor, skip = tick(folder, cursor, instance)
        assert not nothing and "run 2 read it" in (skip or "")


def test_a_tick_is_bounded_and_the_next_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("capibara_assets.automation.sensors.SWEEP_SECONDS", -1.0)
    for day in range(3):
        drop(tmp_path / "e2b_logs" / f"day-{day}" / "a.jsonl")
    drop(tmp_path / "playbooks" / "p.txt")
    found: list[dg.RunRequest] = []
    cursor = None
    for count in range(5):
        requests, cursor, skip = tick(tmp_path, cursor)
        found += requests
        if count == 1:
            assert json.loads(cursor or "")["e2b_logs/sweep"][3] == ["day-0"]
        if count == 2:
            assert "listed as far as 'day-1'" in (skip or "")
    assert assets(found) == {"e2b_logs", "ace_playbooks"}
    (request,) = [each for each in found if each.asset_selection == [dg.AssetKey("e2b_logs")]]
    assert request.tags["capibara/files"] == "3"
    assert "e2b_logs/sweep" not in (cursor or "")


@pytest.mark.gcs
def test_a_bucket_is_watched_and_read(emulator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    location = "gs://bucket/experience"
    system, root = file_system(location)
    system.pipe_file(f"{root}/e2b_logs/a.jsonl", b"{}\n")
    system.pipe_file(f"{root}/playbooks/p.txt", b"## S\n[s-00001] helpful=1 harmful=0 :: x\n")
    requests, cursor, _ = tick(location, None)
    assert assets(requests) == {"e2b_logs", "ace_playbooks"}
    assert not tick(location, cursor)[0]
    system.pipe_file(f"{root}/e2b_logs/b.jsonl", b"{}\n")
    requests, cursor, _ = tick(location, cursor)
    assert assets(requests) == {"e2b_logs"}
    experience = Experience(folder=location, mirror=str(tmp_path / "mirror"))
    assert sorted(path.name for path in experience.path.rglob("*.*")) == ["a.jsonl", "b.jsonl", "p.txt"]


def test_new_executions_do_not_wait_behind_queued_evaluations(folder: Path):
    (request, _), _, _ = tick(folder, None)
    waiting = {"new file": request.tags, "light": light_automation.run_tags, "evaluation": heavy_automation.run_tags}
    queued = [dg.DagsterRun(job_name=name, tags=dict(tags)) for name, tags in reversed(waiting.items())]
    ordered = QueuedRunCoordinatorDaemon(interval_seconds=5)._priority_sort(queued)
    assert [run.job_name for run in ordered] == ["new file", "light", "evaluation"], "the evaluation was queued first"
