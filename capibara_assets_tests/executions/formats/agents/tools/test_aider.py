"""aider's chat history: what the user ran, what the model suggested, documentation that only looks like it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, NotRun
from capibara_assets.executions.formats.agents.tools.aider import READER
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads, runs, survives

TOP = """
# aider chat started at 2024-08-06 09:06:27

> /home/u/.venv/bin/aider a.py  
> Aider v0.47.2  
> Models: claude-x with diff edit format, weak model claude-y  
> Git repo: .git with 3 files  
"""  # noqa: W291


def typed(text: str) -> str:
    lines = "  \n#### ".join(text.split("\n"))
    return f"\n#### {lines}  \n"


def quoted(text: str) -> str:
    return f"> {text}  \n"


def echoed(text: str) -> str:
    return "".join(quoted(line.strip()) for line in text.split("\n"))


def only(log: str) -> Any:
    (entry,) = entries(READER, TOP + log)
    return entry


def test_a_run_has_all_that_the_log_tells() -> None:
    assert only(
        typed("Add a test.") + "\nI add one.\n" + typed("/run pytest -q") + quoted("1 passed\n\n# done")
    ) == AgentRun(
        session="2024-08-06 09:06:27#0",
        language="bash",
        code="pytest -q",
        success=None,
        output="1 passed\n\n# done",
        task="Add a test.",
        model="claude-x",
    )


OUTPUT = "= FAILURES =\n\n> x = 1\n#### a heading\n    \nE   AssertionError\n\n== 1 failed in 0.1s =="


@pytest.mark.parametrize(
    ("log", "code", "success", "output"),
    [
        (
            typed("/run pytest") + quoted(OUTPUT) + "> Add the output to the chat?\n(y/n/instructions) n  \n",
            "pytest",
            False,
            OUTPUT,
        ),
        (
            typed("/test make t") + quoted("no\nway") + echoed("no\nway") + "\nThe test fails.\n",
            "make t",
            False,
            "no\nway",
        ),
        (typed("/test make t") + quoted("fine"), "make t", None, "fine"),
        (typed("!ls -l") + quoted("total 0"), "ls -l", None, "total 0"),
        (typed("/git diff") + quoted("diff --git a b"), "git diff", None, "diff --git a b"),
        (typed("/run for i in 1 2\ndo echo $i\ndone") + quoted("1\n2"), "for i in 1 2\ndo echo $i\ndone", None, "1\n2"),
        (typed("/run ls") + "> Add 0.1k tokens of command output to the chat? (Y)es/(N)o [Yes]: n  \n", "ls", None, ""),
        (typed("/test make t") + "> Added 3 lines of output to the chat.  \n\nLet me see.\n", "make t", False, ""),
        (typed("/run true") + typed("/exit"), "true", None, ""),
        (typed("/run ls") + "> cut off\nin the middle", "ls", None, "cut off\nin the middle"),
    ],
)
def test_commands(log: str, code: str, success: bool | None, output: str) -> None:
    run = only(log)
    assert (run.code, run.success, run.output) == (code, success, output)


ADD = "> Add 0.1k tokens of command output to the chat? (Y)es/(N)o [Yes]: n  \n"


@pytest.mark.parametrize("behind", [ADD, "", "\n"])
def test_an_output_of_which_each_line_is_quoted(behind: str) -> None:
    log = typed("/run make") + "> cc a.c\n>\n>   ^ here\n" + behind + typed("!ls") + "> a\n> b\n" + typed("Go on.")
    assert [(run.code, run.output) for run in runs(READER, TOP + log)] == [
        ("make", "cc a.c\n\n  ^ here"),
        ("ls", "a\nb"),
    ]
    (run,) = runs(READER, TOP + typed("/run npm t") + quoted("> app test\n> jest") + typed("Go on."))
    assert run.output == "> app test\n> jest"
    (run,) = runs(READER, TOP + typed("/run cat a.md") + quoted("a\n\n#### heading\n\nb") + typed("Go on."))
    assert run.output == "a\n\n#### heading\n\nb"


def test_documentation_in_a_message_runs_nothing() -> None:
    help_text = (
        "# Question: how?\n\n<doc>\nUse it so:\n\n/run python myscript.py\n\n> Add the output to the chat? y\n</doc>"
    )
    log = (
        TOP
        + typed("/help how?")
        + typed(help_text)
        + "\nSo:\n\n#### /run in a heading of the model's\n"
        + typed("/run ls")
    )
    (run,) = runs(READER, log)
    assert (run.code, run.task) == ("ls", "how?")


def test_suggested_commands_run_where_the_user_agreed() -> None:
    log = (
        typed("Fix it.")
        + "\n```bash\nmake\n```\n\n"
        + "> make\ndate  \n> Run shell commands? [Y/n] y  \n> Running make  \n"
        + "> Command 'make' exited with status 2  \n> Running date  \n"
        + "> rm x  \n> Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: n  \n"
        + "> ls  \n> Run shell command? [Y/n] y  \n> Applied edit to a.py  \n"
        + typed("thanks")
        + "> Running in circles  \n"
    )
    found = entries(READER, TOP + log)
    runs_ = [(run.code, run.success, run.exit_code) for run in found if isinstance(run, AgentRun)]
    assert runs_ == [("make", False, 2), ("date", None, None)]
    assert [entry for entry in found if isinstance(entry, NotRun)] == [NotRun("refused"), NotRun("unanswered")]


def test_sessions_are_told_apart_and_counted() -> None:
    log = TOP + typed("One.") + typed("/run a") + TOP + "> Main model: m-2 with whole edit format  \n" + typed("/run b")
    found = [(run.session, run.task, run.model) for run in runs(READER, log)]
    assert found == [
        ("2024-08-06 09:06:27#0", "One.", "claude-x"),
        ("2024-08-06 09:06:27#1", None, "m-2"),
    ]


def test_a_cut_history_is_read_from_its_middle() -> None:
    log = "-*- mode: fundamental -*-\n>  \n> flake8 Failed  \n" + typed("/run a") + TOP + typed("/run b")
    assert [run.code for run in runs(READER, log)] == ["a", "b"]
    assert [run.code for run in runs(READER, (TOP + typed("/run a")).replace("\n", "\r\n"))] == ["a"]


def trim(log: str) -> str:
    return "\n".join(line.rstrip() for line in log.split("\n"))


@pytest.mark.parametrize("tail", ["", TOP + typed("/run b") + quoted("2\n\n> 3")])
def test_a_history_whose_trailing_blanks_were_trimmed(tail: str) -> None:
    log = (
        TOP
        + typed("Add a test.")
        + "\nI add one.\n\n#### How it works\n\nSo.\n"
        + typed("/run pytest -q")
        + quoted(OUTPUT)
        + "> Add the output to the chat?\n(y/n/instructions) n  \n"
        + typed("Fix it.")
        + "\nDone.\n\n> Tokens: 3k sent  \n"
        + typed("/test make t")
        + quoted("no\nway")
        + echoed("no\nway")
        + "\nThe test fails.\n"
        + typed("/run true")
        + typed("/run for i in 1 2\ndo echo $i\ndone")
        + quoted("1\n\n2")
    )
    whole, trimmed = runs(READER, log + tail), runs(READER, trim(log) + tail)
    assert [(run.code, run.success) for run in whole[:2]] == [("pytest -q", False), ("make t", False)]
    assert whole[3].output == "1\n\n2" and whole[-1].output == ("2\n\n> 3" if tail else "1\n\n2")
    assert [(run.session, run.code, run.success, run.task, run.model) for run in trimmed] == [
        (run.session, run.code, run.success, run.task, run.model) for run in whole
    ]
    assert [run.output for run in trimmed] == [trim(run.output) for run in whole]


def test_a_trimmed_history_whose_head_was_cut() -> None:
    log = "> flake8 Failed\n" + trim(typed("/run a") + quoted("1") + TOP + typed("/run b") + quoted("2"))
    assert [(run.code, run.output) for run in runs(READER, log)] == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize("end", ["  ", ""])
def test_a_blank_line_between_a_command_and_its_output(end: str) -> None:
    (run,) = runs(READER, f"{TOP if end else trim(TOP)}\n#### /run ls{end}\n\n> a\nb{end}\n")
    assert (run.code, run.output) == ("ls", "a\nb")


def test_edits_that_were_applied() -> None:
    block = "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE"
    reply = f"\nI change it:\n\nsrc/a.py\n```python\n{block}\n```\n\nb.py\n```\nwhole\n```\n\nnever.py\n```\nz\n```\n\n"
    applied = "> Applied edit to src/a.py  \n> Applied edit to b.py  \n> Commit 04fff71 fix  \n"
    found = entries(READER, TOP + typed("Fix it.") + reply + applied + typed("/run pytest") + quoted("ok"))
    session = "2024-08-06 09:06:27#0"
    assert found[:2] == [Edit(session, "src/a.py", block), Edit(session, "b.py", "whole")]
    assert isinstance(found[2], AgentRun)


def test_test_without_a_command_runs_one_that_is_not_told() -> None:
    assert only(typed("/test")) == NotRun("no_code")


@pytest.mark.parametrize(
    ("told", "code"),
    [('"make t" a.py', "make t"), ("'make t'", "make t"), ("make --auto-test", "make"), ("make", "make")],
)
def test_test_without_a_command_runs_the_one_that_aider_was_started_with(told: str, code: str) -> None:
    started = f"> /home/u/.venv/bin/aider --model x --test-cmd {told}  \n"
    (run,) = runs(READER, TOP + started + typed("/test") + quoted("1 failed"))
    assert (run.code, run.output) == (code, "1 failed")
    assert only(started + typed("/run")) == NotRun("no_code")


LOG = (
    TOP
    + typed("Fix.")
    + typed("/run a")
    + quoted("x\ny")
    + "> Run shell command? [Y/n] y  \n> Running z  \n> Applied edit to q  \n"
)


@given(
    st.integers(0, len(LOG)),
    st.integers(0, 30),
    st.sampled_from(["", "\n", "> ", "#### ", "  \n", "\x00", "# aider chat"]),
)
def test_nothing_fails(at: int, gone: int, put: str) -> None:
    survives(READER, (LOG[:at] + put + LOG[at + gone :]).encode())


@pytest.mark.parametrize(
    "text",
    [
        "# Histories\n\nThey begin so:\n\n```\n# aider chat started at 2024-08-06 09:06:27\n\n> Aider v0.47  \n```\n",
        "Look for `# aider chat started at ` in the file.\n",
        "# aider chat started at noon\n",
        '{"text": "# aider chat started at 2024-08-06 09:06:27"}',
    ],
)
def test_look_alikes(text: str) -> None:
    assert not reads(READER, text)


def test_an_output_without_the_end_of_a_piece_does_not_take_the_next_command() -> None:
    log = (
        TOP
        + typed("/test make")
        + "> built\nok. 1 passed; 0 failed\n\n"
        + typed("/run ls -la")
        + quoted("")
        + typed("/run pwd")
    )
    assert [(run.code, run.output) for run in runs(READER, log)] == [
        ("make", "built\nok. 1 passed; 0 failed"),
        ("ls -la", ""),
        ("pwd", ""),
    ]
