"""*apply* examples: a playbook bullet and a task that it helped with -> the solution.

The evidence that it helped is recorded: the execution was recorded with the bullet in its context (`bullet_ids`) and
ended well, or the bullet names the execution or its sandbox as its evidence and helped more often than it harmed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate
from capibara_assets.datasets.kinds.lessons import Lessons

_MOST = 5  # bullets quoted with one task


def candidates(evidence: Evidence, solutions: Iterable[ExampleCandidate]) -> Iterator[ExampleCandidate]:
    """One candidate per *solve* candidate that bullets helped with; quotes those bullets, the best first."""
    lessons = Lessons.of(evidence.lessons)
    if not lessons.rows:
        return
    for solution in solutions:
        helped = lessons.that_helped(evidence.rows[solution.execution_ids[0]])[:_MOST]
        if helped:
            yield replace(
                solution,
                kind="apply",
                prompt=prompts.apply([bullet["content"] for bullet in helped], solution.prompt),
                bullet_ids=tuple(bullet["bullet_id"] for bullet in helped),
            )
