"""Text output of the checkpoint commands: tables, sizes, ages, and the output of `show` and `diff`."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from capibara_assets.cli.terminal.tables import TerminalTable
from capibara_assets.escaping.languages import one_line
from capibara_assets.executions.formats.agents.places import in_file
from capibara_assets.storage.manifest import title_of

if TYPE_CHECKING:
    from capibara_assets.checkpoints.inspect.describe import Description
    from capibara_assets.checkpoints.inspect.diff import Diff, LayerDiff, TensorDiff
    from capibara_assets.lineage.checkpoint_origin import CheckpointOrigin, OriginArtifact

SHORT = 12
"""Digits of an id that are shown; the store accepts such a prefix."""
_SHOWN = 20
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: int | None) -> str:
    """Format a byte count in the largest unit that gives at least 1, such as `1.5 MiB`; `?` for None."""
    if count is None:
        return "?"
    number, unit = float(count), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"


def age(created: str, now: datetime | None = None) -> str:
    """Format the time since `created` in one unit, such as `3 h`."""
    seconds = ((now or datetime.now(UTC)) - datetime.fromisoformat(created)).total_seconds()
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def metrics_text(metrics: Any) -> str:
    """Metrics in one line: `loss=0.52 accuracy=0.9`."""
    return " ".join(f"{name}={value:.6g}" for name, value in sorted(metrics.items()))


def description_text(description: "Description", origin: "CheckpointOrigin") -> str:
    """The text of `checkpoint show`."""
    lines = [f"{description.version}  {description.id}"]
    pairs = {
        "also": ", ".join(description.also),
        "former ids": ", ".join(description.former_ids),
        "kind": description.kind + (f", imported from {description.origin}" if description.origin else ""),
        "step": str(description.step),
        "created": f"{description.created} ({age(description.created)} ago)"
        + (f" by run {description.run}" if description.run else ""),
        "tags": ", ".join(description.tags),
        "metrics": metrics_text(description.metrics),
        "base model": (description.base_digest or "")
        + (f" = {description.base_version}" if description.base_version else ""),
        "dataset": description.dataset_digest or "",
        "code version": description.code_version or "",
        "recipe": json.dumps(description.recipe, sort_keys=True) if description.recipe is not None else "",
        "kept by": ", ".join(description.named_by),
    }
    lines += [f"{name}: {value}" for name, value in pairs.items() if value]
    types = ", ".join(
        f"{one.tensors} {name} ({one.elements:,} elements, {size(one.bytes)})"
        for name, one in description.types.items()
    )
    lines.append(
        f"tensors: {description.tensors} in {description.layers} layers, {description.parameters:,} elements: "
        f"{types or 'none'}"
    )
    lines += _block("tied", [f"{name} is {target}" for name, target in sorted(description.ties.items())])
    lines += _block("files", [f"{name}  {size(length)}" for name, length in description.files.items()])
    lines.append(
        f"size: {size(description.plain_bytes)} plain, {size(description.distinct_bytes)} distinct, "
        f"{size(description.stored_bytes)} stored; no other checkpoint has {size(description.exclusive_bytes)} of the "
        "distinct ones"
    )
    lines += _block(
        "shares pieces with",
        [
            f"{one.version}  {one.id[:SHORT]}  {one.pieces} piece{'s' if one.pieces > 1 else ''}, {size(one.bytes)}"
            for one in description.shares
        ],
    )
    lines += _block(
        "parents",
        [
            f"{one.version or 'pruned'}  {one.id[:SHORT]}" + (f"  step {one.step}" if one.step is not None else "")
            for one in description.parents
        ],
    )
    return "\n".join(map(one_line, lines + _origin_lines(origin)))


def diff_parts(diff: "Diff") -> list[str | TerminalTable]:
    """Output of `checkpoint diff`: layers by distance, then tensors; no name makes a line of its own."""
    return [part if isinstance(part, TerminalTable) else one_line(part) for part in _diff_parts(diff)]


def _diff_parts(diff: "Diff") -> list[str | TerminalTable]:
    lines: list[str | TerminalTable] = [f"A  {diff.a}", f"B  {diff.b}"]
    if diff.equal:
        return [*lines, f"equal to the bit: {len(diff.tensors)} tensors, all files and values"]
    differ = [tensor for tensor in diff.tensors if tensor.status != "equal"]
    lines.append(
        f"{len(differ)} of {len(diff.tensors)} common tensors differ; {len(diff.added)} only in B, "
        f"{len(diff.removed)} only in A"
    )
    lines += diff.notes
    if diff.layers:
        lines += ["", "layers, largest change first:", _layer_table(diff.layers[:_SHOWN])]
        lines += _more(len(diff.layers))
    if diff.deltas:
        ranked = sorted(diff.deltas, key=lambda one: -(one.relative if one.relative is not None else float("inf")))
        rows = [
            (one.module, _number(one.l2), _number(one.relative), _number(one.cosine),
             "/".join(map(str, dict.fromkeys(one.ranks))), "/".join(f"{s:g}" for s in dict.fromkeys(one.scales)))
            for one in ranked[:_SHOWN]
        ]  # fmt: skip
        header = ("module", "distance", "relative", "cosine", "rank", "scale")
        lines += [
            "",
            "weight changes, scale * B @ A:",
            TerminalTable(header, rows, range(1, 6)),
            *_more(len(diff.deltas)),
        ]
    if differ:
        ranked_tensors = sorted(differ, key=_by_distance)
        titles = ("tensor", "status", "distance", "relative", "max", "cosine", "not finite A/B")
        cells = [_tensor_row(tensor) for tensor in ranked_tensors[:_SHOWN]]
        lines += ["", "tensors:", TerminalTable(titles, cells, range(2, 7)), *_more(len(differ))]
    lines += ["", *_names("tensors", diff.added, diff.removed, ())] if diff.added or diff.removed else []
    for what, names in (("files", diff.files), ("values", diff.values)):
        lines += _names(what, names.added, names.removed, names.changed)
    if any(sum(tensor.not_finite) for tensor in differ):
        lines.append("NaN or infinite elements are left out of the distances.")
    return lines


def _layer_table(layers: "Iterable[LayerDiff]") -> TerminalTable:
    rows = []
    for one in layers:
        l2, relative = (one.l2, one.relative) if one.delta_l2 is None else (one.delta_l2, one.delta_relative)
        nan = f"{one.not_finite[0]}/{one.not_finite[1]}" if any(one.not_finite) else ""
        of = "weight change" if one.delta_l2 is not None else "tensors"
        rows.append((one.layer, _number(relative), _number(l2), of, f"{one.changed}/{one.tensors}", nan))
    header = ("layer", "relative", "distance", "of", "changed", "not finite A/B")
    return TerminalTable(header, rows, (1, 2, 4, 5))


def _tensor_row(one: "TensorDiff") -> tuple[str, ...]:
    status = str(one.status)
    if one.status == "other shape":
        status = f"shape {list(one.shapes[0])} -> {list(one.shapes[1])}"
    elif one.status == "other dtype":
        status = f"{one.dtypes[0]} -> {one.dtypes[1]}"
    nan = f"{one.not_finite[0]}/{one.not_finite[1]}" if any(one.not_finite) else ""
    return one.name, status, _number(one.l2), _number(one.relative), _number(one.max_abs), _number(one.cosine), nan


def _by_distance(one: "TensorDiff") -> tuple[bool, float, str]:
    relative = one.relative if one.relative is not None else (0.0 if one.l2 == 0 else float("inf"))
    return not one.not_finite[1] > one.not_finite[0], -relative, one.name


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _names(what: str, added: Sequence[str], removed: Sequence[str], changed: Sequence[str]) -> list[str]:
    lines = []
    for title, names in (
        (f"{what} only in B", added),
        (f"{what} only in A", removed),
        (f"{what} that differ", changed),
    ):
        lines += _block(title, list(names))
    return lines


def _origin_lines(origin: "CheckpointOrigin") -> list[str]:
    if not origin.artifacts:
        return ["made from: it names no artifact"]
    lines = [f"made from, in {origin.store}:", *(f"  {'  ' * one.depth}{_reached(one)}" for one in origin.artifacts)]
    if origin.executions is None:
        return [*lines, "executions: not known, since no dataset it was made from is in the artifact store any more"]
    lines.append(f"executions: {origin.executions} in its datasets" + (", such as" if origin.first else ""))
    for one in origin.first:
        where = f"  {in_file(one.execution_id, one.file, one.line)}" if one.file and one.line else ""
        lines.append(f"  {one.execution_id}{where}")
    return lines


def _reached(one: "OriginArtifact") -> str:
    text = title_of(one.asset, one.partition, one.digest[:SHORT])
    if one.state != "present":
        gone = "its records were forgotten" if one.state == "forgotten" else "not in the artifact store any more"
        return f"{text}: {gone}"
    return text + (f": {one.examples} examples of {one.executions} executions" if one.executions is not None else "")


def _block(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    return [f"{title}:", *(f"  {item}" for item in items[:_SHOWN]), *_more(len(items))]


def _more(count: int) -> list[str]:
    return [f"  … and {count - _SHOWN} more (--json has all)"] if count > _SHOWN else []
