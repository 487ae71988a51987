"""`capibara checkpoint prune` and `gc`: remove checkpoints by rules, then free their storage."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.checkpoint.store import StoreLocation, on_store
from capibara_assets.cli.checkpoint.text import SHORT, size
from capibara_assets.cli.terminal.documents import AS_JSON, echo_json
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.terminal.tables import TerminalTable, say, show
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError, IntegrityError

if TYPE_CHECKING:
    from capibara_assets.checkpoints.retention import RetentionDecision, RetentionPolicy
    from capibara_assets.checkpoints.store.checkpoint import Checkpoint


@with_example("capibara checkpoint prune --keep-last 3 --dry-run")
@click.command("prune")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--keep-last", type=click.IntRange(min=1), help="Keep the newest N versions of each model.")
@click.option("--keep-best", type=click.IntRange(min=1), help="Keep the best N versions by --metric.")
@click.option("--metric", help="Metric that --keep-best ranks by.")
@click.option(
    "--mode", type=click.Choice(["min", "max"]), help="Whether the lowest (default) or highest value is best."
)
@click.option("--keep-every", type=click.IntRange(min=1), help="Keep steps that are a multiple of N.")
@click.option("--recipe", type=click.Path(path_type=Path), help="YAML file with these rules, instead of options.")
@click.option("--dry-run", is_flag=True, help="Only print what would be removed, and why.")
@AS_JSON
@on_store
@shows_progress("pruning")
def prune(
    where: StoreLocation, models: tuple[str, ...], recipe: Path | None, dry_run: bool, as_json: bool, **rules: Any
) -> None:
    """Remove the checkpoints (of MODELs; default: all) that no rule keeps. With several rules, any one of them keeps.

    Without options the deployment's recipe `retention` applies. Always kept: a model's newest version, checkpoints
    tagged `promoted` or `pinned`, those a certificate or promoted model needs, and bases or sources of kept ones.
    """
    from capibara_assets.checkpoints.retention import check_metric, freed
    from capibara_assets.cli.graph.instance import open_store
    from capibara_assets.lineage.checkpoint_needs import decide

    given = {name: value for name, value in rules.items() if value is not None}
    policy, source = _policy(given, recipe)
    store = where.open()
    every = store.list()
    if unknown := sorted(set(models) - {one.manifest.about.model for one in every}):
        known = ", ".join(sorted({one.manifest.about.model for one in every})) or "none"
        raise InputError(f"no model {', '.join(map(repr, unknown))} in {store.root}: there are {known}")
    check_metric([one for one in every if not models or one.manifest.about.model in models], policy)
    decisions = decide(store, every, policy, open_store(Deployment.from_environment()), models)
    doomed = list(dict.fromkeys(one.checkpoint.id for one in decisions if not one.keep))
    pieces = freed(decisions)
    stored = _stored([one for one in every if one.id in set(doomed)], pieces)
    if not dry_run:
        store.retire(doomed)
    asked = [one for one in decisions if not models or one.checkpoint.manifest.about.model in models]
    report = {
        "store": store.root,
        "dry_run": dry_run,
        "policy": policy.model_dump(),
        "policy_from": source,
        "checkpoints": [
            {
                "model": one.checkpoint.manifest.about.model,
                "version": one.checkpoint.version,
                "id": one.checkpoint.id,
                "step": one.checkpoint.manifest.about.step,
                "keep": one.keep,
                "reasons": one.reasons,
            }
            for one in asked
        ],
        "removed": doomed,
        "freed_plain_bytes": sum(pieces.values()),
        "freed_stored_bytes": stored,
    }
    if as_json:
        echo_json(report)
    else:
        _print(report, asked)


@with_example("capibara checkpoint gc --dry-run")
@click.command("gc")
@click.option("--dry-run", is_flag=True, help="Only print what would be removed, and why.")
@AS_JSON
@on_store
@shows_progress("freeing storage")
def gc(where: StoreLocation, dry_run: bool, as_json: bool) -> None:
    """Free the storage that no checkpoint needs any more; safe while others read and write."""
    store = where.open()
    collected = store.collect(dry_run=dry_run)
    if as_json:
        groups = {name: [item._asdict() for item in items] for name, items in vars(collected).items()}
        echo_json({"store": store.root, "dry_run": dry_run, "bytes_freed": collected.bytes_freed, **groups})
        return
    would = "would be " if dry_run else ""
    titles = {"deleted": f"{would}deleted", "waiting": "deleted when running writers have finished",
              "repacked": f"{would}repacked", "left": "NOT repacked"}  # fmt: skip
    for name, title in titles.items():
        items = getattr(collected, name)
        if items:
            click.echo(f"{title}:")
            show(TerminalTable(("file", "size", "why"), [(one.name, size(one.bytes), one.why) for one in items], (1,)))
    click.echo(f"{len(collected.deleted)} files {would}deleted, {size(collected.bytes_freed)} {would}freed")


def _policy(given: dict[str, Any], recipe: Path | None) -> "tuple[RetentionPolicy, str]":
    """(rules, their source): from the options, else from the file, else from the deployment's recipe."""
    from capibara_assets.checkpoints.retention import RetentionPolicy
    from capibara_assets.deployment.declarations import declared, read_declared
    from capibara_assets.resources import Recipes

    if given and recipe is not None:
        raise InputError("--recipe and rules as options exclude each other: put the rules into the recipe file")
    if given:
        policy = declared(RetentionPolicy, given, "prune")
        if not policy.rules:
            raise InputError("prune: --mode alone keeps nothing: give --keep-last, --keep-best or --keep-every")
        return policy, "options"
    if recipe is not None:
        return read_declared(recipe, RetentionPolicy), str(recipe)
    deployment = Deployment.from_environment()
    recipes = Recipes(profile=deployment.profile, folder=deployment.recipes)
    return recipes.load("retention", RetentionPolicy), str(recipes.file("retention"))


def _stored(doomed: "list[Checkpoint]", freed: Collection[str]) -> int | None:
    """Stored bytes of the pieces that only these checkpoints hold; None where one of them is damaged."""
    places: dict[str, int] = {}
    for one in doomed:
        try:
            stored = one.backing.places(one.manifest, one.id)
        except IntegrityError:
            return None  # a pack is damaged or missing: what is broken can still be pruned
        places |= {digest: place.stored for digest, place in stored.items() if digest in freed}
    return sum(places.values())


def _print(report: dict[str, Any], decisions: "list[RetentionDecision]") -> None:
    rules = ", ".join(
        f"{name} {value}"
        for name, value in report["policy"].items()
        if value is not None and (name != "mode" or report["policy"]["metric"])
    )
    say(f"rules ({report['policy_from']}): {rules}")
    rows = [
        (f"{one.checkpoint.manifest.about.model}@v{one.checkpoint.version}", one.checkpoint.id[:SHORT],
         str(one.checkpoint.manifest.about.step), "keep" if one.keep else "remove", "; ".join(one.reasons))
        for one in decisions
    ]  # fmt: skip
    if rows:
        show(TerminalTable(("checkpoint", "id", "step", "plan", "why"), rows, (2,)))
    counts = Counter(one.keep for one in decisions)
    would = "would be " if report["dry_run"] else ""
    click.echo(
        f"{counts[False]} {would}removed, {counts[True]} kept; `capibara checkpoint gc` then frees "
        f"{size(report['freed_stored_bytes'])} ({size(report['freed_plain_bytes'])} plain) that only they hold"
    )
