"""`capibara run`: materialize the asset graph, or a selection of it, in this process."""

import os
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import dagster as dg

from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.cli.graph.memory import watched_memory
from capibara_assets.cli.graph.run_record import FIGURES, keep_experience, keep_figures, keep_record, kept_figures
from capibara_assets.cli.terminal.documents import AS_JSON, echo_json, stdout_for_document
from capibara_assets.cli.terminal.exits import FOUND
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.notes import note
from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError, nearest
from capibara_assets.storage.mirror import is_remote

if TYPE_CHECKING:
    from capibara_assets.automation.outcome import Failures, RunOutcome
    from capibara_assets.automation.pipeline import GraphRun

FOLLOWS = ("is not materialized yet", "failed a blocking check")  # reasons of a step whose input failed before it
_STEPS = re.compile(r"(\+?)(\w+)(\+?)")
_NAMES = re.compile(r"\w+")  # in a selection: of assets, and words of its language
STRATEGIES = sorted(file.stem for file in (resources_root() / "recipes" / "strategies").glob("*.yaml"))
PROFILES = ("demo", "laptop", "full", *STRATEGIES)


def parse_domains(text: str) -> tuple[Domain, ...]:
    """Comma-separated domains, in the order of the partitions.

    Raises:
        InputError: a name that is no domain.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    strange = sorted(set(names) - set(DOMAINS))
    if strange or not names:
        near = "".join(nearest(name, DOMAINS) for name in strange[:1])
        raise InputError(f"unknown domain {', '.join(strange) or repr(text)}: choose from {', '.join(DOMAINS)}{near}")
    return tuple(domain for domain in DOMAINS if domain in names)


def select_assets(definitions: dg.Definitions, selection: str | None) -> list[str]:
    """Names of the assets that a comma-separated selection means: `moe_dataset`, `moe_dataset+`, `key:"moe_*"`, `*`.

    Raises:
        InputError: a term is no selection of Dagster's, or nothing is selected.
    """
    graph = definitions.resolve_asset_graph()
    every = sorted(key.to_user_string() for key in graph.materializable_asset_keys)
    names: set[str] = set()
    for term in ("*" if selection is None else selection).split(","):  # an empty one is a variable that was not set
        strange = [word for word in _NAMES.findall(term) if word not in every]
        known = f"assets are: {', '.join(every)}{next(filter(None, (nearest(word, every) for word in strange)), '')}"
        try:
            keys = dg.AssetSelection.from_string(_in_todays_language(term.strip())).resolve(graph)
        except dg.DagsterError as error:
            raise InputError(f"--select {term.strip()!r} is no selection of assets; {known}") from error
        if not keys:
            raise InputError(f"--select {term.strip()!r} selects nothing; {known}")
        names |= {key.to_user_string() for key in keys & graph.materializable_asset_keys}
    return sorted(names)


def _in_todays_language(term: str) -> str:
    """A term in which `+` is everything before or after an asset, as Dagster's UI reads it; by itself, one step."""
    found = _STEPS.fullmatch(term)
    return term if found is None or term == found[2] else f'{found[1]}key:"{found[2]}"{found[3]}'


SETTINGS = (
    click.option("--experience", help="Folder of logs and playbooks (e2b_logs/, playbooks/, or any layout)."),
    click.option(
        "--target", help="Hardware target for training, a name in resources/hardware; DOMAIN=NAME for single ones."
    ),
    click.option("--tpu-target", help="TPU slice that tpu_config plans for; DOMAIN=NAME for single domains."),
    click.option(
        "--base-model",
        help="Directory of a Transformers causal LM, a Hub id@revision, 20b or 120b (MODEL_20B_PATH, MODEL_120B_PATH).",
    ),
    click.option(
        "--profile",
        type=click.Choice(PROFILES),
        help="Recipes to use: short demo, laptop (an hour or two), full epochs, or a strategy.",
    ),
    click.option("--select", "selection", help="Only these assets, e.g. moe_dataset+ or e2b_logs,e2b_executions."),
    click.option(
        "--audit",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Verdict file of `capibara dataset audit`, instead of the recipe's exclusions; repeatable.",
    ),
    click.option("--seed", type=click.IntRange(min=0), help="Seed of training, instead of the recipe's."),
    click.option(
        "--fault",
        multiple=True,
        metavar="VOTER=FAULT",
        help="Fault injection test: corrupt a voter by sign_flip, nan or norm_100x.",
    ),
    click.option(
        "--parallel",
        type=click.IntRange(min=1),
        help="Domains at a time, each on its share of the cores.  [default: by cores and memory]",
    ),
)
"""Options of the commands that materialize the graph: with what, and which assets."""

Command = Callable[..., None]


def with_settings(command: Command) -> Command:
    """Decorator that adds the options of `SETTINGS`; `chosen_deployment` takes their values, except `selection`."""
    for option in reversed(SETTINGS):
        command = option(command)
    return command


def chosen_deployment(
    experience: str | None, audit: Sequence[Path], seed: int | None, fault: Sequence[str], **others: Any
) -> Deployment:
    """The deployment with the options applied; child processes inherit it as variables."""
    chosen = {
        "EXPERIENCE": _location(experience) if experience else None,
        "SEED": None if seed is None else str(seed),
        "FAULTS": ",".join(fault) or None,
        "AUDIT": ",".join(_location(str(file)) for file in audit) or None,
        **{name.upper(): None if value is None else str(value) for name, value in others.items()},
    }
    os.environ.update({f"CAPIBARA_{name}": value for name, value in chosen.items() if value is not None})
    return Deployment.from_environment()


@with_example("capibara run --experience logs --domains sql,python")
@click.command()
@click.option("--domains", "domain_list", default=",".join(DOMAINS), show_default=True, help="Comma-separated domains.")
@with_settings
@click.option("--force", is_flag=True, help="Also materialize current results.")
@AS_JSON
def run(domain_list: str, selection: str | None, force: bool, as_json: bool, **settings: Any) -> None:
    """Materialize the asset graph, except what is current; an interrupted run resumes."""
    deployment = chosen_deployment(**settings)
    run_deployment(deployment, parse_domains(domain_list), selection, force, as_json=as_json)


def _location(experience: str) -> str:
    """A remote location unchanged, a local one as an absolute path."""
    return experience if is_remote(experience) else str(Path(experience).expanduser().resolve())


def run_deployment(
    deployment: Deployment,
    domains: tuple[Domain, ...],
    selection: str | None,
    force: bool,
    since: float | None = None,
    begun: Callable[[], None] = lambda: None,
    as_json: bool = False,
) -> None:
    """Check the settings, materialize, write the run's record and the report, show it; exits with 1 on failures.

    Args:
        since: make results of these domains again that were made before this time (Unix).
        begun: called once all is checked, before the first step.
        as_json: print the report's document alone on standard output.

    Raises:
        InputError: experience, base model, recipe or hardware target missing or damaged, or the selected assets lack
            inputs; before anything ran.
    """
    from capibara_assets.automation.chosen import add_domains
    from capibara_assets.automation.notifications.sending import begin
    from capibara_assets.automation.pipeline import run_graph
    from capibara_assets.cli.graph.lane import lane_settings
    from capibara_assets.cli.graph.opened import graph_run, lanes, require_environment
    from capibara_assets.cli.graph.report import build_report, figures_of, print_table
    from capibara_assets.cli.graph.report_page import write_html
    from capibara_assets.definitions import deployment_resources

    require_environment()
    resources = deployment_resources(deployment)
    folder = resources["experience"].path
    if deployment.store.startswith("gs://"):
        resources["google_cloud"].check_bucket(deployment.store)
    started, clock = datetime.now(UTC), time.monotonic()
    with stdout_for_document(as_json), open_instance(deployment) as instance, watched_memory() as peak:
        run = graph_run(deployment, instance, force, since)
        assets, parallel = select_assets(run.definitions, selection), lanes(deployment, domains)
        _require_inputs(run, assets, domains, "*" if selection is None else selection)
        note(
            f"experience {folder}, base model {deployment.base_model}, profile {deployment.profile}, "
            f"{parallel} domain{'s' * (parallel > 1)} at a time"
        )
        begun()
        keep_experience(deployment, _location(deployment.experience))
        add_domains(instance, domains)
        begin(instance, deployment)
        settings = lane_settings(run, deployment, parallel, assets, domains)
        outcome = run_graph(run, assets, domains, note, settings)
        record = {
            "started": started.isoformat(),
            "seconds": round(time.monotonic() - clock, 2),
            "peak_memory_gib": round(peak.bytes / 2**30, 3),
            "parallel": parallel,
            "profile": deployment.profile,
            "experience": str(folder),
            "domains": {domain.value: round(outcome.domain_seconds(domain), 2) for domain in domains},
            "steps": steps_of(run, outcome, started),
            "current": len(outcome.current),
            "failures": {f"{name}[{where}]": message for (name, where), message in outcome.failures.items()},
        }
        keep_record(deployment, record)
        before = kept_figures(deployment, FIGURES)
        report = build_report(instance, resources["store"].open(), record, before)
        keep_figures(deployment, figures_of(report))
        page = write_html(report, deployment.home / "report.html")
        told = tell(instance, deployment, run.definitions)
    if as_json:
        echo_json(report)
    with stdout_for_document(as_json):
        if not as_json:
            print_table(report)
        if outcome.current:
            note(f"{len(outcome.current)} asset partitions were current and skipped (--force runs them again)")
        click.echo(f"report: {page}")
        for line in told:
            click.echo(line)
    if outcome.failures:
        for line in failure_lines(outcome.failures):
            click.echo(line, err=True)
        raise SystemExit(FOUND)


def _require_inputs(run: "GraphRun", assets: Sequence[str], domains: Sequence[Domain], selection: str) -> None:
    """Refuse selected assets that cannot be made for any of the domains. Raises InputError; names the next step."""
    if not (lacking := run.lacking(assets, domains)):
        return
    name, inputs = next(iter(lacking.items()))
    terms = [term for term in (one.strip() for one in selection.split(",")) if term not in lacking]
    wider = ",".join([*terms, *(f"+{one}" for one in lacking)])
    raise InputError(
        f"--select {selection}: {name} is made from {', '.join(inputs)}, of which there is no result for"
        f" {', '.join(domains)}: select what it is made from, too (--select {wider})"
    )


def tell(instance: dg.DagsterInstance, deployment: Deployment, definitions: dg.Definitions) -> list[str]:
    """Send new notices to the deployment's webhooks; returns lines to print."""
    from capibara_assets.automation.notifications.sending import send

    if not deployment.notifications.webhooks:
        return []
    return send(instance, deployment, sorted(definitions.resolve_asset_graph().asset_check_keys))


def failure_lines(failures: "Failures") -> list[str]:
    """Failures with their own cause and reason, after a line counting those that only followed from them."""
    own = {
        step: message for step, message in failures.items() if not any(words in message for words in FOLLOWS)
    } or failures
    followed = len(failures) - len(own)
    head = f"{len(own)} failed{f', and {followed} for want of those' if followed else ''}"
    lines = [f"  {name}[{where}]: {message}" for (name, where), message in own.items()]
    return [f"{head}; what passed is kept, and the same command tries the rest:", *lines]


def steps_of(run: "GraphRun", outcome: "RunOutcome", started: datetime) -> list[dict[str, Any]]:
    """When each step of a run began, in seconds after its start, how long it took, and the group of its asset."""
    graph = run.definitions.resolve_asset_graph()
    return [
        {
            "asset": name,
            "partition": where,
            "group": graph.get(dg.AssetKey(name)).group_name,
            "start": round(begun - started.timestamp(), 2),
            "seconds": round(ended - begun, 2),
        }
        for (name, where), (begun, ended) in sorted(outcome.spans.items(), key=lambda one: one[1])
    ]
