"""`capibara quarantine`: list, show and retry the lines and files that the ingest rejected."""

import json
import sys
from collections import Counter
from contextlib import AbstractContextManager, redirect_stdout
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import polars as pl

from capibara_assets.cli.graph.not_read import NOT_READ, NotRead
from capibara_assets.cli.graph.run_record import latest_experience
from capibara_assets.cli.terminal.documents import AS_JSON, echo_json, echo_result
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.notes import note
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.terminal.tables import TerminalTable, say
from capibara_assets.cli.terminal.tables import show as show_parts
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError, ambiguous

if TYPE_CHECKING:
    from capibara_assets.assets.inputs import Inputs

_RETRIED = ("quarantine_id", "file", "line", "reason", "outcome")
_REASON = click.option("--reason", help="Only rows with this reason, e.g. invalid_json.")
_FILE = click.option("--file", "file", help="Only rows of this file, named as in the list.")


@with_example("capibara quarantine list")
@click.group()
def quarantine() -> None:
    """List, show and retry the log lines and files that hold no valid execution."""


@with_example("capibara quarantine list --reason invalid_json")
@quarantine.command("list")
@_REASON
@_FILE
@click.option("--limit", default=50, type=click.IntRange(min=0), show_default=True, help="Number of rows, at most.")
@AS_JSON
def list_rows(reason: str | None, file: str | None, limit: int, as_json: bool) -> None:
    """List rejected log lines and playbook entries, and files that were not read: id, place, reason and detail."""
    rows = chosen(everything(), (), reason, file)
    listed = list(rows.head(limit).iter_rows(named=True))
    if as_json:
        echo_json([{key: value for key, value in row.items() if key != "text"} for row in listed])
        return
    if listed:
        cells = [(row["quarantine_id"][:12] or "–", _place(row), row["reason"], row["detail"][:100]) for row in listed]
        show_parts(TerminalTable(("id", "place", "reason", "detail"), cells))
    counted = Counter(rows["reason"].to_list()).most_common()
    files = rows.filter(pl.col("reason") == NOT_READ).height
    say(f"{rows.height - files} in quarantine" + "".join(f"; {name}: {count}" for name, count in counted))


@with_example("capibara quarantine show 5f3c9a12")
@quarantine.command("show")
@click.argument("identifier")
@AS_JSON
def show(identifier: str, as_json: bool) -> None:
    """Show one rejected line or entry by its id or a prefix: file and line, reason, redacted text."""
    (row,) = chosen(everything(), (identifier,), None, None).iter_rows(named=True)
    if as_json:
        click.echo(json.dumps(row))
        return
    for key, value in row.items():
        if key != "text" and value is not None:
            say(f"{key}: {value}")
    click.echo(row["text"])


@with_example("capibara quarantine retry --reason invalid_json")
@quarantine.command("retry")
@click.argument("identifiers", nargs=-1)
@_REASON
@_FILE
@AS_JSON
@shows_progress("reading again")
def retry_rows(identifiers: tuple[str, ...], reason: str | None, file: str | None, as_json: bool) -> None:
    """Read the sources of IDENTIFIERS (default: all) again, and ingest the lines that are now valid."""
    from capibara_assets.definitions import deployment_resources
    from capibara_assets.executions.ingest.ingest import ledger_name
    from capibara_assets.executions.ingest.ledger import Ledger
    from capibara_assets.executions.ingest.quarantine import files_of, retry

    deployment = Deployment.from_environment()
    resources = deployment_resources(deployment)
    folder = resources["experience"].path
    rows = chosen(table(), identifiers, reason, file).to_dicts()
    note(f"experience {deployment.experience}", err=True)
    retried = retry(folder, rows, datetime.now(UTC))
    lines = [{name: getattr(item, name) for name in _RETRIED} for item in retried]
    if not as_json:
        say(*(f"{line['quarantine_id'][:12]}  {_place(line)}  {line['outcome']}" for line in lines))
    ledger = (
        resources["store"].open().work_dir("e2b_logs", None, ledger_name(folder, resources["experience"].redact_also))
    )
    Ledger(ledger).read_again(files_of(rows))
    with redirect_stdout(sys.stderr):  # the run prints its progress
        before, after = _materialize(deployment)
    told = f"{len(retried)} read again: {before} executions before, {after} now"
    echo_result({"lines": lines, "executions_before": before, "executions_after": after}, told, as_json)


def table() -> pl.DataFrame:
    """The quarantine of the latest `e2b_logs`.

    Raises:
        InputError: there is none yet.
    """
    return _artifact().frame("quarantine").sort("file", "line", "quarantine_id")


def everything() -> pl.DataFrame:
    """The quarantine of the latest `e2b_logs`, entries of playbooks, and files that are neither.

    Raises:
        InputError: neither logs nor playbooks were read yet.
    """
    experience = latest_experience(Deployment.from_environment())
    with _inputs() as inputs:
        logs, others = inputs.available("e2b_logs"), NotRead.of(inputs, experience).rows()
        if logs is None and not inputs.available("ace_playbooks"):
            inputs.artifact("e2b_logs")  # raises: says why it may not be read
        lines = logs.frame("quarantine") if logs else others.clear()
    return pl.concat([lines, others], how="diagonal_relaxed").sort("file", "line", "quarantine_id")


def _artifact() -> Any:
    with _inputs() as inputs:
        return inputs.artifact("e2b_logs")


def _inputs() -> "AbstractContextManager[Inputs]":
    from capibara_assets.cli.graph.results import open_inputs

    return open_inputs(Deployment.from_environment())


def chosen(rows: pl.DataFrame, identifiers: tuple[str, ...], reason: str | None, file: str | None) -> pl.DataFrame:
    """The quarantine rows selected by identifier, reason and file.

    Raises:
        InputError: an identifier that is the prefix of no id, or of several.
    """
    if reason is not None:
        rows = rows.filter(pl.col("reason") == reason)
    if file is not None:
        rows = rows.filter(pl.col("file") == file)
    if not identifiers:
        return rows
    picked = []
    for identifier in identifiers:
        match = rows.filter(pl.col("quarantine_id").str.starts_with(identifier))
        if match.height != 1:
            ids = match["quarantine_id"].to_list()
            many = f"{match.height} rows{ambiguous(ids)}" if ids else "nothing"
            raise InputError(f"{identifier!r} names {many} in quarantine: see `capibara quarantine list`")
        picked.append(match)
    return pl.concat(picked).unique("quarantine_id", maintain_order=True)


def _place(row: dict[str, Any]) -> str:
    return f"{row['file']}:{row['line']}" if row["line"] else str(row["file"])


def _materialize(deployment: Deployment) -> tuple[int, int]:
    """Run `e2b_logs`; returns the number of executions before and after."""
    from capibara_assets.automation.pipeline import run_graph
    from capibara_assets.cli.graph.instance import open_instance
    from capibara_assets.cli.graph.opened import graph_run
    from capibara_assets.domains import DOMAINS

    before = _artifact().document("summary")["executions"]
    with open_instance(deployment) as instance:
        outcome = run_graph(graph_run(deployment, instance), ["e2b_logs"], DOMAINS, lambda _: None)
    if outcome.failures:
        raise InputError("; ".join(outcome.failures.values()))
    return before, _artifact().document("summary")["executions"]
