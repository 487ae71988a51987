"""The training asset: several adapters (voters) per domain, trained in a separate process through Dagster Pipes."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.assets.datasets import moe_dataset
from capibara_assets.assets.inputs import Inputs, Origin, materialized
from capibara_assets.assets.plans import lora_config
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.launching.launchers import Launcher
from capibara_assets.metadata.training_entries import training_page
from capibara_assets.partitions import READS_EVERY, domains
from capibara_assets.resources import BaseModel, Hardware, Recipes, Store

if TYPE_CHECKING:
    from capibara_assets.planning.hardware.targets import HardwareTarget
    from capibara_assets.storage.artifact import Artifact
    from capibara_assets.storage.checkpointed import Checkpointed
    from capibara_assets.training.recipe import TrainingRecipe
    from capibara_assets.training.request import TrainingRequest
    from capibara_assets.training.standalone.materials import Materials


@dg.asset(
    partitions_def=domains,
    group_name="training",
    kinds={"pytorch", "safetensors"},
    code_version="2",
    deps=[moe_dataset, lora_config],
    pool="training",
    tags={READS_EVERY: "moe_dataset"},  # see other_datasets
)
def trained_adapters(
    context: dg.AssetExecutionContext,
    store: Store,
    recipes: Recipes,
    base_model: BaseModel,
    target: Hardware,
    launcher: Launcher,
) -> dg.MaterializeResult:
    """One trained LoRA adapter per voter of the domain, with metrics and loss curves.

    Worry when a voter failed, skipped steps, or is not better than the base model.
    """
    from capibara_assets.checkpoints.artifacts import checkpoint_root
    from capibara_assets.lineage.card import write_voter_cards
    from capibara_assets.training.recipe import TrainingRecipe
    from capibara_assets.training.standalone.materials import VOLATILE, FinishedTraining

    domain = Domain(context.partition_key)
    inputs, options = Inputs.of(context, store), target.options_of(domain)
    recipe, base = inputs.recipe(recipes, "training", TrainingRecipe), inputs.base_digest(base_model)
    inputs.setting("faults", dict(recipes.faults))
    materials = training_materials(inputs, recipe, (base_model.path, base), domain, options.first)
    options = options.only(materials.targets)
    work = inputs.store.work_dir("trained_adapters", domain, inputs.digest())
    request = materials.request(work, checkpoint_root(inputs.store.root), context.run_id, recipes.faults, options.first)
    trained_on = launcher.run(context, request.write(), options)
    trained = FinishedTraining.read(request, materials.plan, options.first, trained_on)
    shards, further = materials.shards(trained.summary["finished"]), materials.further()
    write_voter_cards(trained.voters, materials.dataset, shards, base_model.card_name, base, further)
    kept = voters_checkpointed(inputs, request, trained.summary["voters"])
    trees, documents = trained.trees(), trained.documents()
    artifact = inputs.publish(
        "trained_adapters", domain, trees=trees, documents=documents, volatile=VOLATILE, checkpoints=kept
    )
    shown = training_page(trained.summary, trained.voters, trained.outcome)
    shutil.rmtree(work, ignore_errors=False)
    return materialized(artifact, inputs, shown)


def training_materials(
    inputs: Inputs, recipe: "TrainingRecipe", base: tuple[Path, str], domain: Domain, target: "HardwareTarget"
) -> "Materials":
    """Inputs of a domain's training; `base` is the base model's folder and digest."""
    from capibara_assets.training.standalone.materials import Materials

    dataset, plan = inputs.artifact("moe_dataset", domain), inputs.artifact("lora_config", domain)
    tpu = inputs.artifact("tpu_config", domain) if target.kind == "tpu" else None
    return Materials(recipe, *base, dataset, plan, other_datasets(inputs, domain, recipe), tpu)


def other_datasets(inputs: Inputs, domain: Domain, recipe: "TrainingRecipe") -> "dict[Domain, Artifact]":
    """The other domains' available datasets, if a voter of the recipe trains on all domains; else none.

    All other domains are recorded as inputs, so that a new or changed dataset causes a new training.
    """
    from capibara_assets.training.strategy import needs_all_domains

    if not any(needs_all_domains(voter.strategy) for voter in recipe.voters):
        return {}
    datasets = {other: inputs.available("moe_dataset", other) for other in DOMAINS if other != domain}
    return {other: artifact for other, artifact in datasets.items() if artifact is not None}


def voters_checkpointed(
    inputs: Inputs, request: "TrainingRequest", voters: dict[str, dict[str, Any]]
) -> "dict[str, Checkpointed]":
    """Checkpoint descriptions of the finished voters' adapters; the parent is the checkpoint of the best step."""
    from capibara_assets.training.standalone.materials import BESIDE

    checkpoints = {}
    for name, voter in voters.items():
        origin = Origin(
            recipe=request.deciding_recipe() | {"seed": request.seed},
            base=request.base_digest,
            dataset=request.dataset_digest,
            step=voter["best_step"],
            parent=next((row["id"] for row in voter.get("checkpoints", []) if row["step"] == voter["best_step"]), None),
            metrics={metric: voter[metric] for metric in ("validation_loss", "base_validation_loss")},
            tags=(name,),
        )
        checkpoints[f"voters/{name}"] = inputs.checkpointed(f"{request.domain}/{name}", origin, BESIDE)
    return checkpoints
