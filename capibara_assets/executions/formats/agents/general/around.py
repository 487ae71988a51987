"""What the objects around a call or a record of code tell of it: session, time, task and model."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from capibara_assets.executions.formats.agents.fields import name_at, word
from capibara_assets.executions.formats.agents.runs import first_moment

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Around:
    """What is known so far; None is what no object has told."""

    session: str
    started: datetime | None = None
    task: str | None = None
    model: str | None = None

    def within(self, node: dict[str, Any], sessions: Keys, times: Keys, tasks: Keys) -> "Around":
        """What is known within an object: what it tells under these keys, else what is known around it."""
        return Around(
            next((name for key in sessions if (name := name_at(node, key))), self.session),
            first_moment(node.get(key) for key in times) or self.started,
            next((node[key] for key in tasks if word(node.get(key))), self.task),
            word(node.get("model")) or self.model,
        )
