"""Additions to each command's help: an example to copy, and `--quiet`."""

import os
from collections.abc import Callable
from inspect import cleandoc
from typing import TypeVar

import click

from capibara_assets.processes.progress import QUIET

_MARK = "\b"  # click leaves the lines of such a paragraph as they are

AnyCommand = TypeVar("AnyCommand", bound=click.Command)
_examples: dict[click.Command, tuple[str, ...]] = {}


def with_example(*lines: str) -> Callable[[AnyCommand], AnyCommand]:
    """Add command lines to the end of a command's help, as they would be typed."""

    def add(command: AnyCommand) -> AnyCommand:
        shown = "\n".join(f"  {line}" for line in lines)
        # cleaned here: a docstring's indentation cannot be told any more once lines without one follow it
        command.help = f"{cleandoc(command.help or '')}\n\n{_MARK}\nExample:\n{shown}"
        _examples[command] = lines
        return command

    return add


def examples_of(command: click.Command) -> tuple[str, ...]:
    """The command lines that `with_example` gave a command."""
    return _examples.get(command, ())


def _be_quiet(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        before = os.environ.get(QUIET)
        os.environ[QUIET] = "1"
        context.call_on_close(lambda: _restore(before))


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(QUIET, None)
    else:
        os.environ[QUIET] = before


def with_quiet(command: click.Command) -> click.Command:
    """Give a command, or those of a group, the option `--quiet`, once."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_quiet(below)
    elif not any("--quiet" in one.opts for one in command.params):
        command.params.append(
            click.Option(
                ["-q", "--quiet"],
                is_flag=True,
                expose_value=False,
                is_eager=True,
                callback=_be_quiet,
                help="Print only results and errors.",
            )
        )
    return command
