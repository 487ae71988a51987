"""Pages of the dataset assets."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.escaping.languages import markdown_list, markdown_table
from capibara_assets.metadata.charts import bar_chart
from capibara_assets.metadata.page import AssetPage, KeyFigure, Level, PageVerdict
from capibara_assets.metadata.tables import counts, plot, preview

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.datasets.examples import Dataset
    from capibara_assets.datasets.imported.join import Imported


def groups_page(groups: "pl.DataFrame", statistics: Mapping[str, Any]) -> AssetPage:
    """Page of `example_groups`: number of groups, executions per split, and each domain's largest group."""
    count, left_out = groups["group_id"].n_unique(), int(groups["reason_left_out"].is_not_null().sum())
    too_large = statistics["too_large"]
    words = f"{groups.height:,} executions in {count:,} groups; {left_out:,} left out of training"
    return AssetPage(
        PageVerdict("look", f"{words}; too large: {'; '.join(too_large)}") if too_large else PageVerdict("good", words),
        KeyFigure("groups", count),
        contents={
            "executions": groups.height,
            "splits": counts(dict(groups["split"].value_counts().iter_rows())),
            "left_out": left_out,
            "largest_share": {
                domain: round(each["largest_share"], 4) for domain, each in statistics["domains"].items()
            },
            "too_large": too_large,
            "preview": preview(groups),
        },
    )


def dataset_page(dataset: "Dataset") -> AssetPage:
    """Page of `moe_dataset`: examples by split, kind and difficulty, and omissions by reason."""
    examples, figures = dataset.examples, dataset.statistics
    histogram = examples["difficulty"].hist(bins=[i / 10 for i in range(11)])["count"].to_list()
    bars = {f".{i}": float(n) for i, n in enumerate(histogram)}
    splits = dict(examples["split"].value_counts().iter_rows())
    return AssetPage(
        _sufficient(splits, figures["missing"]),
        KeyFigure("examples", examples.height),
        pictures={"difficulty": plot(bar_chart(bars, "examples by difficulty"))},
        contents={
            "splits": counts(splits),
            "kinds": counts(dict(examples["kind"].value_counts().iter_rows())),
            "missing": dg.MetadataValue.md(markdown_list(figures["missing"])),
            "left_out": counts(dict(dataset.left_out["reason"].value_counts().iter_rows())),
            "quality": dg.MetadataValue.md(quality_table(figures["quality_report"])),
            "contaminated": figures["contaminated"]["examples"],
            "preview": preview(examples, ["kind", "split", "difficulty", "quality", "messages"]),
        },
        records={
            **{name: dg.MetadataValue.json(figures[name]) for name in _FIGURES},
            "reexecution": dg.MetadataValue.json(dataset.reexecution),
        },
    )


_FIGURES = ("verified", "duplicates", "advice", "poison", "audit")


def _sufficient(splits: Mapping[str, int], missing: Sequence[str]) -> PageVerdict:
    """Whether each split has examples, and each kind of example is there."""
    sizes = ", ".join(f"{splits.get(split, 0):,} {split}" for split in _NEEDED_TO)
    if empty := [split for split in _NEEDED_TO if not splits.get(split)]:
        return PageVerdict("bad", f"no example to {' or '.join(_NEEDED_TO[split] for split in empty)} ({sizes})")
    if kinds := [line for line in missing if line.startswith("no ")]:
        return PageVerdict("look", f"{sizes} examples; {kinds[0]}" + f"; and {len(kinds) - 1} more" * (len(kinds) > 1))
    return PageVerdict("good", f"{sizes} examples")


_NEEDED_TO = {"train": "train on", "validation": "choose by", "test": "judge by"}


def quality_table(report: Sequence[Mapping[str, Any]]) -> str:
    """A quality report (`datasets.audit.quality`) as a Markdown table."""
    (kind, source, examples, *shares) = report[-1]
    head = [kind, source, examples, *(share.replace("_", " ") for share in shares)]
    rows = [
        [row[kind], row[source], f"{row[examples]:,}", *(percent(row[share]) for share in shares)] for row in report
    ]
    return markdown_table(head, rows, right=range(2, len(head)))


def percent(share: float | None) -> str:
    """A share as people read it; a dash for None."""
    return "–" if share is None else f"{share:.1%}"


def routing_page(routes: "pl.DataFrame", figures: Mapping[str, Any]) -> AssetPage:
    """Page of `routing_dataset`: prompts by domain."""
    words = f"{routes.height:,} prompts of {len(figures['by_domain'])} domains, evenness {figures['evenness']:.2f}"
    why = figures.get("left_out")
    return AssetPage(
        PageVerdict("look", f"no prompts: {why}") if why else PageVerdict("good" if routes.height else "bad", words),
        KeyFigure("prompts", routes.height),
        contents={"domains": counts(figures["by_domain"]), "preview": preview(routes)},
        records={"statistics": dg.MetadataValue.json(dict(figures))},
    )


def imported_page(imported: "Imported", files: int, records: Mapping[str, Any]) -> AssetPage:
    """Page of `imported_examples`: examples by split, and lines left out by reason."""
    examples, lines = imported.examples, imported.lines
    left_out = dict(lines["reason_left_out"].drop_nulls().value_counts().iter_rows())
    count = sum(left_out.values())
    words = f"{examples.height:,} examples of {files:,} files; {count:,} lines were left out"
    level: Level = "look" if count > examples.height else "good"
    return AssetPage(
        PageVerdict(level if examples.height else "bad", words),
        KeyFigure("examples", examples.height),
        contents={
            "files": files,
            "splits": counts(dict(examples["split"].value_counts().iter_rows())),
            "left_out": counts(left_out),
            "preview": preview(examples, ["kind", "split", "source_places", "messages"]),
        },
        records=records,
    )
