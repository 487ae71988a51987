"""Uniform tables: rules and bold titles at a terminal, aligned columns of plain text anywhere else."""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from capibara_assets.escaping.languages import one_line
from capibara_assets.escaping.terminal import PlainStream

_NARROWEST = 40


@dataclass(frozen=True)
class TerminalTable:
    """A table to show; as a string it is plain text. Columns whose index is in `right` are right-aligned."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Iterable[int] = ()

    def __str__(self) -> str:
        return plain_table(self.header, self.rows, self.right)


def show(*parts: str | TerminalTable) -> None:
    """Print lines and tables one below the other."""
    stream = sys.stdout
    for part in parts:
        if isinstance(part, TerminalTable) and isinstance(stream, PlainStream) and stream.shows_styles():
            stream.write_rendered(_drawn(part, max(_NARROWEST, shutil.get_terminal_size().columns)))
        else:
            click.echo(str(part))


def say(*lines: str) -> None:
    """Print lines that hold foreign text, ids and names of files: each stays one line, whatever is in it."""
    for line in lines:
        click.echo(one_line(line))


def plain_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """A table in plain text, two blanks between columns; no cell is cut, and none makes a line of its own."""
    lines, numbers = [tuple(map(one_line, line)) for line in (header, *rows)], set(right)
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _drawn(shown: TerminalTable, width: int) -> str:
    """A table as a terminal of a width shows it, with escape sequences of styles; long cells take several lines."""
    from rich.box import SIMPLE_HEAD  # here: a terminal alone needs it, and other commands start without it
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    drawn, right = Drawn(box=SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False), set(shown.right)
    for column, title in enumerate(shown.header):
        numbers = column in right
        drawn.add_column(
            Text(one_line(title)), justify="right" if numbers else "left", no_wrap=numbers, overflow="fold"
        )
    for row in shown.rows:
        drawn.add_row(*(Text(one_line(cell)) for cell in row))  # as text: a cell holds no markup of rich's
    console = Console(force_terminal=True, width=width, no_color=bool(os.environ.get("NO_COLOR")), emoji=False)
    with console.capture() as captured:
        console.print(drawn)
    return captured.get()
