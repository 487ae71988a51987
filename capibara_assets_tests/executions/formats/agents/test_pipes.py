"""Exit codes that hide a failure: behind a pipe, an `echo` or a `true`, and nowhere else."""

import subprocess
from pathlib import Path

import pytest

from capibara_assets.executions.formats.agents.pipes import cell_hides_exit_code, hides_exit_code, pipelines

HIDDEN = [
    "{fail} | head -5",
    "{fail} 2>&1 | tail -20",
    "{fail} |& tee log.txt",
    "cd . && {fail} | grep -v x | wc -l",
    "{fail} | cat && echo done",
    "{fail} || true",
    "{fail} || echo failed",
    "{fail}; echo finished",
    "{fail}\necho $?",
    "{fail} | sort # and a comment",
    "grep -c a /dev/null | cat",
    "{fail} &",
    "nohup sleep 0 > /dev/null 2>&1 &",
    "! {fail}",
    "if {fail}; then echo yes; fi",
    "for n in 1 2; do {fail}; [ $n = 2 ]; done",
    "bash -c '{fail} | tail'",
    'cd . && sh -c "{fail} || true"',
]
STATED = [
    "{fail}",
    "{fail} && echo done",
    "echo a | {fail}",
    "cat /dev/null | {fail}",
    "printf 'a|b' > /dev/null; {fail}",
    "set -o pipefail; {fail} | head",
    "echo 'a | b' && {fail}",
    'echo "x; echo y" >/dev/null; {fail}',
    "x=$(ls | head -1); {fail}",
    "[ -f /nowhere ] || {fail}",
    "cat <<EOF >/dev/null\na | b; echo c\nEOF\n{fail}",
    "ls | head -1 >/dev/null\n{fail}",
    "{fail} > /dev/null 2>&1",
    "bash -c '{fail}'",
    "sleep 0 & {fail}",
    "[ 1 != 2 ] && {fail}",
]


@pytest.mark.parametrize("form", HIDDEN)
def test_a_failure_that_bash_does_not_report_is_hidden(form: str, tmp_path: Path) -> None:
    command = form.format(fail="(exit 3)") if "{fail}" in form else form
    assert subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True).returncode == 0
    assert hides_exit_code(form.format(fail="pytest -q"))


@pytest.mark.parametrize("form", STATED)
def test_a_failure_that_bash_reports_is_not(form: str, tmp_path: Path) -> None:
    command = ["bash", "-c", form.format(fail="(exit 3)")]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode != 0
    assert not hides_exit_code(form.format(fail="pytest -q"))


@pytest.mark.parametrize(
    ("cell", "hides"),
    [("!pytest | tail", True), ("# all\n!pip install x\n!pytest -q | tail -n 1", True), ("!pytest", False),
     ("x = 1\n!pytest | tail", False), ("print('a | b')", False), ("", False)],
)  # fmt: skip
def test_a_cell_of_nothing_but_commands_hides_what_one_of_them_hides(cell: str, hides: bool) -> None:
    assert cell_hides_exit_code(cell) is hides


def test_a_command_is_taken_apart_without_what_is_only_text_to_the_shell() -> None:
    command = "cd a && grep -n 'x | y; z' f | head -3 || true # && no\nsort <<E >o\na; b\nE"
    assert pipelines(command) == (("cd a",), ("grep -n '' f", "head -3"), ("true",), ("sort  >o",))
