"""What a run writes: files that are never half there, and lines of metrics, shown as they are written."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"


def replace_file(target: Path, write: Callable[[Path], object]) -> None:
    """Write beside ``target`` and rename, so that readers see the old file or the new one."""
    beside = target.with_name(f".{target.name}.part")
    write(beside)
    beside.replace(target)


def write_json(path: Path, content: object) -> None:
    replace_file(path, lambda part: part.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n"))


def say(text: str) -> None:
    """Tell whoever watches the run."""
    print(text, file=sys.stderr, flush=True)


def record(out: Path, **values: Any) -> None:
    """Append one line to the run's metrics and show it."""
    line = json.dumps({key: round(value, 5) if isinstance(value, float) else value for key, value in values.items()})
    with (out / METRICS).open("a") as file:
        file.write(line + "\n")
    say(line)
