"""Hold TPU plans against the real tools: gin names always where gin-config is installed, XLA as the recipe says."""

from collections.abc import Iterable
from importlib.util import find_spec

from capibara_assets.errors import InputError
from capibara_assets.planning.gin import check_gin
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu import TpuPlan
from capibara_assets.planning.xla import XlaVerdict, check_plan, with_verdict
from capibara_assets.planning.xla_cache import VerdictCache

MOST_TRIED = 8  # plans of a front that are put before the compiler; each takes it seconds to minutes


def verify_plan(plan: TpuPlan, recipe: PlanningRecipe, cache: VerdictCache | None = None) -> TpuPlan:
    """The plan with XLA's verdict where the recipe asks for one; otherwise it goes on saying "not compiled".

    Raises:
        InputError: the gin file names what T5X does not have, compiling is asked for without libtpu, or XLA refuses the
            plan: what does not lower or fit is not published.
    """
    return verify_plans([plan], recipe, cache)


def verify_plans(plans: Iterable[TpuPlan], recipe: PlanningRecipe, cache: VerdictCache | None = None) -> TpuPlan:
    """The first plan that XLA does not refuse, in the order given (a search's front, best first).

    What was refused before it stands in its `reasons["xla"]`.

    Args:
        plans: read lazily, so that later ones need not be made.
        cache: verdicts of the compiler that are there already.

    Raises:
        InputError: as `verify_plan`; none of the first MOST_TRIED is accepted (each with XLA's reason); or no plans.
    """
    refused: list[str] = []
    for plan in plans:
        if find_spec("gin"):
            check_gin(plan.gin)
        if recipe.xla == "skip":
            return plan
        verdict = check_plan(
            plan, compile_program=recipe.xla in ("place", "compile"), whole=recipe.xla == "compile", cache=cache
        )
        if verdict.status not in ("does not fit", "does not lower"):
            return _accepted(plan, verdict, refused)
        refused.append(f"{plan.mesh}, remat {plan.remat}, {plan.global_batch} x {plan.sequence}: {verdict.detail}")
        if len(refused) == MOST_TRIED:
            break
    if not refused:
        raise InputError("no plan was given to be verified")
    raise InputError(f"XLA refuses every plan that was tried ({len(refused)}):\n" + "\n".join(refused))


def _accepted(plan: TpuPlan, verdict: XlaVerdict, refused: list[str]) -> TpuPlan:
    joined = with_verdict(plan, verdict)
    if not refused:
        return joined
    said = f"{len(refused)} better by our figures, refused by XLA: " + "; ".join(refused)
    return joined.model_copy(update={"reasons": {**plan.reasons, "xla": said}})
