"""Builds one domain's dataset: collects candidates, places them in splits, deduplicates, executes and caps them.

Nothing is dropped silently: an execution without an example is listed with the reason, a duplicate stays a member of
its cluster, and an example that holds a benchmark's item is listed as contaminated.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from capibara_assets.datasets.agreement.fitted import fitted
from capibara_assets.datasets.agreement.needless import without_needless
from capibara_assets.datasets.agreement.predictions import raised, settled
from capibara_assets.datasets.agreement.rivals import without_rivals
from capibara_assets.datasets.agreement.votes import UNSURE
from capibara_assets.datasets.audit.quality import quality_report
from capibara_assets.datasets.audit.verdicts import Audited, audited
from capibara_assets.datasets.balance import balance_factors
from capibara_assets.datasets.caps import within_caps
from capibara_assets.datasets.code.templates import template_key
from capibara_assets.datasets.derived.derive import derive, missing, shares
from capibara_assets.datasets.derived.trials import Execute
from capibara_assets.datasets.duplicates.clusters import Cluster, Member, cluster_members, cluster_table
from capibara_assets.datasets.duplicates.decontamination import Contaminated, contaminated
from capibara_assets.datasets.edited import repairs as edited
from capibara_assets.datasets.executing import (
    Judge,
    Reexecute,
    as_shown,
    executed_again,
    judged_by_tests,
    passing_as_shown,
    told_by_prompts,
    verified_as,
)
from capibara_assets.datasets.explanations import diagnose, explain
from capibara_assets.datasets.imported.join import add_imported, import_figures, stated_once
from capibara_assets.datasets.kinds import apply, predict, repair, solve
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate
from capibara_assets.datasets.kinds.prompts import CODE, PREDICT_ERROR, section
from capibara_assets.datasets.placing import (
    FAILED_LATER,
    MENDED_LATER,
    REFUTED,
    UNKNOWN_GROUP,
    Placed,
    messages_of,
    placed_of,
)
from capibara_assets.datasets.poison.held import BACK_DOOR, possible_back_doors
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import SPLITS, Example, LeftOut, Split
from capibara_assets.datasets.statistics import MadeFrom, counts, statistics
from capibara_assets.domains import Domain
from capibara_assets.storage.records import Record, table

__all__ = ["Dataset", "Evidence", "build_dataset"]

DUPLICATE = "duplicate of a kept example, which counts it as weight"
ENOUGH = "the recipe keeps fewer solutions of one task"
ALIKE = "the recipe keeps fewer examples that differ in names and values alone"
FAILED = "failed and was not repaired"
NOTHING = "no statement, deterministic output, pattern or repair to learn from"
OTHER_TENANT = "belongs to a tenant that the recipe does not name"
CONTAMINATED = "holds an item of a named benchmark"

_IMPORT = "bug:missing_import"
_PACKAGE = re.compile(r"^\+\s*(?:from|import)\s+(\w+)", re.MULTILINE)  # of a diff

VOLATILE = ("reexecution.json",)
"""Documents outside the data version: timings, cache hits and the machine's isolation."""


@dataclass(frozen=True)
class Dataset:
    """One domain's dataset: examples, left-out executions, clusters, contaminated examples, and statistics."""

    examples: pl.DataFrame
    left_out: pl.DataFrame
    clusters: pl.DataFrame
    contaminated: pl.DataFrame
    statistics: dict[str, Any]
    reexecution: dict[str, Any]  # of this run: what was executed again, and in which isolation

    def tables(self) -> dict[str, tuple[type[Record], pl.DataFrame]]:
        """Name -> (row type, table)."""
        return {
            "examples": (Example, self.examples),
            "left_out": (LeftOut, self.left_out),
            "clusters": (Cluster, self.clusters),
            "contaminated": (Contaminated, self.contaminated),
        }

    def documents(self) -> dict[str, Any]:
        """Name -> JSON."""
        return {"statistics": self.statistics, "reexecution": self.reexecution}


def build_dataset(
    domain: Domain,
    evidence: Evidence,
    groups: pl.DataFrame,
    recipe: DatasetRecipe,
    *,
    imported: pl.DataFrame | None = None,
    reexecute: Reexecute | None = None,
    judge: Judge | None = None,
    execute: Execute | None = None,
) -> Dataset:
    """Build the dataset of one domain (tables Example, LeftOut, Cluster and Contaminated, and statistics).

    An example depends only on its own executions, the recipe, the verdicts on what was executed again, and the other
    examples of the domain (duplicates, caps).

    Args:
        domain: `debug` gets repairs and diagnoses, every other domain solve, repair, explain, predict and apply.
        evidence: the domain's executions, patterns, repair pairs and bullets.
        groups: the table of `groups.assign_groups`.
        imported: examples from files (Example), which are added to those of the experience.
        reexecute: runs executions of the evidence again and returns verdicts; without it nothing is executed, and
            there are no *predict* examples.
        judge: runs answers with their hidden tests; without it no test is tried.
        execute: runs changed code, of which examples are derived; without it there are none.
    """
    group_of = {
        unit: (group, split, reason)
        for unit, group, split, reason in groups.select("unit_id", "group_id", "split", "reason_left_out").iter_rows()
    }
    own = replace(evidence.of_tenants(recipe.tenants), splits={unit: split for unit, (_, split, _) in group_of.items()})
    doubts, agreement = fitted(own, execute) if execute is not None else ({}, {})
    fit = {unit: doubt for unit, doubt in doubts.items() if doubt.reason not in UNSURE}
    derived = derive(domain, own, recipe, execute, fit)
    candidates = [*_candidates(domain, own, recipe, execute), *derived.candidates]
    unsolved = dict.fromkeys(own.refuted, FAILED_LATER) | dict.fromkeys(own.mended_later, MENDED_LATER)
    unsolved |= dict.fromkeys(own.unsolved, REFUTED)
    by_id, reasons, unplaced = placed_of(candidates, domain, group_of, recipe, doubts, unsolved)
    held = _holding_benchmarks(by_id, imported, recipe)
    banned = set(held["example_id"])
    suspect = possible_back_doors(by_id.values(), own.known, recipe.poison)
    clustered = _clustered([p for p in by_id.values() if p.example_id not in banned | suspect.ids], recipe)
    verdicts = _audited(clustered, by_id, imported, domain, recipe)
    wanted = [p for p in clustered if p.example_id not in verdicts.dropped]
    limited = _limited(wanted, lambda p: p.candidate.task_key, recipe.solutions_per_task)
    varied = _limited(_limited(limited, _template, recipe.examples_per_template), _error, recipe.examples_per_template)
    judged = judged_by_tests(varied, own, recipe, judge)
    again = executed_again(judged.kept, own, recipe, reexecute)
    standing, fallen = passing_as_shown(again.kept, execute)
    told, untold = told_by_prompts(standing, execute)
    within = within_caps(told, domain, own.known, recipe)
    kept = within.kept
    for example_id in sorted(banned & set(by_id)):
        reasons.setdefault(by_id[example_id].subject, CONTAMINATED)
    reasons |= {by_id[example_id].subject: BACK_DOOR for example_id in suspect.ids}
    _explain_losses(
        reasons,
        by_id,
        clustered,
        (
            (wanted, verdicts.dropped),
            (limited, ENOUGH),
            (varied, ALIKE),
            (judged.kept, judged.reasons),
            (again.kept, again.reasons),
            (standing, fallen),
            (told, untold),
            (kept, within.reasons),
        ),
    )
    made = table(Example, [_example(domain, p, own) for p in kept])
    unusable = {**verdicts.dropped, **dict.fromkeys(banned - set(by_id), CONTAMINATED)}
    clean = imported.filter(~pl.col("example_id").is_in(list(unusable))) if imported is not None else None
    examples, unused = add_imported(made, clean, recipe)
    factors = balance_factors(examples["difficulty"].to_list(), examples["weight"].to_list(), recipe.balance)
    examples = examples.with_columns(balance=pl.Series(factors, dtype=pl.Float64))
    clusters = cluster_table([_members(placed, by_id) for placed in kept])
    left_out = _left_out(examples, evidence, own, group_of, reasons)
    figures = statistics(MadeFrom(domain, recipe, len(evidence.rows), again.notes), examples, left_out, clusters)
    figures["advice"] = apply.figures([placed.candidate for placed in kept], len(own.lessons))
    of_changes = shares(examples.select("split", "kind", "derived").iter_rows())
    figures["derived"], figures["agreement"] = derived.figures | of_changes, agreement
    figures["missing"] += missing(derived.figures, of_changes, recipe)
    figures["unusable"] = {f"{kind}: {why}": n for (kind, why), n in sorted(unplaced.items())}
    figures["imported"] = import_figures(examples, unused)
    figures["contaminated"] = {"examples": len(banned), "by_benchmark": counts(held["benchmark"])}
    figures["poison"] = {"share": within.figures, "back_doors": dict(suspect.figures)}
    figures["audit"], figures["quality_report"] = dict(verdicts.figures), quality_report(examples)
    dropped = table(LeftOut, [LeftOut(unit_id=i, reason=why) for i, why in sorted(unusable.items())])
    return Dataset(
        examples,
        pl.concat([left_out, unused, dropped]),
        clusters,
        held,
        figures,
        again.summary | {"judged": judged.summary},
    )


def _holding_benchmarks(
    placed: Mapping[str, Placed], imported: pl.DataFrame | None, recipe: DatasetRecipe
) -> pl.DataFrame:
    """The examples, own and imported, that hold an item of the recipe's benchmarks (table Contaminated)."""
    rows = [(p.example_id, p.candidate.language, messages_of(p.candidate)) for p in placed.values()]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(("example_id", "language", "messages"), pl.String), orient="row")
    if imported is not None:
        frame = pl.concat([frame, imported.select(frame.columns)])
    return contaminated(frame, recipe.decontamination)


def _audited(
    clustered: Sequence[Placed],
    by_id: Mapping[str, Placed],
    imported: pl.DataFrame | None,
    domain: Domain,
    recipe: DatasetRecipe,
) -> Audited:
    """What a person's verdicts leave out, of the clusters and of the imported examples."""
    clusters = [[(m.member_id, messages_of(by_id[m.member_id].candidate)) for m in p.cluster] for p in clustered]
    others = imported.select("example_id", "messages").rows() if imported is not None else []
    return audited([*clusters, *([other] for other in others)], domain, recipe.exclusions)


def _candidates(
    domain: Domain, evidence: Evidence, recipe: DatasetRecipe, execute: Execute | None
) -> Iterable[ExampleCandidate]:
    mended = list(repair.candidates(evidence, recipe))
    if execute is not None:
        mended = without_needless(mended, execute)
    repairs = [*mended, *edited.candidates(evidence, recipe)]
    if domain == Domain.DEBUG:
        advised = apply.candidates(evidence, repairs, recipe)
        errors = raised(predict.errors(evidence, recipe), execute)
        return [*repairs, *diagnose.candidates(evidence, recipe), *advised, *errors]
    solutions = list(solve.candidates(evidence, recipe))
    if execute is not None:
        solutions = without_rivals(solutions, evidence, execute)
    made = [*solutions, *apply.candidates(evidence, solutions, recipe), *repairs]
    made += explain.candidates(evidence, recipe)
    return [*made, *settled(as_shown(predict.candidates(evidence, recipe), evidence, execute), execute)]


def _clustered(placed: Sequence[Placed], recipe: DatasetRecipe) -> list[Placed]:
    """The best of each cluster of one kind (training first, then quality, then digest), with its cluster.

    So no other split of the domain holds a near-duplicate of a training example; it adds to that one's weight.
    """
    ordered = sorted(
        placed,
        key=lambda p: (SPLITS.index(p.split), p.candidate.derived is not None, -p.candidate.quality, p.example_id),
    )
    members = [
        Member(p.example_id, p.candidate.kind, p.candidate.compared, p.candidate.language, p.candidate.duplicate_key)
        for p in ordered
    ]
    by_id = {p.example_id: p for p in ordered}
    return [
        replace(by_id[cluster[0].member_id], cluster=tuple(cluster))
        for cluster in cluster_members(members, recipe.near_duplicates)
    ]


def _limited(placed: Sequence[Placed], key: Callable[[Placed], str | None], most: int) -> list[Placed]:
    """At most `most` examples of one kind, split and key: the best, then the lowest digest; all that have no key."""
    kept, count = [], Counter[tuple[str, str, str]]()
    for item in sorted(placed, key=lambda i: (-i.candidate.quality, i.example_id)):
        if (known := key(item)) is not None:
            count[item.candidate.kind, item.split, known] += 1
            if count[item.candidate.kind, item.split, known] > most:
                continue
        kept.append(item)
    return kept


def _template(placed: Placed) -> str | None:
    """What is equal for examples that differ in names and values alone: of code to read, and of code with one bug.

    Of code that lacks an import it is the package, whatever the code and the names: the error says what is missing.
    """
    one = placed.candidate
    if one.kind == "repair" and one.derived == _IMPORT:
        return " ".join(_PACKAGE.findall(one.diff or ""))
    if one.kind == "repair" and one.derived is not None:
        return f"{one.derived}:{template_key(one.answer, one.language)}"
    if one.kind in ("predict", "explain"):
        return f"{one.prompt.split()[0]}:{template_key(section(one.prompt, CODE), one.language)}"
    return None


def _error(placed: Placed) -> str | None:
    """An error that is asked for: what other code raises, too, is learned once."""
    one = placed.candidate
    return one.answer if one.prompt.startswith(PREDICT_ERROR) else None


def _explain_losses(
    reasons: dict[str, str],
    by_id: Mapping[str, Placed],
    clustered: Sequence[Placed],
    stages: Sequence[tuple[Sequence[Placed], str | Mapping[str, str]]],
) -> None:
    """Add the reason of each placed example that is not kept; a duplicate shares its representative's."""
    lost: dict[str, str] = {}
    standing = {p.example_id for p in clustered}
    for kept, why in stages:
        survivors = {p.example_id for p in kept}
        lost |= {i: why if isinstance(why, str) else why[i] for i in standing - survivors}
        standing = survivors
    for representative in clustered:
        for link in representative.cluster:
            fate = lost.get(representative.example_id)
            if link.member_id != representative.example_id:
                fate = fate or DUPLICATE
            if fate is not None:
                reasons.setdefault(by_id[link.member_id].subject, fate)


def _members(placed: Placed, by_id: Mapping[str, Placed]) -> list[Cluster]:
    return [
        link.model_copy(update={"execution_ids": list(dict.fromkeys(by_id[link.member_id].candidate.execution_ids))})
        for link in placed.cluster
    ]


def _example(domain: Domain, item: Placed, evidence: Evidence) -> Example:
    candidate = item.candidate
    rows = [evidence.known[unit] for unit in candidate.execution_ids if unit in evidence.known]
    verified, not_replayed = verified_as(item.verdict, candidate.language)
    return Example(
        example_id=item.example_id,
        domain=domain,
        kind=candidate.kind,
        language=candidate.language,
        messages=messages_of(candidate),
        group_id=item.group_id,
        split=item.split,
        difficulty=candidate.difficulty,
        quality=candidate.quality,
        cluster_id=item.cluster[0].cluster_id,
        proof=candidate.proof,
        diff=candidate.diff,
        test=candidate.test,
        derived=candidate.derived,
        weight=item.weight,
        balance=1.0,  # of all examples together, below
        verified=verified,
        not_replayed=not_replayed,
        provenance="experience",
        execution_ids=list(dict.fromkeys(candidate.execution_ids)),
        bullet_ids=list(candidate.bullet_ids),
        sandbox_ids=sorted({row["sandbox_id"] for row in rows}),
        licence=stated_once(row["licence"] for row in rows),
        source=stated_once(row["source"] for row in rows),
        tenants=sorted({row["tenant"] for row in rows if row["tenant"]}),
        source_places=sorted({f"{row['source_file']}:{row['source_line']}" for row in rows}),
    )


def _left_out(
    examples: pl.DataFrame,
    evidence: Evidence,
    own: Evidence,
    group_of: Mapping[str, tuple[str, Split, str | None]],
    reasons: Mapping[str, str],
) -> pl.DataFrame:
    """Every execution of the evidence that no example holds, with the first reason that applies."""
    used = set(examples["execution_ids"].explode().drop_nulls())
    rows = []
    for unit, row in evidence.rows.items():
        if unit in used:
            continue
        foreign = OTHER_TENANT if unit not in own.rows else None
        of_group = group_of[unit][2] if unit in group_of else UNKNOWN_GROUP
        default = NOTHING if row["outcome"] == "ok" else FAILED
        rows.append(LeftOut(unit_id=unit, reason=foreign or of_group or reasons.get(unit) or default))
    return table(LeftOut, rows)
