"""`capibara dataset`: examples from files of one's own in, the dataset of a domain out."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.assets.inputs import Inputs
    from capibara_assets.datasets.imported.join import Imported, Incoming, Wanted
    from capibara_assets.datasets.recipe import DatasetRecipe

_DOMAINS = [domain.value for domain in DOMAINS]
_SHOWN = 20  # faults on the terminal; --json has more
_FILES = click.argument("files", nargs=-1, type=click.Path(path_type=Path))
_TRAIN = click.option("--train", multiple=True, type=click.Path(path_type=Path), help="File that trains.")
_VAL = click.option("--val", multiple=True, type=click.Path(path_type=Path), help="File that validates.")
_TEST = click.option("--test", multiple=True, type=click.Path(path_type=Path), help="File that tests.")
_FORMAT = click.option("--format", "form", help="text, messages, conversations, ...: by default found out.")
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
Paths = tuple[Path, ...]


@click.group()
def dataset() -> None:
    """Examples from files of one's own, and the datasets as files."""


@dataset.command("validate")
@_FILES
@_TRAIN
@_VAL
@_TEST
@click.option("--domain", type=click.Choice(_DOMAINS), default="python", help="Domain that they are for.")
@_FORMAT
@_AS_JSON
def validate(files: Paths, train: Paths, val: Paths, test: Paths, domain: str, form: str | None, as_json: bool) -> None:
    """Every fault of FILE... with its line, and counts; exit code 2 where there is a fault. Imports nothing."""
    from capibara_assets.datasets.imported.join import Imported

    deployment = Deployment.from_environment()
    wanted = _read(files, train, val, test, form)
    report = _faults(wanted)
    if not report["faults"]:
        new = _incoming(deployment, Domain(domain), wanted, None, None, None)
        imported = _settled(Domain(domain), Imported.empty(), [], new, _recipe(deployment))
        report |= _counts(deployment, new, imported)
    _show(report, as_json)


@dataset.command("import")
@_FILES
@_TRAIN
@_VAL
@_TEST
@click.option("--domain", type=click.Choice(_DOMAINS), required=True, help="Domain whose dataset they join.")
@_FORMAT
@click.option("--licence", help="Licence of lines that state none.")
@click.option("--source", help="Where they come from, of lines that do not say.")
@click.option("--tenant", help="Whose they are: a recipe may keep one tenant's out of another's adapters.")
@click.option("--replace", is_flag=True, help="Instead of what is imported for the domain.")
@click.option("--dry-run", is_flag=True, help="Say what would happen.")
@_AS_JSON
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
    """Add FILE... to what is imported for a domain: all of it, or nothing where a line has a fault.

    FILEs are split by groups of near-equal examples; --train, --val and --test files keep their split.
    """
    from capibara_assets.assets.imports import import_lock, others_of, publish_imported, read_imported
    from capibara_assets.datasets.imported.join import Imported, new_files

    deployment, where = Deployment.from_environment(), Domain(domain)
    wanted = _read(files, train, val, test, form)
    report = _faults(wanted)
    if report["faults"]:
        _show(report, as_json)
        return
    with _inputs(deployment) as inputs, import_lock(inputs.store.work_dir("imported_examples", domain, "imports")):
        before = Imported.empty() if replace else read_imported(inputs, where)
        fresh = new_files(before, wanted)
        new = _incoming(deployment, where, fresh, licence, source, tenant)
        imported = _settled(where, before, others_of(inputs, where), new, _recipe(deployment))
        report |= {"domain": domain, "known_files": len(wanted) - len(fresh)} | _counts(deployment, new, imported)
        if dry_run:
            report |= {"dry_run": True}
        else:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            report["digest"], report["changed"] = publish_imported(inputs, where, imported, now)
    _show(report, as_json)


@dataset.command("list")
@_AS_JSON
def list_files(as_json: bool) -> None:
    """Every imported file: domain, examples, what was left out, when."""
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
    for row in rows:
        left_out = f", {sum(row['left_out'].values())} left out" if row["left_out"] else ""
        click.echo(
            f"{row['digest'][:12]}  {row['domain']:<10} {row['imported_at']}  {row['file']} ({row['format']}, "
            f"{row['split'] or 'by group'}): {row['examples']} examples of {row['lines']} lines{left_out}"
        )
    click.echo(f"{len(rows)} files imported")


@dataset.command("remove")
@click.argument("name")
@click.option("--domain", type=click.Choice(_DOMAINS), help="Only from this domain.")
@_AS_JSON
def remove(name: str, domain: str | None, as_json: bool) -> None:
    """Take a file out again: NAME is its digest, how that begins, or its name. Other files' examples stay."""
    from capibara_assets.assets.imports import import_lock, publish_imported, read_imported
    from capibara_assets.datasets.imported.join import without_files

    removed: list[dict[str, Any]] = []
    with _inputs(Deployment.from_environment()) as inputs:
        found = {where: read_imported(inputs, where) for where in ([Domain(domain)] if domain else DOMAINS)}
        digests = {digest for each in found.values() for digest in _named(each, name)}
        if len(digests) != 1:
            many = "nothing" if not digests else f"{len(digests)} files"
            raise InputError(f"{name!r} names {many} among the imports: see `capibara dataset list`")
        for where in found:
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


@dataset.command("export")
@click.argument("domain", type=click.Choice(_DOMAINS))
@click.option("--format", "form", type=click.Choice(["text", "messages", "prompt-completion"]), required=True)
@click.option(
    "--template", type=click.Choice(["mistral", "base"]), default="mistral", show_default=True, help="Of text."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for train, validation and test.")
@_AS_JSON
def export(domain: str, form: str, template: str, out: Path, as_json: bool) -> None:
    """Write the dataset of DOMAIN as JSON lines, with its licences and sources beside it."""
    from capibara_assets.datasets.exports import export_dataset, messages_line, prompt_completion_line, text_line

    deployment = Deployment.from_environment()
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
    summary = export_dataset(artifact.frame("examples"), out, line_of, about)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
        return
    written = ", ".join(f"{count} {split}" for split, count in summary["examples"].items())
    click.echo(f"{out}: {written}" + (f"; {len(summary['left_out'])} left out" if summary["left_out"] else ""))


@contextmanager
def _inputs(deployment: Deployment) -> "Iterator[Inputs]":
    from capibara_assets.assets.inputs import Inputs
    from capibara_assets.cli.graph.instance import open_instance
    from capibara_assets.resources import Store

    with open_instance(deployment) as instance:
        yield Inputs(instance, Store(root=deployment.store, work=str(deployment.work)).open())


def _recipe(deployment: Deployment) -> "DatasetRecipe":
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.definitions import deployment_resources

    found: DatasetRecipe = deployment_resources(deployment)["recipes"].load("dataset", DatasetRecipe)
    return found


def _base_template(deployment: Deployment) -> Callable[[Any], str]:
    """Renders messages through the base model's own chat template."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(deployment.base_model, local_files_only=True)
    if not tokenizer.chat_template:
        raise InputError(f"the base model {deployment.base_model} has no chat template: use --template mistral")

    def render(messages: Any) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False))

    return render


def _read(files: Paths, train: Paths, val: Paths, test: Paths, form: str | None) -> "list[Wanted]":
    from capibara_assets.datasets.imported.formats import FORMATS
    from capibara_assets.datasets.imported.read import read_examples

    if form is not None and form not in FORMATS:
        raise InputError(f"unknown --format {form!r}: one of {', '.join(FORMATS)}")
    given: list[tuple[Paths, Any]] = [(files, None), (train, "train"), (val, "validation"), (test, "test")]
    wanted = [(read_examples(path, form), split) for paths, split in given for path in paths]
    if not wanted:
        raise InputError("give a file of examples, or --train and --val files")
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


def _settled(
    domain: Domain, before: "Imported", others: "list[pl.DataFrame]", new: "list[Incoming]", recipe: "DatasetRecipe"
) -> "Imported":
    from capibara_assets.datasets.imported.join import place_incoming

    return place_incoming(domain, before, others, new, recipe)


def _faults(wanted: "Sequence[Wanted]") -> dict[str, Any]:
    """What was read of each file, and the faults."""
    return {
        "files": [
            {
                "file": str(file.path),
                "digest": file.digest,
                "split": split,
                "format": file.format,
                "lines": file.lines,
                "faults": dict(file.fault_counts),
            }
            for file, split in wanted
        ],
        "faults": sum(file.fault_counts.total() for file, _ in wanted),
        "problems": [
            {"file": str(file.path), "line": fault.line, "reason": fault.reason, "detail": fault.detail}
            for file, _ in wanted
            for fault in file.faults
        ],
    }


def _counts(deployment: Deployment, new: "list[Incoming]", imported: "Imported") -> dict[str, Any]:
    """What the new lines come to, and the imports as they are with them."""
    places = {(item.file_digest, item.line) for item in new}
    lines = [row for row in imported.lines.iter_rows(named=True) if (row["file_digest"], row["line"]) in places]
    held = [row["example_id"] for row in lines if row["example_id"]]
    return {
        "examples": len(set(held)),
        "turns": sum(message["role"] == "assistant" for item in new for message in item.messages),
        "tokens": _tokens(deployment, new),
        "duplicates": len(held) - len(set(held)),
        "left_out": dict(Counter(row["reason_left_out"] for row in lines if row["reason_left_out"])),
        "lines_with_secrets": sum(item.secrets > 0 for item in new),
        "secrets": sum(item.secrets for item in new),
        "imported": dict(sorted(imported.examples["split"].value_counts().iter_rows())),
    }


def _tokens(deployment: Deployment, new: "list[Incoming]") -> int | None:
    """Tokens of all messages under the base model's tokenizer, without its template; None without a base model."""
    from tokenizers import Tokenizer

    path = Path(deployment.base_model) / "tokenizer.json"
    if not path.is_file():
        return None
    tokenizer = Tokenizer.from_file(str(path))
    texts = [message["content"] for item in new for message in item.messages]
    return sum(
        len(encoded.ids)
        for start in range(0, len(texts), 1000)
        for encoded in tokenizer.encode_batch(texts[start : start + 1000], add_special_tokens=False)
    )


def _named(imported: "Imported", name: str) -> set[str]:
    columns = imported.lines.select("file_digest", "file").unique().iter_rows()
    return {digest for digest, file in columns if file == name or (len(name) >= 6 and digest.startswith(name))}


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


def _show(report: dict[str, Any], as_json: bool) -> None:
    """Prints the report; ends with exit code 2 where there are faults."""
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        for problem in report["problems"][:_SHOWN]:
            place = f"{problem['file']}:{problem['line']}" if problem["line"] else problem["file"]
            click.echo(f"{place}: {problem['reason']}: {problem['detail']}")
        for file in report["files"]:
            found = f"{sum(file['faults'].values())} faults" if file["faults"] else file["format"]
            click.echo(f"{file['file']}: {file['lines']} lines, {found}")
        if report["faults"]:
            reasons = Counter[str]()
            for file in report["files"]:
                reasons.update(file["faults"])
            listed = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
            click.echo(f"{report['faults']} faults ({listed}): nothing is imported until they are mended")
        else:
            _show_counts(report)
    if report["faults"]:
        raise SystemExit(2)


def _show_counts(report: dict[str, Any]) -> None:
    tokens = "" if report["tokens"] is None else f", {report['tokens']} tokens"
    click.echo(f"{report['examples']} examples, {report['turns']} answers{tokens}, {report['duplicates']} duplicates")
    for reason, count in sorted(report["left_out"].items()):
        click.echo(f"{count} left out: {reason}")
    if report["secrets"]:
        click.echo(f"{report['secrets']} secrets in {report['lines_with_secrets']} lines are replaced by placeholders")
    splits = ", ".join(f"{count} {split}" for split, count in report["imported"].items()) or "none"
    if "domain" not in report:
        click.echo(f"splits: {splits}")
    elif "dry_run" in report:
        click.echo(f"a dry run: {report['domain']} would have {splits} imported")
    else:
        now = "" if report["changed"] else " (nothing changed)"
        click.echo(f"{report['domain']} has {splits} imported{now}; `capibara run` takes them into the dataset")
