"""Sessions exported as Markdown with arguments in YAML, outputs only where there are some, and errors apart."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.general.markdown_calls import READER
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, NotRun
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.tools.damage import entries

HEAD = "# Files\n\n## Conversation\n\n### 👤 User\n\nCount them.\n\n### 🤖 Assistant (some-model)\n\n"


def call(tool: str, *given: str, language: str = "yaml") -> str:
    return "\n".join([f"#### 🛠️ Tool: {tool}", "", "**Input:**", "", f"```{language}", *given, "```", "", ""])


def output(text: str, fence: str = "```") -> str:
    return f"**Output:**\n\n{fence}\n{text}\n\n{fence}\n\n"


def refused(tool: str) -> str:
    return f"#### ❌ Tool Error: {tool}\n\n```\nError: oldString not found\n```\n\n"


ENDED = call("bash", "command: ls | wc -l", "description: Count") + output("3")
NESTED = "#### 🛠️ Tool: bash\n\n**Input:**\n\n```yaml\ncommand: rm\n```\n\n**Output:**\n\n```\nx\n```"


def shown(text: str) -> list[Any]:
    return [(one.code, one.success, one.output) if isinstance(one, AgentRun) else one for one in entries(READER, text)]


def test_what_a_mapping_names_is_the_command() -> None:
    block = call("bash", "command: |-", "  cd /w", "  make 'a: b'", "timeout: 3")
    assert shown(HEAD + block + output("made")) == [("cd /w\nmake 'a: b'", None, "made\n")]
    assert shown(HEAD + call("bash", '{"command": "ls"}', language="json") + output("a")) == [("ls", None, "a\n")]


def test_what_a_function_answered_is_unwrapped() -> None:
    said = {"output": "Command: ls\nDirectory: (root)\nOutput: a\nError: (none)\nExit Code: 2\nSignal: 0"}
    answers = [
        [{"functionResponse": {"id": "c1", "name": "run_shell_command", "response": said}}],
        [{"a": 1}],
        [said] * 2,
    ]
    blocks = [f"```json\n{json.dumps(answer, indent=2)}\n```\n\n" for answer in answers]
    found = shown(
        HEAD + "".join(call("run_shell_command", "command: ls") + f"**Result:**\n{block}" for block in blocks)
    )
    assert [one[1] for one in found] == [False, None, None] and found[0][2] == "a"


def test_a_timeline_that_stands_twice_counts_once() -> None:
    timeline = ENDED + call("read", "filePath: /w/a") + output("x") + call("bash", "command: make") + output("built")
    once = [("ls | wc -l", None, "3\n"), ("make", None, "built\n")]
    assert shown(HEAD + timeline) == once
    assert shown(HEAD + timeline * 2 + "---\n") == shown(HEAD + timeline * 3) == once
    assert shown(HEAD + timeline + ENDED) == [*once, once[0]]  # one of them again
    assert shown(HEAD + timeline + timeline.replace("built", "failed")) == [*once, once[0], ("make", None, "failed\n")]
    assert shown(HEAD + ENDED * 4) == once[:1] * 4


def test_words_behind_a_block_of_arguments_are_no_part_of_it() -> None:
    text = HEAD + ENDED + call("bash", "command: make") + "Done.\n\n```\nan example\n```\n\n## All\n"
    assert shown(text) == [("ls | wc -l", None, "3\n"), ("make", None, "")]


@pytest.mark.parametrize(
    ("behind", "last"),
    [
        ("All is well.\n\n### 👤 User\n\nThanks.\n", ("make", None, "")),
        (call("write", "filePath: /w/a", "content: b"), ("make", None, "")),
        ("### 🤖 Assistant (some-model)\n\nGoing on.\n", ("make", None, "")),
        (refused("edit"), ("make", None, "")),  # whose block is no output
        ("### 👤 User\n\nStop.\n", NotRun("unanswered")),
        ("", NotRun("unanswered")),
    ],
)
def test_a_command_without_an_output_ran_if_the_agent_went_on(behind: str, last: Any) -> None:
    assert shown(HEAD + ENDED + call("bash", "command: make") + behind)[:2] == [("ls | wc -l", None, "3\n"), last]


def test_without_any_labelled_output_a_call_has_no_answer() -> None:
    bare = "#### Tool: `bash`\n\n```\nls\n```\n\n```\na\n```\n"
    text = HEAD + call("bash", "command: make") + "All is well.\n\n" + bare
    assert shown(text) == [NotRun("unanswered"), ("ls", None, "a")]


def test_edits_count_as_commands_do() -> None:
    edit = call("write", "filePath: /w/a", "content: b")
    assert shown(HEAD + ENDED + edit + refused("write") + ENDED)[1] == Edit("", "/w/a", "b")._replace(
        session=next(one.session for one in entries(READER, HEAD + ENDED + edit + ENDED) if isinstance(one, Edit))
    )


@pytest.mark.parametrize(
    ("given", "language"),
    [
        ("command: [", "yaml"),
        ("- ls", "yml"),
        ("ls -la", "yaml"),
        ("command: *gone", "yaml"),
        ('{"command": "l', "json"),
    ],
)
def test_data_that_names_nothing_is_no_code(given: str, language: str) -> None:
    first, second = entries(READER, HEAD + ENDED + call("bash", given, language=language) + output("a"))
    assert isinstance(first, AgentRun) and isinstance(second, Fault)


def test_an_export_within_an_output_is_no_session() -> None:
    text = HEAD + call("bash", "command: cat a.md") + output(NESTED, "````") + ENDED
    assert [one[0] for one in shown(text)] == ["cat a.md", "ls | wc -l"]
