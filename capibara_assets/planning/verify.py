"""Hold a TPU plan against the real tools: gin names always where gin-config is installed, XLA as the recipe says."""

from importlib.util import find_spec

from capibara_assets.planning.gin import check_gin
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu import TpuPlan
from capibara_assets.planning.xla import check_plan, with_verdict


def verify_plan(plan: TpuPlan, recipe: PlanningRecipe) -> TpuPlan:
    """The plan with XLA's verdict where the recipe asks for one; otherwise it goes on saying "not compiled".

    Raises:
        InputError: the gin file names what T5X does not have, or compiling is asked for without libtpu.
    """
    if find_spec("gin"):
        check_gin(plan.gin)
    if recipe.xla == "skip":
        return plan
    return with_verdict(plan, check_plan(plan, compile_program=recipe.xla == "compile"))
