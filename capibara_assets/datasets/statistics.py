"""Statistics of one domain's dataset: figures for the planner, and notes on missing parts."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from capibara_assets.datasets.balance import BANDS, shares
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import KINDS, SPLITS, Kind
from capibara_assets.domains import Domain

EVERY = "every"
_KINDS_OF: dict[Domain, tuple[Kind, ...]] = {
    Domain.DEBUG: ("repair", "explain", "predict", "apply")
}  # the others have all


@dataclass(frozen=True)
class MadeFrom:
    """Inputs of a dataset, as named in its statistics.

    Attributes:
        executions: number of executions in the evidence.
        notes: kind -> why it has no examples, or fewer than the evidence allows.
    """

    domain: Domain
    recipe: DatasetRecipe
    executions: int
    notes: Mapping[Kind, str]


def statistics(
    made_from: MadeFrom, examples: pl.DataFrame, left_out: pl.DataFrame, clusters: pl.DataFrame
) -> dict[str, Any]:
    """The statistics document (JSON values); independent of the order of rows."""
    target = made_from.recipe.balance.target
    chars = examples["messages"].str.len_chars()
    histogram = Counter(min(9, int(value * 10)) for value in examples["difficulty"])
    weights = examples["weight"].to_list()
    balanced = [w * b for w, b in zip(weights, examples["balance"], strict=True)]
    difficulties = examples["difficulty"].to_list()
    kinds = counts(examples["kind"])
    return {
        "domain": made_from.domain,
        "examples": examples.height,
        "by_split": {split: int((examples["split"] == split).sum()) for split in SPLITS},
        "by_kind": kinds,
        "by_language": counts(examples["language"]),
        "by_licence": counts(examples["licence"].fill_null("not stated")),
        "by_tenant": counts(examples["tenants"].list.join(", ").replace("", "none")),
        "verified": {EVERY: _shares(examples["verified"])}
        | {kind: _shares(examples.filter(pl.col("kind") == kind)["verified"]) for kind in kinds},
        "not_replayed": counts(examples["not_replayed"].drop_nulls()),
        "groups": examples["group_id"].n_unique(),
        "chars": {"p50": _quantile(chars, 0.5), "p95": _quantile(chars, 0.95), "max": _quantile(chars, 1.0)},
        "difficulty": {
            "mean": _mean(difficulties),
            "histogram": [histogram[i] for i in range(10)],
            "shares": dict(zip(BANDS, shares(difficulties, weights), strict=True)),
            "balanced": dict(zip(BANDS, shares(difficulties, balanced), strict=True)),
            "target": list(target) if target is not None else None,
        },
        "quality": {
            "mean": _mean(examples["quality"]),
            "by_kind": {kind: _mean(examples.filter(pl.col("kind") == kind)["quality"]) for kind in kinds},
            "with_proof": _share(int(examples["proof"].is_not_null().sum()), examples.height),
        },
        "duplicates": {
            "by_sort": counts(clusters.filter(pl.col("sort") != "representative")["sort"]),
            "clusters": int((clusters["cluster_id"].value_counts()["count"] > 1).sum()),
            "largest": max(clusters["cluster_id"].value_counts()["count"], default=0),
        },
        "stands_for": round(sum(math.exp(weight - 1) for weight in sorted(weights))),
        "executions": made_from.executions,
        "left_out": counts(left_out["reason"]),
        "missing": _missing(made_from, examples.height, kinds, counts(left_out["reason"])),
    }


def counts(values: pl.Series | Iterable[str]) -> dict[str, int]:
    """Value -> number of occurrences, sorted by value."""
    return dict(sorted(Counter(values).items()))


def _missing(made_from: MadeFrom, examples: int, kinds: Mapping[str, int], left_out: Mapping[str, int]) -> list[str]:
    """Sentences on missing examples and kinds, with the reasons."""
    lines, notes, wanted = [], made_from.notes, made_from.recipe.target_examples
    if examples < wanted:
        lines.append(
            f"{examples} of {wanted} examples wanted of {made_from.domain}: "
            f"{made_from.executions} executions give no more"
        )
    own = _KINDS_OF.get(made_from.domain, KINDS)
    lines += [f"no {kind} example: {_why(kind, notes)}" for kind in own if not kinds.get(kind)]
    lines += [f"{kind}: {notes[kind]}" for kind in own if kinds.get(kind) and kind in notes]
    if examples < wanted:
        lines += [f"{count} executions gave none: {reason}" for reason, count in _most_first(left_out)]
    return lines


_WHY: dict[Kind, str] = {
    "solve": "no execution that ended well has a recorded task, docstring, comment, heading or assertions",
    "repair": "no failed execution has a later one in its session that mended it",
    "explain": "nothing that ran again shows more than its code says",
    "predict": "no recorded output follows from the quoted code alone and came out again",
    "apply": "no bullet of the consolidated playbook is recorded with a stated task, nor followed by its solution",
}


def _why(kind: Kind, notes: Mapping[Kind, str]) -> str:
    return notes.get(kind, _WHY[kind])


def _most_first(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))


def _shares(values: pl.Series) -> dict[str, float]:
    return {value: _share(count, len(values)) for value, count in counts(values).items()}


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def _quantile(values: pl.Series, q: float) -> int:
    quantile = values.quantile(q, "nearest")
    return 0 if quantile is None else int(quantile)


def _mean(values: Iterable[float]) -> float:
    ordered = sorted(values)  # so that the sum does not depend on the order of rows
    return round(sum(ordered) / len(ordered), 6) if ordered else 0.0
