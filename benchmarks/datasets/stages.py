"""The stages from logs to routes without Dagster: what each asset's body does, into a store of its own, timed.

Every stage reads what the store published last, and does nothing where its inputs are those of its last result, as
automation does. The domains of a partitioned asset go side by side, as a deployment's two runs at a time do; all else
goes one after the other. The processes live as long as one look at the experience: what they remember ends with it.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

from capibara_assets.datasets.duplicates.clusters import Cluster
from capibara_assets.datasets.duplicates.decontamination import Contaminated
from capibara_assets.datasets.examples import build_dataset
from capibara_assets.datasets.groups import assign_groups, grouped_tables
from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets.datasets.making import make_dataset
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.routing import balance, build_routing
from capibara_assets.datasets.schema import Example, Group, LeftOut, Route
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.executions.ingest.ingest import ingest, ledger_name
from capibara_assets.executions.patterns.extract import extract_knowledge
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets.executions.selection import tables_of
from capibara_assets.playbooks.consolidate import consolidate
from capibara_assets.playbooks.graduation import AgentFilter, graduate
from capibara_assets.playbooks.read import Playbooks, read_playbooks
from capibara_assets.playbooks.schema import Agent, AgentRun, Bullet, Consolidated, PlaybookFile, QuarantinedBullet
from capibara_assets.processes.pools import process_pool
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.kept import keeping
from capibara_assets.storage.records import Record
from capibara_assets.storage.store import ArtifactStore, Table

ASSETS = (
    "ace_playbooks",
    "consolidated_playbook",
    "e2b_logs",
    "e2b_executions",
    "e2b_patterns",
    "example_groups",
    "moe_dataset",
    "routing_dataset",
)


@dataclass(frozen=True)
class Place:
    """Where a stage reads and writes, and how it works.

    Attributes:
        experience: folder of logs and playbooks.
        store: root of the artifact store.
        readers: processes that read logs; None: as the library chooses.
        reexecute: whether answers are executed again.
    """

    experience: Path
    store: Path
    readers: int | None = None
    reexecute: bool = False

    def open(self) -> ArtifactStore:
        return ArtifactStore(str(self.store))


@dataclass(frozen=True)
class Spent:
    """What stages took: seconds of wall clock, and of the processors with all children."""

    seconds: float
    cpu_seconds: float
    made: int = 0  # results; the others stood


@dataclass(frozen=True)
class Look:
    """One look at the experience, from logs to routes: in all (with the start of the processes), and by asset."""

    seconds: float
    cpu_seconds: float
    stages: dict[str, Spent]


def materialize_all(place: Place, *, processes: int = 2, stages: Sequence[str] = ASSETS) -> Look:
    """Every stage in turn, upstream first; the domains of one stage side by side on `processes`."""
    begun, cpu = time.perf_counter(), _cpu(RUSAGE_SELF, RUSAGE_CHILDREN)
    spent: dict[str, Spent] = {}
    with process_pool(processes) as pool:
        for stage in stages:
            started = time.perf_counter()
            done = list(pool.map(_timed, *zip(*_tasks(stage, place), strict=True)))
            spent[stage] = Spent(
                time.perf_counter() - started, sum(d.cpu_seconds for d in done), sum(d.made for d in done)
            )
    return Look(time.perf_counter() - begun, _cpu(RUSAGE_SELF, RUSAGE_CHILDREN) - cpu, spent)


def _tasks(stage: str, place: Place) -> list[tuple[str, Place, Domain | None]]:
    """One task of an asset that is not partitioned, else one a domain, the largest domain first."""
    if stage in _WHOLE:
        return [(stage, place, None)]
    store = place.open()
    rows = defaultdict[Domain, int](int)
    for domain in DOMAINS:
        if (artifact := store.latest("e2b_executions", domain)) is not None:
            rows[domain] = artifact.manifest.files["executions.parquet"].bytes
    return [(stage, place, domain) for domain in sorted(DOMAINS, key=lambda domain: -rows[domain])]


def _timed(stage: str, place: Place, domain: Domain | None) -> Spent:
    begun, cpu = time.perf_counter(), _cpu(RUSAGE_SELF, RUSAGE_CHILDREN)
    made = _WHOLE[stage](place) if domain is None else _BY_DOMAIN[stage](place, domain)
    return Spent(time.perf_counter() - begun, _cpu(RUSAGE_SELF, RUSAGE_CHILDREN) - cpu, int(made))


def _cpu(*whose: int) -> float:
    used = [getrusage(who) for who in whose]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _needed(store: ArtifactStore, name: str, domain: Domain | None = None) -> Artifact:
    found = store.latest(name, domain)
    if found is None:
        raise LookupError(f"{name} was not made yet: the stages are in the order of ASSETS")
    return found


def _stands(store: ArtifactStore, name: str, domain: Domain | None, inputs: dict[str, Any]) -> bool:
    last = store.latest(name, domain)
    return last is not None and last.manifest.inputs == inputs


def _digests(artifacts: Iterable[Artifact]) -> dict[str, Any]:
    return {"upstream": {f"{a.name}|{a.partition or '_'}": a.digest for a in artifacts}}


# --- the stages: each is its asset's body; True where something was made ---------------------------------------------


def _playbooks(place: Place) -> bool:
    read = read_playbooks(place.experience, redact=redact_text)
    tables = {
        "bullets": Table(Bullet, read.bullets),
        "runs": Table(AgentRun, read.runs),
        "quarantine": Table(QuarantinedBullet, read.quarantine),
        "files": Table(PlaybookFile, read.files),
    }
    place.open().publish("ace_playbooks", None, tables=tables, volatile=("files.parquet",))
    return True


def _consolidated(place: Place, domain: Domain) -> bool:
    store, recipe = place.open(), shipped_recipe("experience", ExperienceRecipe)
    playbooks = _needed(store, "ace_playbooks")
    inputs = _digests([playbooks])
    if _stands(store, "consolidated_playbook", domain, inputs):
        return False
    read = Playbooks(*(playbooks.frame(table) for table in ("bullets", "quarantine", "files", "runs")))
    agents = graduate(
        read, AgentFilter(**recipe.agent_filter()), as_of=recipe.as_of, half_life_days=recipe.evidence_half_life_days
    )
    made = consolidate(
        read.bullets,
        agents,
        domain,
        top_k=recipe.top_k,
        budget_tokens=recipe.playbook_budget_tokens,
        coverage=recipe.playbook_coverage,
    )
    tables = {"bullets": Table(Consolidated, made.bullets), "agents": Table(Agent, agents)}
    store.publish("consolidated_playbook", domain, tables=tables, inputs=inputs, volatile=("agents.parquet",))
    return True


def _logs(place: Place) -> bool:
    store = place.open()
    ledger = store.work_dir("e2b_logs", None, ledger_name(place.experience))
    with ingest(place.experience, now=datetime.now(UTC), ledger=ledger, processes=place.readers) as read:
        models: dict[str, type[Record]] = {"executions": Execution, "quarantine": Quarantined, "files": LogFile}
        tables = {name: Table(model, read.path(name)) for name, model in models.items()}
        store.publish("e2b_logs", None, tables=tables, volatile=("files.parquet",))
        read.newest()  # the asset shows them
        return read.lines_read > 0


def _executions(place: Place, domain: Domain) -> bool:
    store = place.open()
    logs = _needed(store, "e2b_logs")
    inputs = _digests([logs])
    if _stands(store, "e2b_executions", domain, inputs):
        return False
    tables = {name: Table(Execution, frame) for name, frame in tables_of(logs.frame("executions"), domain).items()}
    store.publish("e2b_executions", domain, tables=tables, inputs=inputs)
    return True


def _patterns(place: Place, domain: Domain) -> bool:
    store, recipe = place.open(), shipped_recipe("experience", ExperienceRecipe)
    source = _needed(store, "e2b_executions", domain)
    inputs = _digests([source])
    if _stands(store, "e2b_patterns", domain, inputs):
        return False
    texts = store.work_dir("e2b_patterns", domain, "texts")
    executions, around, commands = (source.frame(name) for name in ("executions", "around", "commands"))
    made = extract_knowledge(executions, around, commands, domain, recipe, texts)
    tables = {name: Table(*table) for name, table in made.tables().items()}
    store.publish("e2b_patterns", domain, tables=tables, inputs=inputs)
    return True


def _groups(place: Place) -> bool:
    store, recipe = place.open(), shipped_recipe("dataset", DatasetRecipe)
    patterns = [_needed(store, "e2b_patterns", domain) for domain in DOMAINS]
    inputs = _digests([*patterns, *(_needed(store, "consolidated_playbook", domain) for domain in DOMAINS)])
    if _stands(store, "example_groups", None, inputs):
        return False
    executions, repairs = grouped_tables(patterns)
    previous = store.latest("example_groups", None)
    former = previous.frame("groups") if previous else None
    cache = store.work_dir("example_groups", None, "readings")
    groups = assign_groups(executions, repairs, former, recipe, cache=cache)
    store.publish("example_groups", None, tables={"groups": Table(Group, groups)}, inputs=inputs)
    return True


def _dataset(place: Place, domain: Domain) -> bool:
    store, recipe = place.open(), shipped_recipe("dataset", DatasetRecipe)
    patterns, playbook = _needed(store, "e2b_patterns", domain), _needed(store, "consolidated_playbook", domain)
    groups = _needed(store, "example_groups")
    inputs = _digests([patterns, playbook, groups]) | {"reexecute": place.reexecute}
    if _stands(store, "moe_dataset", domain, inputs):
        return False
    own = Evidence.of(
        patterns, playbook, [_needed(store, "e2b_patterns", other) for other in DOMAINS if other != domain]
    )
    table = groups.frame("groups")
    if place.reexecute:
        made = make_dataset(domain, own, table, recipe, partial(store.work_dir, "moe_dataset"))
    else:
        with keeping(store.work_dir("moe_dataset", domain, "texts")):
            made = build_dataset(domain, own, table, recipe)
    tables = {
        "examples": Table(Example, made.examples),
        "left_out": Table(LeftOut, made.left_out),
        "clusters": Table(Cluster, made.clusters),
        "contaminated": Table(Contaminated, made.contaminated),
    }
    documents = {"statistics": made.statistics, "reexecution": made.reexecution}
    volatile = ("reexecution.json",)
    store.publish("moe_dataset", domain, tables=tables, documents=documents, inputs=inputs, volatile=volatile)
    return True


def _routes(place: Place) -> bool:
    store, recipe = place.open(), shipped_recipe("dataset", DatasetRecipe)
    sets = {domain: _needed(store, "moe_dataset", domain) for domain in DOMAINS}
    inputs = _digests(sets.values())
    if _stands(store, "routing_dataset", None, inputs):
        return False
    routes = build_routing({domain: artifact.frame("examples") for domain, artifact in sets.items()}, recipe)
    tables = {"routes": Table(Route, routes)}
    store.publish("routing_dataset", None, tables=tables, documents={"statistics": balance(routes)}, inputs=inputs)
    return True


_WHOLE = {"ace_playbooks": _playbooks, "e2b_logs": _logs, "example_groups": _groups, "routing_dataset": _routes}
_BY_DOMAIN = {
    "consolidated_playbook": _consolidated,
    "e2b_executions": _executions,
    "e2b_patterns": _patterns,
    "moe_dataset": _dataset,
}
