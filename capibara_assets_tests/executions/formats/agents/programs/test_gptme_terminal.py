"""gptme's conversations as its terminal shows them: wrapped answers, previews, what programs print in between."""

import time

import pytest

from capibara_assets.executions.formats.agents.programs.gptme_terminal import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads, runs, survives

GAP = " " * 80
HEAD = (
    "\n--- Start of generation ---\n[10:00:00] Using model: a/b\nSkipped 1 hidden system messages, show with"
    " --show-hidden\n--- ^^^ past messages ^^^ ---\nUser: Count the cups.\n"
)
END = f"{GAP}--- Finished generation ---\nExit code: 0\n"


def says(text: str, printed: str = "") -> str:
    return f"Assistant: Thinking...{GAP}Assistant: {text}\n{printed}\n"


def calls(tool: str, code: str, printed: str = "") -> str:
    return says(f"I look.\n\n```{tool}\n{code}\n```{GAP}Skipping confirmation", f"Preview\n{code}\n\n{printed}")


def answers(text: str) -> str:
    return f"System:\n{text}\n"


WRAPPED = "find cups -name '*.txt' -newer shelf/list.txt -print | sort | uniq -c | sort -rn"
LOG = (
    HEAD
    + calls("shell", WRAPPED, "2 cups/a.txt")
    + answers(f"Ran allowlisted command: `{WRAPPED[:52]}\n{WRAPPED[52:]}`\n\n`2 cups/a.txt`\n")
    + calls("save tea.py", "print(cups)")
    + "System: ✅ Saved to tea.py\n"
    + calls("bash", "cd shelf\npython tea.py", "Traceback")
    + answers(
        "Ran command:\n```bash\ncd shelf\npython tea.py\n```\n\nstderr:\n```\nNo module\ncups\n```\n\nReturn code: 1"
    )
    + calls("ipython", "1/0")
    + answers("Executed code block.\n\nException during execution on line 1:\n  ZeroDivisionError: division by zero")
    + says("Two cups." + END)
)


def test_commands_cells_and_edits_with_what_came_of_them() -> None:
    assert find_reader(LogDocument(LOG.encode())) is READER
    found = runs(READER, LOG)
    assert [(run.language, run.code, run.success, run.exit_code, run.output, run.stderr) for run in found] == [
        ("bash", WRAPPED, True, 0, "2 cups/a.txt\n", ""),
        ("bash", "cd shelf\npython tea.py", False, 1, "", "No module\ncups\n"),
        ("python", "1/0", False, None, "", found[2].stderr),
    ]
    assert "ZeroDivisionError" in found[2].stderr and {run.task for run in found} == {"Count the cups."}
    assert [(one.path, one.text) for one in entries(READER, LOG) if isinstance(one, Edit)] == [
        ("tea.py", "print(cups)")
    ]


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_a_terminals_carriage_returns(end: str) -> None:
    log = LOG.replace(f"Thinking...{GAP}", f"Thinking...\r{GAP}\r").replace(f"```{GAP}", f"```\r{GAP}\r")
    assert [run.code for run in runs(READER, log.replace("\n", end))] == [run.code for run in runs(READER, LOG)]


def test_an_answer_counts_only_for_the_code_that_it_repeats() -> None:
    """What Rich takes for markup is not shown, and long commands are cut."""
    marked = calls("shell", "test [bold] = x") + answers("Ran command: `test  = x`\n\nNo output\n")
    other = calls("shell", "test [bold] = x") + answers("Ran command: `test y = x`\n\nNo output\n")
    long = calls("shell", "# a\ngit init\ngit add .") + answers("Ran command: `# a... (3 lines)`\n\n`out`\n")
    printed = calls("shell", "cat notes.md", "```shell\nrm -r shelf\n```") + answers(
        "Ran command: `cat notes.md`\n\n````stdout\n```shell\nrm -r shelf\n```\n````\n"
    )
    found = entries(READER, LOG + marked + other + long + printed)
    expected = ["test [bold] = x", "# a\ngit init\ngit add .", "cat notes.md"]
    assert [one.code for one in found if isinstance(one, AgentRun)][3:] == expected
    assert len(found) == 7


def test_newer_versions_have_another_head_and_answers_behind_progress() -> None:
    head = HEAD.replace("Skipped 1 hidden system messages, show with --show-hidden\n--- ^^^ past messages ^^^ ---",
                        "Skipped 2 hidden system messages (/log --hidden to show)")  # fmt: skip
    assert head != HEAD
    silent = f'Assistant: Thinking...{GAP}Assistant: \n@shell(c1): {{"command": "git add a"}}{GAP}\rSystem: \n'
    log = head + silent + "Ran command: `git add a`\n\nNo output\n"
    assert find_reader(LogDocument(log.encode())) is READER
    assert [(run.code, run.success) for run in runs(READER, log)] == [("git add a", True)]


def test_a_fence_in_a_list_is_a_call() -> None:
    listed = says("1. **Begin**\n    ```bash\n    git init\n      x\n    ```\n") + answers(
        "Ran command:\n```bash\ngit init\n  x\n```\n\nNo output\n"
    )
    assert [run.code for run in runs(READER, HEAD + listed)] == ["git init\n  x"]


def test_which_of_several_cells_was_executed_is_not_told() -> None:
    both = says("```ipython\na\n```\n```ipython\nb\n```") + answers("Executed code block.\n\n```stdout\n1\n```")
    assert len(entries(READER, LOG + both)) == len(entries(READER, LOG))


def test_a_later_users_words_may_be_a_programs() -> None:
    later = calls("shell", "cat chat", "User: Hello.") + answers("Ran command: `cat chat`\n\n`User: Hello.`\n")
    more = "User: And now?\n" + calls("shell", "ls") + answers("Ran command: `ls`\n\nNo output\n")
    found = runs(READER, LOG + later + more)
    assert [(run.code, run.task) for run in found[-1:]] == [("ls", None)]


@pytest.mark.parametrize("text", ["", HEAD, LOG.replace("past messages", "messages"), HEAD + calls("shell", "ls")])
def test_what_holds_no_answer_is_no_log(text: str) -> None:
    assert not reads(READER, text)


def test_nothing_damaged_makes_the_reader_fail() -> None:
    lines = LOG.split("\n")
    for at in range(len(lines)):
        survives(READER, "\n".join(lines[:at] + lines[at + 1 :]).encode())
        survives(READER, "\n".join([*lines[:at], "```", *lines[at:]]).encode())
        survives(READER, "\n".join(lines[:at]).encode())


HOSTILE = [
    "System:\nRan command: `", "`", "```bash\n", "Ran command:\n```bash\n", "stdout: `", "Assistant: Thinking...", " ",
    "\n",
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_costs_linear_time(hostile: str) -> None:
    def seconds(times: int) -> float:
        text = hostile * (times // len(hostile))
        log = HEAD + calls("shell", text) + answers(f"Ran command: `{text}") + answers("Executed code block." + text)
        began = time.process_time()
        list(READER.entries(LogDocument(log.encode())))
        return time.process_time() - began

    seconds(1000)
    assert seconds(200_000) < max(0.3, 30 * seconds(20_000))
