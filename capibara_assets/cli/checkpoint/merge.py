"""`capibara merge`: merge checkpoints of one architecture into one, with memory independent of the model's size."""

import json
from typing import Any

import click

from capibara_assets.errors import InputError


@click.command("merge")
@click.argument("method")
@click.argument("paths", nargs=-1, required=True)
@click.option("--out", required=True, help="Output folder; must not exist.")
@click.option("--base", help="The model all were trained from; methods on differences need it.")
@click.option("--weight", "weights", multiple=True, type=float, help="One per model, in order, or one for all.")
@click.option("--density", multiple=True, type=float, help="Share of a difference that is kept; given like --weight.")
@click.option("--gamma", multiple=True, type=float, help="Share of outliers dropped (breadcrumbs); like --weight.")
@click.option("--epsilon", multiple=True, type=float, help="Spread of the keep probability (della); like --weight.")
@click.option("--t", type=float, help="Interpolation factor (slerp): 0 is the base.")
@click.option("--lambda", "lambda_", type=float, help="Factor of the summed differences.")
@click.option("--normalize/--no-normalize", default=None, help="Divide by the sum of the weights.")
@click.option("--rescale/--no-rescale", default=None, help="Rescale a sparse difference to its L1 norm before.")
@click.option("--seed", type=int, help="Seed of the random masks (dare, della).")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Default: the models'.")
@click.option("--max-shard-size", default="500MB", show_default=True, help="Size of an output file, at most.")
@click.option("--threads", type=int, help="Default: one per core.")
@click.option("--set", "others", multiple=True, metavar="NAME=VALUE", help="Any other option of the method, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def merge(
    method: str, paths: tuple[str, ...], out: str, others: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Merge the checkpoints PATHS (Transformers folders or safetensors files) by METHOD."""
    from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints

    given = {name: value for name, value in options.items() if value is not None and value != ()}
    for name in ("weights", "density", "gamma", "epsilon"):
        if name in given:
            given[name] = given[name][0] if len(given[name]) == 1 else list(given[name])
    for other in others:
        name, equals, value = other.partition("=")
        if not equals:
            raise InputError(f"--set {other}: expected NAME=VALUE")
        try:
            given[name] = json.loads(value)
        except ValueError as error:
            raise InputError(f"--set {other}: {value!r} is not JSON") from error
    try:
        made = merge_checkpoints(list(paths), method, out, **given)
    except ValueError as error:
        raise InputError(str(error)) from error
    summary = {
        "path": str(made.path),
        "digest": made.digest,
        "tensors": made.tensors,
        "bytes": made.bytes,
        "only_base": list(made.only_base),
        "untied": list(made.untied),
    }
    if as_json:
        click.echo(json.dumps(summary))
        return
    click.echo(f"{made.path}: {made.tensors} tensors, {made.bytes / 1e6:.1f} MB, digest {made.digest[:16]}")
    for name in made.only_base:
        click.echo(f"  {name}: only the base has it; copied unchanged")
    for name in made.untied:
        click.echo(f"  {name}: some models tie it to the embedding; the result does not")
