"""Checks of what a deployment has made, for `capibara doctor`: results, checkpoints, and Dagster's history of them.

Files are looked up and measured, not read: `capibara checkpoint verify` compares every byte.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from capibara_assets.cli.main import database_problem
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.mirror import is_remote
from capibara_assets.training.plan.preflight import CheckFinding

if TYPE_CHECKING:
    import dagster as dg

    from capibara_assets.automation.graph import Graph
    from capibara_assets.storage.artifact import Artifact
    from capibara_assets.storage.store import ArtifactStore

STUCK_S = 6 * 3600.0  # of a run that has not ended
_DATABASES = ("history/runs.db", "history/runs/index.db")  # of Dagster's SQLite, below its home
Result = tuple[str, str | None]
"""An asset, and a partition of it (None: it has none)."""


def check_store(deployment: Deployment) -> list[CheckFinding]:
    """Check that the latest results lie in the store with all their files, and what the checkpoints consist of."""
    if is_remote(deployment.store):
        return [CheckFinding("store", "pass", f"{deployment.store} is a bucket: `capibara run` checks its access")]
    root = Path(deployment.store)
    if not (root / "artifacts").is_dir():
        return [CheckFinding("store", "pass", f"nothing in {root} yet: `capibara run` makes the first results")]
    if not os.access(root, os.W_OK):
        return [CheckFinding("store", "fail", f"{root} cannot be written", "change its owner, or set CAPIBARA_STORE")]
    from capibara_assets.checkpoints.artifacts import open_artifacts

    store, damaged, sound = open_artifacts(deployment.store, deployment.work), dict[Result, str](), list["Artifact"]()
    for name in store.names():
        for partition in (None, *DOMAINS):
            try:
                latest = store.latest(name, partition)
                if latest is None:
                    continue
                if problem := next(_missing(latest), ""):
                    damaged[name, partition] = f"{_named(name, partition)} {problem}"
                else:
                    sound.append(latest)
            except (IntegrityError, InputError) as error:
                damaged[name, partition] = str(error)
    checkpoints = _check_checkpoints(store, sound)
    if damaged:
        found = f"{len(damaged)} results are damaged, first: {next(iter(damaged.values()))}"
        return [CheckFinding("store", "fail", found, _again(next(iter(damaged)))), *checkpoints]
    return [
        CheckFinding("store", "pass", f"{len(sound)} latest results in {root}, their files are there"),
        *checkpoints,
    ]


def _missing(artifact: "Artifact") -> Iterator[str]:
    """What an artifact lacks of the files that lie in its own folder."""
    elsewhere = artifact.manifest.elsewhere()
    for name, entry in artifact.manifest.files.items():
        file = Path(artifact.path.path) / name
        if name in elsewhere:
            continue
        if not file.is_file():
            yield f"lacks {name} ({file})"
        elif (size := file.stat().st_size) != entry.bytes:
            yield f"has {size} bytes of {name}, not {entry.bytes} ({file})"


def _check_checkpoints(store: "ArtifactStore", artifacts: list["Artifact"]) -> list[CheckFinding]:
    """Check that the checkpoints that results name, and all others, have the packs that their manifests name."""
    from capibara_assets.checkpoints.artifacts import checkpoints_of

    named = {identity: artifact for artifact in artifacts for identity in artifact.checkpoints.values()}
    if not named:
        return []
    try:
        kept = checkpoints_of(store)
        others = {one.id for one in kept.list()} - named.keys()
    except (IntegrityError, InputError) as error:
        return [
            CheckFinding("checkpoints", "fail", str(error), "`capibara checkpoint verify` lists all that is damaged")
        ]
    damaged = dict[str, str]()
    for identity in [*named, *sorted(others)]:
        try:
            kept.open(identity).stored_bytes  # noqa: B018 - looks up every piece in the packs' indexes
        except (IntegrityError, InputError) as error:
            damaged[identity] = str(error)
    if not damaged:
        return [CheckFinding("checkpoints", "pass", f"{len(named) + len(others)} checkpoints, their packs are there")]
    first, found = next(iter(damaged)), f"{len(damaged)} checkpoints are damaged, first: {next(iter(damaged.values()))}"
    todo = "`capibara checkpoint verify` lists what is lost"
    if first in named:
        todo += f"; {_again((named[first].name, named[first].partition))}"
    return [CheckFinding("checkpoints", "fail", found, todo)]


def check_history(deployment: Deployment) -> list[CheckFinding]:
    """Check Dagster's history: it opens, knows the results, which code made them, and runs that do not end."""
    from capibara_assets.automation.graph import Graph
    from capibara_assets.cli.graph.instance import open_instance
    from capibara_assets.definitions import build

    home = Path(os.environ.get("DAGSTER_HOME") or deployment.home / "dagster").expanduser()
    made = not is_remote(deployment.store) and (Path(deployment.store) / "artifacts").is_dir()
    todo = f"put {home} back from a copy; without it `capibara run` makes everything again"
    if not home.is_dir():
        if made:
            return [CheckFinding("history", "fail", f"{deployment.store} has results, and {home} is missing", todo)]
        return [CheckFinding("runs", "pass", "no run yet")]
    if made and (missing := _missing_database(home)):
        return [CheckFinding("history", "fail", f"{missing} is missing", todo)]
    try:
        with open_instance(deployment) as instance:
            graph = Graph.of(build(deployment))
            results = check_results(deployment, instance, graph)
            ages = check_freshness(deployment, instance, graph)
            return [results, check_versions(instance, graph), ages, *check_runs(instance)]
    except Exception as error:  # of SQLAlchemy, which is not imported here; others are none of the history's
        if not (said := database_problem(error)):
            raise
        return [CheckFinding("history", "fail", said, todo)]


def _missing_database(home: Path) -> str:
    """A database that Dagster would make anew, empty; none where its dagster.yaml keeps them elsewhere."""
    settings = home / "dagster.yaml"
    if settings.is_file() and (yaml.safe_load(settings.read_text("utf-8")) or {}).keys() & {
        "storage",
        "event_log_storage",
    }:
        return ""
    return next((str(home / name) for name in _DATABASES if not (home / name).is_file()), "")


def check_results(deployment: Deployment, instance: "dg.DagsterInstance", graph: "Graph") -> CheckFinding:
    """Check that the history's latest results lie in the store, and that it knows the store's latest ones."""
    from capibara_assets.assets.inputs import latest_digests
    from capibara_assets.definitions import deployment_resources

    store = deployment_resources(deployment)["store"].open()
    known = {name: latest_digests(instance, name) for name in graph.parents}
    pairs = [(name, partition, digest) for name, digests in known.items() for partition, digest in digests.items()]
    if lost := [(name, partition) for name, partition, digest in pairs if not store.holds(name, partition, digest)]:
        found = f"{len(lost)} of {len(pairs)} results of the history are not in {store.root}, first: {_named(*lost[0])}"
        return CheckFinding("history", "fail", found, "put it back from a copy, or `capibara run` makes it again")
    strange = [
        (name, partition)
        for name, digests in known.items()
        for partition in (None, *DOMAINS)
        if partition not in digests and store.latest_digest(name, partition) is not None
    ]
    if strange:
        found = f"{len(strange)} results in {store.root} are not in Dagster's history, first: {_named(*strange[0])}"
        return CheckFinding(
            "history", "fail", found, "put its folder back from a copy, or `capibara run` makes them again"
        )
    return CheckFinding("history", "pass", f"{len(pairs)} results, which are in {store.root}")


def check_versions(instance: "dg.DagsterInstance", graph: "Graph") -> CheckFinding:
    """Check that the results were made by the code versions of this installation."""
    from capibara_assets.assets.inputs import INPUTS, latest_digests, latest_metadata

    other, count = list[str](), 0
    for name, code in graph.code_versions.items():
        for partition in latest_digests(instance, name):
            recorded = latest_metadata(instance, name, partition).get(INPUTS, {}).get("code_version")
            count += 1
            other += [f"{name}[{partition or '_'}]"] if recorded != code else []
    if other:
        summary = f"{len(other)} of {count} results were made by other code, such as {other[0]}"
        return CheckFinding("versions", "warn", summary, "`capibara run` makes them again")
    return CheckFinding("versions", "pass", f"{count} results were made by the code of this installation")


def check_freshness(
    deployment: Deployment, instance: "dg.DagsterInstance", graph: "Graph", now: float | None = None
) -> CheckFinding:
    """Check that no result is older than `automation.freshness` of the deployment lets it grow."""
    from capibara_assets.automation.freshness import ages, stale

    automation = deployment.automation
    if not (old := [*stale(instance, automation, graph.partitioned, now)]):
        watched = ", ".join(ages(automation)) or "nothing: automation.freshness is null"
        return CheckFinding("freshness", "pass", f"no result is too old, of what is watched: {watched}")
    oldest, failed = max(old, key=lambda one: one.days), any(one.failed for one in old)
    names = ", ".join(_named(one.asset, one.domain) for one in old)
    summary = f"{len(old)} results have grown old, up to {oldest.days:.0f} days: {names}"
    todo = f"{_again((oldest.asset, oldest.domain))}; automation.freshness says how old it may grow"
    return CheckFinding("freshness", "fail" if failed else "warn", summary, todo)


def check_runs(instance: "dg.DagsterInstance", now: float | None = None) -> list[CheckFinding]:
    """Check for runs that do not end, and for queued ones that no daemon takes."""
    import dagster as dg

    status, now = dg.DagsterRunStatus, time.time() if now is None else now
    going = instance.get_run_records(dg.RunsFilter(statuses=[status.STARTING, status.STARTED, status.CANCELING]))
    stuck = [one for one in going if now - one.create_timestamp.timestamp() > STUCK_S]
    queued = instance.get_run_records(dg.RunsFilter(statuses=[status.QUEUED]))
    findings = []
    if stuck:
        hours = (now - min(one.create_timestamp.timestamp() for one in stuck)) / 3600
        todo = f"if its process is gone, end it in the UI (Runs), or: dagster run delete {stuck[0].dagster_run.run_id}"
        findings.append(CheckFinding("runs", "warn", f"{len(stuck)} runs have not ended for up to {hours:.0f} h", todo))
    if queued:
        beats = instance.get_daemon_heartbeats().values()
        if not any(now - beat.timestamp < 120 for beat in beats):
            todo = "start `capibara ui`, whose daemon takes them"
            findings.append(CheckFinding("runs", "warn", f"{len(queued)} runs are queued, and no daemon runs", todo))
    return findings or [CheckFinding("runs", "pass", f"{len(going)} going on, {len(queued)} queued")]


def _named(name: str, partition: str | None) -> str:
    return f"{name}[{partition or '_'}]"


def _again(result: Result) -> str:
    """How a result is made again, whether or not the graph takes it for current."""
    name, partition = result
    where = f" --domains {partition}" if partition else ""
    return f"`capibara run --force --select {name}{where}` makes it again"
