"""The latest run as JSON and as a table (`capibara report`); `report_page.py` makes the HTML page of it."""

import functools
import json
import re
from pathlib import Path
from typing import Any

import click
import dagster as dg
import pandas as pd
import polars as pl

from capibara_assets.assets.inputs import Inputs, latest_digests
from capibara_assets.cli.graph.instance import dagster_home, open_instance, open_store
from capibara_assets.cli.graph.not_read import NotRead
from capibara_assets.cli.graph.report_examples import answered, chosen, counted
from capibara_assets.cli.graph.run_record import kept_figures, latest_record
from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.terminal.tables import TerminalTable, show
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import IntegrityError
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.store import ArtifactStore

GRADED = ("base", "consensus", "merged")
"""Contenders whose share of solved items a run shows."""
SANDBOX = re.compile(r'"sandbox_id"\s*:\s*"([^"]+)"')


def build_report(
    instance: dg.DagsterInstance, store: ArtifactStore, record: dict[str, Any], before: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The report of the latest run, read from the artifacts of Dagster's latest materializations.

    Args:
        before: `figures_of` the report of the run before.

    `quarantined` of a domain counts the quarantined lines whose sandbox has executions in it; a line too damaged to
    name its sandbox is in the total `quarantined` alone. Losses are nats per assistant token on the test split.
    """
    # most results are read several times, and each look-up is a query
    inputs = Inputs(instance, store, digests=functools.cache(functools.partial(latest_digests, instance)))
    logs = inputs.available("e2b_logs")
    quarantine = logs.frame("quarantine") if logs else None
    domains = {name: _domain(inputs, Domain(name), quarantine, seconds) for name, seconds in record["domains"].items()}
    tasks = {name: answered(inputs, Domain(name), inputs.available("evaluation", Domain(name))) for name in domains}
    for name, domain in domains.items():
        domain["answered"] = counted(tasks[name])
    promoted, not_read = inputs.available("promoted_model"), NotRead.of(inputs, Path(record["experience"]))
    return {
        **{key: value for key, value in record.items() if key != "domains"},
        "quarantined": 0 if quarantine is None else quarantine.height,
        "not_read": {
            "files": [*not_read.files, *not_read.beside],
            "playbook_entries": not_read.entries.height,
            "said": not_read.words(),
        },
        "read": logs.document("summary") if logs and logs.has("summary") else {},
        "domains": domains,
        "examples": chosen(tasks),
        "before": before,
        "loss_matrix": loss_matrix(inputs),
        "promotion": promoted.document("promotion")["domains"] if promoted else {},
        "checkpoints": checkpoints_made(inputs, [Domain(name) for name in record["domains"]]),
    }


def checkpoints_made(inputs: Inputs, domains: list[Domain]) -> dict[str, str]:
    """Model name, as `capibara checkpoint` and `capibara lineage adapter` use it -> id of its current checkpoint."""
    ids: dict[str, str] = {}
    for domain in domains:
        for asset in ("trained_adapters", "consensus_checkpoint"):
            artifact = inputs.available(asset, domain)
            for folder, identity in artifact.checkpoints.items() if artifact else ():
                name = "consensus" if asset == "consensus_checkpoint" else folder.removeprefix("voters/")
                ids[f"{domain}/{name}"] = identity
    for asset in ("merged_checkpoint", "moe_checkpoint"):
        artifact = inputs.available(asset)
        for identity in artifact.checkpoints.values() if artifact else ():
            ids[asset] = identity
    return ids


def _domain(inputs: Inputs, domain: Domain, quarantine: pl.DataFrame | None, seconds: float) -> dict[str, Any]:
    executions, dataset = inputs.available("e2b_executions", domain), inputs.available("moe_dataset", domain)
    evaluation, consensus = inputs.available("evaluation", domain), inputs.available("consensus_checkpoint", domain)
    means = evaluation.document("means") if evaluation else {}
    voters = consensus.document("certificate")["voters"] if consensus else []
    sandboxes = set(executions.frame("executions")["sandbox_id"].to_list()) if executions else set()
    return {
        "executions": executions.frame("executions").height if executions else 0,
        "left_out": _statistics(dataset).get("left_out", {}),
        "splits": _statistics(dataset).get("by_split", {}),
        "quarantined": _quarantined_in(quarantine, sandboxes),
        "examples": dataset.frame("examples").height if dataset else 0,
        "base_loss": means.get("base"),
        "playbook_loss": means.get("playbook"),
        "consensus_loss": means.get("consensus"),
        "merged_loss": means.get("merged"),
        "pass_at_1": _passed(evaluation),
        "gain": _gain(evaluation),
        "voters": [{"name": v["name"], "accepted": v["accepted"], "reason": v["reason"]} for v in voters],
        "verdict": evaluation.document("decision")["verdict"] if evaluation else None,
        "reason": evaluation.document("decision")["reason"] if evaluation else "",
        "seconds": seconds,
    }


def _statistics(dataset: Artifact | None) -> dict[str, Any]:
    statistics: dict[str, Any] = dataset.document("statistics") if dataset and dataset.has("statistics") else {}
    return statistics


def _gain(evaluation: Artifact | None) -> dict[str, Any] | None:
    """The consensus against the base in the metric that decided: points of a score, or the share of the loss saved."""
    if evaluation is None:
        return None
    decided = evaluation.document("decision").get("metric")
    against = [
        one
        for one in evaluation.document("metrics")["comparisons"]
        if (one["candidate"], one["reference"]) == ("consensus", "base")
    ]
    one = next((one for one in against if one["metric"] == decided), next(iter(against), None))
    if one is None:
        return None
    ends = {end: one["difference"][end] for end in ("estimate", "low", "high")}
    return {"metric": one["metric"], **ends, "items": one["difference"]["n"]}


def figures_of(report: dict[str, Any]) -> dict[str, Any]:
    """The figures of a report that the next one is compared with."""
    names = ("verdict", "consensus_loss", "executions", "examples", "gain", "pass_at_1", "seconds")
    domains = {name: {key: domain[key] for key in names} for name, domain in report["domains"].items()}
    return {"started": report["started"], "seconds": report["seconds"], "domains": domains}


def _passed(evaluation: Artifact | None) -> dict[str, dict[str, float]]:
    """pass@1 of all graded items, and of those of seen and of unseen families (`pass@1/unseen`).

    Of each: the share that base, consensus and merged solved, the number of items, and the gain of the consensus over
    the base with its interval. Empty where none was graded.
    """
    if evaluation is None:
        return {}
    metrics = evaluation.document("metrics")
    figures, passed = metrics["figures"], dict[str, dict[str, float]]()
    for one in metrics["comparisons"]:
        metric, gain = one["metric"], one["difference"]
        if metric.startswith("pass@1") and (one["candidate"], one["reference"]) == ("consensus", "base"):
            shares = {name: figures[name][metric]["estimate"] for name in GRADED if metric in figures.get(name, {})}
            ends = {"gain": gain["estimate"], "low": gain["low"], "high": gain["high"]}
            passed[metric] = {**shares, **ends, "items": gain["n"], "groups": gain["groups"]}
    return passed


def _quarantined_in(quarantine: pl.DataFrame | None, sandboxes: set[str]) -> int:
    if quarantine is None:
        return 0
    named = (SANDBOX.search(text or "") for text in quarantine["text"].to_list())
    return sum(1 for match in named if match and match.group(1) in sandboxes)


def loss_matrix(inputs: Inputs) -> dict[str, dict[str, float]]:
    """Expert → test domain → loss: each domain's consensus adapter on every domain's test split."""
    losses: dict[str, dict[str, float]] = {}
    for domain, artifact in inputs.every("evaluation").items():
        for contender, loss in artifact.document("means").items():
            expert = domain.value if contender == "consensus" else contender.removeprefix("expert:")
            if expert in DOMAINS:
                losses.setdefault(expert, {})[domain.value] = loss
    return losses


def table_of(report: dict[str, Any]) -> pd.DataFrame:
    """One row per domain, as the terminal and the page show it."""
    rows = []
    for name, domain in report["domains"].items():
        accepted = sum(voter["accepted"] for voter in domain["voters"])
        rows.append(
            {
                "domain": name,
                "executions": domain["executions"],
                "quarantined": domain["quarantined"],
                "examples": domain["examples"],
                "base": domain["base_loss"],
                "playbook": domain["playbook_loss"],
                "consensus": domain["consensus_loss"],
                "merged": domain["merged_loss"],
                "pass@1": _shares(domain["pass_at_1"].get("pass@1", {})),
                "unseen": _shares(domain["pass_at_1"].get("pass@1/unseen", {})),
                "voters +/-": f"{accepted}/{len(domain['voters']) - accepted}",
                "verdict": domain["verdict"] or "–",
                "seconds": round(domain["seconds"]),
            }
        )
    # Floats throughout: a column that is missing everywhere would otherwise print as None
    return pd.DataFrame(rows).astype(dict.fromkeys(("base", "playbook", "consensus", "merged"), float))


def _shares(passed: dict[str, float]) -> str:
    """`0.10 → 0.25 of 64 (+0.04 to +0.26)`: shares of graded items that base and consensus solved, and the gain."""
    if not passed:
        return "–"
    shares = f"{passed['base']:.2f} → {passed['consensus']:.2f} of {passed['items']}"
    return f"{shares} ({passed['low']:+.2f} to {passed['high']:+.2f})"


def print_table(report: dict[str, Any]) -> None:
    """Print the table of domains, then the loss matrix."""
    click.echo("\ntest loss, nats per assistant token")
    show(_table(table_of(report)))
    if report["loss_matrix"]:
        click.echo("\nexpert \\ test domain")
        show(_table(_matrix(report).rename_axis("").reset_index()))
    click.echo(
        f"\n{report['seconds']:.0f} s, peak memory {report['peak_memory_gib']:.2f} GiB, "
        f"{report['quarantined']} lines quarantined in all"
    )
    if report["not_read"]["said"]:
        click.echo(f"{report['not_read']['said']}: capibara quarantine list")
    if report["checkpoints"]:
        click.echo(f"{len(report['checkpoints'])} adapters and models in the checkpoint store: capibara checkpoint ls")


def _table(frame: pd.DataFrame) -> TerminalTable:
    """A frame's columns but its index; numbers to the right, with three decimals."""
    numbers = [at for at, kind in enumerate(frame.dtypes) if kind.kind in "iuf"]
    rows = [tuple(map(_cell, row)) for row in frame.itertuples(index=False)]
    return TerminalTable([str(name) for name in frame.columns], rows, numbers)


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _matrix(report: dict[str, Any]) -> pd.DataFrame:
    names = [domain for domain in DOMAINS if domain in report["loss_matrix"]]
    return pd.DataFrame(report["loss_matrix"]).T.reindex(index=names, columns=names)


@with_example("capibara report --json")
@click.command()
@AS_JSON
@shows_progress("reading the results")
def report(as_json: bool) -> None:
    """Show the latest run: losses, voters, seconds, memory.

    Exit code 1: Dagster's history, which names the results, is gone.
    """
    deployment = Deployment.from_environment()
    record = latest_record(deployment)
    with open_instance(deployment) as instance:
        _require_history(instance, deployment, record)
        document = build_report(instance, open_store(deployment), record, kept_figures(deployment))
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        print_table(document)


def _require_history(instance: dg.DagsterInstance, deployment: Deployment, record: dict[str, Any]) -> None:
    """Raise IntegrityError: a run was recorded, and the history knows neither it nor any result."""
    if not instance.get_runs_count() and not instance.all_asset_keys():
        raise IntegrityError(
            f"Dagster's history in {dagster_home(deployment)} is empty, though a run was recorded on "
            f"{record['started']}: bring the history back, or make the results again with `capibara run`"
        )
