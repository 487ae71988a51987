"""*apply* examples: a task below the playbook bullets that helped with it -> the solution.

Bullets helped where it is recorded: the execution was recorded with the bullet in its context (`bullet_ids`) and ended
well, or the bullet names the execution or its sandbox as its evidence and helped more often than it harmed. Where
nothing is recorded, those helped whose advice the solution followed (`followed.py`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.evidence import AdvisedBy, Evidence, ExampleCandidate
from capibara_assets.datasets.kinds.followed import followed
from capibara_assets.datasets.recipe import DatasetRecipe

_MOST = 5  # bullets quoted with one task


@dataclass(frozen=True)
class Lessons:
    """The bullets of a consolidated playbook (rows of Consolidated, best first), indexed by id and by evidence."""

    rows: tuple[Row, ...]
    by_id: dict[str, tuple[int, ...]]  # bullet id, origin, or id inside its playbook -> positions
    by_evidence: dict[str, tuple[int, ...]]  # id that a bullet names as evidence -> positions

    @classmethod
    def of(cls, rows: "list[Row]") -> "Lessons":
        """Index bullets (rows of Consolidated, best first)."""
        by_id: dict[str, set[int]] = defaultdict(set)
        by_evidence: dict[str, set[int]] = defaultdict(set)
        for position, row in enumerate(rows):
            for name in (row["bullet_id"], *row["origins"]):
                by_id[name].add(position)
                by_id[name.rpartition("/")[2]].add(position)
            if row["helpful"] <= row["harmful"]:
                continue
            for reference in row["evidence"]:
                kind, _, name = reference.partition(":")
                if "fail" not in kind.lower() and "error" not in kind.lower():
                    by_evidence[name].add(position)
        return cls(
            tuple(rows),
            {name: tuple(sorted(positions)) for name, positions in by_id.items()},
            {name: tuple(sorted(positions)) for name, positions in by_evidence.items()},
        )

    def that_helped(self, execution: Row) -> list[Row]:
        """Bullets recorded with a successful execution, or citing it (or its sandbox) as evidence.

        An id that several bullets share means those of the execution's own agent; if these are several, it is ignored.
        """
        helpful: set[int] = set()
        for name in execution.get("bullet_ids") or ():
            places = self.by_id.get(name, ())
            if len(places) > 1:
                places = tuple(p for p in places if execution["agent_id"] in self.rows[p]["agents"])
            if len(places) == 1:
                helpful.add(places[0])
        for name in (execution["execution_id"], execution["sandbox_id"]):
            helpful |= set(self.by_evidence.get(name, ()))
        return [self.rows[position] for position in sorted(helpful)]


def candidates(
    evidence: Evidence, solutions: Sequence[ExampleCandidate], recipe: DatasetRecipe
) -> Iterator[ExampleCandidate]:
    """One candidate per *solve* candidate that bullets helped with; quotes those bullets, the best first."""
    lessons = Lessons.of(evidence.lessons)
    if not lessons.rows:
        return
    likely = followed(lessons.rows, solutions, recipe.advice)
    for position, solution in enumerate(solutions):
        recorded = lessons.that_helped(evidence.rows[solution.execution_ids[0]])
        helped = (recorded or likely.get(position, []))[:_MOST]
        advised_by: AdvisedBy = "record" if recorded else "likeness"
        if helped:
            yield replace(
                solution,
                kind="apply",
                prompt=prompts.apply([bullet["content"] for bullet in helped], solution.prompt),
                bullet_ids=tuple(bullet["bullet_id"] for bullet in helped),
                advised_by=advised_by,
            )


def figures(kept: Sequence[ExampleCandidate], bullets: int) -> dict[str, Any]:
    """How much of the playbook reached the examples, and how that is known (JSON values).

    Args:
        kept: the candidates of all kinds that became examples.
        bullets: number of bullets of the consolidated playbook.
    """
    applied = [one for one in kept if one.kind == "apply"]
    solved = sum(one.kind == "solve" for one in kept)
    return {
        "apply": len(applied),
        "of_solve": round(len(applied) / solved, 6) if solved else 0.0,
        "by": dict(sorted(Counter(str(one.advised_by) for one in applied).items())),
        "quoting": sum(bool(one.bullet_ids) for one in kept),
        "bullets": bullets,
        "bullets_applied": len({bullet for one in applied for bullet in one.bullet_ids}),
    }
