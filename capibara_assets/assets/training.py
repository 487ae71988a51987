"""Adapters: several voters per domain, trained in a process of its own through Dagster Pipes."""

import json
import shutil
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.assets.datasets import moe_dataset
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.assets.plan_metadata import outcome_entries, recorded_outcome
from capibara_assets.assets.plans import lora_config
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.launchers import Launcher
from capibara_assets.metadata import line_chart, plot
from capibara_assets.partitions import domains
from capibara_assets.resources import BaseModel, Hardware, Recipes, Store

if TYPE_CHECKING:
    from capibara_assets.storage.artifact import Artifact
    from capibara_assets.storage.checkpointed import Checkpointed
    from capibara_assets.training.recipe import TrainingRecipe
    from capibara_assets.training.request import TrainingRequest

BESIDE = ("manifest.json", "curve.json", "events.jsonl", "metrics.json", "timings.json", "checkpoints.json")
"""Of a voter's folder: what is about its training and no part of the adapter."""

_CURVES = {
    "validation/loss": ("curves", "validation loss"),
    "train/loss": ("training loss", "training loss"),
    "train/learning_rate": ("learning rate", "learning rate"),
    "train/gradient_norm": ("gradient norm", "gradient norm"),
}


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
    from capibara_assets.modeling.files import base_digest
    from capibara_assets.training.recipe import TrainingRecipe
    from capibara_assets.training.request import FurtherDataset, TrainingRequest
    from capibara_assets.training.run import VOLATILE
    from capibara_assets.training.scripts import write_scripts
    from capibara_assets.training.strategies import needs_all_domains

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "training", TrainingRecipe)
    base = base_digest(base_model.path)
    inputs.setting("base_model", base)
    inputs.setting("faults", dict(recipes.faults))
    dataset, plan = inputs.artifact("moe_dataset", domain), inputs.artifact("lora_config", domain)
    others = other_datasets(inputs, domain, recipe)
    work = inputs.store.work_dir("trained_adapters", domain, inputs.digest())
    request = TrainingRequest(
        domain=domain,
        base_model=base_model.path,
        base_digest=base,
        dataset=dataset.directory() / "examples.parquet",
        dataset_digest=dataset.digest,
        further={
            other: FurtherDataset(dataset=of_it.directory() / "examples.parquet", digest=of_it.digest)
            for other, of_it in others.items()
        },
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
    everywhere = {v.name for v in recipe.voters if needs_all_domains(v.strategy)}
    write_voter_cards(request.out / "voters", dataset, shards, name, base, dict.fromkeys(everywhere, others))
    outcome = recorded_outcome(plan, summary)
    artifact = inputs.publish(
        "trained_adapters",
        domain,
        trees={"voters": request.out / "voters", "launch": write_scripts(work / "launch", request, target.target)},
        documents={"summary": summary, **({"outcome": outcome.model_dump(mode="json")} if outcome else {})},
        volatile=(*VOLATILE, "outcome.json"),
        checkpoints=voters_checkpointed(inputs, request, summary["voters"]),
    )
    metadata = training_metadata(summary, request.out / "voters") | outcome_entries(outcome)
    shutil.rmtree(work, ignore_errors=False)
    return materialized(artifact, inputs, metadata)


def other_datasets(inputs: Inputs, domain: Domain, recipe: "TrainingRecipe") -> "dict[Domain, Artifact]":
    """The other domains' datasets that exist so far, where a voter of the recipe trains on all domains.

    They are inputs then, those that are not there yet among them: an arrival or a change is a reason to train again.
    """
    from capibara_assets.training.strategies import needs_all_domains

    if not any(needs_all_domains(voter.strategy) for voter in recipe.voters):
        return {}
    found = {other: inputs.available("moe_dataset", other) for other in DOMAINS if other != domain}
    return {other: artifact for other, artifact in found.items() if artifact is not None}


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


def training_metadata(summary: dict, voters: Path) -> dict[str, dg.MetadataValue | int | float | str]:
    """What a person looks at: best losses, speed and memory, curves of each voter, seconds.

    Args:
        voters: folder with each voter's `metrics.json`.
    """
    rows = [
        "| voter | status | steps | validation loss | skipped | tokens/s | MiB | attempts | seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in _CURVES}
    for name, voter in summary["voters"].items():
        metrics = json.loads((voters / name / "metrics.json").read_text("utf-8"))
        totals = metrics["totals"]
        rows.append(
            f"| {name} | {voter['status']} | {voter['steps']} | {voter['validation_loss']:.4f} | "
            f"{len(metrics['skipped_steps'])} | {totals.get('median_tokens_per_s', 0):,.0f} | "
            f"{totals.get('peak_memory_mib', 0):,.0f} | {metrics['attempts']} | {voter['seconds']:.1f} |"
        )
        for figure, drawn in lines.items():
            if line := metrics["series"].get(figure):
                drawn[name] = thinned(list(zip(line["steps"], line["values"], strict=True)))
    charts = {
        title: dg.MetadataValue.md(plot(line_chart(lines[figure], "step", label)).md_str or "")
        for figure, (title, label) in _CURVES.items()
    }
    return {"voters": dg.MetadataValue.md("\n".join(rows)), **charts, "seconds": float(summary["seconds"])}


def thinned(line: list[tuple[float, float]], most: int = 60) -> list[tuple[float, float]]:
    """A line of at most so many points, each the mean of its neighbours: an event holds kilobytes, not megabytes."""
    size = -(-len(line) // most)
    parts = [line[start : start + size] for start in range(0, len(line), size or 1)]
    return [(fmean(step for step, _ in part), fmean(value for _, value in part)) for part in parts]
