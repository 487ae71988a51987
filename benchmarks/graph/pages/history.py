"""A long history of runs: copies of those that a deployment has, with all their rows, spread over the days before."""

import re
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.events import EVENT_TYPE_TO_PIPELINE_RUN_STATUS
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable
from dagster._core.utils import make_new_run_id
from sqlalchemy import Connection, Table, func, select, text

_TIMES = re.compile(r'("(?:timestamp|start_time|end_time)": )(\d{9,}\.\d+)')
_SHARD_TIME = "%Y-%m-%d %H:%M:%f000"  # six digits below a second, as Dagster writes them

Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Rows:
    """What the tables that all runs share hold of one run."""

    run: Row
    tags: list[Row]
    events: list[Row]
    event_tags: list[Row]
    checks: list[Row]


@dataclass(frozen=True)
class _Copy:
    """One copy: the run's id, that of its original, and by how many seconds it lies before it."""

    run_id: str
    of: str
    earlier: float

    def moved(self, body: str) -> str:
        """A document with this run's id and times."""
        named = body.replace(self.of, self.run_id)
        return _TIMES.sub(lambda found: f"{found[1]}{float(found[2]) - self.earlier:.6f}", named)

    def row(self, row: Row, **others: Any) -> dict[str, Any]:
        """A table's row of this run, without the original's number."""
        new = {name: value for name, value in row.items() if name != "id"}
        for name, value in new.items():
            if name in ("run_body", "event", "evaluation_event") and value:
                new[name] = self.moved(value)
            elif name in ("start_time", "end_time") and value:
                new[name] = value - self.earlier
            elif name == "run_id":
                new[name] = self.run_id
            elif hasattr(value, "tzinfo"):
                new[name] = value - timedelta(seconds=self.earlier)
        return new | others


def bring(source: dg.DagsterInstance, target: dg.DagsterInstance) -> None:
    """Store another instance's runs, oldest first, in an instance that has none, with snapshots and events."""
    for record in reversed(source.get_run_records()):
        run = record.dagster_run
        for snapshot in (run.job_snapshot_id, run.execution_plan_snapshot_id):
            if snapshot and not target.has_snapshot(snapshot):
                found = source.get_job_snapshot if source.has_job_snapshot(snapshot) else None
                target.add_snapshot((found or source.get_execution_plan_snapshot)(snapshot))
        target.run_storage.add_historical_run(run, record.create_timestamp)
        for entry in source.all_logs(run.run_id):
            target.event_log_storage.store_event(entry)
            if entry.dagster_event and entry.dagster_event.event_type in EVENT_TYPE_TO_PIPELINE_RUN_STATUS:
                at = datetime.fromtimestamp(entry.timestamp, UTC)
                target.run_storage.handle_run_event(run.run_id, entry.dagster_event, at)  # when it began and ended


def lengthen(instance: dg.DagsterInstance, runs: int, days: float) -> None:
    """Add copies of the instance's runs, in turn, until it has this many, evenly over the days before the originals.

    Works on Dagster's tables: `store_event` takes half a second a run on SQLite, most of it a new database's schema.
    """
    storage, run_storage = instance.event_log_storage, instance.run_storage
    with run_storage.connect() as connection, storage.index_connection() as index:  # type: ignore[attr-defined]
        originals = _originals(connection, index)
        missing = max(runs - len(originals), 0)
        number = index.execute(select(func.max(SqlEventLogStorageTable.c.id))).scalar() or 0
        for turn in range(missing):
            rows = originals[turn % len(originals)]
            copy = _Copy(make_new_run_id(), rows.run["run_id"], (missing - turn) * days * 86_400 / missing)
            _add(connection, RunsTable, [copy.row(rows.run)])
            _add(connection, RunTagsTable, [copy.row(tag) for tag in rows.tags])
            number = _add_events(index, rows, copy, number)
            if hasattr(storage, "path_for_shard"):
                _copy_shard(Path(storage.path_for_shard(copy.of)), Path(storage.path_for_shard(copy.run_id)), copy)
        if index.dialect.name == "postgresql":  # numbers were given here, so its own counter stood still
            index.execute(text(f"SELECT setval(pg_get_serial_sequence('event_logs', 'id'), {number})"))
        for one in (connection, index):
            one.commit()


def _originals(connection: Connection, index: Connection) -> list[_Rows]:
    """The rows of each run, oldest first."""

    def found(of: Connection, table: Table, column: Any, values: list[Any]) -> list[Row]:
        query = select(table).where(column.in_(values)).order_by(table.c.id)
        return [dict(row._mapping) for row in of.execute(query)]

    originals = []
    for row in connection.execute(select(RunsTable).order_by(RunsTable.c.id)).all():
        run = dict(row._mapping)
        ids = [run["run_id"]]
        events = found(index, SqlEventLogStorageTable, SqlEventLogStorageTable.c.run_id, ids)
        numbers = [event["id"] for event in events]
        originals.append(
            _Rows(
                run,
                found(connection, RunTagsTable, RunTagsTable.c.run_id, ids),
                events,
                found(index, AssetEventTagsTable, AssetEventTagsTable.c.event_id, numbers),
                found(index, AssetCheckExecutionsTable, AssetCheckExecutionsTable.c.run_id, ids),
            )
        )
    return originals


def _add(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(table.insert(), rows)


def _add_events(index: Connection, rows: _Rows, copy: _Copy, number: int) -> int:
    """Add a run's events, their tags and its checks; the last event's number."""
    numbers = {event["id"]: number + place for place, event in enumerate(rows.events, 1)}
    _add(index, SqlEventLogStorageTable, [copy.row(event, id=numbers[event["id"]]) for event in rows.events])
    _add(index, AssetEventTagsTable, [copy.row(tag, event_id=numbers[tag["event_id"]]) for tag in rows.event_tags])
    of_events = ("evaluation_event_storage_id", "materialization_event_storage_id")
    checks = [copy.row(row, **{key: numbers.get(row[key], row[key]) for key in of_events}) for row in rows.checks]
    _add(index, AssetCheckExecutionsTable, checks)
    return number + len(rows.events)


def _copy_shard(original: Path, path: Path, copy: _Copy) -> None:
    """SQLite: the database of a run's own, with all its events."""
    shutil.copyfile(original, path)
    with closing(sqlite3.connect(path)) as shard, shard:
        shard.create_function("moved", 1, copy.moved, deterministic=True)
        shard.execute(
            "UPDATE event_logs SET run_id = ?, event = moved(event), timestamp = strftime(?, timestamp, ?)",
            (copy.run_id, _SHARD_TIME, f"-{copy.earlier:.3f} seconds"),
        )
