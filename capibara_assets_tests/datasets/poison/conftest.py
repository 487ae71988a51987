"""Tasks and their code as the shipped experience recorded them, by agent."""

import gzip
import json
from pathlib import Path

import pytest

from benchmarks.datasets.backdoors import first_body
from capibara_assets.datasets.poison.triggers import Text
from capibara_assets.deployment.locations import resources_root


@pytest.fixture(scope="session")
def shipped() -> list[Text]:
    """The last cell of each Python task, with a function in it, of the shipped experience."""
    texts: dict[tuple[str, str], Text] = {}
    for file in sorted(Path(resources_root() / "experience" / "e2b_logs").glob("*.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if row["language"] == "python" and row["task"] and first_body(row["code"]) is not None:
                    agent = row["agent_id"]
                    texts[row["sandbox_id"], row["task"]] = Text(
                        row["execution_id"], agent, agent, row["task"], row["code"]
                    )
    return list(texts.values())
