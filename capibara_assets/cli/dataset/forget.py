"""`capibara forget`: delete executions, or a tenant's, permanently from everything that was derived from them."""

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import dagster as dg

from capibara_assets.cli.dataset.forget_imports import imports_left
from capibara_assets.cli.dataset.forget_report import ForgetReport, as_text
from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.exits import FOUND, UNDECIDED
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.notes import note
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError
from capibara_assets.storage.manifest import title_of

if TYPE_CHECKING:
    from capibara_assets.checkpoints.store.store import Checkpoint
    from capibara_assets.lineage.forget import ForgetFindings
    from capibara_assets.lineage.history import Traces
    from capibara_assets.lineage.lost import Lost
    from capibara_assets.lineage.records import Results
    from capibara_assets.storage.artifact import Artifact

_UNDER_WAY = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


@with_example('capibara forget 5f3c9a12 --reason "asked by its author" --dry-run')
@click.command()
@click.argument("execution_ids", nargs=-1)
@click.option("--tenant", help="Delete all records of this tenant, and read none of it again.")
@click.option("--reason", default="", help="Why; stored with the tombstones, so name no secret.")
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted.")
@click.option("--despite-runs", is_flag=True, help="Continue although runs seem active (they were killed).")
@AS_JSON
@shows_progress("forgetting")
def forget(
    execution_ids: tuple[str, ...], tenant: str | None, reason: str, dry_run: bool, despite_runs: bool, as_json: bool
) -> None:
    """Delete EXECUTION_IDS from tables, datasets, checkpoints, caches and Dagster's history, permanently.

    They are not read again. Your log files are not changed; the report names the lines in them. Adapters trained on a
    deleted record become stale: the next `capibara run` retrains only those. After an interruption, run it again.
    """
    if not execution_ids and tenant is None:
        raise click.UsageError("name EXECUTION_IDS or --tenant NAME; `capibara lineage` shows which there are")
    with redirect_stdout(sys.stderr):  # the run prints its progress
        report = forget_in(Deployment.from_environment(), execution_ids, reason, dry_run, despite_runs, tenant)
    click.echo(json.dumps(asdict(report)) if as_json else as_text(report))
    if report.failures or (report.left and not dry_run):
        raise SystemExit(FOUND)
    if report.unread:
        raise SystemExit(UNDECIDED)


def forget_in(
    deployment: Deployment,
    execution_ids: Iterable[str],
    reason: str,
    dry_run: bool,
    despite_runs: bool = False,
    tenant: str | None = None,
) -> ForgetReport:
    """Delete executions, and all of a tenant's, from a deployment; with `dry_run` only report what would be deleted.

    Raises:
        InputError: an unknown id or tenant, active runs, or encrypted checkpoints without their key (nothing is
            done then); logs that cannot be read.
    """
    from capibara_assets.cli.graph.instance import open_instance, open_store
    from capibara_assets.cli.graph.results import results_of
    from capibara_assets.executions.ingest.forgotten import write_tombstones
    from capibara_assets.lineage.checkpoints import require_readable
    from capibara_assets.lineage.forget import alone, find, note_lines

    store = open_store(deployment)
    with alone(store), open_instance(deployment) as instance:
        require_readable(store)
        results = results_of(instance, store)
        records = find(results, sorted(set(execution_ids)), tenant)
        if dry_run:
            return _preview(deployment, instance, results, records)
        if not despite_runs:
            _require_quiet(instance)
        if records.tombstones:
            write_tombstones(store, records.tombstones, reason)
        note_lines(store, records)
        return _carry_out(deployment, instance, results, records, quiet=not despite_runs)


def _preview(
    deployment: Deployment, instance: dg.DagsterInstance, results: "Results", records: "ForgetFindings"
) -> ForgetReport:
    from capibara_assets.lineage.checkpoints import behind
    from capibara_assets.lineage.forget import all_removed, ledgers_of, work_folders

    removed = list(records.artifacts)
    digests = frozenset(artifact.digest for artifact in removed)
    traces = _traces(records, digests)
    ledgers = [str(one.root) for one in ledgers_of(results.store) if one.last() is not None]
    history, logs = rewrite_history(deployment, instance, traces, write=False)
    checkpoints = behind(results.store, removed, digests | all_removed(results.store), records.needles)
    work = work_folders(results.store, digests, records.needles)
    places = _Places(removed, checkpoints, ledgers, work, history, logs)
    unread = _unread(results, records)
    aftermath = _Aftermath(_stale_after(results, records), unread, imports_left(results, records.tenant))
    return _report(records, results, places, aftermath, dry_run=True)


def _carry_out(
    deployment: Deployment, instance: dg.DagsterInstance, results: "Results", records: "ForgetFindings", quiet: bool
) -> ForgetReport:
    """Everything after the tombstones. Each step is repeatable; what identifies the records is removed last."""
    from capibara_assets.cli.graph.results import results_of
    from capibara_assets.lineage.checkpoints import behind, purge, still_holding
    from capibara_assets.lineage.forget import (
        all_left,
        all_removed,
        delete,
        doomed,
        drop_lines,
        purge_ledgers,
        remove,
        work_folders,
    )

    store, saw = results.store, results
    failures = _remake(deployment, instance)
    if "e2b_logs[_]" in failures:
        raise InputError(
            f"the logs could not be read without the records ({failures['e2b_logs[_]']}): nothing was deleted, the "
            "tombstones remain: fix that and run the same command again"
        )
    results = results_of(instance, store)
    removed, waiting = doomed(results, records)
    digests = frozenset(artifact.digest for artifact in removed) | all_removed(store)
    checkpoints = behind(store, removed, digests, records.needles)
    undeleted = purge(store, checkpoints)
    ledgers = purge_ledgers(store, records, _ledger(deployment, results))
    work = work_folders(store, digests, records.needles)
    delete(work)
    history, logs = rewrite_history(deployment, instance, _traces(records, digests), write=True)
    unmade = [f"{title_of(*artifact.key)} could not be made without it: see failures" for artifact in waiting]
    left = [*unmade, *undeleted, *imports_left(results, records.tenant)]
    aftermath = _Aftermath(_stale(deployment, instance, results), _unread(results, records), left, failures)
    places = _Places(removed, checkpoints, ledgers, work, history, logs)
    report = _report(records, saw, places, aftermath, dry_run=False)
    remove(store, removed)
    drop_lines(store, records)
    store.sweep(0.0 if quiet else 3600.0)
    try:
        holding = [*_search(deployment, instance, records), *still_holding(store, records.needles)]
        found = [f"{one} still holds a piece of it" for one in all_left(store, holding)]
    except InputError as error:  # a damaged file: what was removed is to be told all the same
        found = [f"the search for what is left ended: {error}"]
    return ForgetReport(**{**vars(report), "left": (*report.left, *found)})


def _unread(results: "Results", records: "ForgetFindings") -> "tuple[Lost, ...]":
    """What may have held the records, or leads from a model to them, and cannot be read."""
    from capibara_assets.checkpoints.artifacts import checkpoints_of
    from capibara_assets.lineage.checkpoints import has_checkpoints
    from capibara_assets.lineage.lost import lost, still_damaged

    checkpoints = checkpoints_of(results.store).list() if has_checkpoints(results.store) else []
    return lost(results, checkpoints, still_damaged(results.store, records.damaged))


def _require_quiet(instance: dg.DagsterInstance) -> None:
    runs = instance.get_runs(filters=dg.RunsFilter(statuses=list(_UNDER_WAY)), limit=5)
    if runs:
        shown = ", ".join(f"{run.run_id[:8]} ({run.status.value.lower()})" for run in runs)
        raise InputError(
            f"runs are under way: {shown}; they could publish the records. Nothing was done: wait for them or cancel "
            "them; if they were killed, give --despite-runs"
        )


def _remake(deployment: Deployment, instance: dg.DagsterInstance) -> dict[str, str]:
    """Materialize again, without the records, what is upstream of training; return the failures."""
    from capibara_assets.assets.inputs import latest_digests
    from capibara_assets.automation.pipeline import run_graph
    from capibara_assets.cli.graph.opened import graph_run
    from capibara_assets.lineage.forget import REMADE

    note(f"experience {deployment.experience}", err=True)
    made = {name: latest_digests(instance, name) for name in REMADE}
    assets = [name for name, partitions in made.items() if partitions]
    domains = [domain for domain in DOMAINS if any(domain in partitions for partitions in made.values())]
    outcome = run_graph(graph_run(deployment, instance), assets, domains, lambda _: None)
    return {f"{name}[{where}]": message for (name, where), message in outcome.failures.items()}


def _ledger(deployment: Deployment, results: "Results") -> Path:
    from capibara_assets.definitions import deployment_resources
    from capibara_assets.executions.ingest.ingest import ledger_name

    experience = deployment_resources(deployment)["experience"]
    return results.store.work_dir("e2b_logs", None, ledger_name(experience.path, experience.redact_also))


def _traces(records: "ForgetFindings", digests: frozenset[str]) -> "Traces":
    from capibara_assets.lineage.history import Traces

    # notes of runs say "agent a of tenant acme"; the name alone may be anybody's word
    named = () if records.tenant is None else (f"tenant {records.tenant}",)
    return Traces((*records.needles, *named), digests)


def rewrite_history(
    deployment: Deployment, instance: dg.DagsterInstance, traces: "Traces", write: bool
) -> tuple[dict[str, int], list[str]]:
    """Rewrite (or only count) traces in Dagster's databases and logs and in the deployment's reports."""
    from capibara_assets.cli.graph.instance import dagster_home
    from capibara_assets.lineage.history import (
        compact_server,
        databases,
        scrub,
        scrub_files,
        scrub_objects,
        scrub_text,
    )
    from capibara_assets.lineage.traces import holding

    home = dagster_home(deployment)
    counts = {str(path): number for path, number in scrub_files(home, traces, write=write).items()}
    for name, connect in servers(instance).items():
        with connect() as connection:
            if number := scrub(connection, traces, write=write):
                counts[name] = number
            if write:  # also what a forget that was interrupted here had rewritten
                compact_server(connection)
    files = {companion for path in databases(home) for companion in (path, *path.parent.glob(f"{path.name}-*"))}
    logs = holding(home, traces.needles, skip=sorted(files))
    reports = [path for path in (deployment.home / "report.html", deployment.home / "runs") if path.exists()]
    logs += [path for report in reports for path in holding(report, traces.needles)]
    for path in logs if write else ():
        scrub_text(path, traces)
    objects = scrub_objects(deployment.compute_logs, traces, write=write) if deployment.compute_logs else []
    return counts, [*sorted({str(path) for path in logs}), *objects]


def servers(instance: dg.DagsterInstance) -> dict[str, Callable[[], Any]]:
    """Dagster storages other than SQLite files: name -> function that opens a connection in a transaction."""
    storages = {
        "events": (instance.event_log_storage, "index_connection"),
        "runs": (instance.run_storage, "connect"),
        "schedules": (instance.schedule_storage, "connect"),
    }
    return {
        name: getattr(storage, method)
        for name, (storage, method) in storages.items()
        if storage is not None and "sqlite" not in type(storage).__module__ and hasattr(storage, method)
    }


def _stale(deployment: Deployment, instance: dg.DagsterInstance, results: "Results") -> list[str]:
    """Current results whose inputs have changed."""
    from capibara_assets.cli.graph.opened import graph_run

    run = graph_run(deployment, instance)
    return [
        title_of(*artifact.key)
        for (name, where), artifact in _ordered(results)
        if run.graph.parents.get(name) and not run.is_current(name, Domain(where) if where else None)
    ]


def _stale_after(results: "Results", records: "ForgetFindings") -> list[str]:
    """Current results made from what a deletion would remove."""
    from capibara_assets.lineage.ancestors import descendants
    from capibara_assets.lineage.forget import REMADE

    steps = {
        (step.asset, step.partition): step.artifact
        for artifact in records.artifacts
        if results.is_current(artifact) and artifact.name == "moe_dataset"
        for step in descendants(results.store, artifact)
        if step.artifact is not None and step.asset not in REMADE and results.is_current(step.artifact)
    }
    return [
        title_of(*artifact.key)
        for _, artifact in sorted(steps.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    ]


def _ordered(results: "Results") -> "list[tuple[tuple[str, str | None], Artifact]]":
    return sorted(results.current.items(), key=lambda item: (item[0][0], item[0][1] or ""))


def _search(deployment: Deployment, instance: dg.DagsterInstance, records: "ForgetFindings") -> list[str]:
    """The deployment's files, objects and databases in which a piece of a record remains; should be empty."""
    from capibara_assets.lineage.history import Traces, objects_holding, scrub
    from capibara_assets.lineage.traces import holding

    folders, skip = searched(deployment)
    left = [str(path) for folder in folders for path in holding(folder, records.needles, skip)]
    for location in remote_places(deployment):
        left += objects_holding(location, records.needles)
    for name, connect in servers(instance).items():
        with connect() as connection:
            if scrub(connection, Traces(tuple(records.needles), frozenset()), write=False):
                left.append(f"Dagster's database of {name}")
    return left


def remote_places(deployment: Deployment) -> list[str]:
    """Object-store locations of a deployment."""
    from capibara_assets.storage.mirror import is_remote

    places = (deployment.store, deployment.compute_logs)
    return [location for location in places if location is not None and is_remote(location)]


def searched(deployment: Deployment) -> tuple[list[Path], list[Path]]:
    """All folders of a deployment, and the files in them that belong to the user."""
    from capibara_assets.cli.graph.instance import dagster_home
    from capibara_assets.storage.mirror import is_remote

    folders = {deployment.home, deployment.work, dagster_home(deployment)}
    if not is_remote(deployment.store):
        folders.add(Path(deployment.store))
    skip = [] if is_remote(deployment.experience) else [Path(deployment.experience).resolve()]
    outer = [one for one in folders if not any(one != other and one.is_relative_to(other) for other in folders)]
    return sorted(outer), skip


@dataclass(frozen=True)
class _Places:
    """Artifacts, checkpoints, caches, databases and logs that held the records."""

    removed: "list[Artifact]"
    checkpoints: "list[Checkpoint]"
    ledgers: list[str]
    work: list[Path]
    history: dict[str, int]
    logs: list[str]


@dataclass(frozen=True)
class _Aftermath:
    """State after a deletion: stale results, what could not be read, places with a piece of it, and failed steps."""

    stale: list[str]
    unread: "tuple[Lost, ...]" = ()
    left: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def _report(
    records: "ForgetFindings", results: "Results", places: _Places, aftermath: _Aftermath, *, dry_run: bool
) -> ForgetReport:
    from capibara_assets.lineage.checkpoints import title
    from capibara_assets.lineage.forget import examples_of
    from capibara_assets.lineage.records import exposures

    unread = {one.digest for one in aftermath.unread}
    return ForgetReport(
        dry_run=dry_run,
        tenant=records.tenant,
        forgotten=tuple(name for name in records.execution_ids if name not in records.before),
        forgotten_before=records.before,
        sources=tuple(asdict(line) for line in records.lines),
        quarantined=records.quarantined,
        domains=records.domains,
        removed=tuple(title_of(*artifact.key) for artifact in places.removed),
        checkpoints=tuple(title(checkpoint) for checkpoint in places.checkpoints),
        ledgers=tuple(places.ledgers),
        work=tuple(map(str, places.work)),
        history=places.history,
        logs=tuple(places.logs),
        saw_it=tuple(asdict(one) for one in exposures(results, examples_of(records), unread)),
        stale=tuple(aftermath.stale),
        left=tuple(aftermath.left),
        failures=aftermath.failures,
        unread=tuple(asdict(one) for one in aftermath.unread),
    )
