"""Sessions exported as Markdown without ids: which output is of which call, and the end of one that went on."""

import pytest

from capibara_assets.executions.formats.agents.general.markdown_calls import READER
from capibara_assets.executions.formats.agents.runs import AgentRun, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads, runs

_IDS = ("11111111-2222-4333-8444-555555555555", "11111111-2222-4333-8444-666666666666")


def asked(command: str) -> str:
    return f'### Tool Call: exec_command (2026-01-02T03:04:05Z)\n\n```json\n{{\n  "cmd": "{command}"\n}}\n```\n\n'


def told(body: str) -> str:
    return f"### Tool Output: call_x (2026-01-02T03:04:06Z)\n\n```text\n{body}\n```\n\n"


def ended(output: str, code: int) -> str:
    return told(f"Chunk ID: 1a\nWall time: 0.1 seconds\nProcess exited with code {code}\nOutput:\n{output}\n")


LOOK = '### Tool Call: write_stdin (2026-01-02T03:04:07Z)\n\n```json\n{"session_id": 71, "chars": ""}\n```\n\n'
GOES_ON = told("Chunk ID: 1a\nWall time: 1.0 seconds\nProcess running with session ID 71\nOutput:\nbegun\n")
SAID = "### User (2026-01-02T03:04:04Z)\n\nShow it.\n\n"
IN_A_ROW = (
    "# Transcript\n\n"
    + SAID
    + asked("pwd")
    + asked("make")
    + asked("ls")
    + ended("/w", 0)
    + ended("no rule", 2)
    + ended("a", 0)
)
RESULTS = """# Log

## 👤 USER — 10:00:00

Look.

---
## 🤖 ASSISTANT — 10:00:01

**Tool:** `Bash`

**Input:**
```json
{"command": "ls"}
```

---
## 🤖 ASSISTANT — 10:00:02

**Tool:** `Bash`

**Input:**
```json
{"command": "pytest"}
```

---
## 👤 USER — 10:00:03

**Working Dir:** `/w`

**Result:**
```
ONE
```

---
## 👤 USER — 10:00:04

**Working Dir:** `/w`

**Result:**
```
TWO
```

---
## 🤖 ASSISTANT — 10:00:05

**Tool:** `Bash`

**Input:**
```json
{"command": "make"}
```

---
## 👤 USER — 10:00:06

**Result:**
```
make: made
```
"""


def shown(found: list[AgentRun]) -> list[tuple[str, bool | None, str]]:
    return [(run.code, run.success, run.output.strip()) for run in found]


def test_several_outputs_behind_several_calls_are_given_in_their_order() -> None:
    found = runs(READER, IN_A_ROW)
    assert shown(found) == [("pwd", True, "/w"), ("make", False, "no rule"), ("ls", True, "a")]
    assert [run.exit_code for run in found] == [0, 2, 0]


def test_a_command_that_goes_on_has_its_end_in_a_later_look_at_it() -> None:
    (run,) = runs(READER, SAID + asked("npm install") + GOES_ON + LOOK + ended("added", 1))
    assert (run.success, run.exit_code, run.output) == (False, 1, "begun\nadded\n")
    (open_end,) = runs(READER, SAID + asked("npm start") + GOES_ON)
    assert (open_end.success, open_end.exit_code, open_end.duration_ms) == (None, None, None)


def test_a_log_of_several_sessions_keeps_them_apart() -> None:
    sessions = [
        f"## Session {number}: Show it\n\n- ID: `{uuid}`\n- CWD: `/w`\n\n{SAID}{asked('ls')}{ended('a', 0)}"
        for number, uuid in enumerate(_IDS, 1)
    ]
    found = runs(READER, "# Transcript\n\n" + "".join(sessions) + asked("pwd"))
    assert [run.session for run in found] == list(_IDS)


def test_results_in_turns_of_their_own_come_as_the_calls_end() -> None:
    found = runs(READER, RESULTS)
    assert shown(found) == [("ls", None, ""), ("pytest", None, ""), ("make", None, "make: made")]


def test_results_that_are_alike_are_of_every_call() -> None:
    refusal = "The user doesn't want to proceed with this tool use."
    refused = RESULTS.replace("ONE", refusal).replace("TWO", refusal)
    first, second, made = entries(READER, refused)
    assert first == second == NotRun("refused") and isinstance(made, AgentRun)


def test_what_a_turn_of_results_says_is_no_task() -> None:
    assert {run.task for run in runs(READER, RESULTS)} == {"Look."}
    answered = RESULTS.replace("10:00:01\n", "10:00:01\n\nWords of the model.\n")
    assert answered != RESULTS and {run.task for run in runs(READER, answered)} == {"Look."}


def test_an_empty_turn_of_the_user_ends_a_batch() -> None:
    cut = RESULTS.replace(
        "---\n## 🤖 ASSISTANT — 10:00:02", "---\n## 👤 USER — 10:00:02\n\n---\n## 🤖 ASSISTANT — 10:00:02"
    )
    cut = cut.replace("**Working Dir:** `/w`\n\n**Result:**\n```\nTWO\n```\n", "")
    assert cut != RESULTS
    left, ran, _ = entries(READER, cut)
    assert left == NotRun("unanswered") and isinstance(ran, AgentRun) and shown([ran]) == [("pytest", None, "ONE")]


def test_a_label_with_marks_states_a_failure_but_no_success() -> None:
    edit = '**Tool: edit**\n\n**Input:**\n```json\n{"filePath": "a", "newString": "b"}\n```\n\n'
    failed = f"## User\n\nDo.\n\n## Assistant\n\n{edit}**Error:**\n```\nnot read before\n```\n\n"
    found, _ = entries(READER, failed + "**Tool: bash**\n\n```bash\nls\n```\n\n**Output:**\n```\na\n```\n")
    assert found == NotRun("edit_failed")


def test_words_between_outputs_are_no_part_of_the_batch() -> None:
    text = (
        SAID + asked("pwd") + asked("ls") + told("out") + "### Assistant\n\nIt is so.\n\n**Result:**\n```\nmine\n```\n"
    )
    left, ran = entries(READER, text)
    assert left == NotRun("unanswered") and isinstance(ran, AgentRun) and shown([ran]) == [("ls", None, "out")]


@pytest.mark.parametrize("text", [IN_A_ROW, RESULTS, SAID + asked("a") + GOES_ON + LOOK + ended("", 0)])
def test_a_log_that_was_cut_anywhere_is_read(text: str) -> None:
    for end in range(0, len(text), 5):
        if reads(READER, text[:end]):
            assert all(isinstance(entry, AgentRun | NotRun) for entry in entries(READER, text[:end]))


def called(tool: str, given: str) -> str:
    return f"---\n## 🤖 ASSISTANT — 10:00:01\n\n**Tool:** `{tool}`\n\n**Input:**\n```json\n{given}\n```\n\n"


def result(text: str) -> str:
    return f"---\n## 👤 USER — 10:00:02\n\n**Result:**\n```\n{text}\n```\n\n"


TODOS = called("TodoWrite", '{"todos": []}')
CLONED = called("Bash", '{"command": "git clone a"}')
NOTED = result("Todos have been modified successfully. Ensure that you continue to use the todo list to track it.")
BEGUN = "# Log\n\n## 👤 USER — 10:00:00\n\nLook.\n\n"


@pytest.mark.parametrize("results", [NOTED + result("fatal: no a"), result("fatal: no a") + NOTED])
def test_the_output_that_is_left_is_of_the_call_that_is_left(results: str) -> None:
    (run,) = runs(READER, BEGUN + TODOS + CLONED + results)
    assert (run.code, run.output) == ("git clone a", "fatal: no a")


@pytest.mark.parametrize(
    "text",
    [
        CLONED + called("Bash", '{"command": "ls"}') + result("fatal: no a") + NOTED,  # no call of the tool
        TODOS + CLONED + called("Bash", '{"command": "ls"}') + NOTED + result("a") + result("b"),  # two are left
        TODOS
        + CLONED
        + result("Todos have been modified successfully.")
        + result("fatal: no a"),  # words that are not known
        TODOS + TODOS + CLONED + NOTED + result("failed") + result("fatal: no a"),
    ],
)
def test_outputs_whose_words_do_not_tell_all_tools_are_of_no_call(text: str) -> None:
    assert {run.output for run in runs(READER, BEGUN + text)} == {""}
