"""Which expert answers a prompt."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.assets.consensus import consensus_checkpoint
from capibara_assets.assets.datasets import routing_dataset
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.metadata import bar_chart, plot
from capibara_assets.resources import BaseModel, Recipes, Store

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.evaluation.router import Router
    from capibara_assets.evaluation.router_recipe import RouterRecipe


@dg.asset(
    group_name="evaluation", kinds={"scikitlearn"}, code_version="3", deps=[routing_dataset, consensus_checkpoint]
)
def expert_router(
    context: dg.AssetExecutionContext, store: Store, recipes: Recipes, base_model: BaseModel
) -> dg.MaterializeResult:
    """Picks (or mixes) experts for a prompt; trained on the routing dataset, over the domains that have an expert."""
    from capibara_assets.evaluation.router_recipe import RouterRecipe
    from capibara_assets.evaluation.router_report import report

    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "router", RouterRecipe)
    routing = inputs.artifact("routing_dataset")
    experts = [d.value for d in inputs.every("consensus_checkpoint")]
    if why := routing.document("statistics")["left_out"]:
        untrained = {"trained": False, "why": why, "experts": experts}
        artifact = inputs.publish("expert_router", None, documents={"report": untrained})
        return materialized(artifact, inputs, {"report": dg.MetadataValue.json(untrained)})
    routes = routing.frame("routes")
    router = _trained(inputs, routes, experts, recipe, base_model)
    found = report(router, routes, recipe)
    with TemporaryDirectory() as folder:
        router.write(Path(folder))
        artifact = inputs.publish("expert_router", None, trees={"router": Path(folder)}, documents={"report": found})
    return materialized(artifact, inputs, _shown(found, router, routes))


def _trained(
    inputs: Inputs, routes: "pl.DataFrame", experts: list[str], recipe: "RouterRecipe", base_model: BaseModel
) -> "Router":
    from capibara_assets.evaluation.router import train_router

    if recipe.kind != "embedding":
        return train_router(routes, experts, recipe.seed, recipe)
    from capibara_assets.evaluation.embedding import embedder
    from capibara_assets.modeling.base import load_base

    base = load_base(base_model.path)
    inputs.setting("base_model", base.digest)
    return train_router(routes, experts, recipe.seed, recipe, embedder(base, recipe.embedding_tokens), base.digest)


def _shown(found: Mapping[str, Any], router: "Router", routes: "pl.DataFrame") -> dict[str, Any]:
    """What a person wants to see; speeds stay out of the artifact."""
    import polars as pl

    from capibara_assets.evaluation.router_report import latency

    prompts = routes.filter(pl.col("split") == "test")["prompt"].head(50).to_list()
    timed = latency(router, prompts, repeats=1) if prompts else None
    shown: dict[str, Any] = {"report": dg.MetadataValue.json(dict(found))}
    if timed is not None:
        shown |= {"median_ms": round(timed.median_ms, 3), "p99_ms": round(timed.p99_ms, 3)}
    if "load" in found:
        shown |= {"load": plot(bar_chart(found["load"], "share of test prompts")), "drifted": found["drift"]["drifted"]}
    return shown
