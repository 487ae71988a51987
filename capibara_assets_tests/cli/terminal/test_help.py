"""`--quiet` and completion, by the commands that have them."""

import os
from collections.abc import Iterator

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


def numbers_of(command: click.Command, name: str) -> Iterator[tuple[str, click.ParamType]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            if (found := command.get_command(context, inner)) is not None:
                yield from numbers_of(found, f"{name} {inner}")
    for parameter in command.params:
        if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType):
            yield f"{name} {parameter.opts[0]}", parameter.type


def test_numbers_have_bounds_where_they_are_asked_for() -> None:
    """Elsewhere they end in a traceback of whoever takes them first: a model's validation, a socket, a thread pool."""
    found = dict(numbers_of(cli, "capibara"))
    bare = {name for name, kind in found.items() if getattr(kind, "min", None) is None}
    checked_by_their_recipes = {f"capibara train --{name}" for name in ("learning-rate", "lora-alpha", "lora-dropout")}
    checked_by_their_method = {
        f"capibara merge --{name}" for name in ("weight", "density", "gamma", "epsilon", "t", "lambda")
    }
    assert bare == checked_by_their_recipes | checked_by_their_method and len(found) > 40


@pytest.mark.parametrize(
    "words",
    ["consensus invite x --max-rank 0", "consensus invite x --max-bytes -5", "consensus serve . --port 65536"],
)
def test_a_number_out_of_bounds_is_refused_at_once(words: str) -> None:
    done = CliRunner().invoke(cli, words.split())
    assert done.exit_code == 2 and "is not in the range" in done.output
