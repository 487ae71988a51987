"""The `capibara` command: one sentence for what a user can mend (exit code 2) and for damage (1); else a traceback."""

import os
import sys
import warnings
from importlib import import_module

import click

from capibara_assets import __version__
from capibara_assets.errors import InputError, IntegrityError

# Command -> module:function, and its first sentence (a test holds it to the command's own). A module is imported when
# its command is used, since Dagster takes a second.
COMMANDS = {
    "checkpoint": (
        "checkpoint.checkpoint:checkpoint",
        "Checkpoints: kept whole and checked, in every format, small, private when asked.",
    ),
    "compare": (
        "model.compare:compare",
        "Judge a fine-tuned model against a baseline and an optimised prompt, item by item on the same file.",
    ),
    "compare-epochs": (
        "training.compare_epochs:compare_epochs",
        "Loss per epoch with intervals, the epoch to keep, over-fitting by name.",
    ),
    "consensus": ("checkpoint.consensus:consensus", "What voters agreed on, and the proof of it."),
    "dashboard": (
        "training.dashboard:dashboard",
        "TensorBoard on the training logs in FOLDER, by default the newest ones of this deployment's work and store.",
    ),
    "dataset": ("dataset.dataset:dataset", "Examples from files of one's own, and the datasets as files."),
    "debug-model": (
        "model.debug_model:debug_model",
        "Examine a model: files, tokenizer, template, adapter, placement, behaviour.",
    ),
    "doctor": ("training.doctor:doctor", "Check machine, base, data and recipe for a training."),
    "epochs": (
        "training.epochs:epochs",
        "The epochs of a training in OUTPUT: loss, learning rate, step, and the checkpoint of each.",
    ),
    "evaluate": (
        "model.evaluate:evaluate",
        "Evaluate a domain of the deployment as the graph does, or models on a file of items.",
    ),
    "forget": (
        "dataset.forget:forget",
        "Take EXECUTION_IDS out of tables, datasets, caches, ledgers and Dagster's history; they never come back.",
    ),
    "jobs": ("graph.jobs:jobs", "Background runs: local ones, those of Dagster, and pods."),
    "lineage": ("dataset.lineage:lineage", "Where examples and adapters come from, and what became of a record."),
    "merge": (
        "checkpoint.merge:merge",
        "Merge the checkpoints PATHS (Transformers folders or safetensors files) by METHOD.",
    ),
    "metrics": (
        "training.metrics:metrics",
        "Figures of trainings: loss, perplexity, gradient norm, rate, speed, memory.",
    ),
    "model": ("model.model:model", "Base models."),
    "plan": (
        "training.plan:plan",
        "Plan a training: a LoRA recipe on CPUs and GPUs, mesh, batch and files on TPU slices; memory, time and cost.",
    ),
    "promote": (
        "serving.promote:promote",
        "Have a checkpoint serve by hand, show what served, or lay out what serves for a server.",
    ),
    "quarantine": (
        "dataset.quarantine:quarantine",
        "Lines and files that hold no valid execution, redacted, with the reason.",
    ),
    "report": ("graph.report:report", "The latest run: losses, voters, seconds, memory."),
    "rollback": (
        "serving.promote:rollback",
        "Have serve again what served before; what is left is not promoted again by the gate.",
    ),
    "run": (
        "graph.run:run",
        "Materialize the graph; what is current is left alone, and an interrupted run goes on where it was.",
    ),
    "schema": (
        "dataset.schema:schema",
        "Print the JSON Schema of NAME (an Execution, Example, Certificate …), or the names.",
    ),
    "test-model": (
        "model.test_model:test_model",
        "Ask a model something: a whole model, or an adapter on the base it was trained on.",
    ),
    "train": (
        "training.train:train",
        "Train adapters on your own examples: chats, prompts with completions, instructions"
        " (JSON lines, JSON, Parquet).",
    ),
    "ui": ("graph.ui:ui", "Open Dagster's UI, its sensor and its automation on what `capibara run` made."),
}
WITHOUT_DAGSTER = frozenset({"plan"})


class Commands(click.Group):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "bench":
            raise InputError("benches run as `python -m benchmarks NAME` from a checkout of the repository")
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in WITHOUT_DAGSTER:
            hush_dagster()
        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(f"capibara_assets.cli.{module}"), name)
        return command


def hush_dagster() -> None:
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
    run_command_line(cli, "capibara")


def run_command_line(command: click.Command, name: str) -> None:
    """Run a command on this process's arguments; what a user can mend is one sentence after `name`."""
    # Threads that wait for work sleep instead of spinning: on a busy machine spinning costs several times the work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")  # its default keeps hundreds of MB of kernels
    try:
        command(standalone_mode=False)
    except InputError as error:
        click.echo(f"{name}: {error}", err=True)
        sys.exit(2)
    except IntegrityError as error:
        click.echo(f"{name}: damaged: {error}", err=True)
        sys.exit(1)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"{name}: interrupted; the same command again goes on where this one stopped", err=True)
        sys.exit(130)
