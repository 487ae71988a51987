"""One adapter per domain that the voters agree on, and one model out of the domains' experts."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import dagster as dg

from capibara_assets.assets.datasets import moe_dataset, routing_dataset
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.assets.training import trained_adapters
from capibara_assets.domains import Domain
from capibara_assets.metadata import bar_chart, document, heat_map, line_chart, matrix, plot
from capibara_assets.metadata.consensus import (
    LONG_PARTS,
    ballot_matrix,
    distance_map,
    losses_chart,
    mean_qualities,
    outcome_words,
    signature_words,
    verdict_table,
    weights_chart,
)
from capibara_assets.partitions import domains
from capibara_assets.resources import BaseModel, Recipes, Store

if TYPE_CHECKING:
    from capibara_assets.storage.artifact import Artifact


@dg.asset(
    partitions_def=domains,
    group_name="consensus",
    kinds={"safetensors"},
    code_version="3",
    deps=[trained_adapters, moe_dataset],
)
def consensus_checkpoint(
    context: dg.AssetExecutionContext, store: Store, recipes: Recipes, base_model: BaseModel
) -> dg.MaterializeResult:
    """The adapter the voters agree on, and its certificate: who was accepted, who was rejected, why."""
    from capibara_assets.consensus.agree import agree_on_voters
    from capibara_assets.consensus.distances import attested_distances
    from capibara_assets.consensus.recipe import ConsensusRecipe
    from capibara_assets.lineage.card import base_name, write_model_card
    from capibara_assets.modeling.adapters import write_adapter
    from capibara_assets.modeling.base import load_base

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "consensus", ConsensusRecipe)
    adapters, dataset = inputs.artifact("trained_adapters", domain), inputs.artifact("moe_dataset", domain)
    base = load_base(base_model.path)
    inputs.setting("base_model", base.digest)
    voters = adapters.directory("voters")
    agreement = agree_on_voters(
        base,
        voters,
        dataset.frame("examples"),
        recipe,
        missing=adapters.document("summary")["missing"],
        context={"domain": domain.value, "trained_adapters": adapters.digest, "moe_dataset": dataset.digest},
    )
    with TemporaryDirectory() as folder:
        write_adapter(agreement.adapter, Path(folder))
        write_model_card(
            Path(folder),
            inputs.store,
            {domain.value: adapters},
            title=f"{domain.value} / consensus",
            what=f"The LoRA adapter that the voters of `{domain.value}` agreed on.",
            library="peft",
            base_model=base_name(base_model.location, base_model.path),
            base_digest=base.digest,
            proof=f"`certificate.json`, digest `{agreement.certificate.digest}`: who was accepted, who was not, why.",
        )
        artifact = inputs.publish(
            "consensus_checkpoint",
            domain,
            trees={"adapter": Path(folder)},
            documents={"certificate": agreement.certificate.model_dump(mode="json"), "losses": agreement.losses},
            volatile=("certificate.json",),  # keys and signatures; the card holds the digest of all else in it
            checkpoints={
                "adapter": inputs.checkpointed(
                    f"{domain}/consensus",
                    recipe=recipe.model_dump(mode="json"),
                    base=base.digest,
                    dataset=dataset.digest,
                    metrics={
                        "validation_loss": agreement.losses["consensus"],
                        "base_validation_loss": agreement.losses["base"],
                    },
                )
            },
        )
    certificate = artifact.document("certificate")
    distances = attested_distances(voters, certificate)
    return materialized(artifact, inputs, certificate_metadata(certificate, agreement.losses, distances))


def certificates_of(consensus: Mapping[Domain, "Artifact"]) -> str:
    """The certificates of several domains, in words."""
    digests = {domain.value: artifact.document("certificate")["digest"] for domain, artifact in consensus.items()}
    return ", ".join(f"`consensus_checkpoint[{domain}]` `{digest}`" for domain, digest in sorted(digests.items()))


def certificate_metadata(
    certificate: dict, losses: dict[str, float], distances: dict | None = None
) -> dict[str, dg.MetadataValue | int | float | str]:
    """The outcome in words, the verdicts, and pictures; `distances` are those of the voters that took part."""
    names = [voter["name"] for voter in certificate["voters"]]
    return {
        "outcome": outcome_words(certificate),
        "verdicts": dg.MetadataValue.md(verdict_table(certificate)),
        "signatures": signature_words(certificate),
        "ballots": plot(ballot_matrix(certificate)),
        "qualities": matrix(names, names, mean_qualities(certificate), corner="voter \\ candidate"),
        "voter_distances": plot(distance_map(certificate, distances)),
        "weights": plot(weights_chart(certificate)),
        "validation_losses": plot(losses_chart(certificate, losses)),
        "certificate": document(certificate, LONG_PARTS, "see certificate.json of the artifact"),
    }


@dg.asset(
    group_name="consensus",
    kinds={"safetensors", "transformers"},
    code_version="3",
    deps=[consensus_checkpoint, moe_dataset],
)
def merged_checkpoint(
    context: dg.AssetExecutionContext, store: Store, recipes: Recipes, base_model: BaseModel
) -> dg.MaterializeResult:
    """One dense model out of every domain's consensus adapter there is, as validation losses want it."""
    from capibara_assets.consensus.experts import read_experts, validation_sets
    from capibara_assets.consensus.merging import merge_experts, write_merged
    from capibara_assets.consensus.recipe import ConsensusRecipe
    from capibara_assets.lineage.card import base_name, write_model_card
    from capibara_assets.modeling.base import load_base

    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "consensus", ConsensusRecipe)
    base = load_base(base_model.path)
    inputs.setting("base_model", base.digest)
    consensus = inputs.every("consensus_checkpoint")
    experts = read_experts({d: a.directory("adapter") for d, a in consensus.items()})
    datasets = {d: a.frame("examples") for d, a in inputs.every("moe_dataset").items() if d in experts}
    merge = merge_experts(base, experts, validation_sets(base, datasets, recipe), recipe)
    with TemporaryDirectory() as folder:
        write_merged(base, merge, Path(folder))
        write_model_card(
            Path(folder),
            inputs.store,
            {domain.value: artifact for domain, artifact in consensus.items()},
            title="merged",
            what="One dense model out of every domain's consensus adapter.",
            library="transformers",
            base_model=base_name(base_model.location, base_model.path),
            base_digest=base.digest,
            proof="Each adapter has its own: " + certificates_of(consensus),
        )
        artifact = inputs.publish(
            "merged_checkpoint",
            None,
            trees={"model": Path(folder)},
            documents={"report": merge.report},
            checkpoints={
                "model": inputs.checkpointed(
                    "merged_checkpoint", recipe=recipe.model_dump(mode="json"), base=base.digest
                )
            },
        )
    return materialized(artifact, inputs, merge_metadata(merge.report))


def merge_metadata(report: dict) -> dict[str, dg.MetadataValue]:
    """The chosen merge, what it does to each domain, and who disturbs whom."""
    experts, found = sorted(report["weights"]), report["interference"]
    losses = {(d, arm): report["losses"][arm][d] for d in experts for arm in ("base", "merged")}
    changes = {(d, e): found[d][e] for d in experts for e in experts}
    return {
        "experts": dg.MetadataValue.json(experts),
        "losses": matrix(experts, ("base", "merged"), losses, corner="domain"),
        "interference": matrix(experts, experts, changes, corner="expert \\ change of the domain's loss"),
        "interference_plot": plot(
            heat_map(experts, experts, changes, "change of loss (column) by an expert (row)", around_zero=True)
        ),
        "report": dg.MetadataValue.json(report),
    }


@dg.asset(
    group_name="consensus",
    kinds={"safetensors", "transformers"},
    code_version="3",
    deps=[consensus_checkpoint, merged_checkpoint, moe_dataset, routing_dataset],
)
def moe_checkpoint(
    context: dg.AssetExecutionContext, store: Store, recipes: Recipes, base_model: BaseModel
) -> dg.MaterializeResult:
    """A real mixture of experts in Mixtral format: attention merged, one feed-forward expert per domain, a router."""
    from capibara_assets.consensus.experts import asked_sets, read_experts
    from capibara_assets.consensus.moe import mixture_of_experts
    from capibara_assets.consensus.recipe import ConsensusRecipe
    from capibara_assets.modeling.base import load_base

    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "consensus", ConsensusRecipe)
    base = load_base(base_model.path)
    inputs.setting("base_model", base.digest)
    experts = read_experts({d: a.directory("adapter") for d, a in inputs.every("consensus_checkpoint").items()})
    merged = inputs.artifact("merged_checkpoint")
    routing = inputs.artifact("routing_dataset")
    if why := routing.document("statistics")["left_out"]:
        left_out = {"made": False, "why": why, "experts": sorted(experts)}
        artifact = inputs.publish("moe_checkpoint", None, documents={"report": left_out})
        return materialized(artifact, inputs, {"report": dg.MetadataValue.json(left_out)})
    datasets = {d: a.frame("examples") for d, a in inputs.every("moe_dataset").items() if d in experts}
    train = {d: [one.encoded for one in own] for d, own in asked_sets(base, datasets, recipe, "train").items()}
    with TemporaryDirectory() as folder:
        report = mixture_of_experts(
            base,
            merged.directory("model"),
            experts,
            routing.frame("routes"),
            Path(folder),
            recipe,
            train,
            asked_sets(base, datasets, recipe),
        )
        artifact = inputs.publish(
            "moe_checkpoint",
            None,
            trees={"model": Path(folder)},
            documents={"report": report},
            checkpoints={
                "model": inputs.checkpointed("moe_checkpoint", recipe=recipe.model_dump(mode="json"), base=base.digest)
            },
        )
    return materialized(artifact, inputs, mixture_metadata(report))


def mixture_metadata(report: dict) -> dict[str, dg.MetadataValue]:
    """The mixture beside what it replaces, per domain; what its gates learnt; who is asked how much, and who is not."""
    experts, trained = report["experts"], report["training"]
    losses = {(d, arm): loss for d, row in report["losses"].items() for arm, loss in row.items()}
    losses |= {("mean", arm): loss for arm, loss in report["mean_losses"].items()}
    dead = [*report["dead"], *(f"{name} in layers {layers}" for name, layers in report["dead_in"].items())]
    shown = {
        "experts": dg.MetadataValue.json(experts),
        "losses": matrix([*experts, "mean"], list(report["mean_losses"]), losses, corner="domain"),
        "dead_experts": dg.MetadataValue.text(", ".join(dead) or "none"),
        "utilisation": plot(bar_chart(report["utilisation"], "share of routed tokens")),
        "report": dg.MetadataValue.json(report),
    }
    if trained:
        shares = {d: [(line["step"], line["utilisation"][d]) for line in trained["log"]] for d in experts}
        shown["gates"] = dg.MetadataValue.json({name: trained[name] for name in ("steps", "kept", "mean_loss")})
        shown["gates_plot"] = plot(line_chart(shares, "step", "share of routed tokens"))
    return shown
