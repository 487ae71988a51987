"""Asset checks of plans and models: a plan that cannot be carried out, or a model that cannot be used, stops there."""

from collections.abc import Mapping

import dagster as dg

from capibara_assets.assets.inputs import INPUTS, Inputs, latest_metadata
from capibara_assets.checks.results import judged
from capibara_assets.domains import Domain
from capibara_assets.partitions import domains
from capibara_assets.resources import BaseModel, Hardware, Store


@dg.asset_check(asset="lora_config", blocking=True, partitions_def=domains)
def lora_plan_fits(
    context: dg.AssetCheckExecutionContext, store: Store, base_model: BaseModel, target: Hardware
) -> dg.AssetCheckResult:
    """Batch and memory add up on the target, the base has the modules, and the trainer reads the plan's recipe."""
    from capibara_assets.deployment.declarations import read_declared
    from capibara_assets.errors import InputError
    from capibara_assets.planning.lora.recipe import LoraPlan
    from capibara_assets.planning.models import read_shape
    from capibara_assets.planning.plan_checks import lora_problems
    from capibara_assets.training.recipe import TrainingRecipe
    from capibara_assets.training.standalone.from_plan import RECIPE

    domain = Domain(context.partition_key)
    artifact = Inputs(context.instance, store.open()).artifact("lora_config", domain)
    plan = LoraPlan.model_validate(artifact.document("plan"))
    where = target.target_of(domain)
    problems = lora_problems(plan, read_shape(base_model.path), where)
    try:
        if where.kind != "tpu":  # a slice's files are tpu_config's
            read_declared(artifact.directory("files") / RECIPE, TrainingRecipe)
    except InputError as error:
        problems.append(f"the trainer refuses its recipe: {error}")
    good = f"the plan fits on {where.name}"
    return judged(problems, good, "choose another --target or a smaller base model, or lower the recipe `planning`")


@dg.asset_check(asset="tpu_config", blocking=True, partitions_def=domains)
def tpu_plan_fits(context: dg.AssetCheckExecutionContext, store: Store, tpu_target: Hardware) -> dg.AssetCheckResult:
    """Check a TPU plan: mesh, batch and memory fit the slice, XLA accepts the step, and the trainers' files exist."""
    from capibara_assets.planning.plan_checks import tpu_problems
    from capibara_assets.planning.tpu.plan import TpuPlan

    domain = Domain(context.partition_key)
    artifact = Inputs(context.instance, store.open()).artifact("tpu_config", domain)
    plan = TpuPlan.model_validate(artifact.document("plan"))
    problems = tpu_problems(plan, tpu_target.target_of(domain), artifact.directory("files"))
    return judged(problems, f"the plan fits on {plan.target}", "choose a larger --tpu-target or a smaller base model")


@dg.asset_check(asset="merged_checkpoint", blocking=True)
def merged_model_sound(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """The merged model loads whole, its weights are finite, and its mean loss over its domains is below the base's."""
    from capibara_assets.consensus.merging.experts_merge import merge_problems
    from capibara_assets.modeling.base import model_problems

    artifact = Inputs(context.instance, store.open()).artifact("merged_checkpoint")
    report, experts = artifact.document("report"), experts_of(context.instance, "merged_checkpoint")
    problems = [*merge_problems(report, experts), *model_problems(artifact.directory("model"))]
    good = f"it loads whole and is better than the base over {len(experts)} domains"
    return judged(problems, good, MERGE_AGAIN, experts=sorted(experts))


@dg.asset_check(asset="moe_checkpoint", blocking=True)
def mixture_sound(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """The mixture loads whole, its weights are finite, it has every expert, and its mean loss is below the base's."""
    from capibara_assets.consensus.mixture.moe import mixture_problems
    from capibara_assets.modeling.base import model_problems

    artifact = Inputs(context.instance, store.open()).artifact("moe_checkpoint")
    report, experts = artifact.document("report"), experts_of(context.instance, "moe_checkpoint")
    if not report.get("made", True):
        return judged([], f"no mixture was made: {report['why']}", "")
    problems = [*mixture_problems(report, experts), *model_problems(artifact.directory("model"))]
    good = f"it loads whole and is better than the base over {len(experts)} domains"
    return judged(problems, good, MERGE_AGAIN, experts=sorted(experts))


@dg.asset_check(asset="moe_checkpoint", blocking=False)
def mixture_uses_its_experts(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """Every expert of the mixture receives tokens, and the mixture is no worse than the merged model."""
    from capibara_assets.consensus.mixture.moe import unused_experts

    report = Inputs(context.instance, store.open()).artifact("moe_checkpoint").document("report")
    unused = unused_experts(report) if report.get("made", True) else []
    remedy = "raise `moe.steps` in the recipe `consensus`, or serve merged_checkpoint"
    return judged(unused, "every expert receives tokens", remedy, warn=True)


@dg.asset_check(asset="expert_router", blocking=True)
def router_sound(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """The router can be read, its numbers are finite, and it picks among the experts, better than by chance."""
    from capibara_assets.errors import InputError
    from capibara_assets.evaluation.routing.report import router_problems
    from capibara_assets.evaluation.routing.router import Router

    artifact = Inputs(context.instance, store.open()).artifact("expert_router")
    report, experts = artifact.document("report"), experts_of(context.instance, "expert_router")
    if not report.get("trained", True):
        return judged([], f"no router was trained: {report['why']}", "")
    try:
        problems = router_problems(Router.read(artifact.directory("router")), report, experts)
    except InputError as error:
        problems = [str(error)]
    good = f"it picks among {len(experts)} experts, right for {report['test_accuracy']:.0%} of the test prompts"
    remedy = "see `by_domain` in the router's report for the domains whose prompts it confuses; add executions of them"
    return judged(problems, good, remedy, experts=sorted(experts))


@dg.asset_check(asset="promoted_model", blocking=True)
def served_is_there(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """Check that every served byte is stored as published, and matches the history's last move."""
    from capibara_assets.evaluation.serving.served import promotion_problems

    artifacts = store.open()
    document = Inputs(context.instance, artifacts).artifact("promoted_model").document("promotion")
    problems = promotion_problems(artifacts, document)
    remedy = "`capibara promote` a checkpoint that is there, or roll back: `capibara rollback`"
    serving = dg.MetadataValue.json(document["serving"])
    return judged(problems, "all that is served is in the store, byte for byte", remedy, serving=serving)


def experts_of(instance: dg.DagsterInstance, asset: str) -> set[str]:
    """The domains whose experts the latest materialization of an asset read."""
    recorded: Mapping[str, str] = latest_metadata(instance, asset)[INPUTS]["upstream"]
    sources = {name.partition("|")[2] for name, digest in recorded.items() if digest and name.startswith(_EXPERTS)}
    return {domain.value for domain in Domain if domain.value in sources}


_EXPERTS = "consensus_checkpoint|"
MERGE_AGAIN = (
    "materialize it again if its files are damaged; else see the losses per domain on its page and leave the domain"
    " that is not better than the base out of --domains, or train it on more examples"
)

MODEL_CHECKS = [
    lora_plan_fits,
    tpu_plan_fits,
    merged_model_sound,
    mixture_sound,
    mixture_uses_its_experts,
    router_sound,
    served_is_there,
]
