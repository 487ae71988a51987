"""`capibara promote` and `capibara rollback`: promote manually, show the history, export, roll back."""

import getpass
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.terminal.tables import say
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from capibara_assets.evaluation.serving.promotion_log import Move
    from capibara_assets.storage.store import ArtifactStore

_BY = click.option("--by", help="Who does it; default: the current user.")


@with_example('capibara promote --domain sql --checkpoint d4be142e --reason "read by hand"')
@click.command()
@click.option("--domain", default="", help="A domain, merged or router; default: every domain.")
@click.option("--checkpoint", default="", help="Digest or checkpoint id, or a prefix; default: the latest.")
@click.option("--reason", help="Why; recorded in the history. Required to promote.")
@_BY
@click.option("--history", is_flag=True, help="Show all promotions and rollbacks: when, what, by whom, why.")
@click.option("--export", "target", type=click.Path(path_type=Path), help="Write what is served to this folder.")
@click.option(
    "--quantise",
    "kinds",
    multiple=True,
    type=click.Choice(["int8", "int4"]),
    help="With --export: add quantised merged models.",
)
@click.option(
    "--calibrate",
    default=0,
    type=click.IntRange(min=0),
    metavar="N",
    help="Quantise by GPTQ on N training examples; 0: round to nearest.",
)
@click.option(
    "--verify", "exported", type=click.Path(path_type=Path), help="Compare an exported folder with its digests."
)
@AS_JSON
@shows_progress("promoting")
def promote(
    domain: str,
    checkpoint: str,
    reason: str | None,
    by: str | None,
    history: bool,
    target: Path | None,
    kinds: tuple[str, ...],
    calibrate: int,
    exported: Path | None,
    as_json: bool,
) -> None:
    """Promote a checkpoint manually, show the history, or export what is served."""
    from capibara_assets.cli.graph.instance import open_instance, open_store

    asked = [name for name, given in (("--history", history), ("--export", target), ("--verify", exported)) if given]
    if len(asked) + (reason is not None) != 1:
        raise InputError(
            "give one of --reason TEXT (promote manually), --history, --export FOLDER or --verify FOLDER; "
            "`capibara run --select promoted_model` promotes what passes the evaluation"
        )
    if kinds and target is None:
        raise InputError("--quantise goes with --export")
    if exported is not None:
        from capibara_assets.evaluation.serving.export import check_export

        files = check_export(exported)["files"]
        click.echo(json.dumps({"files": len(files)}) if as_json else f"{len(files)} files match their digests")
        return
    deployment = Deployment.from_environment()
    store = open_store(deployment)
    if history:
        _print_history(store, as_json)
    elif target is not None:
        _export(deployment, store, target, kinds, calibrate, as_json)
    else:
        from capibara_assets.assets.manual_promotion import ManualPromotion, promote_manually

        wanted = ManualPromotion(slot=domain, checkpoint=checkpoint, reason=reason or "", by=by or _user())
        with open_instance(deployment) as instance:
            _say(promote_manually(instance, store, wanted, instance.report_runless_asset_event), as_json)


@with_example('capibara rollback --domain sql --reason "slow answers"')
@click.command()
@click.option(
    "--to",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number in the history; 0: the base model; default: the previous one.",
)
@click.option("--domain", default="", help="Only a domain (with the merged model), merged or router.")
@click.option("--reason", default="no reason given", help="Why; recorded in the history.")
@_BY
@AS_JSON
@shows_progress("rolling back")
def rollback(to: int | None, domain: str, reason: str, by: str | None, as_json: bool) -> None:
    """Roll back to the previously served checkpoint. The gate will not promote the current one again."""
    from capibara_assets.assets.manual_promotion import Rollback, roll_back
    from capibara_assets.cli.graph.instance import open_instance, open_store

    deployment = Deployment.from_environment()
    wanted = Rollback(to=-1 if to is None else to, slot=domain, reason=reason, by=by or _user())
    with open_instance(deployment) as instance:
        _say(roll_back(instance, open_store(deployment), wanted, instance.report_runless_asset_event), as_json)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a number without a name, as in containers
        raise InputError("the current user has no name: give one with --by") from error


def _say(move: "Move | None", as_json: bool) -> None:
    from capibara_assets.assets.manual_promotion import describe_move

    if as_json:
        click.echo(json.dumps(move.model_dump(mode="json") if move else None))
    else:
        say(describe_move(move))


def _print_history(store: "ArtifactStore", as_json: bool) -> None:
    from capibara_assets.assets.manual_promotion import describe_move
    from capibara_assets.evaluation.serving.promotion_log import PromotionLog

    moves = PromotionLog(store).moves()
    if as_json:
        click.echo(json.dumps([move.model_dump(mode="json") for move in moves]))
        return
    for move in moves:
        say(f"{move.at}  {describe_move(move)}", f"    {move.reason}")
    if not moves:
        click.echo("nothing was promoted yet: the base model serves")


def _export(
    deployment: Deployment, store: "ArtifactStore", target: Path, kinds: tuple[str, ...], texts: int, as_json: bool
) -> None:
    from capibara_assets.cli.dataset.secrets import require_clean
    from capibara_assets.cli.serving.export import export
    from capibara_assets.modeling.hub import resolve_base

    require_clean(deployment)
    base = resolve_base(deployment.base_model)
    document = export(store, deployment.base_model, base, target, kinds, texts)  # type: ignore[arg-type]
    if as_json:
        click.echo(json.dumps(document))
        return
    say(f"{target}: promotion {document['number']}, {len(document['files'])} files, {', '.join(document['adapters'])}")
    for name, command in document["vllm"].items():
        say(f"  {name}: {command}")
