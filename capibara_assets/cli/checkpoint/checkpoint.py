"""`capibara checkpoint`: list, show, save, load, verify, convert and compare checkpoints."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.checkpoint.head import head
from capibara_assets.cli.checkpoint.keys import decrypt, encrypt, rotate
from capibara_assets.cli.checkpoint.retention import gc, prune
from capibara_assets.cli.checkpoint.store import StoreLocation, on_store
from capibara_assets.cli.checkpoint.text import (
    SHORT,
    age,
    description_text,
    diff_parts,
    metrics_text,
    size,
)
from capibara_assets.cli.terminal.documents import AS_JSON, echo_json, echo_result
from capibara_assets.cli.terminal.exits import FOUND
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.terminal.tables import TerminalTable, say
from capibara_assets.cli.terminal.tables import show as show_parts
from capibara_assets.deployment.declarations import declared
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError, IntegrityError, nearest

if TYPE_CHECKING:
    from capibara_assets.checkpoints.content import Content
    from capibara_assets.checkpoints.inspect.diff import Side
    from capibara_assets.checkpoints.store.checkpoint import Checkpoint
    from capibara_assets.checkpoints.store.store import CheckpointStore
    from capibara_assets.lineage.checkpoint_origin import CheckpointOrigin

_PATH = click.Path(path_type=Path)
_NAMES = (
    click.option("--names", type=click.Choice(["t5x", "transformers"]), help="Rename the parameters of a T5 model."),
    click.option(
        "--leave-out-optimizer", is_flag=True, help="Drop the optimizer state, which --names transformers cannot hold."
    ),
)
_SOURCE = re.compile(r"([^\[\]=]+(?:\[[^\[\]=]+\])?)=([0-9a-f]{64})")

Renaming = Callable[["Content", int], "Content"]  # (content, step) -> content


def _renaming(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that rename a T5 model's parameters; the command receives the function `renamed`."""

    @functools.wraps(command)
    def with_names(*, names: str | None, leave_out_optimizer: bool, **rest: Any) -> None:
        def renamed(content: "Content", step: int) -> "Content":
            if names is None:
                return content
            from capibara_assets.checkpoints.formats.t5_names import to_t5x, to_transformers

            if names == "t5x":
                return to_t5x(content, step=step)
            return to_transformers(content, optimizer="leave out" if leave_out_optimizer else "refuse")

        if leave_out_optimizer and names != "transformers":
            raise InputError("--leave-out-optimizer goes with --names transformers only")
        command(renamed=renamed, **rest)

    for option in reversed(_NAMES):
        with_names = option(with_names)
    return with_names


@with_example("capibara checkpoint ls python/consensus")
@click.group()
def checkpoint() -> None:
    """Save, load, verify, convert, compare, encrypt and prune checkpoints.

    REF is an id or its first 8 digits, MODEL (its latest version), MODEL@latest, MODEL@v7 or MODEL@step:20.
    """


for command in (prune, gc, encrypt, decrypt, rotate, head):
    checkpoint.add_command(command)


@with_example("capibara checkpoint ls python/consensus")
@checkpoint.command("ls")
@click.argument("model", required=False)
@AS_JSON
@on_store
@shows_progress("reading the store")
def ls(where: StoreLocation, model: str | None, as_json: bool) -> None:
    """List the checkpoints (of MODEL): version, id, step, age, bytes, served as, tags, metrics."""
    from capibara_assets.checkpoints.inspect.describe import plain_bytes

    store, served = where.open(), {} if where.named else _served()
    rows: list[dict[str, Any]] = [
        {
            "model": one.manifest.about.model,
            "version": one.version,
            "id": one.id,
            "step": one.manifest.about.step,
            "created": one.manifest.created,
            "kind": one.manifest.kind,
            "plain_bytes": plain_bytes(one.manifest),
            "promoted": sorted({what for name in (one.id, *one.manifest.aliases) for what in served.get(name, ())}),
            "tags": one.manifest.about.tags,
            "metrics": one.manifest.about.metrics,
            **_stored(one),
        }
        for one in store.list(model)
    ]
    if as_json:
        echo_json(rows)
        return
    if not rows:
        near = nearest(model, {one.manifest.about.model for one in store.list()}) if model else ""
        say(f"no checkpoints{f' of {model}' if model else ''} in {store.root}{near}")
        return
    header = ("model", "version", "id", "step", "age", "stored", "plain", "promoted", "tags", "metrics")
    shown = [
        (row["model"], f"v{row['version']}", row["id"][:SHORT], str(row["step"]), age(row["created"]),
         "DAMAGED" if row["damaged"] else size(row["stored_bytes"]), size(row["plain_bytes"]),
         ",".join(row["promoted"]), ",".join(row["tags"]), metrics_text(row["metrics"]))
        for row in rows
    ]  # fmt: skip
    show_parts(TerminalTable(header, shown, (3, 4, 5, 6)))


@with_example("capibara checkpoint show python/consensus")
@checkpoint.command("show")
@click.argument("ref")
@AS_JSON
@on_store
@shows_progress("reading the store")
def show(where: StoreLocation, ref: str, as_json: bool) -> None:
    """Show REF: contents, shared pieces, parent checkpoints, and the executions behind its training data."""
    from capibara_assets.checkpoints.inspect.describe import describe

    store = where.open()
    checkpoint = store.open(ref)
    description = describe(checkpoint, store.list(), checkpoint.stored_bytes)
    came_from = _origin(checkpoint.manifest.about)
    if as_json:
        tensors = {name: entry.model_dump(mode="json") for name, entry in checkpoint.manifest.tensors.items()}
        echo_json({"checkpoint": description, "origin": came_from, "tensors": tensors})
    else:
        click.echo(description_text(description, came_from))


@with_example("capibara checkpoint save adapter --model python/mine --step 200")
@checkpoint.command("save")
@click.argument("path", type=_PATH)
@click.option("--model", required=True, help="Model name; versions are numbered per name.")
@click.option("--step", type=click.IntRange(min=0), required=True, help="Optimizer steps taken so far.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME=VALUE", help="A metric at this step; repeatable.")
@click.option("--tag", "tags", multiple=True, help="A tag; `pinned` protects it from prune.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="ASSET[PARTITION]=DIGEST",
    help="An artifact it was made from; repeatable.",
)
@click.option("--parent", metavar="REF", help="The checkpoint that training continued from.")
@click.option("--base", "base_digest", metavar="DIGEST", help="Digest of the frozen base model, or a REF.")
@click.option("--format", "form", default="auto", show_default=True, help="Format of PATH.")
@click.option("--compression", type=click.Choice(["zstd", "gzip", "none"]), default="zstd", show_default=True)
@AS_JSON
@on_store
@shows_progress("saving")
def save(
    where: StoreLocation,
    path: Path,
    model: str,
    step: int,
    metrics: tuple[str, ...],
    tags: tuple[str, ...],
    sources: tuple[str, ...],
    parent: str | None,
    base_digest: str | None,
    form: str,
    compression: str,
    as_json: bool,
) -> None:
    """Import PATH, in any known format, as the next version of a model; print its id."""
    from capibara_assets import __version__
    from capibara_assets.checkpoints.inspect.describe import version_of
    from capibara_assets.checkpoints.store.manifest import About

    store = where.open(compression, make=True)
    stated = {
        "model": model,
        "step": step,
        "parent": store.open(parent).id if parent is not None else None,
        "base_digest": _base(store, base_digest),
        "code_version": __version__,
        "metrics": _metrics(metrics),
        "sources": _sources(sources),
        "tags": tags,
    }
    about = declared(About, stated, "checkpoint save")
    saved = store.write(_read(path, form), about)
    document = {"id": saved.id, "model": model, "version": saved.version, "stored_bytes": saved.stored_bytes}
    echo_result(document, f"{saved.id}  {version_of(saved)}", as_json)


@with_example("capibara checkpoint load python/consensus@latest --format huggingface --out adapter")
@checkpoint.command("load")
@click.argument("ref")
@click.option("--format", "form", required=True, help="Format to write: huggingface, pytorch, dcp, t5x, orbax.")
@click.option("--out", type=_PATH, required=True, help="Output path; must not exist.")
@click.option("--no-verify", is_flag=True, help="Skip the comparison with the recorded digests.")
@_renaming
@AS_JSON
@on_store
@shows_progress("loading")
def load(
    where: StoreLocation, ref: str, form: str, out: Path, no_verify: bool, renamed: "Renaming", as_json: bool
) -> None:
    """Write checkpoint REF to a file or folder in a given format."""
    from capibara_assets.checkpoints.inspect.describe import version_of

    checkpoint = where.open().open(ref)
    _write(renamed(checkpoint.content(verify=not no_verify), checkpoint.manifest.about.step), form, out)
    document = {"id": checkpoint.id, "version": version_of(checkpoint), "format": form, "out": str(out)}
    echo_result(document, f"{version_of(checkpoint)} as {form} in {out}", as_json)


@with_example("capibara checkpoint verify")
@checkpoint.command("verify")
@click.argument("ref", required=False)
@AS_JSON
@on_store
@shows_progress("verifying")
def verify(where: StoreLocation, ref: str | None, as_json: bool) -> None:
    """Compare every byte of the store, or of REF, with its digests; exit code 1 on damage."""
    store = where.open()
    damages = store.verify(ref)
    if as_json:
        echo_json({"store": store.root, "damaged": bool(damages), "damages": [one._asdict() for one in damages]})
    else:
        for one in damages:
            parts = (one.file, f"checkpoint {one.checkpoint}" if one.checkpoint else "", one.tensor or "", one.problem)
            say("  ".join(part for part in parts if part))
        say(f"{len(damages)} damages" if damages else f"{ref or store.root}: whole")
    if damages:
        raise SystemExit(FOUND)


@with_example("capibara checkpoint convert model.pt model --to huggingface")
@checkpoint.command("convert")
@click.argument("source", type=_PATH)
@click.argument("target", type=_PATH)
@click.option("--to", required=True, help="Format of TARGET: huggingface, pytorch, dcp, t5x, orbax.")
@click.option("--from", "from_", help="Format of SOURCE; detected by default.")
@_renaming
@AS_JSON
@shows_progress("converting")
def convert(source: Path, target: Path, to: str, from_: str | None, renamed: "Renaming", as_json: bool) -> None:
    """Convert SOURCE to another format without the store; fails on anything the format cannot hold."""
    from capibara_assets.checkpoints.formats import detect_format

    form = from_ or detect_format(source)
    _write(renamed(_read(source, form), 0), to, target)
    document = {"source": str(source), "from": form, "target": str(target), "to": to}
    echo_result(document, f"{source} ({form}) as {to} in {target}", as_json)


@with_example("capibara checkpoint diff python/consensus@v1 python/consensus")
@checkpoint.command("diff")
@click.argument("a")
@click.argument("b")
@AS_JSON
@on_store
@shows_progress("comparing")
def diff(where: StoreLocation, a: str, b: str, as_json: bool) -> None:
    """Compare two checkpoints, each a REF or a path in any format: distances per layer and per tensor."""
    from capibara_assets.checkpoints.inspect.diff import diff as compare

    store = None if Path(a).exists() and Path(b).exists() else where.open()
    difference = compare(_side(store, a), _side(store, b))
    if as_json:
        echo_json({"equal": difference.equal, "diff": difference})
    else:
        show_parts(*diff_parts(difference))


def _side(store: "CheckpointStore | None", name: str) -> "Side":
    """A path that exists, else a checkpoint of the store."""
    from capibara_assets.checkpoints.inspect.diff import Side, stored_side

    path = Path(name)
    if store is None or path.exists():
        return Side(name, _read(path, "auto"))
    return stored_side(name, store.open(name))


def _read(path: Path, form: str) -> "Content":
    from capibara_assets.checkpoints.formats import read

    return read(path, None if form == "auto" else form)


def _stored(checkpoint: "Checkpoint") -> dict[str, Any]:
    """Stored bytes of a checkpoint, or the damage that prevents reading them, so that `ls` can continue."""
    try:
        return {"stored_bytes": checkpoint.stored_bytes, "damaged": None}
    except IntegrityError as error:
        return {"stored_bytes": None, "damaged": str(error)}


def _served() -> dict[str, list[str]]:
    """Checkpoint id -> what of the deployment it serves as: `python/consensus`, `merged_checkpoint`."""
    from capibara_assets.checkpoints.artifacts import open_artifacts
    from capibara_assets.evaluation.serving.promotion import NOTHING
    from capibara_assets.evaluation.serving.promotion_log import PromotionLog
    from capibara_assets.lineage.checkpoints import serving_checkpoints

    deployment = Deployment.from_environment()
    store = open_artifacts(deployment.store, deployment.work)
    head = PromotionLog(store).head()
    served: dict[str, list[str]] = {}
    for what, identity in serving_checkpoints(store, head.promotion if head else NOTHING).items():
        served.setdefault(identity, []).append(what)
    return served


def _origin(about: Any) -> "CheckpointOrigin":
    """The artifacts and executions behind a checkpoint, from the deployment's artifact store."""
    from capibara_assets.checkpoints.artifacts import open_artifacts
    from capibara_assets.lineage.checkpoint_origin import origin

    deployment = Deployment.from_environment()
    return origin(open_artifacts(deployment.store, deployment.work), about)


def _base(store: "CheckpointStore", given: str | None) -> str | None:
    """A base model's digest: given as such, or as a checkpoint whose id it is."""
    if given is None or (len(given) == 64 and set(given) <= set("0123456789abcdef")):
        return given
    return store.open(given).id


def _metrics(given: tuple[str, ...]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for text in given:
        name, equals, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not (name and equals) or number - number != 0:
            raise InputError(f"--metric {text!r}: expected NAME=VALUE with a finite number, such as loss=0.52")
        if name in metrics:
            raise InputError(f"--metric {name!r} is given twice")
        metrics[name] = number
    return metrics


def _sources(given: tuple[str, ...]) -> dict[str, str]:
    sources: dict[str, str] = {}
    for text in given:
        match = _SOURCE.fullmatch(text)
        if match is None or match[1] in sources:
            raise InputError(f"--source {text!r}: expected ASSET=DIGEST or ASSET[PARTITION]=DIGEST, each asset once")
        sources[match[1]] = match[2]
    return sources


def _write(content: "Content", form: str, out: Path) -> None:
    """Raises InputError: `out` exists, or checkpoints are not written in this format."""
    from capibara_assets.checkpoints.formats import FORMATS, format_named

    write = format_named(form).write
    if write is None:
        known = ", ".join(name for name, one in FORMATS.items() if one.write is not None)
        raise InputError(f"checkpoints are not written as {form}, which can only be read: use one of {known}")
    if out.exists():
        raise InputError(f"{out} exists already: nothing is overwritten: remove it or give another path")
    write(content, out)
