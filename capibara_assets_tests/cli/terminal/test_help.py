"""`--quiet` and completion, by the commands that have them."""

import os

import click
import pytest
from click.testing import CliRunner

from capibara_assets.cli.main import cli
from capibara_assets.cli.terminal.help import with_example, with_quiet
from capibara_assets.cli.terminal.notes import note
from capibara_assets.processes.progress import QUIET


@with_example("told")
@click.command()
def told() -> None:
    """Tell."""
    note("on the way")
    click.echo("result")
    raise click.UsageError("wrong")


def test_a_quiet_command_prints_results_and_errors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(QUIET, raising=False)
    command = with_quiet(with_quiet(told))
    loud = CliRunner().invoke(command, [])
    assert loud.stdout == "on the way\nresult\n" and "wrong" in loud.stderr
    quiet = CliRunner().invoke(command, ["-q"])
    assert quiet.stdout == "result\n" and "wrong" in quiet.stderr
    assert QUIET not in os.environ, "it is of one command"


def test_an_example_stands_as_it_is_typed() -> None:
    assert "\n  Example:\n    told\n" in CliRunner().invoke(told, ["--help"]).output


@pytest.mark.parametrize(
    ("shell", "has"), [("bash", "complete -o nosort"), ("zsh", "#compdef capibara"), ("fish", "complete --no-files")]
)
def test_each_shell_gets_its_script(shell: str, has: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0 and has in done.output and "_CAPIBARA_COMPLETE" in done.output
    assert "\x1b" not in done.output
