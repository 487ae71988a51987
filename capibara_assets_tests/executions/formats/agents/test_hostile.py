"""Logs in which a text repeats something that opens and never closes, a hundred thousand times: linear time."""

import json
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import LogDocument, Reader

BLANK = ["\n", " \n", "  ", "\t"]
OPENED = [
    "```", "```\n", "```\nx\n", "```bash\n", "<a>", "<tool_use>", "<tool_call>{", "<execute_command>", "<command>",
    "</command>\n", "[", "{", "(", '"', "'", "\\", "$ ", "# ", "> ", "x\n", "Traceback (most recent call last):\n",
    "Error: ", "Exit code: 1\n", "Output:\n", "exit code 1 ", "<system>", "<returncode>", "<output>", "Command: x\n",
    "[x\n", "| ", "&& ", "a=1;", "<<E\n", "<<E ", "`", "**", "- ", "_**User (a)**_\n", "<details>\n", "⏺ Bash(a\n",
    "  ⎿ x\n", "[2025-08-01T10:00:00] ", "exec\n", "tokens used\n", "<|im_start|>a\n", "user (to b):\n", "Out[1]: ",
    "\x1b[1m", 'Command "x" ', "<cwd>", "Ran command: `x`\n", "/a/b:1: ", "FAILED (", "E   ", "at x (y)\n",
    "==== x ====\n", "<issue>", "ISSUE:\n", "The description is:\n", "x: ", "sh: ", "=", "$(", "<(", "!x ", "\n>", "0",
    "a", "a.b.", "A(", "Error(", "x=", '<b c="', "## ", "---\n", "1. ", "@@ -1 +1 @@\n", "diff --git a/x b/x\n",
    "*** Begin Patch\n", "#### x\n", "> x  \n",
]  # fmt: skip
LENGTH = 100_000
SECONDS = 2.0  # a quadratic reader takes minutes
Made = Callable[[str], bytes]


def texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of the texts in a parsed log that are more than a word."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in rows:
        if isinstance(inner, str) and len(inner) > 25:
            yield (*path, key)
        yield from texts(inner, (*path, key))


def places(document: LogDocument) -> list[Made]:
    """The log with a text put into it: of each kind of field into one, or into the middle of a log that is text."""
    value: Any = document.value if document.value is not None else document.lines or None
    if value is None:
        half = len(document.text) // 2
        return [lambda put: f"{document.text[:half]}\n{put}\n{document.text[half:]}".encode()]

    def made(path: tuple[Any, ...], put: str) -> bytes:
        changed = deepcopy(value)
        holder = changed
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = f"{holder[path[-1]][:40]}\n{put}\n{holder[path[-1]][-40:]}"
        whole = document.value is not None
        return json.dumps(changed).encode() if whole else "\n".join(json.dumps(row) for row in changed).encode()

    fields = {tuple(key for key in path if isinstance(key, str)): path for path in texts(value)}
    return [partial(made, path) for path in list(fields.values())[:7]]


@pytest.fixture(scope="module")
def logs(shared_data: Path) -> dict[str, tuple[Reader, list[Made]]]:
    """A small log of each format that is there."""
    found: dict[str, tuple[Reader, list[Made]]] = {}
    for path in sorted((shared_data / "agents").rglob("*")):
        if path.is_file() and path.stat().st_size < 200_000:
            document = LogDocument(path.read_bytes())
            reader = find_reader(document)
            if reader is not None and reader.name not in found:
                found[reader.name] = reader, places(document)
    assert len(found) > 10
    return found


@pytest.mark.parametrize("repeated", [*BLANK, *(pytest.param(text, marks=pytest.mark.extended) for text in OPENED)])
def test_it_is_read_in_linear_time(logs: dict[str, tuple[Reader, list[Made]]], repeated: str) -> None:
    slow = []
    for name, (reader, made) in logs.items():
        for number, make in enumerate(made):
            document = LogDocument(make(repeated * (LENGTH // len(repeated))))
            began = time.process_time()
            if reader.reads(document):
                list(reader.entries(document))
            if (took := time.process_time() - began) > SECONDS:
                slow.append((name, number, took))
    assert slow == []
