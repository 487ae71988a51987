"""Files that readers see whole or not at all while a run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


def replace_file(target: Path, write: Callable[[Path], object]) -> None:
    """Write beside ``target`` and rename, so that readers see the old file or the new one."""
    beside = target.with_name(f".{target.name}.part")
    write(beside)
    beside.replace(target)


def write_json(path: Path, content: object) -> None:
    replace_file(path, lambda part: part.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n"))
