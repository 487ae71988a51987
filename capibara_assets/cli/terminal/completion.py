"""`capibara completion`: the script by which a shell completes commands, options and choices."""

import sys

import click
from click.shell_completion import get_completion_class

from capibara_assets.cli.terminal.help import with_example

PROGRAM, VARIABLE = "capibara", "_CAPIBARA_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@with_example("capibara completion bash > ~/.local/share/bash-completion/completions/capibara")
@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and choices in SHELL.

    Keep it where the shell looks: bash as in the example, zsh in a folder of $fpath as _capibara, fish in
    ~/.config/fish/completions/capibara.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows each of SHELLS"
    sys.stdout.write(kind(context.find_root().command, {}, PROGRAM, VARIABLE).source() + "\n")
