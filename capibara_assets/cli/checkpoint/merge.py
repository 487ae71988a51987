"""`capibara merge`: merge checkpoints of one architecture into one, with memory independent of the model's size.

`capibara merge soup` chooses the weights of the average by held-out examples, and takes adapters, too.
"""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.terminal.tables import say
from capibara_assets.errors import InputError
from capibara_assets.storage.jsonfiles import user_json

if TYPE_CHECKING:
    from capibara_assets.consensus.merging.checkpoint_soup import CheckpointSoup

SOUP = "soup"
_OF_A_SOUP = ("data", "metric", "average", "max_length")


@with_example("capibara merge ties model-a model-b --base base --density 0.5 --out merged")
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
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the random masks (dare, della).")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Default: the models'.")
@click.option("--max-shard-size", help="Size of an output file, at most [500MB].")
@click.option("--threads", type=click.IntRange(min=1), help="Default: one per core.")
@click.option("--data", type=click.Path(path_type=Path), help="soup: file of held-out examples to measure on.")
@click.option("--metric", type=click.Choice(["perplexity", "loss"]), help="soup: metric to rank by [perplexity].")
@click.option("--average", type=click.Choice(["greedy", "weighted", "uniform"]), help="soup: weights [greedy].")
@click.option("--max-length", type=click.IntRange(min=2), help="soup: longest example, in tokens [1024].")
@click.option("--set", "others", multiple=True, metavar="NAME=VALUE", help="Any other option of the method, as JSON.")
@AS_JSON
@shows_progress("merging")
def merge(
    method: str, paths: tuple[str, ...], out: str, others: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Merge the checkpoints PATHS (Transformers folders or safetensors files) by METHOD.

    METHOD soup measures the models, or adapters of one --base, on --data and averages them by what it finds.
    """
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    if method == SOUP:
        _soup(paths, Path(out), given, others, as_json)
        return
    if odd := [name for name in _OF_A_SOUP if name in given]:
        raise InputError(f"--{odd[0].replace('_', '-')} is an option of `capibara merge soup`, not of {method}")
    from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints

    for name in ("weights", "density", "gamma", "epsilon"):
        if name in given:
            given[name] = given[name][0] if len(given[name]) == 1 else list(given[name])
    for other in others:
        name, equals, value = other.partition("=")
        if not equals:
            raise InputError(f"--set {other}: expected NAME=VALUE")
        given[name] = user_json(value, f"--set {other}: {value!r}")
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
    say(f"{made.path}: {made.tensors} tensors, {made.bytes / 1e6:.1f} MB, digest {made.digest[:16]}")
    for name in made.only_base:
        say(f"  {name}: only the base has it; copied unchanged")
    for name in made.untied:
        say(f"  {name}: some models tie it to the embedding; the result does not")


def _soup(paths: tuple[str, ...], out: Path, given: dict[str, Any], others: tuple[str, ...], as_json: bool) -> None:
    """Make a soup, and print what it is made of."""
    unused = sorted(given.keys() - {*_OF_A_SOUP, "base"})
    if unused or others:
        name = "--set" if not unused else f"--{unused[0].strip('_').replace('_', '-').replace('weights', 'weight')}"
        raise InputError(
            f"{name} is no option of a soup: it takes --base, --data, --metric, --average and --max-length"
        )
    if "data" not in given:
        raise InputError("a soup goes by what models lose on held-out examples: name a file of them with --data")
    from capibara_assets.consensus.merging.checkpoint_soup import HeldOut, soup_of_checkpoints
    from capibara_assets.training.standalone.run import base_folder

    base = base_folder(given["base"]) if "base" in given else None
    try:
        made = soup_of_checkpoints(
            [Path(path) for path in paths],
            HeldOut(given["data"], given.get("max_length", 1024)),
            out,
            method=given.get("average", "greedy"),
            metric=given.get("metric", "perplexity"),
            base=base,
        )
    except ValueError as error:
        raise InputError(str(error)) from error
    click.echo(json.dumps(_summary(made))) if as_json else say(*_told(made, paths))


def _summary(made: "CheckpointSoup") -> dict[str, Any]:
    return {
        "path": str(made.path),
        "weights": made.weights,
        "losses": made.losses,
        "loss": made.loss,
        "perplexity": math.exp(made.loss),
        "examples": made.examples,
        "tokens": made.tokens,
    }


def _told(made: "CheckpointSoup", paths: tuple[str, ...]) -> list[str]:
    lines = [f"{made.path}: perplexity {math.exp(made.loss):.4f} on {made.examples} examples, {made.tokens:,} tokens"]
    for path, weight, loss in zip(paths, made.weights, made.losses, strict=True):
        lines.append(f"  {weight:.3f}  {path}: perplexity {math.exp(loss):.4f} alone")
    return lines
