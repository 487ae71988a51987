"""The `capibara` command: one sentence for what a user can mend (exit code 2) and for damage (1); else a traceback."""

import os
import sys
import warnings

import click
import dagster as dg

from capibara_assets import __version__
from capibara_assets.errors import InputError, IntegrityError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="capibara")
def cli() -> None:
    """Agent experience in; verified datasets, voted adapters and attested checkpoints out."""


def main() -> None:
    """Entry point of the console script."""
    # Threads that wait for work sleep instead of spinning: on a busy machine spinning costs several times the work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")  # its default keeps hundreds of MB of kernels
    for category in (dg.BetaWarning, dg.PreviewWarning):  # Dagster's notes on its own unfinished parts
        warnings.simplefilter("ignore", category)
    from capibara_assets.cli import (
        bench,
        checkpoint,
        compare,
        compare_epochs,
        consensus,
        dashboard,
        dataset,
        debug_model,
        doctor,
        epochs,
        evaluate,
        forget,
        jobs,
        lineage,
        merge,
        metrics,
        model,
        plan,
        promote,
        quarantine,
        report,
        run,
        schema,
        test_model,
        train,
        ui,
    )

    on_records = (dataset.dataset, lineage.lineage, forget.forget, quarantine.quarantine)
    on_models = (checkpoint.checkpoint, consensus.consensus, merge.merge, model.model)
    on_trainings = (train.train, epochs.epochs, metrics.metrics, dashboard.dashboard, jobs.jobs)
    by_hand = (test_model.test_model, debug_model.debug_model, compare_epochs.compare_epochs)
    at_work = (run.run, doctor.doctor, report.report, ui.ui)
    on_serving = (evaluate.evaluate, compare.compare, promote.promote, promote.rollback)
    works = (plan.plan, *at_work, *on_serving, *on_records, *on_models, *on_trainings, *by_hand)
    for command in (*works, bench.bench, schema.schema):
        cli.add_command(command)
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
