"""The `capibara` command: its list of commands and how errors are shown.

An error of the user is one sentence and exit code 2, damaged data one sentence and exit code 1; anything else is a
bug and keeps its traceback.
"""

import os
import select
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module

import click

from capibara_assets import __version__
from capibara_assets.cli.terminal.empty_values import refusing_empty
from capibara_assets.cli.terminal.exits import FOUND, INTERRUPTED, REFUSED, UNREAD
from capibara_assets.cli.terminal.help import with_quiet
from capibara_assets.errors import (
    REMEDIES,
    InputError,
    IntegrityError,
    bounded,
    nearest,
    place_of,
    printable,
    remedy_behind,
)
from capibara_assets.escaping.terminal import print_marked, print_plainly
from capibara_assets.processes.interruptions import heeding_signals
from capibara_assets.processes.startup import set_up_process

# By what a user wants: command -> module:function, and the first sentence of its help (a test compares them).
# A module is imported when its command is used: importing Dagster takes a second or two, and many commands need none.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "The whole graph": {
        "run": ("graph.run:run", "Materialize the asset graph, except what is current; an interrupted run resumes."),
        "backfill": (
            "graph.backfill:backfill",
            "Make the results of some domains again; an interrupted backfill continues where it stopped.",
        ),
        "report": ("graph.report:report", "Show the latest run: losses, voters, seconds, memory."),
        "ui": ("graph.ui:ui", "Open Dagster's UI on this deployment."),
    },
    "Data": {
        "dataset": ("dataset.dataset:dataset", "Import your own training examples, audit and export the datasets."),
        "experience": (
            "dataset.experience:experience",
            "Export the recorded executions as trajectories: ATIF, Agent Data Protocol.",
        ),
        "quarantine": (
            "dataset.quarantine:quarantine",
            "List, show and retry the log lines and files that hold no valid execution.",
        ),
        "lineage": (
            "dataset.lineage:lineage",
            "Trace examples, adapters and records: what they were made from, and what was made from them.",
        ),
        "forget": (
            "dataset.forget:forget",
            "Delete EXECUTION_IDS from tables, datasets, checkpoints, caches and Dagster's history, permanently.",
        ),
    },
    "Train": {
        "plan": (
            "training.plan:plan",
            "Plan a training without starting it: LoRA settings or a TPU configuration, memory, time and cost.",
        ),
        "train": (
            "training.train:train",
            "Train adapters on your own examples: chats, prompts with completions, instructions (JSON"
            " lines, JSON, Parquet).",
        ),
        "epochs": (
            "training.epochs:epochs",
            "List the epochs of the training in OUTPUT: loss, learning rate, step and checkpoint.",
        ),
        "compare-epochs": (
            "training.compare_epochs:compare_epochs",
            "Compare a training's epochs: validation loss with intervals, over-fitting, and the epoch to keep.",
        ),
        "metrics": (
            "training.metrics:metrics",
            "Export a training's metrics: loss, perplexity, gradient norm, learning rate, speed, memory.",
        ),
        "dashboard": (
            "training.dashboard:dashboard",
            "Open TensorBoard on the training logs in FOLDER, or on the deployment's newest logs.",
        ),
        "model": ("model.model:model", "Download base models."),
    },
    "Judge": {
        "evaluate": ("model.evaluate:evaluate", "Evaluate a domain of the deployment, or models on a file of items."),
        "compare": (
            "model.compare:compare",
            "Compare a fine-tuned model with a baseline and an optimised prompt on the same file, and decide.",
        ),
        "test-model": (
            "model.test_model:test_model",
            "Generate answers with a model, or with an adapter on its base model.",
        ),
        "exposure": (
            "model.exposure:exposure",
            "Measure how exposed canaries are in a model: the rank of a secret's loss among random alternatives,"
            " in bits.",
        ),
        "debug-model": (
            "model.debug_model:debug_model",
            "Diagnose a model or adapter: files, tokenizer, chat template, placement, behaviour.",
        ),
        "consensus": (
            "checkpoint.consensus:consensus",
            "Verify the certificate of a consensus, manage voters' keys, hold a vote of several organisations.",
        ),
        "voter": (
            "checkpoint.rounds:voter",
            "Take part in a vote of several organisations: submit an adapter, judge the others'.",
        ),
    },
    "Ship": {
        "merge": (
            "checkpoint.merge:merge",
            "Merge the checkpoints PATHS (Transformers folders or safetensors files) by METHOD.",
        ),
        "promote": (
            "serving.promote:promote",
            "Promote a checkpoint manually, show the history, or export what is served.",
        ),
        "rollback": ("serving.promote:rollback", "Roll back to the previously served checkpoint."),
        "checkpoint": (
            "checkpoint.checkpoint:checkpoint",
            "Save, load, verify, convert, compare, encrypt and prune checkpoints.",
        ),
    },
    "Operate": {
        "doctor": (
            "training.doctor:doctor",
            "Check the whole deployment, or with --data or --request a training before it starts.",
        ),
        "config": (
            "graph.config:config",
            "Show the deployment: its file, each setting, and whether a variable, the file or the default decided it.",
        ),
        "jobs": ("graph.jobs:jobs", "List, follow and stop background runs: local processes, Dagster runs and pods."),
        "secrets": (
            "dataset.secrets:secrets",
            "Search every table, cache, report and log for secrets: redacted in the logs, or of a provider's shape.",
        ),
        "schema": (
            "dataset.schema:schema",
            "Print the JSON Schema of NAME (Execution, Example, Certificate …), or list the names.",
        ),
        "completion": (
            "terminal.completion:completion",
            "Print the script that completes commands, options and choices in SHELL.",
        ),
    },
}
# SQLite's errors of where a database lies, and of its bytes: others are defects of ours
_OF_PLACES = tuple(f"SQLITE_{name}" for name in ("IOERR", "FULL", "CANTOPEN", "READONLY", "CORRUPT", "NOTADB", "PERM"))
_OF_BUCKETS = ("aiohttp.", "gcsfs.", "google.auth.", "google.api_core.")  # modules with errors of their own
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


class Commands(click.Group):
    """A command group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), said) for name, (_, said) in commands.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "bench":
            raise InputError("benches run as `python -m benchmarks NAME` from a checkout of the repository")
        if cmd_name not in COMMANDS:
            if near := get_close_matches(cmd_name, COMMANDS):
                ctx.fail(f"No such command '{cmd_name}'. Did you mean '{near[0]}'?")
            return None
        hush_dagster()
        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(f"capibara_assets.cli.{module}"), name)
        return refusing_empty(with_quiet(command))


def hush_dagster() -> None:
    """Silence Dagster's warnings about its own beta features; by their words, as importing it takes a second or two."""
    warnings.filterwarnings("ignore", r"(?s).* is currently in (beta|preview), and may have breaking changes")


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with `capibara run --profile demo`, then `capibara ui`. `capibara COMMAND --help` lists its options,"
    " with an example. Exit codes: 0 done, 1 something found is not in order, 2 refused, 3 no clear answer,"
    " 130 interrupted.",
)
@click.version_option(__version__, prog_name="capibara")
def cli() -> None:
    """Turn agents' execution logs into verified datasets, LoRA adapters, a voted consensus and a checked release."""


def main() -> None:
    """Entry point of the console script."""
    run_command_line(cli, "capibara")


def _with_nearest(error: click.ClickException) -> click.ClickException:
    """The error, bounded, with the choice that is most like a misspelt one."""
    if len(whole := error.format_message()) > len(short := bounded(whole)):  # it repeats what was given
        return click.UsageError(short, getattr(error, "ctx", None))
    if not isinstance(error, click.BadParameter) or isinstance(error, click.MissingParameter):
        return error  # one that is missing lists its choices itself
    if not error.param or not isinstance(error.param.type, click.Choice):
        return error
    given = error.message.split("'")[1:2]  # "'demoo' is not one of 'demo', …"
    near = "".join(nearest(name, [str(choice) for choice in error.param.type.choices]) for name in given)
    words = error.message.rstrip(".") + near if near else error.message
    return click.BadParameter(words, error.ctx, error.param, error.param_hint)


def database_problem(error: Exception) -> str:
    """What is said of a database that cannot be opened or is damaged; empty for any other error."""
    if getattr(error, "sqlite_errorname", "").startswith(_OF_PLACES):  # of one that we open ourselves
        return f"a database cannot be used ({printable(str(error))})"
    said = getattr(error, "orig", None)
    if not type(error).__module__.startswith("sqlalchemy.") or said is None:
        return ""
    return f"Dagster's database cannot be used ({printable(str(said))})"


def _system_problem(error: OSError) -> str:
    """What the system refuses, and what to do; empty for what may be a defect of ours."""
    if error.errno not in REMEDIES:
        return ""
    what = f"{place}: " if (place := place_of(error)) else ""
    return f"{what}{error.strerror}; {REMEDIES[error.errno]}"


def bucket_problem(error: Exception) -> str:
    """What a bucket's library says where it is not reached or refuses, and what to do; else empty."""
    if not type(error).__module__.startswith(_OF_BUCKETS):
        return ""
    said = printable(str(error)) or type(error).__name__
    return f"a bucket cannot be used ({said}): check its name, the network and the credentials, and run the same again"


def run_command_line(command: click.Command, name: str) -> None:
    """Run a command on this process's arguments; print a user's error as one sentence after `name`.

    It ends without a word when nobody reads what it prints any more (`capibara report | head -1`).
    """
    set_up_process()
    try:
        try:
            with heeding_signals():
                _run(command, name)
        finally:
            for stream in filter(None, (sys.stdout, sys.stderr)):  # None: it was closed before
                stream.flush()
    except (BrokenPipeError, SystemExit) as end:
        closed = [number for number in (1, 2) if _nobody_reads(number)]
        if not closed or (isinstance(end, SystemExit) and end.code != 1):  # click exits with 1 for a broken pipe
            raise
        for number in closed:  # or the interpreter would write what is left, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        sys.exit(UNREAD)


def _nobody_reads(number: int) -> bool:
    """Whether a file descriptor is a pipe or socket whose other end is closed."""
    poll = select.poll()
    poll.register(number, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _run(command: click.Command, name: str) -> None:
    """Run the command; print a user's error."""
    if f"_{name.upper()}_COMPLETE" not in os.environ:  # else a shell reads bytes: click's own words for completion
        print_plainly()
    try:
        code = command(standalone_mode=False)
        if type(code) is int and code:  # of click's own `exit`, which ends no process here
            sys.exit(code)
    except InputError as error:
        remedy = remedy_behind(error)
        print_marked("red", name, f": {error}{'; ' if remedy else ''}{remedy}", err=True)
        sys.exit(REFUSED)
    except IntegrityError as error:
        print_marked("red", name, f": damaged: {error}", err=True)
        sys.exit(FOUND)
    except OSError as error:
        if not (said := _system_problem(error) or bucket_problem(error)):
            raise
        print_marked("red", name, f": {bounded(said)}", err=True)
        sys.exit(REFUSED)
    except click.ClickException as error:
        _with_nearest(error).show()
        sys.exit(REFUSED)
    except (click.Abort, KeyboardInterrupt):
        print_marked("yellow", name, ": interrupted; run the same command again to resume", err=True)
        sys.exit(INTERRUPTED)
    except Exception as error:  # of a library that is not imported here, since that takes a second
        if said := database_problem(error):
            said += (
                ": check that its disk has room, and that its folder can be written and is whole (`capibara doctor`)"
            )
            said += ", or name another home (CAPIBARA_HOME)"
        elif not (said := bucket_problem(error)):
            raise
        print_marked("red", name, f": {said}", err=True)
        sys.exit(REFUSED)
