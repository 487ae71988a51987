"""Plan assets: the LoRA recipe and the TPU configuration of each domain, from its data and the hardware."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import dagster as dg

from capibara_assets.assets.datasets import moe_dataset
from capibara_assets.assets.inputs import Inputs, latest_metadata, materialized
from capibara_assets.assets.settings import registered_voters
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.metadata.plan_entries import COST, lora_page, tpu_page
from capibara_assets.metadata.training_entries import OUTCOME
from capibara_assets.partitions import domains
from capibara_assets.resources import BaseModel, GoogleCloud, Hardware, Recipes, Store

if TYPE_CHECKING:
    from capibara_assets.planning.cost import Cost, TimedTraining

PAST_RUNS = 200  # materializations of `trained_adapters` to search for measured times


@dg.asset(partitions_def=domains, group_name="plans", kinds={"json"}, code_version="3", deps=[moe_dataset])
def lora_config(
    context: dg.AssetExecutionContext,
    store: Store,
    recipes: Recipes,
    base_model: BaseModel,
    target: Hardware,
) -> dg.MaterializeResult:
    """The LoRA/QLoRA training recipe for this data and hardware, with a reason for each choice.

    Worry when the memory is close to the target's limit or the cost is higher than expected.
    """
    from capibara_assets.planning.choice import choose_plan
    from capibara_assets.planning.cost import CostContext
    from capibara_assets.planning.models import read_shape
    from capibara_assets.planning.plan_cost import lora_cost
    from capibara_assets.planning.recipe import PlanningRecipe
    from capibara_assets.planning.tpu.files import write_files
    from capibara_assets.training.standalone.from_plan import plan_files

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "planning", PlanningRecipe)
    shape, options = read_shape(base_model.path), target.options_of(domain)
    inputs.setting("base_shape", shape)
    inputs.setting("target", options.setting())
    statistics = inputs.artifact("moe_dataset", domain).document("statistics")
    inputs.setting("voters", voters := registered_voters(recipes))
    chosen = choose_plan(domain, statistics, shape, options, recipe, voters)
    with TemporaryDirectory(prefix="capibara-plan-") as place:
        trees = {"files": write_files(Path(place) / "files", plan_files(chosen.plan, chosen.target))}
        artifact = inputs.publish("lora_config", domain, documents=chosen.documents(), trees=trees)
    # Past times are shown, not published: otherwise each training would change its own input and trigger the next.
    outcomes, others = past_outcomes(context.instance), other_costs(context.instance, "lora_config", domain)
    beside = CostContext(voters, outcomes, others, DOMAINS)
    return materialized(artifact, inputs, lora_page(chosen, lora_cost(chosen.plan, shape, chosen.target, beside)))


@dg.asset(partitions_def=domains, group_name="plans", kinds={"json", "gin"}, code_version="2", deps=[moe_dataset])
def tpu_config(
    context: dg.AssetExecutionContext,
    store: Store,
    recipes: Recipes,
    base_model: BaseModel,
    tpu_target: Hardware,
    google_cloud: GoogleCloud,
) -> dg.MaterializeResult:
    """The training configuration for a TPU slice (mesh, batch, recomputation), with predicted step time and memory.

    Includes files for T5X, MaxText and our JAX trainer. Worry when XLA rejected the first choices.
    """
    from capibara_assets.planning.cost import CostContext
    from capibara_assets.planning.models import read_shape
    from capibara_assets.planning.plan_cost import tpu_cost
    from capibara_assets.planning.recipe import PlanningRecipe
    from capibara_assets.planning.tpu.configuration import tpu_plans
    from capibara_assets.planning.tpu.files import tpu_files, write_files
    from capibara_assets.planning.xla.flags import with_flags
    from capibara_assets.planning.xla.verdict import verdict_cache
    from capibara_assets.planning.xla.verify import first_verified

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "planning", PlanningRecipe)
    shape, hardware = read_shape(base_model.path), tpu_target.target_of(domain)
    inputs.setting("base_shape", shape)
    inputs.setting("tpu_target", hardware)
    inputs.setting("google_cloud", cloud := google_cloud.place())
    statistics = inputs.artifact("moe_dataset", domain).document("statistics")
    cache = verdict_cache(inputs.store.work / "xla_verdicts")
    verified = first_verified(tpu_plans(domain, statistics, shape, hardware, recipe), recipe, cache=cache)
    plan = with_flags(verified.plan, recipe.tpu.xla_flags)
    files = tpu_files(plan, hardware, recipe.tpu, cloud)
    documents = {"plan": plan.model_dump(mode="json"), "cost": tpu_cost(plan, hardware).model_dump(mode="json")}
    with TemporaryDirectory(prefix="capibara-plan-") as place:
        trees = {"files": write_files(Path(place) / "files", files)}
        artifact = inputs.publish("tpu_config", domain, documents=documents, trees=trees)
    beside = CostContext(others=other_costs(context.instance, "tpu_config", domain), domains=DOMAINS)
    cost = tpu_cost(plan, hardware, beside)
    return materialized(artifact, inputs, tpu_page(plan, hardware, cost, files, verified.verdict))


def past_outcomes(instance: dg.DagsterInstance) -> "list[TimedTraining]":
    """Predicted and measured times of past trainings of all domains, newest first."""
    from capibara_assets.planning.cost import read_outcomes

    records = instance.fetch_materializations(dg.AssetKey("trained_adapters"), limit=PAST_RUNS).records
    materializations = (record.asset_materialization for record in records)
    return read_outcomes(
        one.metadata[OUTCOME].value for one in materializations if one is not None and OUTCOME in one.metadata
    )


def other_costs(instance: dg.DagsterInstance, asset: str, domain: Domain) -> "dict[str, Cost]":
    """Domain -> cost of its latest plan, for the other domains that have a plan."""
    from capibara_assets.planning.cost import CostPlan

    costs = {}
    for other in DOMAINS:
        recorded = latest_metadata(instance, asset, other).get(COST) if other != domain else None
        if isinstance(recorded, Mapping):
            costs[other.value] = CostPlan.model_validate(recorded).domain
    return costs
