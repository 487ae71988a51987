"""A text on the command line that is empty comes of a variable that was not set: it is refused in every command."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from capibara_assets.cli.main import COMMANDS, cli
from capibara_assets.cli.terminal.empty_values import refusing_empty


def texts_of(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Parameter]]:
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from texts_of(below, (*words, name))
    for parameter in command.params:
        if isinstance(parameter.type, click.types.StringParamType):
            yield words, parameter


def every_text() -> list[tuple[tuple[str, ...], click.Parameter]]:
    commands = {name: cli.get_command(click.Context(cli), name) for name in sorted(COMMANDS)}
    return [one for name, command in commands.items() if command for one in texts_of(command, (name,))]


TEXTS = every_text()


@pytest.mark.parametrize(("words", "parameter"), TEXTS, ids=[" ".join((*w, p.opts[0])) for w, p in TEXTS])
@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_text_is_refused(words: tuple[str, ...], parameter: click.Parameter, empty: str) -> None:
    given = [empty] * 3 if isinstance(parameter, click.Argument) else [parameter.opts[0], empty]
    done = CliRunner().invoke(cli, [*words, *given])
    assert done.exit_code == 2 and "it is empty: was a variable not set?" in done.output, done.output


def test_others_and_defaults_are_taken() -> None:
    @click.command()
    @click.argument("names", nargs=-1)
    @click.option("--domain", default="", callback=lambda _, __, value: f"<{value}>")
    def told(names: tuple[str, ...], domain: str) -> None:
        click.echo(f"{' '.join(names)} {domain}")

    command = refusing_empty(refusing_empty(told))
    assert CliRunner().invoke(command, []).output == " <>\n"
    assert CliRunner().invoke(command, ["a", "b", "--domain", "sql"]).output == "a b <sql>\n"
    assert CliRunner().invoke(command, ["a", ""]).exit_code == 2
