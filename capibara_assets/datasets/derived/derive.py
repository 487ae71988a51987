"""Derived examples of one domain: injected bugs (*repair*) and changed inputs (*predict*), observed in the sandbox."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from capibara_assets.datasets.code.superseded import superseded
from capibara_assets.datasets.derived import injected, predicted, queries, query_walks
from capibara_assets.datasets.derived.injected import Injected
from capibara_assets.datasets.derived.solved import solved_cells
from capibara_assets.datasets.derived.trials import Execute, Trial
from capibara_assets.datasets.kinds import repair
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.domains import Domain
from capibara_assets.storage.digests import sha256_bytes

_LESS = 0.8  # quality factor of what was not recorded as it stands
_MORE_BUGS = 2  # of one solved cell in `debug`, which has no inputs to change: tried, and kept beyond the recipe's

#: Executions that a variant counts as: one in JavaScript needs a context of its own.
_COST = {"javascript": 2}

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Derived:
    """Derived candidates, and statistics of the attempts (JSON values)."""

    candidates: list[ExampleCandidate]
    figures: dict[str, Any]


def derive(
    domain: Domain,
    evidence: Evidence,
    recipe: DatasetRecipe,
    execute: Execute | None,
    unsound: Collection[str] = (),
) -> Derived:
    """Mutate the domain's solved cells, run the variants, and make candidates of those with an observed effect.

    `debug` gets bugs alone, to repair and to predict their errors; every other domain bugs to repair, and inputs.

    Args:
        execute: runs trials; None: nothing is executed, so nothing is derived.
        unsound: executions whose code is not right in general: nothing is derived of them.
    """
    wanted = recipe.derived
    if execute is None or not wanted.most_share:
        return Derived([], {"solved": 0, "note": "nothing was executed, and only observed changes are examples"})
    sound = [one for one in solved_cells(evidence) if not any(row["execution_id"] in unsound for row in one.rows)]
    solved = sorted(sound, key=lambda one: sha256_bytes(one.row["execution_id"].encode()))
    more = _MORE_BUGS if domain == Domain.DEBUG else 0
    # their authors went on, or an assertion told that they are wrong
    over = evidence.refuted.union(*map(superseded, evidence.sessions))
    most = [0 if one.row["execution_id"] in over else wanted.tried + 2 * more for one in solved]
    bugs = [injected.trial_of(one, wanted.bugs, tried) for one, tried in zip(solved, most, strict=True)]
    bugs = bugs[: _within(wanted.executions, bugs)]
    asked = [] if domain == Domain.DEBUG else [program for one in solved for program in predicted.programs(one)]
    inputs = [predicted.trial_of(program, wanted.tried) for program in asked]
    inputs = inputs[: _within(wanted.executions, inputs)]
    on_worlds = list(queries.queries(evidence, recipe))
    walked = [] if domain == Domain.DEBUG else list(query_walks.walks(evidence, recipe))
    trials = [*(trial for trial, _ in [*bugs, *inputs]), *(query.trial for query in on_worlds)]
    ends = execute([*trials, *(walk.trial for walk in walked)])
    ends, walk_ends = ends[: len(trials)], ends[len(trials) :]
    found = [
        one
        for cell, (_, edits), end in zip(solved, bugs, ends, strict=False)
        for one in injected.observed(cell, edits, end, wanted.per_solution + more)
    ]
    answered = queries.answered(on_worlds, ends[len(bugs) + len(inputs) :])
    found += [
        one for query, end in queries.best(answered) for one in queries.injected(query, end, wanted.per_solution + more)
    ]
    made = [*_repairs(evidence, found, recipe)]
    for program, (_, edits), end in zip(asked, inputs, ends[len(bugs) :], strict=False):
        made += predicted.candidates(program, edits, end, recipe, wanted.per_solution)
    if domain == Domain.DEBUG:
        made += [one for one in (injected.raised(bug, recipe) for bug in found) if one is not None]
    else:
        made += [one for query, end in answered for one in queries.predicted(query, end, recipe)]
        made += query_walks.candidates(walked, walk_ends, recipe)
    figures = {
        "solved": len(solved),
        "programs": len(asked),
        "queries": len({query.row["execution_id"] for query in on_worlds}),
        "answered": len({query.row["execution_id"] for query, _ in answered}),
        "tried": sum(len(edits) for _, edits in [*bugs, *inputs]),
        "trials": len(ends),
        "runs_here": sum(bool(end and end[0] and end[0].ok) for end in ends),
        "observed": dict(sorted(Counter(str(one.derived) for one in made).items())),
    }
    return Derived([replace(one, quality=round(one.quality * _LESS, 6)) for one in made], figures)


def _within(budget: int, trials: Sequence[tuple[Trial, Sequence[Any]]]) -> int:
    """How many of the trials, from the first, stay within a budget of variants."""
    used = 0
    for position, (trial, _) in enumerate(trials):
        used += len(trial.variants) * _COST.get(trial.language, 1)
        if used > budget:
            return position
    return len(trials)


def _repairs(evidence: Evidence, found: Sequence[Injected], recipe: DatasetRecipe) -> Iterable[ExampleCandidate]:
    candidates = repair.of_pairs(evidence, [one.pair for one in found], recipe)
    for one, candidate in zip(found, candidates, strict=True):
        if not injected.is_mendable(one, candidate.prompt):
            continue
        ids = (*candidate.execution_ids, *(row["execution_id"] for row in one.solved.rows))
        yield replace(
            candidate,
            execution_ids=tuple(dict.fromkeys(ids)),
            subjects=1,
            proof=f"It passed again; with the change it gave:\n{one.observed}"[:1000],
            derived=f"bug:{one.edit.kind}",
            lesson=injected.changed_lines(one),
        )


def capped(
    items: Sequence[ItemT], split: Callable[[ItemT], str], derived: Callable[[ItemT], str | None], most: float
) -> list[ItemT]:
    """Keep at most a share `most` of derived items in each split; earlier items take precedence."""
    recorded = Counter(split(item) for item in items if derived(item) is None)
    room = {name: int(most / (1 - most) * count + 1e-9) if most < 1 else len(items) for name, count in recorded.items()}
    kept = []
    for item in items:
        if derived(item) is not None:
            if room.get(split(item), 0) <= 0:
                continue
            room[split(item)] -= 1
        kept.append(item)
    return kept


def missing(tried: dict[str, Any], kept: dict[str, Any], recipe: DatasetRecipe) -> list[str]:
    """Explain as sentences why there are no more derived examples.

    Args:
        tried: figures of `derive`.
        kept: `shares` of the examples.
    """
    if "observed" not in tried:
        return [f"derived: {tried['note']}"] if "note" in tried else []
    lines, observed = [], sum(tried["observed"].values())
    if observed > kept["examples"]:
        lines.append(
            f"derived: {observed - kept['examples']} more were observed, and are over the cap of "
            f"{recipe.derived.most_share:.0%} of each split, over their kind's, or duplicates"
        )
    trials = tried["trials"] - tried["runs_here"]
    if trials:
        lines.append(
            f"derived: {trials} of {tried['trials']} solved programs do not pass here, or are too slow to vary"
        )
    return lines


def shares(examples: Iterable[tuple[str, str, str | None]]) -> dict[str, Any]:
    """Share and number of derived examples by split, kind and change, of (split, kind, derived)."""
    listed = list(examples)
    made = [(split, kind, change) for split, kind, change in listed if change is not None]
    whole = Counter(split for split, _, _ in listed)
    return {
        "examples": len(made),
        "share": round(len(made) / len(listed), 6) if listed else 0.0,
        "by_split": {split: round(sum(s == split for s, _, _ in made) / whole[split], 6) for split in sorted(whole)},
        "by_kind": dict(sorted(Counter(kind for _, kind, _ in made).items())),
        "by_change": dict(sorted(Counter(change for _, _, change in made).items())),
    }
