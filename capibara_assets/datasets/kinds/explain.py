"""*explain* examples: a pattern in executed code -> the explanation that was composed from its evidence.

A playbook bullet that names the same call, table, class of error or idiom is quoted below the explanation.
"""

import re
from collections.abc import Iterator

from capibara_assets.datasets.code.anatomy import dissect
from capibara_assets.datasets.code.structure import structural_key
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, mean_quality
from capibara_assets.datasets.kinds.lessons import Lessons
from capibara_assets.datasets.recipe import DatasetRecipe

_QUOTED = re.compile(r"`[^`]*`")
_FEWEST_WORDS = 4  # beside quoted code: "Function `f(x)`." explains nothing
_MOST_BULLETS = 2


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per pattern whose explanation, with the playbook's bullets about it, says more than its name."""
    lessons = Lessons.of(evidence.lessons)
    for pattern in evidence.patterns.sort("pattern_id").iter_rows(named=True):
        language, explanation = pattern["language"], pattern["explanation"].strip()
        # without its docstring or comment, which the explanation begins with
        code = dissect(pattern["code"], language).body or pattern["code"].strip("\n")
        rows = [evidence.rows[i] for i in sorted(pattern["execution_ids"]) if i in evidence.rows]
        bullets = lessons.about(pattern)[:_MOST_BULLETS] if lessons.rows else []
        explanation = "\n".join([explanation, *(f"The playbook says: {bullet['content']}" for bullet in bullets)])
        if not rows or not code or len(_QUOTED.sub("", explanation).split()) < _FEWEST_WORDS:
            continue
        yield ExampleCandidate(
            kind="explain",
            language=language,
            prompt=prompts.explain(language, code),
            answer=explanation,
            execution_ids=tuple(row["execution_id"] for row in rows),
            subjects=len(rows),
            anywhere=True,
            duplicate_key=structural_key(code, language),
            difficulty=difficulty(code, language, 0, [], recipe.difficulty),
            quality=round(mean_quality(rows) * pattern["success_rate"], 6),
            bullet_ids=tuple(bullet["bullet_id"] for bullet in bullets),
        )
