"""Sessions exported as Markdown: calls and outputs as programs lay them out."""

import json
import time

import pytest

from capibara_assets.executions.formats.agents.general.markdown_calls import READER
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads, runs

LABELS = """# New session

**Session ID:** ses_1045b1733ffe

## User

Count the files.

## Assistant (Build · some-model · 3.4s)

**Tool: read**

**Input:**
```json
{
  "filePath": "/w/README.md"
}
```

**Output:**
```
# A project

```bash
make
```

More.
```

**Tool: bash**

**Input:**
```json
{"command": "ls | wc -l", "description": "Count"}
```

**Output:**
```
3
```

It is three.
"""
HEADINGS = """# Session

### 👤 User

Show the remote.

---

### ✅ `bash`

**Get remote repo info**

$ cd /w && git remote -v

<details>
<summary>2 lines</summary>

```
origin	git@example.org:w.git (fetch)
<exited with exit code 0>
```

</details>

---

### ✅ `bash`

<details>
<summary>Arguments</summary>

```json
{"command": "make"}
```

</details>

```
{
  "content": "no rule\\n<exited with exit code 2>"
}
```

---

### ✅ `view`

<details>
<summary>Arguments</summary>

```json
{"path": "a.py"}
```

</details>

```
1. x
```
"""
RESULTS_IN_THE_NEXT_TURN = """---
threadId: T-019b7200-e4a9-757a
---

## User

Install it.

## Assistant

**Tool Use:** `Read`

```json
{"path": "/w/a"}
```

**Tool Use:** `Bash`

```json
{"cmd": "make install"}
```

## User

**Tool Result:** `toolu_1`

```
{"output": "a", "exitCode": 0}
```

**Tool Result:** `toolu_2`

```
{
  "output": "installed",
  "exitCode": 0
}
```
"""
PLAIN_RESPONSES = """### User:
Say it.

### Assistant:
#### Tool Call: `shell` (namespace: `developer`)
**Arguments:**
*   **command**:
    ```sh
    for n in 1 2; do
  echo $n
done
    ```

---

#### Tool Response:
1
2

---

### Assistant:
#### Tool Call: `text_editor` (namespace: `developer`)
**Arguments:**
*   **command**: `write`
*   **path**: `/w/a.py`
*   **file_text**:
    ```python
    a = 1
    ```

---

#### Tool Response:
Saved.

---

### Assistant:
Done.
"""
WORDED = """# Export

#### Tool: exec_command

```sh
sed -n 1,3p a.md
```

Output:

````text
# A
```sh
ls
```
````

#### Tool: exec_command

```sh
pwd
```
"""


def told(found: list[AgentRun]) -> list[tuple[str, str, bool | None, str]]:
    return [(run.language, run.code, run.success, run.output.strip()) for run in found]


def test_labels_and_an_output_with_fences_of_its_own() -> None:
    (run,) = runs(READER, LABELS)
    assert told([run]) == [("bash", "ls | wc -l", None, "3")]
    assert (run.session, run.task) == ("ses_1045b1733ffe", "Count the files.")


@pytest.mark.parametrize("sign", ["", "🔧 "])
def test_a_picture_in_front_of_a_label_is_no_part_of_it(sign: str) -> None:
    result = f"### User\n\n{sign}**Tool Result:**\n```\na\n```\n"
    call = f'### Assistant\n\n{sign}**Tool Use: Bash** (ID: toolu_1)\n```json\n{{"command": "ls"}}\n```\n\n---\n\n'
    assert told(runs(READER, f"# Export\n\n**Session ID:** `0d1e-2f3a`\n\n---\n\n{call}{result}")) == [
        ("bash", "ls", None, "a")
    ]


def test_headings_with_a_command_behind_a_prompt_or_as_arguments() -> None:
    expected = [
        ("bash", "cd /w && git remote -v", True, "origin	git@example.org:w.git (fetch)"),
        ("bash", "make", False, "no rule"),
    ]
    assert told(runs(READER, HEADINGS)) == expected


def test_results_of_the_next_turn_answer_all_its_calls_in_their_order() -> None:
    (run,) = runs(READER, RESULTS_IN_THE_NEXT_TURN)
    assert told([run]) == [("bash", "make install", True, "installed")] and run.exit_code == 0
    assert run.session == "T-019b7200-e4a9-757a"


def test_arguments_as_a_list_and_responses_without_a_fence() -> None:
    run, edit = entries(READER, PLAIN_RESPONSES)
    assert isinstance(run, AgentRun) and told([run]) == [("bash", "for n in 1 2; do\n  echo $n\ndone", None, "1\n2")]
    assert edit == Edit(run.session, "/w/a.py", "a = 1")


def test_an_output_that_speaks_of_ids_does_not_hide_the_calls_around_it() -> None:
    shown = LABELS.replace("```\n3\n```", '```\n{"tool_use_id": 3}\n```')
    assert shown != LABELS
    (run,) = runs(READER, shown)
    assert (run.code, run.session) == ("ls | wc -l", "ses_1045b1733ffe")


def test_a_call_without_an_output_did_not_run() -> None:
    shown, left = entries(READER, WORDED)
    assert isinstance(shown, AgentRun) and (shown.code, shown.output) == ("sed -n 1,3p a.md", "# A\n```sh\nls\n```")
    assert left == NotRun("unanswered")


def test_messages_that_are_written_as_json_are_read_by_their_ids() -> None:
    call = [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}]
    answer = [{"tool_use_id": "toolu_1", "type": "tool_result", "content": "a.py"}]
    turns = [
        f"### {who}\n> 12/1/2025\n\n{json.dumps(said, indent=2)}\n"
        for who, said in (("Assistant", call), ("User", answer))
    ]
    (run,) = runs(READER, "# Export\n\n- **Session ID**: `cf29d9e6-6d7a`\n\n" + "\n---\n\n".join(turns))
    assert told([run]) == [("bash", "ls", True, "a.py")] and run.session == "cf29d9e6-6d7a"


@pytest.mark.parametrize(
    "text",
    [
        "# How to\n\n### `bash`\n\nA shell.\n\n```\nls\n```\n",  # documentation
        "# Tools\n\n**Tool: bash**\n\nRuns commands.\n",
        "## Usage\n\n```bash\nmake\n```\n\n**Output:**\n```\ndone\n```\n",
        '{"name": "bash", "note": "```"}',
    ],
)
def test_what_shows_no_call_is_no_log(text: str) -> None:
    assert not reads(READER, text)


@pytest.mark.parametrize("text", [LABELS, HEADINGS, RESULTS_IN_THE_NEXT_TURN, PLAIN_RESPONSES, WORDED])
def test_a_log_that_was_cut_anywhere_is_read(text: str) -> None:
    for end in range(0, len(text), 7):
        if reads(READER, text[:end]):
            assert all(isinstance(entry, AgentRun | Edit | NotRun) for entry in entries(READER, text[:end]))


@pytest.mark.parametrize(
    "piece",
    [
        "```\n",
        "```\nx\n```\ny\n",
        "### User\nx\n",
        "### User\n**Tool: bash**\n```\nls\n```\n",
        "**Tool: bash**\n",
        "### `bash`\n```\n",
        "$ x\n",
        "#### Tool Response:\n",
        "[\n",
        "---\n",
    ],
)
def test_repeated_pieces_take_no_time(piece: str) -> None:
    began = time.process_time()
    for text in (piece * 3000, "**Tool: bash**\n" + piece * 3000, ('"tool_use_id"' + piece) * 2000):
        reads(READER, text)
    assert time.process_time() - began < 5
