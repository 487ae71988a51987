"""Settings that results depend on besides upstream assets: recipes, base model, hardware; recorded as digests."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, get_args

import pydantic

from capibara_assets.domains import Domain
from capibara_assets.errors import unknown
from capibara_assets.resources import BaseModel, GoogleCloud, Hardware, Recipes
from capibara_assets.storage.digests import canonical_json, sha256_bytes

# Recipe → its pydantic model, as module:class; imported when a run begins, so that loading the definitions is fast.
RECIPES = {
    "experience": "executions.recipe:ExperienceRecipe",
    "dataset": "datasets.recipe:DatasetRecipe",
    "planning": "planning.recipe:PlanningRecipe",
    "training": "training.recipe:TrainingRecipe",
    "consensus": "consensus.recipe:ConsensusRecipe",
    "evaluation": "evaluation.recipe:EvaluationRecipe",
    "decision": "evaluation.decision_rule:DecisionRule",
    "router": "evaluation.routing.recipe:RouterRecipe",
}


def registered_voters(recipes: Recipes) -> int:
    """The number of voters of the training recipe, which plans and costs depend on."""
    from capibara_assets.training.recipe import TrainingRecipe

    return len(recipes.load("training", TrainingRecipe).voters)


def chosen_faults(recipes: Recipes) -> dict[str, str]:
    """The faults to inject, by voter. Raises InputError: no voter of the recipe, or no such fault."""
    from capibara_assets.training.recipe import TrainingRecipe
    from capibara_assets.training.request import Fault

    voters = [voter.name for voter in recipes.load("training", TrainingRecipe).voters]
    for voter, fault in recipes.faults.items():
        if voter not in voters:
            raise unknown("voter in CAPIBARA_FAULTS (--fault)", voter, voters)
        if fault not in get_args(Fault):
            raise unknown("fault in CAPIBARA_FAULTS (--fault)", fault, get_args(Fault))
    return dict(recipes.faults)


def setting_digest(value: Any) -> str:
    """Digest of a setting; a string is returned unchanged, as a digest."""
    if isinstance(value, str):
        return value
    plain = value.model_dump(mode="json") if isinstance(value, pydantic.BaseModel) else value
    return sha256_bytes(canonical_json(plain))


def deployment_settings(resources: Mapping[str, Any]) -> dict[str, str]:
    """`current_settings` of a deployment's Dagster resources."""
    names = ("recipes", "base_model", "target", "tpu_target", "google_cloud")
    return current_settings(*(resources[name] for name in names))


def current_settings(
    recipes: Recipes, base_model: BaseModel, target: Hardware, tpu_target: Hardware, google_cloud: GoogleCloud
) -> dict[str, str]:
    """Name → current digest of every setting that an asset may record; `name|domain` for a domain's own.

    Raises:
        InputError: a recipe, a benchmark or verdict file that it names, the base model or a hardware target is missing,
            damaged or invalid, or a fault to inject is none.
    """
    from capibara_assets.datasets.audit.verdicts import verdicts_digest
    from capibara_assets.datasets.duplicates.public_benchmarks import benchmark_digests
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.modeling.files import base_digest
    from capibara_assets.planning.models import read_shape

    for name, where in RECIPES.items():
        module, model = where.split(":")
        recipes.load(name, getattr(import_module(f"capibara_assets.{module}"), model))
    path, dataset = base_model.path, recipes.load("dataset", DatasetRecipe)
    values = {
        "base_model": base_digest(path),
        "base_shape": read_shape(path),
        "target": target.options_of(None).setting(),
        "tpu_target": tpu_target.target,
        "voters": registered_voters(recipes),
        **{f"target|{domain}": target.options_of(Domain(domain)).setting() for domain in target.by_domain},
        **{f"tpu_target|{domain}": tpu_target.target_of(Domain(domain)) for domain in tpu_target.by_domain},
        "google_cloud": google_cloud.place(),
        "faults": chosen_faults(recipes),
        "benchmarks": benchmark_digests(dataset.decontamination.benchmarks),
        "exclusions": verdicts_digest(dataset.exclusions),
    }
    return {name: setting_digest(value) for name, value in values.items()} | {
        f"recipe:{name}": recipes.digest(name) for name in RECIPES
    }
