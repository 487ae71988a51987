"""Adapters: several voters per domain, trained in a process of its own through Dagster Pipes."""

import json
import shutil
from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.assets.datasets import moe_dataset
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.assets.plans import lora_config
from capibara_assets.domains import Domain
from capibara_assets.launchers import Launcher
from capibara_assets.metadata import line_chart, plot
from capibara_assets.partitions import domains
from capibara_assets.resources import BaseModel, Hardware, Recipes, Store

if TYPE_CHECKING:
    from capibara_assets.storage.checkpointed import Checkpointed
    from capibara_assets.training.request import TrainingRequest

BESIDE = ("manifest.json", "curve.json", "events.jsonl", "timings.json", "checkpoints.json")
"""Of a voter's folder: what is about its training and no part of the adapter."""


@dg.asset(
    partitions_def=domains,
    group_name="training",
    kinds={"pytorch", "safetensors"},
    code_version="2",
    deps=[moe_dataset, lora_config],
    pool="training",
)
def trained_adapters(
    context: dg.AssetExecutionContext,
    store: Store,
    recipes: Recipes,
    base_model: BaseModel,
    target: Hardware,
    launcher: Launcher,
) -> dg.MaterializeResult:
    """One LoRA adapter per voter, with metrics, curves and resume points."""
    from capibara_assets.checkpoints.artifacts import checkpoint_root
    from capibara_assets.lineage.card import base_name, write_voter_cards
    from capibara_assets.modeling.base import base_digest
    from capibara_assets.training.recipe import TrainingRecipe
    from capibara_assets.training.request import TrainingRequest
    from capibara_assets.training.run import VOLATILE

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "training", TrainingRecipe)
    base = base_digest(base_model.path)
    inputs.setting("base_model", base)
    inputs.setting("faults", dict(recipes.faults))
    dataset, plan = inputs.artifact("moe_dataset", domain), inputs.artifact("lora_config", domain)
    work = inputs.store.work_dir("trained_adapters", domain, inputs.digest())
    request = TrainingRequest(
        domain=domain,
        base_model=base_model.path,
        base_digest=base,
        dataset=dataset.directory() / "examples.parquet",
        dataset_digest=dataset.digest,
        lora=plan.document("plan"),
        recipe=recipe.model_dump(mode="json"),
        seed=recipe.seed,
        work=work,
        out=work / "out",
        checkpoints=checkpoint_root(inputs.store.root),
        run=context.run_id,
        fault=recipes.faults,
    )
    letter = work / "request.json"
    letter.write_text(request.model_dump_json())
    launcher.run(context, letter, target.target)
    summary = json.loads((request.out / "summary.json").read_text())
    shards = {v.name: (v.shard, len(recipe.voters)) for v in recipe.voters if v.name in summary["finished"]}
    name = base_name(base_model.location, base_model.path)
    write_voter_cards(request.out / "voters", dataset, shards, name, base)
    artifact = inputs.publish(
        "trained_adapters",
        domain,
        trees={"voters": request.out / "voters"},
        documents={"summary": summary},
        volatile=VOLATILE,
        checkpoints=voters_checkpointed(inputs, request, summary["voters"]),
    )
    shutil.rmtree(work, ignore_errors=False)
    return materialized(artifact, inputs, training_metadata(summary))


def voters_checkpointed(
    inputs: Inputs, request: "TrainingRequest", voters: dict[str, dict[str, Any]]
) -> "dict[str, Checkpointed]":
    """Each finished voter's adapter is a checkpoint; its parent is that of the step whose weights it has."""
    measured = ("validation_loss", "base_validation_loss")
    return {
        f"voters/{name}": inputs.checkpointed(
            f"{request.domain}/{name}",
            recipe=request.deciding_recipe() | {"seed": request.seed},
            base=request.base_digest,
            dataset=request.dataset_digest,
            step=voter["best_step"],
            parent=next((row["id"] for row in voter.get("checkpoints", []) if row["step"] == voter["best_step"]), None),
            metrics={metric: voter[metric] for metric in measured},
            tags=(name,),
            beside=BESIDE,
        )
        for name, voter in voters.items()
    }


def training_metadata(summary: dict) -> dict[str, dg.MetadataValue | int | float | str]:
    """What a person looks at: best losses, one curve per voter, seconds."""
    voters = summary["voters"]
    curves = {name: [(p["step"], p["validation_loss"]) for p in voter["curve"]] for name, voter in voters.items()}
    rows = [
        f"| {name} | {v['status']} | {v['steps']} | {v['validation_loss']:.4f} | {v['seconds']:.1f} |"
        for name, v in voters.items()
    ]
    table = ["| voter | status | steps | validation loss | seconds |", "| --- | --- | ---: | ---: | ---: |", *rows]
    return {
        "voters": dg.MetadataValue.md("\n".join(table)),
        "curves": dg.MetadataValue.md(plot(line_chart(curves, "step", "validation loss")).md_str or ""),
        "seconds": float(summary["seconds"]),
    }
