"""Builds one domain's dataset: candidates of every kind, placed in splits, deduplicated, executed again, capped.

Nothing is dropped silently: an execution without an example is listed with the reason, a duplicate stays a member of
its cluster, and an example that holds a benchmark's item is listed as contaminated.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from capibara_assets.datasets.audit.quality import quality_report
from capibara_assets.datasets.audit.verdicts import Audited, audited
from capibara_assets.datasets.balance import balance_factors
from capibara_assets.datasets.code.anatomy import dissect
from capibara_assets.datasets.derived.derive import capped, derive, missing, shares
from capibara_assets.datasets.derived.trials import Execute
from capibara_assets.datasets.duplicates.clusters import Cluster, Member, cluster_members, cluster_table
from capibara_assets.datasets.duplicates.decontamination import Contaminated, contaminated
from capibara_assets.datasets.groups import BRIDGE, COMMON
from capibara_assets.datasets.imported.join import add_imported, import_figures
from capibara_assets.datasets.kinds import apply, diagnose, explain, predict, repair, solve
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate
from capibara_assets.datasets.kinds.sufficiency import why_insufficient, why_unpredictable
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import SPLITS, Example, Kind, LeftOut, Split, Verified, main_kind
from capibara_assets.datasets.statistics import MadeFrom, counts, statistics
from capibara_assets.datasets.verification import Judgement, Judgements
from capibara_assets.domains import Domain
from capibara_assets.executions.replay.replay import ReplayBatch, ReplayVerdict
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.records import Record, table

__all__ = ["Dataset", "Evidence", "build_dataset"]

UNKNOWN_GROUP = "not in example_groups: materialize it again"
STRADDLES = "its executions are in more than one split"
TOO_LONG = "prompt or answer longer than the recipe allows"
DUPLICATE = "duplicate of a kept example, which counts it as weight"
ENOUGH = "the recipe keeps fewer solutions of one task"
CAPPED = "over the cap of its kind"
FAILED = "failed and was not repaired"
NOTHING = "no statement, deterministic output, pattern or repair to learn from"
OTHER_TENANT = "belongs to a tenant that the recipe does not name"
NOT_AGAIN = "its output was not executed again"
INSUFFICIENT = "its prompt does not suffice"
CONTAMINATED = "holds an item of a named benchmark"
TESTS_ITSELF = "its answer would hold a test of its own result"
NOT_PASSED = "its answer does not pass its test"

_JUDGED: tuple[Kind, ...] = ("solve", "apply", "repair")  # their answers are code that a test can judge

VOLATILE = ("reexecution.json",)
"""Documents outside the data version: timings, cache hits and the machine's isolation."""

Reexecute = Callable[[Evidence, Sequence[str]], ReplayBatch]
Judge = Callable[[Evidence, Sequence[ExampleCandidate]], Judgements]


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


@dataclass(frozen=True)
class _Placed:
    candidate: ExampleCandidate
    example_id: str
    group_id: str
    split: Split
    cluster: tuple[Cluster, ...] = ()
    verdict: ReplayVerdict | Judgement | None = None

    @property
    def subject(self) -> str:
        """The execution that the answer comes from."""
        return self.candidate.execution_ids[0]

    @property
    def weight(self) -> float:
        return round(1 + math.log(len(self.cluster)), 6)


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
    reasons: dict[str, str] = {}  # execution id -> why its candidate was dropped (the first reason)
    by_id: dict[str, _Placed] = {}
    derived = derive(domain, own, recipe, execute)
    for candidate in [*_candidates(domain, own, recipe), *derived.candidates]:
        placed = _insufficient(candidate) or _place(domain, candidate, group_of, recipe)
        if isinstance(placed, _Placed):
            by_id[placed.example_id] = placed
        else:
            reasons.setdefault(candidate.execution_ids[0], placed)
    held = _holding_benchmarks(by_id, imported, recipe)
    banned = set(held["example_id"])
    clustered = _clustered([p for p in by_id.values() if p.example_id not in banned], recipe)
    verdicts = _audited(clustered, by_id, imported, domain, recipe)
    wanted = [p for p in clustered if p.example_id not in verdicts.dropped]
    limited = _limited_solutions(wanted, recipe)
    judged = _judged(limited, own, recipe, judge)
    again = _executed_again(judged.kept, own, recipe, reexecute)
    kept = _capped(again.kept, domain, recipe)
    for example_id in sorted(banned & set(by_id)):
        reasons.setdefault(by_id[example_id].subject, CONTAMINATED)
    _explain_losses(
        reasons,
        by_id,
        clustered,
        (
            (wanted, verdicts.dropped),
            (limited, ENOUGH),
            (judged.kept, judged.reasons),
            (again.kept, again.reasons),
            (kept, CAPPED),
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
    figures["derived"] = derived.figures | of_changes
    figures["missing"] += missing(derived.figures, of_changes, recipe)
    figures["imported"] = import_figures(examples, unused)
    figures["contaminated"] = {"examples": len(banned), "by_benchmark": counts(held["benchmark"])}
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
    placed: Mapping[str, _Placed], imported: pl.DataFrame | None, recipe: DatasetRecipe
) -> pl.DataFrame:
    """The examples, own and imported, that hold an item of the recipe's benchmarks (table Contaminated)."""
    rows = [(p.example_id, p.candidate.language, _messages(p.candidate)) for p in placed.values()]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(("example_id", "language", "messages"), pl.String), orient="row")
    if imported is not None:
        frame = pl.concat([frame, imported.select(frame.columns)])
    return contaminated(frame, recipe.decontamination)


def _audited(
    clustered: Sequence[_Placed],
    by_id: Mapping[str, _Placed],
    imported: pl.DataFrame | None,
    domain: Domain,
    recipe: DatasetRecipe,
) -> Audited:
    """What a person's verdicts leave out, of the clusters and of the imported examples."""
    clusters = [[(m.member_id, _messages(by_id[m.member_id].candidate)) for m in p.cluster] for p in clustered]
    others = imported.select("example_id", "messages").rows() if imported is not None else []
    return audited([*clusters, *([other] for other in others)], domain, recipe.exclusions)


def _messages(candidate: ExampleCandidate) -> str:
    turns = [{"role": "user", "content": candidate.prompt}, {"role": "assistant", "content": candidate.answer}]
    return json.dumps(turns, ensure_ascii=False)


def _candidates(domain: Domain, evidence: Evidence, recipe: DatasetRecipe) -> Iterable[ExampleCandidate]:
    if domain == Domain.DEBUG:
        repairs = list(repair.candidates(evidence, recipe))
        advised = apply.candidates(evidence, repairs, recipe)
        return [*repairs, *diagnose.candidates(evidence, recipe), *advised, *predict.errors(evidence, recipe)]
    solutions = list(solve.candidates(evidence, recipe))
    others = (repair.candidates, explain.candidates, predict.candidates)
    made = [*solutions, *apply.candidates(evidence, solutions, recipe)]
    return made + [candidate for kind in others for candidate in kind(evidence, recipe)]


def _insufficient(candidate: ExampleCandidate) -> str | None:
    """Why a prompt does not hold what its answer needs; of an explanation everything stands in the prompt."""
    if candidate.kind == "explain":
        return None
    why = candidate.lacking
    if why is None and candidate.kind == "predict":
        why = why_unpredictable(candidate.language, candidate.prompt)
    elif why is None:
        why = why_insufficient(candidate.language, candidate.prompt, candidate.answer)
    return f"{INSUFFICIENT}: {why}" if why else None


def _place(
    domain: Domain,
    candidate: ExampleCandidate,
    group_of: Mapping[str, tuple[str, Split, str | None]],
    recipe: DatasetRecipe,
) -> _Placed | str:
    """The candidate with its group and split, or the reason why it cannot be used."""
    if candidate.kind in _JUDGED and dissect(candidate.answer, candidate.language).test:
        return TESTS_ITSELF
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
    # quoted context may be common code, but never of another split
    splits = {split for _, split, _ in places}
    if not subjects:
        return COMMON
    if len(splits) > 1 or any(reason == BRIDGE for _, _, reason in places):
        return STRADDLES
    group, split, _ = min(subjects)
    identity = [domain, candidate.kind, candidate.prompt, candidate.answer, *candidate.execution_ids]
    return _Placed(candidate, sha256_bytes(canonical_json(identity))[:32], group, split)


def _clustered(placed: Sequence[_Placed], recipe: DatasetRecipe) -> list[_Placed]:
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


def _limited_solutions(placed: Sequence[_Placed], recipe: DatasetRecipe) -> list[_Placed]:
    """At most `recipe.solutions_per_task` different solutions of one task: the best, then the lowest digest."""
    kept, count = [], Counter[tuple[str, str]]()
    for item in sorted(placed, key=lambda i: (-i.candidate.quality, i.example_id)):
        task = item.candidate.task_key
        if task is not None:
            count[item.candidate.kind, task] += 1
            if count[item.candidate.kind, task] > recipe.solutions_per_task:
                continue
        kept.append(item)
    return kept


def _chosen(placed: Iterable[_Placed], kind: Kind, recipe: DatasetRecipe) -> tuple[list[_Placed], str | None]:
    """(what of a kind is executed, lowest digests first; how many are not)."""
    of_kind = sorted((p for p in placed if p.candidate.kind == kind), key=lambda p: p.example_id)
    most = recipe.verification.per_kind
    rest = len(of_kind) - most
    note = f"{rest} more were not executed again: the recipe executes {most}" if rest > 0 else None
    return of_kind[:most], note


@dataclass(frozen=True)
class _Again:
    """Result of executing some answers again."""

    kept: list[_Placed]
    reasons: dict[str, str]  # example id -> why it was dropped
    notes: dict[Kind, str]
    summary: dict[str, Any]


def _judged(placed: Sequence[_Placed], evidence: Evidence, recipe: DatasetRecipe, judge: Judge | None) -> _Again:
    """Run answers of the recipe's kinds with their tests: drop those that fail, and tests that judge nothing."""
    chosen: list[_Placed] = []
    for kind in _JUDGED:
        if judge is not None and kind in recipe.verification.kinds:
            chosen += _chosen((p for p in placed if p.candidate.test and not p.candidate.derived), kind, recipe)[0]
    batch = judge(evidence, [p.candidate for p in chosen]) if judge is not None and chosen else Judgements([], {})
    said = {p.example_id: judgement for p, judgement in zip(chosen, batch.found, strict=True)}
    kept, reasons = [], {}
    for item in placed:
        judgement = said.get(item.example_id)
        if judgement is not None and judgement.fails:
            reasons[item.example_id] = f"{NOT_PASSED}: {judgement.reason}"
            continue
        if judgement is not None:
            test = item.candidate.test if judgement.tells else None
            item = replace(item, verdict=judgement, candidate=replace(item.candidate, test=test))
        kept.append(item)
    return _Again(kept, reasons, {}, batch.summary)


def _executed_again(
    placed: Sequence[_Placed], evidence: Evidence, recipe: DatasetRecipe, reexecute: Reexecute | None
) -> _Again:
    """Execute answers of the recipe's kinds again that no test judged, and drop *predict* examples that fail.

    A verdict on an execution holds for every example whose answer it is.
    """
    chosen: list[_Placed] = []
    notes: dict[Kind, str] = {}
    recorded = [p for p in placed if p.candidate.derived is None]
    for kind in recipe.verification.kinds if reexecute is not None else ():
        of_kind, note = _chosen(recorded, kind, recipe)
        chosen += [p for p in of_kind if p.verdict is None]
        if note is not None:
            notes[kind] = note
    subjects = list(dict.fromkeys(p.subject for p in chosen))
    batch = reexecute(evidence, subjects) if reexecute is not None and subjects else ReplayBatch([], {})
    verdicts = {verdict.execution_id: verdict for verdict in batch.verdicts}
    kept, reasons = [], {}
    for item in placed:
        if item.candidate.derived is not None:  # only what came out of two runs was derived
            kept.append(replace(item, verdict=ReplayVerdict(item.subject, "reexecuted", None, None)))
            continue
        kind, verdict = item.candidate.kind, item.verdict or verdicts.get(item.subject)
        if kind == "predict" and (verdict is None or verdict.verified != "reexecuted"):
            reasons[item.example_id] = NOT_AGAIN if verdict is None else f"{NOT_AGAIN}: {verdict.reason}"
            continue
        kept.append(item if kind == "explain" else replace(item, verdict=verdict))
    if any(p.candidate.kind == "predict" for p in placed):
        if reexecute is None or "predict" not in recipe.verification.kinds:
            notes["predict"] = "nothing was executed again, and only outputs that came out again are asked for"
        elif not any(p.candidate.kind == "predict" for p in kept):
            notes["predict"] = "no recorded output came out again when its code was executed"
    summary = {"executions": len(subjects), "of_examples": len(placed), **batch.summary}
    return _Again(kept, reasons, notes, summary)


def _capped(placed: Sequence[_Placed], domain: Domain, recipe: DatasetRecipe) -> list[_Placed]:
    """Cap every kind but the main one at its share of the whole, lowest digests first.

    Caps do not push the domain below `recipe.cap_floor` examples: up to there the smallest kinds are filled first.
    Derived examples come after recorded ones, and are capped at their share of each split.
    """
    main = main_kind(domain)
    by_kind: dict[Kind, list[_Placed]] = defaultdict(list)
    ordered = sorted(placed, key=lambda i: (i.candidate.derived is not None, i.example_id))
    for item in capped(ordered, lambda i: i.split, lambda i: i.candidate.derived, recipe.derived.most_share):
        by_kind[item.candidate.kind].append(item)
    others = sorted(kind for kind in by_kind if kind != main)
    allowed = {kind: len(by_kind[kind]) for kind in others}
    total = len(placed)
    while True:  # a smaller whole makes smaller shares: iterate to the fixed point
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


def _explain_losses(
    reasons: dict[str, str],
    by_id: Mapping[str, _Placed],
    clustered: Sequence[_Placed],
    stages: Sequence[tuple[Sequence[_Placed], str | Mapping[str, str]]],
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


def _members(placed: _Placed, by_id: Mapping[str, _Placed]) -> list[Cluster]:
    return [
        link.model_copy(update={"execution_ids": list(dict.fromkeys(by_id[link.member_id].candidate.execution_ids))})
        for link in placed.cluster
    ]


def _example(domain: Domain, item: _Placed, evidence: Evidence) -> Example:
    candidate = item.candidate
    rows = [evidence.known[unit] for unit in candidate.execution_ids if unit in evidence.known]
    verified, not_replayed = _verified(item.verdict)
    return Example(
        example_id=item.example_id,
        domain=domain,
        kind=candidate.kind,
        language=candidate.language,
        messages=_messages(candidate),
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
        licence=_stated(row["licence"] for row in rows),
        source=_stated(row["source"] for row in rows),
        tenants=sorted({row["tenant"] for row in rows if row["tenant"]}),
        source_places=sorted({f"{row['source_file']}:{row['source_line']}" for row in rows}),
    )


def _verified(verdict: ReplayVerdict | Judgement | None) -> tuple[Verified, str | None]:
    """How an answer was verified, and why its result was not reproduced, if it was not."""
    if verdict is None:
        return "recorded", "not chosen: the recipe executes other kinds, or fewer of this one"
    return verdict.verified, verdict.reason


def _stated(values: Iterable[str | None]) -> str | None:
    return "; ".join(sorted({value for value in values if value})) or None


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
