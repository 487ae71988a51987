"""Where people find a record: a line of their log, or a call of an agent's session."""

import pytest

from capibara_assets.executions.formats.agents.places import in_file


@pytest.mark.parametrize(
    ("execution_id", "shown"),
    [
        ("5f3c9a12-0001", "a/b.jsonl:7"),
        ("openai:evals:3", "a/b.jsonl:7"),  # an id of the recorder's own
        ("claude-code:3f0c1c7e-52f3-4b1b-9a0e-0d2b64cf7a11:toolu_6", "a/b.jsonl, call toolu_6"),
        ("swe-agent:task-0-12ab:4-0a1b2c3d", "a/b.jsonl, call 5 of its session"),
    ],
)
def test_a_place_in_a_file(execution_id: str, shown: str) -> None:
    assert in_file(execution_id, "a/b.jsonl", 7) == shown
