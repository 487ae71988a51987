"""`capibara lineage`: trace records to the results made from them, and results back to records."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.dataset.openlineage import openlineage
from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.exits import FOUND, UNDECIDED
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.terminal.tables import say
from capibara_assets.deployment.environment import Deployment
from capibara_assets.executions.formats.agents.places import in_file
from capibara_assets.storage.manifest import title_of

if TYPE_CHECKING:
    from capibara_assets.lineage.records import Results

_AS_HTML = click.option(
    "--html", "page", type=click.Path(dir_okay=False, path_type=Path), help="Write it as one HTML page to this file."
)
_SHOWN = 20
_LACKING = (
    "cannot be read here, so what was in it is not shown; what is missing can be put back from a backup into the "
    "store's folder artifacts, or be made anew (`capibara run`)"
)


@with_example("capibara lineage adapter sql/consensus")
@click.group()
def lineage() -> None:
    """Trace examples, adapters and records: what they were made from, and what was made from them.

    Ids may be shortened.
    """


lineage.add_command(openlineage)


@with_example("capibara lineage example 5f3c9a12")
@lineage.command("example")
@click.argument("example_id")
@AS_JSON
@shows_progress("tracing")
def example(example_id: str, as_json: bool) -> None:
    """Show what EXAMPLE_ID was made from, and which adapters were trained on it."""
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.lineage.records import example_trail

    with open_results(Deployment.from_environment()) as results:
        trail = asdict(example_trail(results, example_id)) | _unread(results)
    if as_json:
        _as_json(trail)
        return
    say(f"{trail['example_id']}  {trail['kind']} in {trail['domain']}, {trail['split']}, {trail['verified']}")
    _pairs(trail, ("group_id", "cluster_id", "dataset", "licence", "source"))
    _pairs({"tenants": ", ".join(trail["tenants"]) or None}, ("tenants",))
    _list("executions", [_place(one) for one in trail["executions"]])
    _list("bullets", [f"{one['bullet_id']}  {one['file']}:{one['line']}" for one in trail["bullets"]])
    _models(trail)
    _end(trail)


@with_example("capibara lineage execution 5f3c9a12 --html execution.html")
@lineage.command("execution")
@click.argument("execution_id")
@_AS_HTML
@AS_JSON
@shows_progress("tracing")
def execution(execution_id: str, page: Path | None, as_json: bool) -> None:
    """Show every table, dataset, example and adapter that EXECUTION_ID went into."""
    from capibara_assets.cli.dataset.lineage_page import execution_page
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.lineage.records import execution_trail

    with open_results(Deployment.from_environment()) as results:
        traced = execution_trail(results, execution_id)
        if page is not None:
            _write(page, execution_page(results, traced).html())
        trail = asdict(traced) | _unread(results)
    if as_json:
        _as_json(trail)
        return
    say(_place(trail["place"]) if trail["place"] else trail["execution_id"])
    _pairs(trail, ("group_id", "split"))
    _pairs({"domains": ", ".join(trail["domains"]) or "none"}, ("domains",))
    _list("tables", [_result(one) for one in trail["tables"]])
    _list("datasets", [f"moe_dataset[{domain}] {digest}" for domain, digest in trail["datasets"].items()])
    _list(
        "examples",
        [
            f"{one['example_id']}  {one['domain']} {one['kind']}, {one['split']}: {one['role']}"
            for one in trail["examples"]
        ],
    )
    _list("left out", [f"{domain}: {reason}" for domain, reason in trail["left_out"].items()])
    _list("evaluation items", trail["evaluated"])
    _models(trail)
    _end(trail)


@with_example("capibara lineage adapter sql/consensus --html adapter.html")
@lineage.command("adapter")
@click.argument("adapter")
@click.option("--absent", multiple=True, metavar="EXECUTION_ID", help="Prove that ADAPTER was not made from it.")
@click.option("--forgotten", is_flag=True, help="Prove that ADAPTER was not made from any forgotten record.")
@_AS_HTML
@AS_JSON
@shows_progress("tracing")
def adapter(adapter: str, absent: tuple[str, ...], forgotten: bool, page: Path | None, as_json: bool) -> None:
    """Show what ADAPTER was made from.

    ADAPTER is a domain, domain/voter, domain/consensus, merged_checkpoint, a checkpoint, or a digest.
    """
    from capibara_assets.cli.dataset.lineage_page import adapter_page
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.executions.ingest.forgotten import read_forgotten
    from capibara_assets.lineage.adapters import absence, traced_adapter

    with open_results(Deployment.from_environment()) as results:
        traced = traced_adapter(results, adapter)
        trail = asdict(traced.trail)
        if page is not None:
            _write(page, adapter_page(results, traced).html())
        if absent or forgotten:
            proof = asdict(absence(results, adapter, absent, read_forgotten(results.store)))
            trail = {
                "adapter": trail["name"],
                "digest": trail["digest"],
                "certificates": trail["certificates"],
                **proof,
            }
    if as_json:
        click.echo(json.dumps(trail))
    elif absent or forgotten:
        _proof(trail)
    else:
        _adapter(trail)
    if (absent or forgotten) and not trail["absent"]:
        raise SystemExit(FOUND)
    if trail.get("unread"):
        raise SystemExit(UNDECIDED)


@with_example("capibara lineage bullet ada/playbook.md/sql-00042")
@lineage.command("bullet")
@click.argument("bullet_id")
@AS_JSON
@shows_progress("tracing")
def bullet(bullet_id: str, as_json: bool) -> None:
    """Show the playbook bullet BULLET_ID: its file, and the playbooks and examples that contain it."""
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.lineage.records import bullet_trail

    with open_results(Deployment.from_environment()) as results:
        trail = asdict(bullet_trail(results, bullet_id)) | _unread(results)
    if as_json:
        _as_json(trail)
        return
    place = trail["bullet"]
    say(f"{place['bullet_id']}  {place['file']}:{place['line']}", *place["content"].split("\n"))
    _pairs(trail, ("agent_id",))
    _list("consolidated playbooks", trail["consolidated"])
    _list(
        "examples", [f"{one['example_id']}  {one['domain']} {one['kind']}, {one['split']}" for one in trail["examples"]]
    )
    _end(trail)


@with_example("capibara lineage tenant acme")
@lineage.command("tenant")
@click.argument("name")
@AS_JSON
@shows_progress("tracing")
def tenant(name: str, as_json: bool) -> None:
    """Count the rows of tenant NAME, and show which adapters were trained on them."""
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.lineage.records import tenant_trail

    with open_results(Deployment.from_environment()) as results:
        trail = asdict(tenant_trail(results, name)) | _unread(results)
    if as_json:
        _as_json(trail)
        return
    say(f"{trail['tenant']}: {trail['executions']} executions")
    _list("executions by domain", [f"{domain}: {number}" for domain, number in trail["by_domain"].items()])
    _list("examples by domain", [f"{domain}: {number}" for domain, number in trail["examples"].items()])
    _list("adapters: its rows they trained on", [f"{name}: {number}" for name, number in trail["seen_by"].items()])
    _end(trail)


@with_example("capibara lineage certificate sql")
@lineage.command("certificate")
@click.argument("domain")
@AS_JSON
@shows_progress("tracing")
def certificate(domain: str, as_json: bool) -> None:
    """Verify the certificate of DOMAIN's consensus, or of a former one by its digest."""
    from capibara_assets.cli.checkpoint.consensus import show
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.lineage.adapters import verify_published
    from capibara_assets.lineage.columns import one_of

    with open_results(Deployment.from_environment()) as results:
        artifact = results.get("consensus_checkpoint", domain)
        if artifact is None:
            every = {one.digest: one for one in results.store.list("consensus_checkpoint")}
            artifact = every[one_of("certificate", domain, every, "name a domain that has a consensus_checkpoint")]
        verification = verify_published(results.store, artifact)
    about = {"digest": artifact.digest, "domain": str(artifact.partition)}
    show(f"consensus_checkpoint[{artifact.partition}] {artifact.digest}", about, verification, as_json)


def _write(file: Path, html: str) -> None:
    """Write a page, whole or not at all, and say where on stderr: stdout is for the trail."""
    from capibara_assets.storage.jsonfiles import write_bytes_atomic

    write_bytes_atomic(file, html.encode())
    click.echo(f"page: {file}", err=True)


def _unread(results: "Results") -> dict[str, list[str]]:
    """What the results lead to and cannot be read, so that a trail lacks it."""
    from capibara_assets.lineage.lost import lost

    return {"unread": [str(one) for one in lost(results)]}


def _as_json(trail: dict[str, Any]) -> None:
    click.echo(json.dumps(trail))
    if trail["unread"]:
        raise SystemExit(UNDECIDED)


def _end(trail: dict[str, Any]) -> None:
    """Say what the trail lacks; without it nothing that is not named above is proven."""
    if trail["unread"]:
        _list(_LACKING, trail["unread"])
        raise SystemExit(UNDECIDED)


def _adapter(trail: dict[str, Any]) -> None:
    state = "counts now" if trail["current"] else "a former one"
    say(f"{trail['name']} {trail['digest']} ({trail['what']}, {state})")
    counted = (f"{trail['examples']} train and {trail['validation']} validation examples of "
               f"{len(trail['executions'])} executions and {len(trail['bullets'])} bullets")  # fmt: skip
    if any(one["state"] == "present" for one in trail["datasets"]):
        say(f"at least {counted}" if trail["unread"] else counted)
    else:
        say("its examples are not known: no dataset that it was made from can be read here")
    _list("voters", trail["voters"])
    _list("datasets", [f"moe_dataset[{one['domain']}] {one['digest']} ({one['state']})" for one in trail["datasets"]])
    _list("voters of rounds", [_round_voter(one) for one in trail["round_voters"]])
    judged = [f"{digest} {name} {value}" for digest, of in trail["rounds"].items() for name, value in of.items()]
    _list("rounds, judged on", judged)
    _list("licences", [f"{name}: {number} examples" for name, number in trail["licences"].items()])
    _list("sources", [f"{source} ({licence}): {number} examples" for source, licence, number in trail["sources"]])
    _list("tenants", [f"{name}: {number} examples" for name, number in trail["tenants"].items()])
    _list("base model", trail["base_model"])
    _list("seeds", [str(seed) for seed in trail["seeds"]])
    _list("settings", [f"{name} {digest}" for name, digest in trail["settings"].items()])
    _list("certificates", [f"{domain} {digest}" for domain, digest in trail["certificates"].items()])
    _list(_LACKING, trail["unread"])


def _round_voter(one: dict[str, Any]) -> str:
    stated = ", ".join(f"moe_dataset[{domain}] {digest}" for domain, digest in one["datasets"])
    data = f"trained, it says, on {stated}" if stated else "its datasets are not known"
    return f"{one['domain']}/{one['name']} {one['digest']}, key {one['public_key']}: {data}"


def _proof(proof: dict[str, Any]) -> None:
    verdict = "absent" if proof["absent"] else ("FOUND" if proof["found"] else "cannot be told")
    say(f"{verdict}: {proof['executions_checked']} executions of {len(proof['datasets'])} datasets checked")
    _list("datasets, as published", proof["datasets"])
    _list("certificates", [f"{domain} {digest}" for domain, digest in proof["certificates"].items()])
    _list("found", proof["found"])
    _list("cannot be read here", proof["unknown"])
    _list("not the id of any execution that this store has or had: check the spelling", proof["never_seen"])


def _place(one: dict[str, Any]) -> str:
    owner = "".join(f", {name} {one[name]}" for name in ("tenant", "licence", "source") if one[name])
    role = f"  ({one['role']})" if one["role"] else ""
    where = in_file(one["execution_id"], one["file"], one["line"])
    return f"{one['execution_id']}  {where}  sandbox {one['sandbox_id']}{owner}{role}"


def _result(one: dict[str, Any]) -> str:
    return title_of(one["asset"], one["partition"], one["digest"]) + ("" if one["current"] else " (a former one)")


def _models(trail: dict[str, Any]) -> None:
    now = [one for one in trail["seen_by"] if one["current"]]
    former = Counter(one["artifact"] for one in trail["seen_by"] if not one["current"])
    _list("adapters that saw it", [f"{one['domain']}/{one['voter']} {one['digest']} ({one['part']})" for one in now])
    _list("former adapters that saw it", [f"trained_adapters {digest}: {n} voters" for digest, n in former.items()])
    _list("models made with them", [_result(one) for one in trail["models"]])


def _pairs(trail: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if trail.get(name):
            say(f"{name.replace('_', ' ')}: {trail[name]}")


def _list(title: str, items: list[str] | tuple[str, ...]) -> None:
    if not items:
        return
    say(f"{title}:")
    for item in items[:_SHOWN]:
        say(f"  {item}")
    if len(items) > _SHOWN:
        say(f"  … and {len(items) - _SHOWN} more (--json has all)")
