"""Terminal progress of `capibara run`: one line per finished step and per message that a step logs."""

import logging
import sys
from typing import Any

import dagster as dg

from capibara_assets.escaping.languages import visible
from capibara_assets.processes.progress import is_quiet

_FOLLOWS = "Dependencies for step "  # Dagster, of each step and check below one that failed, which has its own line


class ProgressHandler(logging.Handler):
    """Prints finished steps and their log messages, with time and domain."""

    def emit(self, record: logging.LogRecord) -> None:
        meta: dict[str, Any] = record.__dict__.get("dagster_meta", {})
        event: dg.DagsterEvent | None = meta.get("dagster_event")
        partition = (meta.get("job_tags") or {}).get("dagster/partition", "all")
        said = str(meta.get("orig_message") or record.getMessage())
        if event is None and record.levelno >= logging.INFO and not said.startswith(_FOLLOWS):
            line = f"{meta.get('step_key') or ''}: {said}"
        elif event is not None and event.event_type_value == "STEP_SUCCESS":
            line = f"{event.step_key} in {event.step_success_data.duration_ms / 1000:.1f} s"
        else:
            return
        if is_quiet():
            return
        print(visible(f"{self.format_time(record)} {partition:<10} {line}"), file=sys.stdout, flush=True)

    @staticmethod
    def format_time(record: logging.LogRecord) -> str:
        """Local time of day."""
        return logging.Formatter(datefmt="%H:%M:%S").formatTime(record, "%H:%M:%S")


@dg.logger(description="One line per finished step and per message of a step.")
def progress(_: dg.InitLoggerContext) -> logging.Logger:
    """The logger of `capibara run`."""
    logger = logging.Logger("capibara", level=logging.DEBUG)  # Dagster logs its step events as debug messages
    logger.addHandler(ProgressHandler())
    return logger
