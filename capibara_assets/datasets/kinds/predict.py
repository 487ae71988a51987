"""*predict* examples: code, with all that it needs of its session -> the output that was recorded.

These are candidates only: `examples.build_dataset` keeps those that gave the same output when they were executed again.
"""

from collections.abc import Iterator

from capibara_assets.datasets.code.python_source import without_assertions
from capibara_assets.datasets.code.structure import structural_key, without_comments
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.determinism import is_deterministic
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Candidate, Evidence, has_substance, mean_quality, quotable
from capibara_assets.datasets.kinds.proof import recorded_output
from capibara_assets.datasets.recipe import DatasetRecipe


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[Candidate]:
    """Outputs that follow from the code alone: deterministic, from a context that is complete and quoted in full."""
    for session in evidence.sessions:
        for row in session:
            output = recorded_output(row)
            if row["outcome"] != "ok" or row["stderr"].strip() or not 0 < len(output) <= recipe.max_output_chars:
                continue
            context = evidence.context(row["execution_id"])
            pieces = quotable(context, recipe.context_chars)
            if not context.complete or len(pieces) < len(context.pieces) or not has_substance(row["code"]):
                continue
            code = without_assertions(row["code"]) if row["language"] == "python" else row["code"]
            code, earlier = code.strip("\n"), [piece.text for piece in pieces]
            if not is_deterministic([without_comments(part, row["language"]) for part in [*earlier, code]], output):
                continue
            whole = "\n".join([*earlier, code])
            yield Candidate(
                kind="predict",
                language=row["language"],
                prompt=prompts.predict(row["language"], code, earlier),
                answer=output,
                execution_ids=(row["execution_id"], *(piece.row["execution_id"] for piece in pieces)),
                duplicate_key=structural_key(whole, row["language"]),
                difficulty=difficulty(whole, row["language"], 0, [], recipe.difficulty),
                quality=mean_quality([row]),
                proof=output,
            )
