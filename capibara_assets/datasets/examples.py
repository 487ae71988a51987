"""Builds one domain's dataset: candidates of every kind, placed in splits, deduplicated, capped, none silently lost."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from capibara_assets.datasets import explain, predict, repair, solve
from capibara_assets.datasets.evidence import Candidate, Evidence
from capibara_assets.datasets.groups import BRIDGE, COMMON
from capibara_assets.datasets.imports import add_imported
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import SPLITS, Example, Kind, LeftOut, Split, main_kind
from capibara_assets.domains import Domain
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.records import table

__all__ = ["Dataset", "Evidence", "build_dataset"]

UNKNOWN_GROUP = "not in example_groups: materialize it again"
STRADDLES = "its executions are in more than one split"
TOO_LONG = "prompt or answer longer than the recipe allows"
DUPLICATE = "structurally equal to a kept example, which counts it as weight"
ENOUGH = "the recipe keeps fewer solutions of one task"
CAPPED = "over the cap of its kind"
FAILED = "failed and was not repaired"
NOTHING = "no statement, deterministic output, pattern or repair to learn from"


@dataclass(frozen=True)
class Dataset:
    """One domain's examples, the executions that gave none, and figures for plans and for a person."""

    examples: pl.DataFrame
    left_out: pl.DataFrame
    statistics: dict[str, Any]


@dataclass(frozen=True)
class _Placed:
    candidate: Candidate
    example_id: str
    group_id: str
    split: Split
    weight: float = 1.0


def build_dataset(
    domain: Domain,
    evidence: Evidence,
    groups: pl.DataFrame,
    recipe: DatasetRecipe,
    imported: pl.DataFrame | None = None,
) -> Dataset:
    """Examples of one domain (tables Example and LeftOut, and statistics).

    An example depends only on its own executions, the recipe, and the other examples of the domain (duplicates, caps).

    Args:
        domain: `debug` gets repairs and diagnoses, every other domain solve, repair, explain and predict.
        evidence: the domain's executions, patterns, repair pairs and bullets.
        groups: the table of `groups.assign_groups`.
        imported: examples from files (Example), which join those of the experience.
    """
    group_of = {
        unit: (group, split, reason)
        for unit, group, split, reason in groups.select("unit_id", "group_id", "split", "reason_left_out").iter_rows()
    }
    reasons: dict[str, str] = {}  # execution id -> why its candidate was dropped (the first reason)
    placed: list[_Placed] = []
    for candidate in _candidates(domain, evidence, recipe):
        found = _place(domain, candidate, group_of, recipe)
        if isinstance(found, _Placed):
            placed.append(found)
        else:
            reasons.setdefault(candidate.execution_ids[0], found)
    for choose in (_without_duplicates, _limited_solutions, _capped):
        kept = choose(placed, domain, recipe)
        survivors = {item.example_id for item in kept}
        why = {_without_duplicates: DUPLICATE, _limited_solutions: ENOUGH, _capped: CAPPED}[choose]
        for item in placed:
            if item.example_id not in survivors:
                reasons.setdefault(item.candidate.execution_ids[0], why)
        placed = kept
    examples = table(Example, [_example(domain, item, evidence) for item in placed])
    examples, unused = add_imported(examples, imported, recipe)
    left_out = pl.concat([_left_out(examples, evidence, group_of, reasons), unused])
    return Dataset(examples, left_out, _statistics(domain, examples, left_out, evidence))


def _candidates(domain: Domain, evidence: Evidence, recipe: DatasetRecipe) -> Iterable[Candidate]:
    if domain == Domain.DEBUG:
        return [*repair.candidates(evidence, recipe), *repair.diagnoses(evidence, recipe)]
    kinds = (solve.candidates, repair.candidates, explain.candidates, predict.candidates)
    return [candidate for kind in kinds for candidate in kind(evidence, recipe)]


def _place(
    domain: Domain,
    candidate: Candidate,
    group_of: Mapping[str, tuple[str, Split, str | None]],
    recipe: DatasetRecipe,
) -> _Placed | str:
    """The candidate with its group and split, or the reason why it has none."""
    if len(candidate.prompt) > recipe.max_prompt_chars or len(candidate.answer) > recipe.max_answer_chars:
        return TOO_LONG
    if any(unit not in group_of for unit in candidate.execution_ids):
        return UNKNOWN_GROUP
    if candidate.anywhere:
        usable = tuple(unit for unit in candidate.execution_ids if group_of[unit][2] is None)
        candidate = replace(candidate, execution_ids=usable, subjects=len(usable))
    places = [group_of[unit] for unit in candidate.execution_ids]
    subjects = places[: candidate.subjects]
    for _, _, reason in subjects:
        if reason is not None:
            return reason
    # quoted context may be common code, but never come from another split
    splits = {split for _, split, _ in places}
    if not subjects:
        return COMMON
    if len(splits) > 1 or any(reason == BRIDGE for _, _, reason in places):
        return STRADDLES
    group, split, _ = min(subjects)
    identity = [domain, candidate.kind, candidate.prompt, candidate.answer, *candidate.execution_ids]
    return _Placed(candidate, sha256_bytes(canonical_json(identity))[:32], group, split)


def _without_duplicates(placed: Sequence[_Placed], domain: Domain, recipe: DatasetRecipe) -> list[_Placed]:
    """The best of each cluster (training first, then quality, then digest), with the cluster's size as weight."""
    clusters: dict[tuple[str, str], list[_Placed]] = defaultdict(list)
    for item in placed:
        clusters[item.candidate.kind, item.candidate.duplicate_key].append(item)
    best = []
    for cluster in clusters.values():
        first = min(cluster, key=lambda i: (SPLITS.index(i.split), -i.candidate.quality, i.example_id))
        best.append(replace(first, weight=round(1 + math.log(len({i.example_id for i in cluster})), 6)))
    return best


def _limited_solutions(placed: Sequence[_Placed], domain: Domain, recipe: DatasetRecipe) -> list[_Placed]:
    """At most `recipe.solutions_per_task` different solutions of one task: the best, then the lowest digest."""
    kept, count = [], Counter[str]()
    for item in sorted(placed, key=lambda i: (-i.candidate.quality, i.example_id)):
        task = item.candidate.task_key
        if task is not None:
            count[task] += 1
            if count[task] > recipe.solutions_per_task:
                continue
        kept.append(item)
    return kept


def _capped(placed: Sequence[_Placed], domain: Domain, recipe: DatasetRecipe) -> list[_Placed]:
    """Each kind but the main one at most its share of the whole, lowest digests first.

    The caps do not push the domain below `recipe.cap_floor` examples: up to there every kind gets an equal part of what
    is missing.
    """
    main = main_kind(domain)
    by_kind: dict[Kind, list[_Placed]] = defaultdict(list)
    for item in sorted(placed, key=lambda i: i.example_id):
        by_kind[item.candidate.kind].append(item)
    others = sorted(kind for kind in by_kind if kind != main)
    allowed = {kind: len(by_kind[kind]) for kind in others}
    total = len(placed)
    while True:  # shrinking the whole shrinks the shares: down to the fixed point
        allowed = {kind: min(len(by_kind[kind]), int(recipe.caps.get(kind, 1.0) * total)) for kind in others}
        smaller = len(by_kind[main]) + sum(allowed.values())
        if smaller == total:
            break
        total = smaller
    while total < recipe.cap_floor and (open_kinds := [k for k in others if allowed[k] < len(by_kind[k])]):
        smallest = min(open_kinds, key=lambda kind: (allowed[kind], kind))
        allowed[smallest] += 1
        total += 1
    return [*by_kind[main], *(item for kind in others for item in by_kind[kind][: allowed[kind]])]


def _example(domain: Domain, item: _Placed, evidence: Evidence) -> Example:
    candidate = item.candidate
    rows = [evidence.rows[unit] for unit in candidate.execution_ids if unit in evidence.rows]
    messages = [{"role": "user", "content": candidate.prompt}, {"role": "assistant", "content": candidate.answer}]
    return Example(
        example_id=item.example_id,
        domain=domain,
        kind=candidate.kind,
        language=candidate.language,
        messages=json.dumps(messages, ensure_ascii=False),
        group_id=item.group_id,
        split=item.split,
        difficulty=candidate.difficulty,
        quality=candidate.quality,
        cluster_id=item.example_id,
        weight=item.weight,
        balance=1.0,
        verified="recorded",
        not_replayed=None,
        provenance="experience",
        execution_ids=list(dict.fromkeys(candidate.execution_ids)),
        bullet_ids=[],
        sandbox_ids=sorted({row["sandbox_id"] for row in rows}),
        licence=_stated(row["licence"] for row in rows),
        source=_stated(row["source"] for row in rows),
        tenants=sorted({row["tenant"] for row in rows if row["tenant"]}),
        source_places=sorted({f"{row['source_file']}:{row['source_line']}" for row in rows}),
    )


def _stated(values: Iterable[str | None]) -> str | None:
    return "; ".join(sorted({value for value in values if value})) or None


def _left_out(
    examples: pl.DataFrame,
    evidence: Evidence,
    group_of: Mapping[str, tuple[str, Split, str | None]],
    reasons: Mapping[str, str],
) -> pl.DataFrame:
    """Every execution of the evidence that no example holds, with the first reason that applies."""
    used = set(examples["execution_ids"].explode().drop_nulls())
    rows = []
    for unit, row in evidence.rows.items():
        if unit in used:
            continue
        of_group = group_of[unit][2] if unit in group_of else UNKNOWN_GROUP
        default = NOTHING if row["outcome"] == "ok" else FAILED
        rows.append(LeftOut(unit_id=unit, reason=of_group or reasons.get(unit) or default))
    return table(LeftOut, rows)


def _statistics(domain: Domain, examples: pl.DataFrame, left_out: pl.DataFrame, evidence: Evidence) -> dict[str, Any]:
    """Figures for the planner and for a person: counts, lengths, difficulty, and why the rest was left out."""
    chars = examples["messages"].str.len_chars()

    def counts(frame: pl.DataFrame, column: str) -> dict[str, int]:
        return dict(sorted(frame[column].value_counts().iter_rows()))

    histogram = Counter(min(9, int(value * 10)) for value in examples["difficulty"])
    return {
        "domain": domain,
        "examples": examples.height,
        "by_split": {split: int((examples["split"] == split).sum()) for split in SPLITS},
        "by_kind": counts(examples, "kind"),
        "by_language": counts(examples, "language"),
        "by_provenance": counts(examples, "provenance"),
        "groups": examples["group_id"].n_unique(),
        "chars": {"p50": _quantile(chars, 0.5), "p95": _quantile(chars, 0.95), "max": _quantile(chars, 1.0)},
        "difficulty": {"mean": _mean(examples["difficulty"]), "histogram": [histogram[i] for i in range(10)]},
        "quality": {"mean": _mean(examples["quality"])},
        "stands_for": round(sum(math.exp(weight - 1) for weight in examples["weight"])),
        "executions": len(evidence.rows),
        "left_out": counts(left_out, "reason"),
    }


def _quantile(values: pl.Series, q: float) -> int:
    found = values.quantile(q, "nearest")
    return 0 if found is None else int(found)


def _mean(values: pl.Series) -> float:
    return round(sum(values) / len(values), 6) if len(values) else 0.0
