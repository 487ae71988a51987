"""What agents show in a terminal: calls of Codex, Claude Code, Kimi and Gemini, rows that were too long, redraws."""

import time

import pytest

from capibara_assets.executions.formats.agents.programs.terminal_screens import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, LogDocument, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads, runs

CODEX = """╭──────────────────────────╮
│ >_ OpenAI Codex (v0.1)   │
╰──────────────────────────╯

› Count the lines, and
  say how many.

• I look at the files first. Ran them all once before, so this is quick and there is not much that could still fail.

• Ran ls -la
  └ total 8
    … +4 lines
    a.py

• Ran python3 - <<'PY'
  │ import a
  │
  │ print(a.n)
  └ Traceback (most recent call last):
      File "<stdin>", line 1
    NameError: name 'a' is not defined

• Explored
  └ Read a.py

• Ran curl -s example.test
  └ exec command rejected by user

• Ran rm -f a
  └ (no output)

• Ran ls b
• Ran mkdir -p c

• Ran the checks and all is well

✔ You approved codex to run git push
• You ran git push
    done

─ Worked for 2s ────────────────────
"""


def told(text: str) -> list[tuple[str, bool | None, str]]:
    return [(run.code, run.success, run.output) for run in runs(READER, text)]


def test_what_codex_shows() -> None:
    document = LogDocument(CODEX.encode())
    assert find_reader(document) is READER
    assert told(CODEX) == [
        ("ls -la", None, "total 8\n… +4 lines\na.py"),
        (
            "python3 - <<'PY'\nimport a\n\nprint(a.n)",
            None,
            "Traceback (most recent call last):\n  File \"<stdin>\", line 1\nNameError: name 'a' is not defined",
        ),
        ("rm -f a", None, ""),
        ("ls b", None, ""),  # its output is lost: it begins as another call does
        ("mkdir -p c", None, ""),  # has an option, as no sentence has
        ("git push", None, "done"),
    ]
    assert {run.task for run in runs(READER, CODEX)} == {"Count the lines, and\n  say how many."}
    assert [one for one in entries(READER, CODEX) if isinstance(one, NotRun)] == [NotRun("refused")]


@pytest.mark.parametrize(
    "text", ["• Ran ls -la\n• Ran make\n", "# Notes\n\n• Ran the tests\n    with care\n", "⏺ Bash(ls)\n"]
)
def test_what_has_no_tree_is_no_log(text: str) -> None:
    assert not reads(READER, text)


BOXES = """ > count

 ╭────────────────────────────────────────────────────────────╮
 │ ✓  ReadFile a.py                                           │
 │                                                            │
 │ ✓  Shell pytest -q [current working directory /w] (Run it) │
 │                                                            │
 │ 3 passed                                                   │
 │   in all                                                   │
 ╰────────────────────────────────────────────────────────────╯
✦ Now the next.
 ╭────────────────────────────────────────────────────────────╮
 │ x  Shell make $(pwd) [in sub]                              │
 │                                                            │
 │ no rule                                                    │
 │ -  Shell rm -r a (Remove it)                               │
 ╰────────────────────────────────────────────────────────────╯
"""


def test_what_stands_in_boxes() -> None:
    assert told(BOXES) == [("pytest -q", None, "3 passed\n  in all"), ("make $(pwd)", False, "no rule")]
    assert [one.code for one in entries(READER, BOXES) if isinstance(one, NotRun)] == ["rm -r a"]


def test_what_kimi_shows() -> None:
    assert told("• Used Shell (ls -a)\n  └ a\n    b\n\n• Used ReadFile (a)\n") == [("ls -a", None, "a\nb")]


WIDE = "● " + "x" * 68


def test_rows_are_joined_by_the_width_of_the_screen() -> None:
    text = f"""{WIDE}

● Bash(cargo build --release && cargo test --workspace --all-features
      --no-fail-fast && echo done
      cd a)
  ⎿  ok

● Bash(python {"a" * 50}
      {"b" * 20} c)
  ⎿  ok

● Bash(python {"a" * 56}
      {"a" * 20} c)
  ⎿  ok
"""
    first, second, third = told(text)
    assert first[0] == (
        "cargo build --release && cargo test --workspace --all-features --no-fail-fast && echo done\ncd a"
    )
    assert second[0] == f"python {'a' * 50} {'b' * 20} c"
    assert third[0] == f"python {'a' * 76} c"  # a word that is longer than a row


def test_rows_that_the_terminal_broke_are_joined_as_they_stand() -> None:
    code = "git add a.py && git commit -m 'one two three four five six seven eight nine ten' --no-verify --author me"
    shown, rest = f"● Bash({code[:75]}", code[75:].strip() + ")"
    rows = [shown[at : at + 50] for at in range(0, len(shown), 50)] + [f"      {rest}"]
    assert told("\n".join([*rows, "  ⎿  ok", ""])) == [(code, True, "ok")]


SAYS = "● The suite is long, so I run only the tests of this module, and look at what they print in the end."


def screen(width: int, *calls: tuple[str, str]) -> str:
    """The same words and calls at any width."""
    words = [SAYS[at : at + width].strip() for at in range(0, len(SAYS), width)]
    return "\n".join([*words, "", *(f"● Bash({code})\n  ⎿  {shown}\n" for code, shown in calls), SAYS, ""])


def test_a_screen_that_is_drawn_again_counts_once() -> None:
    first = screen(80, ("make", "Waiting…"), ("make test", "Error: Exit code 2\n     no"))
    again = screen(40, ("make", "Waiting…\n  ⎿  built"), ("make test", "Error: Exit code 2\n     no"))
    assert told(first) == [("make", None, ""), ("make test", False, "no")]
    assert told(first + again) == [("make", True, "built"), ("make test", False, "no")]
    other = again.replace(SAYS, "● Well.")
    assert [code for code, *_ in told(first + other)] == ["make", "make test"] * 2


def test_the_same_command_again_is_another_run() -> None:
    text = (
        "● I try.\n\n● Bash(make)\n  ⎿  Error: Exit code 2\n     no\n\n" * 2
        + f"{SAYS}\n\n"
        + "● Bash(ls)\n  ⎿  a\n\n" * 3
        + SAYS
    )
    assert [code for code, *_ in told(text)] == ["make", "make", "ls", "ls", "ls"]


def test_what_runs_on_has_no_outcome() -> None:
    text = "● Bash(make)\n  ⎿  Running…\n     half\n\n● Bash(serve)\n  ⎿  Running in the background (↓ to manage)\n"
    assert told(text) == [("make", None, "half"), ("serve", None, "Running in the background (↓ to manage)")]


@pytest.mark.parametrize("text", [CODEX, BOXES, screen(40, ("make", "Waiting…"), ("a\n      b", "c"))])
def test_a_screen_cut_anywhere_is_read_as_far_as_it_goes(text: str) -> None:
    for end in range(0, len(text), 5):
        document = LogDocument(text[:end].encode())
        if READER.reads(document):
            assert all(isinstance(one, AgentRun | NotRun) for one in READER.entries(document))


@pytest.mark.parametrize(
    "piece",
    [
        "• Ran ls\n",
        "  │ a\n",
        "    \n",
        "● Bash(a\n",
        "  ⎿  Waiting…\n",
        " │ ✓  Shell a (B)",
        "● Bash(a)\n  ⎿  b\n",
        f"{SAYS}\n",
        "\n • ",
        " -a",
        " ",
        " [in (A",
    ],
)
def test_repeated_pieces_take_no_time(piece: str) -> None:
    began = time.process_time()
    text = "• Ran ls\n  └ a\n│ ✓  Shell a" + piece * 10_000 + ".\n• Ran a" + piece * 10_000 + "."
    assert reads(READER, text)
    runs(READER, text)
    assert time.process_time() - began < 5
