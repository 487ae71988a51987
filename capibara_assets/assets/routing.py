"""The router asset: a classifier that picks the expert for a prompt."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import dagster as dg

from capibara_assets.assets.consensus import consensus_checkpoint
from capibara_assets.assets.datasets import routing_dataset
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.resources import BaseModel, Recipes, Store

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.evaluation.routing.recipe import RouterRecipe
    from capibara_assets.evaluation.routing.router import Router


@dg.asset(
    group_name="evaluation", kinds={"scikitlearn"}, code_version="3", deps=[routing_dataset, consensus_checkpoint]
)
def expert_router(
    context: dg.AssetExecutionContext, store: Store, recipes: Recipes, base_model: BaseModel
) -> dg.MaterializeResult:
    """The router that picks or mixes experts for a prompt, over the domains that have one.

    Worry when its test accuracy is low or its load has drifted from the training prompts.
    """
    from capibara_assets.evaluation.routing.recipe import RouterRecipe
    from capibara_assets.evaluation.routing.report import report
    from capibara_assets.metadata.evaluation_entries import router_page, untrained_router_page

    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "router", RouterRecipe)
    routing = inputs.artifact("routing_dataset")
    experts = [d.value for d in inputs.every("consensus_checkpoint")]
    if why := routing.document("statistics")["left_out"]:
        untrained = {"trained": False, "why": why, "experts": experts}
        artifact = inputs.publish("expert_router", None, documents={"report": untrained})
        return materialized(artifact, inputs, untrained_router_page(untrained))
    routes = routing.frame("routes")
    router = _trained(inputs, routes, experts, recipe, base_model)
    figures = report(router, routes, recipe)
    with TemporaryDirectory() as folder:
        router.write(Path(folder))
        artifact = inputs.publish("expert_router", None, trees={"router": Path(folder)}, documents={"report": figures})
    return materialized(artifact, inputs, router_page(figures, router, routes))


def _trained(
    inputs: Inputs, routes: "pl.DataFrame", experts: list[str], recipe: "RouterRecipe", base_model: BaseModel
) -> "Router":
    from capibara_assets.evaluation.routing.router import train_router

    if recipe.kind != "embedding":
        return train_router(routes, experts, recipe.seed, recipe)
    from capibara_assets.evaluation.routing.embedding import embedder

    base = inputs.base(base_model)
    return train_router(routes, experts, recipe.seed, recipe, embedder(base, recipe.embedding_tokens), base.digest)
