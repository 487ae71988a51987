"""`capibara dataset`: import a user's training examples, audit the datasets, and export that of a domain."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.dataset.import_report import counts_of, faults_of, show_report
from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.terminal.tables import TerminalTable, show
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.assets.inputs import Inputs
    from capibara_assets.datasets.imported.join import Imported, Incoming, Wanted
    from capibara_assets.datasets.recipe import DatasetRecipe

_DOMAINS = [domain.value for domain in DOMAINS]
_FILES = click.argument("files", nargs=-1, type=click.Path(path_type=Path))
_TRAIN = click.option(
    "--train", multiple=True, type=click.Path(path_type=Path), help="File for the training split; repeatable."
)
_VAL = click.option(
    "--val", multiple=True, type=click.Path(path_type=Path), help="File for the validation split; repeatable."
)
_TEST = click.option(
    "--test", multiple=True, type=click.Path(path_type=Path), help="File for the test split; repeatable."
)
_FORMAT = click.option("--format", "form", help="text, messages, conversations, ...; detected by default.")
Paths = tuple[Path, ...]


@with_example("capibara dataset import chats.jsonl --domain sql")
@click.group()
def dataset() -> None:
    """Import your own training examples, audit and export the datasets."""


@with_example("capibara dataset validate chats.jsonl --domain sql")
@dataset.command("validate")
@_FILES
@_TRAIN
@_VAL
@_TEST
@click.option("--domain", type=click.Choice(_DOMAINS), default="python", help="Domain of the examples.")
@_FORMAT
@AS_JSON
@shows_progress("checking")
def validate(files: Paths, train: Paths, val: Paths, test: Paths, domain: str, form: str | None, as_json: bool) -> None:
    """Check FILE... without importing: every fault with its line, and counts; exit code 2 on faults."""
    from capibara_assets.datasets.imported.join import Imported

    deployment = Deployment.from_environment()
    wanted = _read(files, train, val, test, form)
    report = faults_of(wanted)
    if not report["faults"]:
        new = _incoming(deployment, Domain(domain), wanted, None, None, None)
        imported = _joined(Domain(domain), Imported.empty(), [], new, _recipe(deployment))
        report |= counts_of(deployment, new, imported)
    show_report(report, as_json)


@with_example("capibara dataset import chats.jsonl --domain sql --licence MIT")
@dataset.command("import")
@_FILES
@_TRAIN
@_VAL
@_TEST
@click.option("--domain", type=click.Choice(_DOMAINS), required=True, help="Domain whose dataset the examples join.")
@_FORMAT
@click.option("--licence", help="Licence for lines that state none.")
@click.option("--source", help="Source for lines that state none.")
@click.option("--tenant", help="Owner of the examples; a recipe can keep tenants apart.")
@click.option("--replace", is_flag=True, help="Replace all earlier imports of the domain.")
@click.option("--dry-run", is_flag=True, help="Only print what would happen.")
@AS_JSON
@shows_progress("importing")
def import_files(
    files: Paths,
    train: Paths,
    val: Paths,
    test: Paths,
    domain: str,
    form: str | None,
    licence: str | None,
    source: str | None,
    tenant: str | None,
    replace: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import FILE... into a domain: every example, or nothing when a line has a fault.

    FILEs are split by groups of near-duplicates; --train, --val and --test files keep their split.
    """
    from capibara_assets.assets.imports import import_lock, others_of, publish_imported, read_imported
    from capibara_assets.datasets.imported.join import Imported, new_files

    deployment, where = Deployment.from_environment(), Domain(domain)
    wanted = _read(files, train, val, test, form)
    report = faults_of(wanted)
    if report["faults"]:
        show_report(report, as_json)
        return
    with _inputs(deployment) as inputs, import_lock(inputs.store.work_dir("imported_examples", domain, "imports")):
        before = Imported.empty() if replace else read_imported(inputs, where)
        fresh = new_files(before, wanted, tenant)
        new = _incoming(deployment, where, fresh, licence, source, tenant)
        imported = _joined(where, before, others_of(inputs, where), new, _recipe(deployment))
        report |= {"domain": domain, "known_files": len(wanted) - len(fresh)} | counts_of(deployment, new, imported)
        if dry_run:
            report |= {"dry_run": True}
        else:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            report["digest"], report["changed"] = publish_imported(inputs, where, imported, now)
    show_report(report, as_json)


@with_example("capibara dataset list")
@dataset.command("list")
@AS_JSON
@shows_progress("reading the imports")
def list_files(as_json: bool) -> None:
    """List the imported files: domain, number of examples, omitted lines, time of import."""
    from capibara_assets.assets.imports import import_times, read_imported

    rows: list[dict[str, Any]] = []
    with _inputs(Deployment.from_environment()) as inputs:
        for domain in DOMAINS:
            times = import_times(inputs.instance, domain)
            lines = read_imported(inputs, domain).lines
            files = [(str(digest), part) for (digest,), part in lines.group_by("file_digest")]
            for digest, part in sorted(files, key=lambda item: (times.get(item[0]), item[1]["file"][0], item[0])):
                rows.append(_listed(domain, digest, part) | {"imported_at": times.get(digest)})
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    header = ("digest", "domain", "imported", "file", "format", "split", "examples", "lines", "left out")
    cells = [
        (row["digest"][:12], row["domain"], str(row["imported_at"]), row["file"], row["format"],
         row["split"] or "by group", str(row["examples"]), str(row["lines"]), str(sum(row["left_out"].values())))
        for row in rows
    ]  # fmt: skip
    if cells:
        show(TerminalTable(header, cells, (6, 7, 8)))
    click.echo(f"{len(rows)} files imported")


@with_example("capibara dataset remove chats.jsonl --domain sql")
@dataset.command("remove")
@click.argument("name")
@click.option("--domain", type=click.Choice(_DOMAINS), help="Only from this domain.")
@AS_JSON
@shows_progress("removing")
def remove(name: str, domain: str | None, as_json: bool) -> None:
    """Remove an imported file. NAME is its digest, a prefix of that, or its file name; other files stay."""
    from capibara_assets.assets.imports import import_lock, publish_imported, read_imported
    from capibara_assets.datasets.imported.join import without_files

    removed: list[dict[str, Any]] = []
    with _inputs(Deployment.from_environment()) as inputs:
        imported = {where: read_imported(inputs, where) for where in ([Domain(domain)] if domain else DOMAINS)}
        digests = {digest for each in imported.values() for digest in _named(each, name)}
        if len(digests) != 1:
            many = "nothing" if not digests else f"{len(digests)} files"
            raise InputError(f"{name!r} names {many} among the imports: see `capibara dataset list`")
        for where in imported:
            with import_lock(inputs.store.work_dir("imported_examples", where.value, "imports")):
                before = read_imported(inputs, where)
                gone = before.lines.filter(before.lines["file_digest"].is_in(list(digests)))
                if gone.is_empty():
                    continue
                after = without_files(before, digests)
                now = datetime.now(UTC).isoformat(timespec="milliseconds")
                digest, _ = publish_imported(inputs, where, after, now)
            removed.append(
                {
                    "domain": where.value,
                    "file": gone["file"][0],
                    "lines": gone.height,
                    "examples_before": before.examples.height,
                    "examples": after.examples.height,
                    "digest": digest,
                }
            )
    if as_json:
        click.echo(json.dumps(removed, indent=2))
        return
    for row in removed:
        click.echo(
            f"{row['domain']}: {row['file']} removed; {row['examples_before']} examples before, {row['examples']} now"
        )


@with_example("capibara dataset export sql --format messages --out sql-dataset")
@dataset.command("export")
@click.argument("domain", type=click.Choice(_DOMAINS))
@click.option("--format", "form", type=click.Choice(["text", "messages", "prompt-completion"]))
@click.option(
    "--template",
    type=click.Choice(["mistral", "base"]),
    default="mistral",
    show_default=True,
    help="Chat template of --format text.",
)
@click.option("--weights", is_flag=True, help="Give each line the weight by which training here can draw it.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the train, validation and test files.")
@click.option(
    "--storage",
    metavar="ROOT",
    help="Storage root of a TPU plan (folder or gs://): writes messages to ROOT/DOMAIN/data, where its trainers read.",
)
@AS_JSON
@shows_progress("exporting")
def export(
    domain: str,
    form: str | None,
    template: str,
    weights: bool,
    out: Path | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Export the dataset of DOMAIN as JSON lines, with a file of its licences and sources."""
    from capibara_assets.datasets.exports import (
        export_dataset,
        export_to_storage,
        messages_line,
        prompt_completion_line,
        text_line,
    )
    from capibara_assets.datasets.layout import data_folder

    if (out is None) == (storage is None):
        raise InputError("name either --out FOLDER or --storage ROOT")
    if storage is not None and form not in (None, "messages"):
        raise InputError(f"--storage writes messages, which every trainer of a TPU plan reads, not {form}: use --out")
    if storage is not None and weights:
        raise InputError("--weights belongs to --out: the trainers of a TPU plan draw all examples alike")
    if out is not None and form is None:
        raise InputError("--out needs --format: text, messages or prompt-completion")
    deployment = Deployment.from_environment()
    form = form or "messages"
    line_of: Callable[[Any], dict[str, Any]] = {
        "messages": messages_line,
        "prompt-completion": prompt_completion_line,
        "text": text_line,
    }[form]
    if form == "text" and template == "base":
        render = _base_template(deployment)

        def line_of(messages: Any) -> dict[str, Any]:
            return text_line(messages, render)

    with _inputs(deployment) as inputs:
        artifact = inputs.artifact("moe_dataset", Domain(domain))
    about = {"domain": domain, "dataset": artifact.digest, "format": form}
    if form == "text":
        about["template"] = template
    examples = artifact.frame("examples")
    if storage is not None:
        summary, where = export_to_storage(examples, storage, domain, about), data_folder(storage, domain)
    else:
        assert out is not None  # checked above
        summary, where = export_dataset(examples, out, line_of, about, weights=weights), str(out)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
        return
    written = ", ".join(f"{count} {split}" for split, count in summary["examples"].items())
    click.echo(f"{where}: {written}" + (f"; {len(summary['left_out'])} left out" if summary["left_out"] else ""))


@with_example("capibara dataset audit --domains sql --sample 30")
@dataset.command("audit")
@click.option("--domains", "domain_list", default=",".join(_DOMAINS), help="Comma-separated domains.  [default: all]")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("audit"), show_default=True, help="Folder of both files."
)
@click.option("--sample", default=50, show_default=True, type=click.IntRange(min=0), help="Examples per domain.")
@AS_JSON
@shows_progress("measuring")
def audit(domain_list: str, out: Path, sample: int, as_json: bool) -> None:
    """Measure the datasets by kind and source, and write a sample to read with a file for your verdicts.

    audit.html shows the examples, audit.jsonl takes "keep" or "drop" for each; verdicts in an existing file stay.
    """
    from capibara_assets.cli.dataset.audit import audit_datasets
    from capibara_assets.cli.graph.run import parse_domains

    with _inputs(Deployment.from_environment()) as inputs:
        audit_datasets(inputs, parse_domains(domain_list), out, sample, as_json)


def _inputs(deployment: Deployment) -> "AbstractContextManager[Inputs]":
    from capibara_assets.cli.graph.results import open_inputs

    return open_inputs(deployment)


def _recipe(deployment: Deployment) -> "DatasetRecipe":
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.definitions import deployment_resources

    recipe: DatasetRecipe = deployment_resources(deployment)["recipes"].load("dataset", DatasetRecipe)
    return recipe


def _base_template(deployment: Deployment) -> Callable[[Any], str]:
    """A function that renders messages with the base model's own chat template."""
    from capibara_assets.datasets.tokens.templates import jinja_template
    from capibara_assets.modeling.base import load_tokenizer

    tokenizer = load_tokenizer(Path(deployment.base_model))
    if not tokenizer.chat_template:
        raise InputError(f"the base model {deployment.base_model} has no chat template: use --template mistral")

    return jinja_template(tokenizer).text_of


def _read(files: Paths, train: Paths, val: Paths, test: Paths, form: str | None) -> "list[Wanted]":
    from capibara_assets.datasets.imported.formats import FORMATS
    from capibara_assets.datasets.imported.read import read_examples

    if form is not None and form not in FORMATS:
        raise InputError(f"unknown --format {form!r}: one of {', '.join(FORMATS)}")
    given: list[tuple[Paths, Any]] = [(files, None), (train, "train"), (val, "validation"), (test, "test")]
    wanted = [(read_examples(path, form), split) for paths, split in given for path in paths]
    if not wanted:
        raise InputError("no file given: name a file of examples, or give --train and --val")
    return wanted


def _incoming(
    deployment: Deployment,
    domain: Domain,
    wanted: "Sequence[Wanted]",
    licence: str | None,
    source: str | None,
    tenant: str | None,
) -> "list[Incoming]":
    from capibara_assets.datasets.imported.join import Stated, incoming

    stated = Stated(licence, source, tenant)
    return [item for file, split in wanted for item in incoming(domain, file, split, stated, deployment.redact_also)]


def _joined(
    domain: Domain, before: "Imported", others: "list[pl.DataFrame]", new: "list[Incoming]", recipe: "DatasetRecipe"
) -> "Imported":
    from capibara_assets.datasets.imported.join import place_incoming

    return place_incoming(domain, before, others, new, recipe)


def _named(imported: "Imported", name: str) -> set[str]:
    from capibara_assets.executions.secrets.redact import redact_name

    columns, stored = imported.lines.select("file_digest", "file").unique().iter_rows(), redact_name(name)
    return {digest for digest, file in columns if file == stored or (len(name) >= 6 and digest.startswith(name))}


def _listed(domain: Domain, digest: str, lines: "pl.DataFrame") -> dict[str, Any]:
    return {
        "domain": domain.value,
        "file": lines["file"][0],
        "digest": digest,
        "format": lines["format"][0],
        "split": lines["wanted_split"][0],
        "lines": lines.height,
        "examples": lines["example_id"].drop_nulls().n_unique(),
        "left_out": dict(lines["reason_left_out"].drop_nulls().value_counts().iter_rows()),
    }
