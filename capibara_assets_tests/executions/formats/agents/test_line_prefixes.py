"""What stands before each line of a log: left out where nearly all lines have it, kept where it says more."""

import json

import pytest

from capibara_assets.executions.formats.agents.line_prefixes import without_prefixes
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import LogDocument

LINES = ["> Entering new AgentExecutor chain...", "", "Action: terminal", "Action Input: ls | wc", "Observation: 3"]
PREFIXES = {
    "job": "2026-01-02T03:04:05.1234567Z ",
    "job of a run": "build\tRun it\t2026-01-02T03:04:05.1234567Z ",
    "compose": "agent-1  | ",
    "compose with times": "2026-01-02 03:04:05 agent-1  | ",
    "pod": "[pod/agent-5f/main] ",
    "journal": "Jan  2 03:04:05 host agent[17]: ",
    "logging": "2026-01-02 03:04:05,678 [INFO] ",
    "logging with dashes": "2026-01-02 03:04:05,678 - INFO - ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_a_prefix_of_all_lines_is_left_out(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in LINES)
    assert without_prefixes(text) == "\n".join([*LINES, ""])
    document = LogDocument(text.encode())
    reader = find_reader(document)
    assert reader is not None and reader.name == "react-text"


def test_lines_of_several_stand_one_after_another() -> None:
    both = [f"{name}-1  | {line}\n" for line in LINES * 2 for name in ("agent", "db")]
    assert without_prefixes("".join(both)) == "\n".join([*LINES * 2, *LINES * 2, ""])
    rows = [json.dumps({"row": row}) for row in range(3)]
    assert LogDocument("".join(f"a-1 | {row}\n" for row in rows).encode()).lines == [{"row": row} for row in range(3)]


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{PREFIXES['compose']}{line}\n" for line in LINES) + "\n".join(LINES),  # an output among other lines
        "".join(f"key-{row} | {row}\n" for row in range(40)),  # a table
        "".join(f"{PREFIXES['logging']}{line}\n" for line in LINES * 9) + "Traceback (most recent call last):\n",
        "a | b\n",
        "",
    ],
)
def test_other_text_is_unchanged(text: str) -> None:
    assert without_prefixes(text) == text


def test_what_was_pasted_into_a_page_has_lines_above() -> None:
    text = "# Run\n\n" + "".join(f"{PREFIXES['compose']}{line}\n" for line in LINES * 5)
    assert without_prefixes(text) == "# Run\n\n" + "\n".join([*LINES * 5, ""])
