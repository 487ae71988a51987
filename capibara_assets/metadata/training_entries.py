"""Page of `trained_adapters`: results and curves of the voters, and the training's time."""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.escaping.languages import markdown_table, markdown_text
from capibara_assets.metadata.charts import line_chart
from capibara_assets.metadata.page import AssetPage, KeyFigure, PageVerdict
from capibara_assets.metadata.tables import plot

if TYPE_CHECKING:
    from capibara_assets.planning.cost import TimedTraining

OUTCOME = "outcome"  # metadata key of a training's measured time, read by later plans
_CURVES = {
    "validation/loss": ("curves", "validation loss"),
    "train/loss": ("training loss", "training loss"),
    "train/learning_rate": ("learning rate", "learning rate"),
    "train/gradient_norm": ("gradient norm", "gradient norm"),
}


def training_page(summary: dict[str, Any], voters: Path, outcome: "TimedTraining | None" = None) -> AssetPage:
    """Page of `trained_adapters`: curves and table of the voters (loss, speed, memory, attempts), and the seconds.

    Args:
        summary: the training's summary document.
        voters: folder with each voter's `metrics.json`.
        outcome: its predicted and measured time.
    """
    head = ("voter", "status", "steps", "validation loss", "skipped", "tokens/s", "MiB", "attempts", "seconds")
    rows = []
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in _CURVES}
    for name, voter in summary["voters"].items():
        metrics = json.loads((voters / name / "metrics.json").read_text("utf-8"))
        totals = metrics["totals"]
        speed, memory = totals.get("median_tokens_per_s", 0), totals.get("peak_memory_mib", 0)
        results = (str(voter["steps"]), f"{voter['validation_loss']:.4f}", str(len(metrics["skipped_steps"])))
        costs = (f"{speed:,.0f}", f"{memory:,.0f}", str(metrics["attempts"]), f"{voter['seconds']:.1f}")
        rows.append((name, voter["status"], *results, *costs))
        for figure, drawn in lines.items():
            if line := metrics["series"].get(figure):
                drawn[name] = thinned(list(zip(line["steps"], line["values"], strict=True)))
    table = {"voters": dg.MetadataValue.md(markdown_table(head, rows, right=range(2, len(head))))}
    timed = outcome_entries(outcome)
    recorded = {OUTCOME: timed.pop(OUTCOME)} if OUTCOME in timed else {}
    return AssetPage(
        training_verdict(summary),
        KeyFigure("validation_loss", median(v["validation_loss"] for v in summary["voters"].values()), "less"),
        pictures={title: plot(line_chart(lines[figure], "step", label)) for figure, (title, label) in _CURVES.items()},
        contents={**table, **slice_entries(summary["voters"]), **decision_entries(summary)},
        cost={"seconds": float(summary["seconds"]), **timed},
        records=recorded,
    )


def training_verdict(summary: Mapping[str, Any]) -> PageVerdict:
    """Whether enough voters are better than the base on their validation shard, and which are not."""
    voters, quorum = summary["voters"], summary["quorum"]
    worse = [name for name, voter in voters.items() if not voter["validation_loss"] < voter["base_validation_loss"]]
    wrong = [f"{name} is not better than the base" for name in worse]
    wrong += [f"{name} did not finish: {why}" for name, why in summary["missing"].items()]
    better = len(voters) - len(worse)
    words = f"{better} of {len(voters) + len(summary['missing'])} voters are better than the base, {quorum} are needed"
    return PageVerdict("bad" if better < quorum else "look" if wrong else "good", "; ".join([words, *wrong]))


def decision_entries(summary: dict[str, Any]) -> dict[str, dg.MetadataValue | str]:
    """Who decided how the voters were trained, and where they ran; empty for summaries of older versions."""
    entries: dict[str, dg.MetadataValue | str] = {}
    if planned := summary.get("planned"):
        rows = []
        for one in planned["decisions"]:
            value = ", ".join(map(str, one["value"])) if isinstance(one["value"], list) else one["value"]
            rows.append((one["name"], str(value), one["by"], one["reason"]))
        entries["decided"] = dg.MetadataValue.md(markdown_table(("setting", "value", "decided by", "because"), rows))
    if placement := summary.get("placement"):
        groups = ", ".join("+".join(group) for group in placement["gpus"])
        where = f"on GPUs {groups}" if groups else "on processors"
        note = f" ({placement['note']})" if placement["note"] else ""
        entries["placement"] = f"{placement['at_once']} voters at a time, {where}{note}"
    return entries


def slice_entries(voters: Mapping[str, Mapping[str, Any]]) -> dict[str, dg.MetadataValue]:
    """Table of measurements on the chips of a TPU slice, compilation separately; empty for other targets."""
    measured = {name: row for name, row in voters.items() if "step_seconds" in row}
    if not measured:
        return {}
    head = ("voter", "device", "compile s", "step s", "of the predicted", "TFLOP/s a chip", "of the peak")
    rows = []
    for name, row in measured.items():
        predicted, share = (
            "–" if row[key] is None else f"{row[key]:.1%}" for key in ("measured_over_predicted", "share_of_peak")
        )
        times = (f"{row['compile_seconds']:.1f}", f"{row['step_seconds']:.4g}", predicted)
        rows.append((name, f"{row['devices']} x {row['device']}", *times, f"{row['tflops_per_chip']:.4g}", share))
    notes = sorted({row["peak_note"] for row in measured.values() if row["peak_note"]})
    table = markdown_table(head, rows, right=range(2, len(head)))
    return {"chips": dg.MetadataValue.md("\n".join([table, *(f"\n{markdown_text(note)}" for note in notes)]))}


def outcome_entries(outcome: "TimedTraining | None") -> dict[str, dg.MetadataValue | str]:
    """Predicted and measured time of a training: as JSON for later plans, and in words."""
    if outcome is None:
        return {}
    predicted = outcome.predicted
    words = "nothing was predicted: the next plan counts on this speed"
    if predicted is not None and outcome.ratio is not None:
        words = (
            f"predicted {predicted[1]:,.1f} s [{predicted[0]:,.1f}, {predicted[2]:,.1f}] an adapter, took"
            f" {outcome.ratio:.2f} times that; the next plan is corrected by it"
        )
    line = f"{outcome.measured:,.1f} s an adapter on {outcome.target} (the median voter): {words}"
    return {OUTCOME: dg.MetadataValue.json(outcome.model_dump(mode="json")), "took": line}


def thinned(line: list[tuple[float, float]], most: int = 60) -> list[tuple[float, float]]:
    """A line reduced to at most `most` points, each the mean of its neighbours, so that the chart stays small."""
    size = -(-len(line) // most)
    parts = [line[start : start + size] for start in range(0, len(line), size or 1)]
    return [(fmean(step for step, _ in part), fmean(value for _, value in part)) for part in parts]
