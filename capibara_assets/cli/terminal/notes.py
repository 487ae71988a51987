"""Status messages of commands, suppressed by `--quiet`."""

import click

from capibara_assets.processes.progress import is_quiet


def note(line: str, *, err: bool = False) -> None:
    """Print a line, but with `--quiet`."""
    if not is_quiet():
        click.echo(line, err=err)
