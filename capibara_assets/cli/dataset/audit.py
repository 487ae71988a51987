"""`capibara dataset audit`: how good the examples are by kind and source, and a sample for a person to judge."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.terminal.tables import TerminalTable, show
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.escaping.pages import html_page
from capibara_assets.metadata.dataset_entries import percent
from capibara_assets.storage.jsonfiles import write_bytes_atomic

if TYPE_CHECKING:
    from capibara_assets.assets.inputs import Inputs
    from capibara_assets.datasets.audit.sample import Sampled
    from capibara_assets.datasets.audit.verdicts import AuditVerdict
    from capibara_assets.storage.artifact import Artifact

PAGE, VERDICTS = "audit.html", "audit.jsonl"
_FENCE = re.compile(r"^```[^\n]*\n(.*?)\n?^```[ \t]*$", re.DOTALL | re.MULTILINE)
_TITLED = re.compile(r"\n\n([A-Z][^\n]{0,60}:)\n")  # how the prompts of `datasets/kinds` head each quoted part


def audit_datasets(inputs: "Inputs", domains: Sequence[Domain], out: Path, size: int, as_json: bool) -> None:
    """Write `audit.html` and `audit.jsonl` into `out`, and print the quality reports.

    Raises:
        InputError: no dataset is materialized, or the verdict file that is there has a damaged line.
    """
    from capibara_assets.datasets.audit.quality import quality_report
    from capibara_assets.datasets.audit.sample import draw
    from capibara_assets.datasets.audit.verdicts import keep_verdicts

    made = {domain: dataset for domain in domains if (dataset := inputs.available("moe_dataset", domain)) is not None}
    if not made:
        raise InputError(f"no dataset of {', '.join(domains)} is materialized yet: `capibara run --select moe_dataset`")
    examples = {domain: artifact.frame("examples") for domain, artifact in made.items()}
    reports = {domain: quality_report(frame) for domain, frame in examples.items()}
    samples = {domain: draw(frame, size) for domain, frame in examples.items()}
    held = {domain: held_back(artifact) for domain, artifact in made.items()}
    out.mkdir(parents=True, exist_ok=True)
    lines = keep_verdicts(out / VERDICTS, [one.row for sample in samples.values() for one in sample])
    write_bytes_atomic(out / PAGE, page(reports, samples, lines, held).encode("utf-8"))
    if as_json:
        figures = {
            domain: {
                "dataset": made[domain].digest,
                "quality_report": reports[domain],
                "sample": len(samples[domain]),
                "held_back": held[domain],
            }
            for domain in made
        }
        click.echo(json.dumps({"domains": figures, "page": str(out / PAGE), "verdicts": str(out / VERDICTS)}, indent=2))
        return
    for domain, report in reports.items():
        show(domain, quality_table(report), *held[domain], "")
    judged = sum(line.verdict is not None for line in lines)
    click.echo(f"{sum(map(len, samples.values()))} examples to read: {out / PAGE}")
    click.echo(f"{judged} of {len(lines)} lines have a verdict: {out / VERDICTS}")
    click.echo(f"fill in keep or drop, then `capibara run --audit {out / VERDICTS}`, or name it in the dataset recipe")


def held_back(dataset: "Artifact") -> list[str]:
    """Describe a dataset's examples held back as poison, and authors that could not be searched or capped."""
    poison = dataset.document("statistics").get("poison") if dataset.has("statistics") else None
    if poison is None:
        return []
    share, doors = poison["share"], poison["back_doors"]
    lines = [f"{share['left_out']} left out: over the share of one author"] if share["left_out"] else []
    lines += [
        f"held back, {one['texts']} texts of {one['author']} with {' and '.join(map(repr, one['trigger']))}: "
        f"{one['with_payload']} of their answers hold {one['payload']!r}"
        for one in doors["findings"]
    ]
    return [*lines, *share["notes"], *doors["notes"]]


def quality_table(report: Sequence[Mapping[str, Any]]) -> TerminalTable:
    """A quality report for the terminal."""
    (kind, source, examples, *shares) = report[-1]
    rows = [[row[kind], row[source], str(row[examples]), *(percent(row[share]) for share in shares)] for row in report]
    return TerminalTable([kind, source, examples, *(share.replace("_", " ") for share in shares)], rows, range(2, 10))


def page(
    reports: Mapping[Domain, Sequence[Mapping[str, Any]]],
    samples: "Mapping[Domain, Sequence[Sampled]]",
    lines: "Sequence[AuditVerdict]",
    held: Mapping[Domain, Sequence[str]],
) -> str:
    """The samples as one HTML page without scripts or external resources; examples are escaped as text."""
    decided = {(line.example_id, line.domain): line for line in lines if line.verdict is not None}
    shown = {
        domain: [_shown(one, decided.get((one.row["example_id"], domain))) for one in sample]
        for domain, sample in samples.items()
    }
    values = {"reports": reports, "samples": shown, "verdicts": VERDICTS, "held": held}
    return html_page("capibara_assets.cli", "audit.html.jinja", values, percent=percent)


def _shown(one: "Sampled", decided: "AuditVerdict | None") -> dict[str, Any]:
    turns = json.loads(one.row["messages"])
    code = one.row["kind"] in ("solve", "repair", "apply", "predict")
    spoken = [(turn["role"], segments(turn["content"], code and turn is turns[-1])) for turn in turns]
    return {**one.row, "why": one.why, "turns": spoken, "decided": decided}


def segments(text: str, code: bool = False) -> list[tuple[bool, str]]:
    """(whether it is code, text) of a turn: fenced blocks, and the quoted parts of a prompt below their titles.

    Args:
        code: the whole of it is code or output, unless it has fences.
    """
    parts = _FENCE.split(text)
    if len(parts) > 1:
        return [(number % 2 == 1, part.strip("\n")) for number, part in enumerate(parts) if part.strip()]
    if code:
        return [(True, text)]
    head, *titled = _TITLED.split(text)
    cut = [(False, head)] if head.strip() else []
    for title, quoted in zip(titled[::2], titled[1::2], strict=True):
        cut += [(False, title), (True, quoted)]
    return cut
