"""`capibara lineage`: from a record to everything it went into, and from an example or adapter back to the records."""

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

import click

from capibara_assets.deployment.environment import Deployment

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="All of it, as JSON.")
_SHOWN = 20


@click.group()
def lineage() -> None:
    """Where examples and adapters come from, and what became of a record. Ids may be shortened."""


@lineage.command("example")
@click.argument("example_id")
@_AS_JSON
def example(example_id: str, as_json: bool) -> None:
    """What EXAMPLE_ID was made of, and what was trained on it."""
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.lineage.records import example_trail

    with open_results(Deployment.from_environment()) as results:
        found = asdict(example_trail(results, example_id))
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"{found['example_id']}  {found['kind']} in {found['domain']}, {found['split']}, {found['verified']}")
    _pairs(found, ("group_id", "cluster_id", "dataset", "licence", "source"))
    _pairs({"tenants": ", ".join(found["tenants"]) or None}, ("tenants",))
    _list("executions", [_place(one) for one in found["executions"]])
    _list("bullets", [f"{one['bullet_id']}  {one['file']}:{one['line']}" for one in found["bullets"]])
    _models(found)


@lineage.command("execution")
@click.argument("execution_id")
@_AS_JSON
def execution(execution_id: str, as_json: bool) -> None:
    """Everything that EXECUTION_ID ended up in."""
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.lineage.records import execution_trail

    with open_results(Deployment.from_environment()) as results:
        found = asdict(execution_trail(results, execution_id))
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(_place(found["place"]) if found["place"] else found["execution_id"])
    _pairs(found, ("group_id", "split"))
    _pairs({"domains": ", ".join(found["domains"]) or "none"}, ("domains",))
    _list("tables", [_result(one) for one in found["tables"]])
    _list("datasets", [f"moe_dataset[{domain}] {digest}" for domain, digest in found["datasets"].items()])
    _list(
        "examples",
        [
            f"{one['example_id']}  {one['domain']} {one['kind']}, {one['split']}: {one['role']}"
            for one in found["examples"]
        ],
    )
    _list("left out", [f"{domain}: {reason}" for domain, reason in found["left_out"].items()])
    _list("evaluation items", found["evaluated"])
    _models(found)


@lineage.command("adapter")
@click.argument("adapter")
@click.option("--absent", multiple=True, metavar="EXECUTION_ID", help="Prove that it is in nothing ADAPTER is made of.")
@click.option("--forgotten", is_flag=True, help="Prove that nothing forgotten is in what ADAPTER is made of.")
@_AS_JSON
def adapter(adapter: str, absent: tuple[str, ...], forgotten: bool, as_json: bool) -> None:
    """What made ADAPTER: a domain, domain/voter, domain/consensus, merged_checkpoint, a checkpoint, or a digest."""
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.executions.ingest.forgotten import read_forgotten
    from capibara_assets.lineage.adapters import absence, adapter_trail

    with open_results(Deployment.from_environment()) as results:
        found = asdict(adapter_trail(results, adapter))
        if absent or forgotten:
            proof = asdict(absence(results, adapter, absent, read_forgotten(results.store)))
            found = {
                "adapter": found["name"],
                "digest": found["digest"],
                "certificates": found["certificates"],
                **proof,
            }
    if as_json:
        click.echo(json.dumps(found))
    elif absent or forgotten:
        _proof(found)
    else:
        _adapter(found)
    if (absent or forgotten) and not found["absent"]:
        raise SystemExit(1)


@lineage.command("bullet")
@click.argument("bullet_id")
@_AS_JSON
def bullet(bullet_id: str, as_json: bool) -> None:
    """Where BULLET_ID stands, and the playbooks and examples that hold it."""
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.lineage.records import bullet_trail

    with open_results(Deployment.from_environment()) as results:
        found = asdict(bullet_trail(results, bullet_id))
    if as_json:
        click.echo(json.dumps(found))
        return
    place = found["bullet"]
    click.echo(f"{place['bullet_id']}  {place['file']}:{place['line']}\n{place['content']}")
    _pairs(found, ("agent_id",))
    _list("consolidated playbooks", found["consolidated"])
    _list(
        "examples", [f"{one['example_id']}  {one['domain']} {one['kind']}, {one['split']}" for one in found["examples"]]
    )


@lineage.command("tenant")
@click.argument("name")
@_AS_JSON
def tenant(name: str, as_json: bool) -> None:
    """How many rows are tenant NAME's, and which adapters saw them."""
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.lineage.records import tenant_trail

    with open_results(Deployment.from_environment()) as results:
        found = asdict(tenant_trail(results, name))
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"{found['tenant']}: {found['executions']} executions")
    _list("executions by domain", [f"{domain}: {number}" for domain, number in found["by_domain"].items()])
    _list("examples by domain", [f"{domain}: {number}" for domain, number in found["examples"].items()])
    _list("adapters: its rows they trained on", [f"{name}: {number}" for name, number in found["seen_by"].items()])


@lineage.command("certificate")
@click.argument("domain")
@_AS_JSON
def certificate(domain: str, as_json: bool) -> None:
    """Check the certificate of DOMAIN's consensus, or of a former one by its digest: steps, problems, lost inputs."""
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.lineage.adapters import verify_published
    from capibara_assets.lineage.columns import one_of

    with open_results(Deployment.from_environment()) as results:
        artifact = results.get("consensus_checkpoint", domain)
        if artifact is None:
            every = {one.digest: one for one in results.store.list("consensus_checkpoint")}
            artifact = every[one_of("certificate", domain, every, "name a domain that has a consensus_checkpoint")]
        found: dict[str, Any] = {"digest": artifact.digest, "domain": artifact.partition}
        found |= asdict(verify_published(results.store, artifact))
    if as_json:
        click.echo(json.dumps(found))
    else:
        verdict = "does not hold" if found["problems"] else "holds"
        forgotten = "; inputs forgotten: " + ", ".join(found["forgotten"]) if found["forgotten"] else ""
        click.echo(f"consensus_checkpoint[{found['domain']}] {found['digest']}: the certificate {verdict}{forgotten}")
        _list("done again", found["recomputed"])
        _list("problems", found["problems"])
    if found["problems"]:
        raise SystemExit(1)


def _adapter(found: dict[str, Any]) -> None:
    state = "counts now" if found["current"] else "a former one"
    click.echo(f"{found['name']} {found['digest']} ({found['what']}, {state})")
    click.echo(f"{found['examples']} train and {found['validation']} validation examples of {len(found['executions'])} "
               f"executions and {len(found['bullets'])} bullets")  # fmt: skip
    _list("voters", found["voters"])
    _list("datasets", [f"moe_dataset[{one['domain']}] {one['digest']} ({one['state']})" for one in found["datasets"]])
    _list("licences", [f"{name}: {number} examples" for name, number in found["licences"].items()])
    _list("sources", [f"{source} ({licence}): {number} examples" for source, licence, number in found["sources"]])
    _list("tenants", [f"{name}: {number} examples" for name, number in found["tenants"].items()])
    _list("base model", found["base_model"])
    _list("seeds", [str(seed) for seed in found["seeds"]])
    _list("settings", [f"{name} {digest}" for name, digest in found["settings"].items()])
    _list("certificates", [f"{domain} {digest}" for domain, digest in found["certificates"].items()])


def _proof(found: dict[str, Any]) -> None:
    verdict = "absent" if found["absent"] else ("FOUND" if found["found"] else "cannot be told")
    click.echo(f"{verdict}: {found['executions_checked']} executions of {len(found['datasets'])} datasets checked")
    _list("datasets, as published", found["datasets"])
    _list("certificates", [f"{domain} {digest}" for domain, digest in found["certificates"].items()])
    _list("found", found["found"])
    _list("not in the store", found["unknown"])


def _place(one: dict[str, Any]) -> str:
    owner = "".join(f", {name} {one[name]}" for name in ("tenant", "licence", "source") if one[name])
    role = f"  ({one['role']})" if one["role"] else ""
    return f"{one['execution_id']}  {one['file']}:{one['line']}  sandbox {one['sandbox_id']}{owner}{role}"


def _result(one: dict[str, Any]) -> str:
    where = f"[{one['partition']}]" if one["partition"] else ""
    return f"{one['asset']}{where} {one['digest']}" + ("" if one["current"] else " (a former one)")


def _models(found: dict[str, Any]) -> None:
    now = [one for one in found["seen_by"] if one["current"]]
    former = Counter(one["artifact"] for one in found["seen_by"] if not one["current"])
    _list("adapters that saw it", [f"{one['domain']}/{one['voter']} {one['digest']} ({one['part']})" for one in now])
    _list("former adapters that saw it", [f"trained_adapters {digest}: {n} voters" for digest, n in former.items()])
    _list("models made with them", [_result(one) for one in found["models"]])


def _pairs(found: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if found.get(name):
            click.echo(f"{name.replace('_', ' ')}: {found[name]}")


def _list(title: str, items: list[str] | tuple[str, ...]) -> None:
    if not items:
        return
    click.echo(f"{title}:")
    for item in items[:_SHOWN]:
        click.echo(f"  {item}")
    if len(items) > _SHOWN:
        click.echo(f"  … and {len(items) - _SHOWN} more (--json has all)")
