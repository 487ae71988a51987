"""Plans per domain: the LoRA recipe and the TPU configuration that the data and the hardware ask for."""

import dagster as dg

from capibara_assets.assets.datasets import moe_dataset
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.domains import Domain
from capibara_assets.partitions import domains
from capibara_assets.resources import BaseModel, Hardware, Recipes, Store


@dg.asset(partitions_def=domains, group_name="plans", kinds={"json"}, code_version="1", deps=[moe_dataset])
def lora_config(
    context: dg.AssetExecutionContext,
    store: Store,
    recipes: Recipes,
    base_model: BaseModel,
    target: Hardware,
) -> dg.MaterializeResult:
    """The LoRA/QLoRA recipe chosen for this data on this hardware, each choice with its reason."""
    from capibara_assets.planning.lora import plan_lora
    from capibara_assets.planning.models import read_shape
    from capibara_assets.planning.recipe import PlanningRecipe

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "planning", PlanningRecipe)
    shape, hardware = read_shape(base_model.path), target.target
    inputs.setting("base_shape", shape)
    inputs.setting("target", hardware)
    statistics = inputs.artifact("moe_dataset", domain).document("statistics")
    plan = plan_lora(domain, statistics, shape, hardware, recipe)
    document = plan.model_dump(mode="json")
    artifact = inputs.publish("lora_config", domain, documents={"plan": document})
    reasons = "\n".join(f"- **{name}**: {reason}" for name, reason in plan.reasons.items())
    return materialized(
        artifact,
        inputs,
        {"target": hardware.name, "plan": dg.MetadataValue.json(document), "reasons": dg.MetadataValue.md(reasons)},
    )


@dg.asset(partitions_def=domains, group_name="plans", kinds={"json", "gin"}, code_version="1", deps=[moe_dataset])
def tpu_config(
    context: dg.AssetExecutionContext,
    store: Store,
    recipes: Recipes,
    base_model: BaseModel,
    tpu_target: Hardware,
) -> dg.MaterializeResult:
    """Mesh, batch, remat, predicted step time and memory for a TPU slice; T5X gin and MaxText files."""
    from capibara_assets.planning.models import read_shape
    from capibara_assets.planning.recipe import PlanningRecipe
    from capibara_assets.planning.tpu import plan_tpu
    from capibara_assets.planning.verify import verify_plan

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "planning", PlanningRecipe)
    shape, hardware = read_shape(base_model.path), tpu_target.target
    inputs.setting("base_shape", shape)
    inputs.setting("tpu_target", hardware)
    statistics = inputs.artifact("moe_dataset", domain).document("statistics")
    plan = verify_plan(plan_tpu(domain, statistics, shape, hardware, recipe), recipe)
    document = plan.model_dump(mode="json")
    artifact = inputs.publish("tpu_config", domain, documents={"plan": document})
    return materialized(
        artifact,
        inputs,
        {
            "target": hardware.name,
            "plan": dg.MetadataValue.json(document),
            "gin": dg.MetadataValue.md(f"```\n{plan.gin}\n```"),
        },
    )
