"""Reports of `capibara dataset validate` and `import`: faults, counts and splits, as JSON or text."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.terminal.exits import REFUSED
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import printable

if TYPE_CHECKING:
    from capibara_assets.datasets.imported.join import Imported, Incoming, Wanted

_SHOWN = 20  # faults printed; --json has more


def faults_of(wanted: "Sequence[Wanted]") -> dict[str, Any]:
    """The part of the report about reading: per file its format, lines and faults."""
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


def counts_of(deployment: Deployment, new: "list[Incoming]", imported: "Imported") -> dict[str, Any]:
    """The part of the report about content: counts of the new lines, and the domain's splits with them."""
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


def show_report(report: dict[str, Any], as_json: bool) -> None:
    """Print the report; raises SystemExit(2) if there are faults."""
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        for problem in report["problems"][:_SHOWN]:
            place = f"{problem['file']}:{problem['line']}" if problem["line"] else problem["file"]
            click.echo(printable(f"{place}: {problem['reason']}: {problem['detail']}"))
        for file in report["files"]:
            outcome = f"{sum(file['faults'].values())} faults" if file["faults"] else file["format"]
            click.echo(printable(f"{file['file']}: {file['lines']} lines, {outcome}"))
        if report["faults"]:
            reasons = Counter[str]()
            for file in report["files"]:
                reasons.update(file["faults"])
            listed = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
            click.echo(f"{report['faults']} faults ({listed}): nothing is imported until they are fixed")
        else:
            _show_counts(report)
    if report["faults"]:
        raise SystemExit(REFUSED)


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
        click.echo(f"{report['domain']} has {splits} imported{now}; `capibara run` adds them to the dataset")
