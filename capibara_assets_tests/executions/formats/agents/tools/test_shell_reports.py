"""What shell tools write around outputs: each agent's form, and programs that merely print something like it."""

import pytest

from capibara_assets.executions.formats.agents.tools.shell_reports import Report, read_report, refused, shows_error

OLD_GEMINI = (
    "Command: make\nDirectory: (root)\nOutput: {output}\nError: (none)\nExit Code: {code}\nSignal: (none)\n"
    "Background PIDs: (none)\nProcess Group PGID: 812"
)


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("Exit code 2\nmake: no rule", Report("make: no rule", 2, False, stated=True)),
        ("Exit code 0\nthe program said so itself", Report("Exit code 0\nthe program said so itself")),
        ("Exit code 127", Report("", 127, False, stated=True)),
        (
            "Chunk ID: 0a1b\nWall time: 1.5000 seconds\nProcess exited with code 0\n"
            "Original token count: 3\nOutput:\nok\n",
            Report("ok\n", 0, True, 1500.0, stated=True),
        ),
        (
            "Command: /bin/bash -lc \"cat > a <<'E'\nx\nE\"\nChunk ID: 0a1b\nWall time: 0.0 seconds\n"
            "Process exited with code 0\nOriginal token count: 0\nOutput:\n",
            Report("", 0, True, 0.0, stated=True),
        ),
        ("Exit code: 1\nWall time: 0.2 seconds\nOutput:\nno\n", Report("no\n", 1, False, 200.0, stated=True)),
        (
            "Wall time: 1.0 seconds\nProcess running with session ID 5\nOutput:\nstill\n",
            Report("still\n", None, None, 1000.0, stated=True),
        ),
        (
            '{"output": "a\\nb", "metadata": {"exit_code": 3, "duration_seconds": 0.5}}',
            Report("a\nb", 3, False, 500.0, stated=True),
        ),
        ('{"output": "cut', Report('{"output": "cut')),
        (
            "Exit code: 0\n\nCommand output:\n\n```\nhello\n```\n\nCommand completed in 41 ms.",
            Report("hello", 0, True, 41.0, stated=True),
        ),
        (OLD_GEMINI.format(output="built", code=0), Report("built", 0, True, stated=True)),
        (OLD_GEMINI.format(output="Exit Code: 9\nb", code=4), Report("Exit Code: 9\nb", 4, False, stated=True)),
        (OLD_GEMINI.format(output="(empty)", code="(none)"), Report("", None, True, stated=True)),
        (
            OLD_GEMINI.format(output="built", code=0).replace("Signal: (none)", "Signal: 0"),
            Report("built", 0, True, stated=True),
        ),
        (
            "Command: x\nDirectory: /\nStdout: one\nStderr: two\nthree\nError: (none)\nExit Code: 1\nSignal: (none)",
            Report("one", 1, False, stderr="two\nthree", stated=True),
        ),
        ("Output: fine\nProcess Group PGID: 7", Report("fine", None, True, stated=True)),
        ("Output: half\nExit Code: 1\nSignal: 9\nProcess Group PGID: 7", Report("half", 1, False, stated=True)),
        ("Output: half\nSignal: 9\nProcess Group PGID: 7", Report("half", None, False, stated=True)),
        ("... cut\nthe end\nExit Code: 5\nProcess Group PGID: 7", Report("... cut\nthe end", 5, False, stated=True)),
        (
            "Output: of a program\nError: of its own",
            Report("of a program", None, False, stderr="of its own", stated=True),
        ),
        ("a program\nExit Code: 5", Report("a program\nExit Code: 5")),
        ("", Report("")),
        ("Wall time: 1.2.3 seconds\nOutput:\nx", Report("Wall time: 1.2.3 seconds\nOutput:\nx")),
        (f"Exit code {'9' * 5000}", Report(f"Exit code {'9' * 5000}")),
    ],
)
def test_reports(text: str, report: Report) -> None:
    assert read_report(text) == report


def test_refusals_stand_at_the_beginning() -> None:
    assert refused("The user doesn't want to proceed with this tool use. The tool use was rejected")
    assert refused("<tool_use_error>Sibling tool call errored</tool_use_error>")
    assert refused("Permission to use Bash with command rm -rf x has been denied.")
    assert not refused("grep found: The user doesn't want to proceed")
    assert not refused("Rejected 3 rows")


@pytest.mark.parametrize(
    "output",
    [
        "x\nTraceback (most recent call last):\n  File",
        "===== 1 failed, 2 passed in 3.28s =====",
        "== 2 errors in 8.57s ==",
        "FAILED (failures=1)",
        "/bin/sh: foo: command not found",
        "fatal: not a git repository",
        "error: could not compile",
        "npm ERR! code 1",
        "ValueError: no",
    ],
)
def test_errors_in_text(output: str) -> None:
    assert shows_error(output)


@pytest.mark.parametrize("output", ["", "0 errors", "===== 3 passed in 1.0s =====", "no error: fine", "OK"])
def test_no_errors_in_text(output: str) -> None:
    assert not shows_error(output)
