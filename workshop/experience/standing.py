"""What of recorded experience is as the plan would have it: sessions whose tasks and code are the same need no new run."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from workshop.experience.generate import LEARN, portable
from workshop.experience.plan import Planned
from workshop.experience.rendering import render


def standing_lines(logs: Path, sessions: Sequence[Planned]) -> dict[str, list[str]]:
    """Sandbox -> its recorded lines in order of time, of those sessions; `logs` may be missing."""
    planned = {session.sandbox_id for session in sessions}
    lines = defaultdict[str, list[tuple[str, str]]](list)
    for path in sorted(logs.glob("executions-*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            record = json.loads(line)
            if record["sandbox_id"] in planned:
                lines[record["sandbox_id"]].append((record["timestamp"], line))
    return {sandbox: [line for _, line in sorted(those)] for sandbox, those in lines.items()}


def changed(sessions: Sequence[Planned], standing: dict[str, list[str]]) -> list[Planned]:
    """The sessions whose tasks or code are not those of their recorded lines, or that have none."""
    return [session for session in sessions if _written(session) != _recorded(standing.get(session.sandbox_id, []))]


def _written(session: Planned) -> list[tuple[str, str]]:
    return [(attempt.task, portable(attempt.code)) for attempt in render(session.variant, LEARN)]


def _recorded(lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(record["task"], record["code"]) for record in map(json.loads, lines)]
