"""Hold TPU plans against the real tools: gin names where gin-config is installed, XLA as the recipe says.

What does not compile or fit is not published: the next plan on the front is tried, and what was passed over is said.
"""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from capibara_assets.errors import InputError
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.planning.writers.gin import check_gin

if TYPE_CHECKING:
    from capibara_assets.planning.xla.cache import VerdictCache
    from capibara_assets.planning.xla.verdict import XlaVerdict

REFUSED = frozenset({"does not fit", "does not lower"})


class Verified(NamedTuple):
    """A plan that the tools took, XLA's verdict (None where it was not asked), and settings refused before it."""

    plan: TpuPlan
    verdict: "XlaVerdict | None"
    passed_over: tuple[str, ...]


def first_verified(
    plans: Iterable[TpuPlan], recipe: PlanningRecipe, *, cache: "VerdictCache | None" = None
) -> Verified:
    """The first of the plans, best first, that XLA does not refuse.

    Args:
        plans: the front, as `planning.tpu.tpu_plans` gives it.
        recipe: says whether XLA is asked.
        cache: where verdicts of the compiler are kept.

    Raises:
        InputError: the gin file uses a name that T5X does not have, compiling needs a libtpu that is missing, or XLA refuses
            every plan of the front, with each verdict.
    """
    refused: list[str] = []
    for plan in plans:
        asked, verdict = _asked(plan, recipe, cache)
        if verdict is None or verdict.status not in REFUSED:
            if refused:
                reasons = {**asked.reasons, "passed_over": "; ".join(refused)}
                asked = asked.model_copy(update={"reasons": reasons})
            return Verified(asked, verdict, tuple(refused))
        setting = f"{plan.mesh}, remat {plan.remat}, {plan.global_batch} x {plan.sequence} tokens"
        refused.append(f"{setting}: {verdict.status}, {' '.join(verdict.detail.split())[:400]}")
    raise InputError(f"XLA refuses every plan on the front: {'; '.join(refused)}")


def _asked(plan: TpuPlan, recipe: PlanningRecipe, cache: "VerdictCache | None") -> "tuple[TpuPlan, XlaVerdict | None]":
    if find_spec("gin"):
        check_gin(plan.gin)
    if recipe.xla == "skip":
        return plan, None
    from capibara_assets.planning.xla.ask import check_plan, with_verdict

    # `place` stops the compiler when every buffer has its place: seconds, and what does not fit is known by then.
    asked = recipe.xla in ("place", "compile")
    verdict = check_plan(plan, compile_program=asked, whole=recipe.xla == "compile", cache=cache)
    return with_verdict(plan, verdict), verdict
