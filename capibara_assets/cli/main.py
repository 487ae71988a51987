"""The `capibara` command: one sentence for what a user can mend (exit code 2) and for damage (1); else a traceback."""

import os
import sys
import warnings
from importlib import import_module

import click

from capibara_assets import __version__
from capibara_assets.errors import InputError, IntegrityError

# Command -> module:function; a module is imported when its command is used (or listed), since Dagster takes a second.
COMMANDS = {
    "bench": "bench:bench",
    "checkpoint": "checkpoint:checkpoint",
    "compare": "compare:compare",
    "compare-epochs": "compare_epochs:compare_epochs",
    "consensus": "consensus:consensus",
    "dashboard": "dashboard:dashboard",
    "dataset": "dataset:dataset",
    "debug-model": "debug_model:debug_model",
    "doctor": "doctor:doctor",
    "epochs": "epochs:epochs",
    "evaluate": "evaluate:evaluate",
    "forget": "forget:forget",
    "jobs": "jobs:jobs",
    "lineage": "lineage:lineage",
    "merge": "merge:merge",
    "metrics": "metrics:metrics",
    "model": "model:model",
    "plan": "plan:plan",
    "promote": "promote:promote",
    "quarantine": "quarantine:quarantine",
    "report": "report:report",
    "rollback": "promote:rollback",
    "run": "run:run",
    "schema": "schema:schema",
    "test-model": "test_model:test_model",
    "train": "train:train",
    "ui": "ui:ui",
}
WITHOUT_DAGSTER = frozenset({"plan"})


class Commands(click.Group):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in WITHOUT_DAGSTER:
            _hush_dagster()
        module, name = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(import_module(f"capibara_assets.cli.{module}"), name)
        return command


def _hush_dagster() -> None:
    """Dagster's notes on its own unfinished parts are not for users."""
    import dagster as dg

    for category in (dg.BetaWarning, dg.PreviewWarning):
        warnings.simplefilter("ignore", category)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="capibara")
def cli() -> None:
    """Agent experience in; verified datasets, voted adapters and attested checkpoints out."""


def main() -> None:
    """Entry point of the console script."""
    # Threads that wait for work sleep instead of spinning: on a busy machine spinning costs several times the work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")  # its default keeps hundreds of MB of kernels
    try:
        cli(standalone_mode=False)
    except InputError as error:
        click.echo(f"capibara: {error}", err=True)
        sys.exit(2)
    except IntegrityError as error:
        click.echo(f"capibara: damaged: {error}", err=True)
        sys.exit(1)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("capibara: interrupted; the same command again goes on where this one stopped", err=True)
        sys.exit(130)
