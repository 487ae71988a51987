"""TensorBoard exporter: event files written without torch or TensorFlow, one folder per run."""

import contextlib
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from capibara_assets.training.monitoring.logs import RunInfo
from capibara_assets.training.monitoring.views import MetricPoint


class TensorBoardExporter:
    """Writes a file per attempt. TensorBoard stores figures as 32-bit floats."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._file: BinaryIO | None = None
        self._records: Any = None

    def begin(self, info: RunInfo) -> None:
        """Open a new file in place of the run's older ones.

        A TensorBoard that has read those already drops their figures at the session's start mark.
        """
        self.close(finished=False)
        folder = self._folder / info.name
        folder.mkdir(parents=True, exist_ok=True)
        older = list(folder.glob("events.out.tfevents.*"))
        name = f"events.out.tfevents.{int(time.time()):010d}.capibara.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        self._file = (folder / name).open("wb")
        self._records = RecordWriter(self._file)
        self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._add(Event(wall_time=time.time(), step=0, session_log=SessionLog(status=SessionLog.START)))
        self._file.flush()
        for path in older:
            path.unlink(missing_ok=True)

    def write(self, points: Sequence[MetricPoint]) -> None:
        """Write points as scalars, with the time they were measured."""
        assert self._file is not None, "begin() comes first"
        for point in points:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
            self._add(Event(wall_time=point.time, step=point.step, summary=Summary(value=values)))
        self._file.flush()

    def close(self, finished: bool) -> None:
        """Close the file."""
        if self._file is not None:
            with contextlib.closing(self._file):
                self._file = None

    def _add(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
