"""What an evaluation of a domain reads: models, items, what they were trained on, and where all of it comes from."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capibara_assets.assets.inputs import Inputs, latest_digest, source_name
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.resources import BaseModel, Recipes
from capibara_assets.storage.store import MissingArtifact

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.datasets.recipe import NearDuplicates
    from capibara_assets.evaluation.domain_contenders import DomainModels
    from capibara_assets.evaluation.evaluation_recipe import EvaluationRecipe
    from capibara_assets.evaluation.items import Item
    from capibara_assets.evaluation.looks import Look
    from capibara_assets.evaluation.recipe import DecisionRule
    from capibara_assets.evaluation.report import Source
    from capibara_assets.evaluation.router import Router
    from capibara_assets.modeling.adapters import LoraAdapter
    from capibara_assets.modeling.base import Base
    from capibara_assets.storage.artifact import Artifact

JOURNALS = "journals"
"""Work folder of a domain's journals: their lines are keyed by all that they depend on, so that it is one for ever."""


@dataclass(frozen=True)
class DomainRun:
    """An evaluation of a domain, ready to be made, and what its report says beside it."""

    models: "DomainModels"
    items: "list[Item]"
    training: "pl.DataFrame"
    near: "NearDuplicates"
    look: "Look"
    recipe: "EvaluationRecipe"
    rule: "DecisionRule"
    work: Path
    curves: Mapping[str, list[tuple[float, float]]]
    router: Mapping[str, Any]
    sources: "tuple[Source, ...]"


def read_run(inputs: Inputs, recipes: Recipes, base_model: BaseModel, domain: Domain) -> DomainRun:
    """Everything that an evaluation of the domain needs, from the results that count.

    Raises:
        InputError: a result is missing or failed a blocking check, or a recipe does not fit.
    """
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.evaluation.contenders import held_out
    from capibara_assets.evaluation.evaluation_recipe import EvaluationRecipe
    from capibara_assets.evaluation.items import items_of
    from capibara_assets.evaluation.outputs import curves_of
    from capibara_assets.evaluation.recipe import DecisionRule
    from capibara_assets.modeling.base import load_base

    recipe = inputs.recipe(recipes, "evaluation", EvaluationRecipe)
    rule = inputs.recipe(recipes, "decision", DecisionRule)
    base = load_base(base_model.path)
    inputs.setting("base_model", base.digest)
    dataset, trained = inputs.artifact("moe_dataset", domain), inputs.artifact("trained_adapters", domain)
    consensus = inputs.every("consensus_checkpoint", needed=domain)
    merged, router = inputs.artifact("merged_checkpoint"), inputs.artifact("expert_router")
    playbook = inputs.artifact("consolidated_playbook", domain)
    made_from = {"moe_dataset": dataset, "trained_adapters": trained, "consolidated_playbook": playbook}
    items = items_of(held_out(dataset.frame("examples"), recipe), executions_of(inputs, dataset))
    models = _models(inputs, domain, base, recipe, trained, consensus, merged, router, playbook)
    return DomainRun(
        models=models,
        items=items,
        training=training_examples(inputs, domain, dataset, consensus),
        near=inputs.recipe(recipes, "dataset", DatasetRecipe).near_duplicates,
        look=_look(inputs, domain, items, trained, consensus[domain], recipe, rule),
        recipe=recipe,
        rule=rule,
        work=inputs.store.work_dir("evaluation", domain, JOURNALS),
        curves=curves_of(trained.document("summary")),
        router=router.document("report"),
        sources=tuple(_sources(domain, made_from, consensus, {"merged_checkpoint": merged, "expert_router": router})),
    )


def executions_of(inputs: Inputs, dataset: "Artifact") -> "pl.DataFrame":
    """The executions that a dataset's groups were made of, of all domains: a session's cells may be of several.

    They are those that the dataset names, not the newest: nothing is read that it was not made from. Where a result of
    then is no more (something of it was forgotten), the newest stands in: it holds the rest.
    """
    import polars as pl

    from capibara_assets.executions.schema import Execution
    from capibara_assets.storage.records import table

    groups = dataset.manifest.inputs["upstream"].get("example_groups|_")
    if not groups:
        return table(Execution, [])
    grouped = _of_then(inputs, "example_groups", None, groups)
    upstream = grouped.manifest.inputs["upstream"] if grouped else {}
    found = [
        patterns.frame("executions")
        for domain in DOMAINS
        if (digest := upstream.get(f"e2b_patterns|{domain}"))
        and (patterns := _of_then(inputs, "e2b_patterns", domain, digest))
    ]
    return pl.concat([table(Execution, []), *found]).unique("execution_id", maintain_order=True)


def _of_then(inputs: Inputs, name: str, domain: Domain | None, digest: str) -> "Artifact | None":
    """The result of that digest, or else the newest; None where there is none at all."""
    try:
        return inputs.store.open(name, domain, digest)
    except MissingArtifact:
        newest = latest_digest(inputs.instance, name, domain)
        return inputs.store.open(name, domain, newest) if newest else None


def training_examples(
    inputs: Inputs, domain: Domain, dataset: "Artifact", consensus: "Mapping[Domain, Artifact]"
) -> "pl.DataFrame":
    """What any contender was trained, voted or selected on: train and validation of every expert's own dataset, as its
    certificate names it."""
    import polars as pl

    datasets = {dataset.digest: dataset}
    for other, artifact in consensus.items():
        digest = artifact.document("certificate")["context"].get("moe_dataset")
        if digest and digest not in datasets and (found := _of_then(inputs, "moe_dataset", other, digest)):
            datasets[digest] = found
    frames = [one.frame("examples").filter(pl.col("split") != "test") for one in datasets.values()]
    return pl.concat(frames).unique("example_id", maintain_order=True)


def _models(
    inputs: Inputs,
    domain: Domain,
    base: "Base",
    recipe: "EvaluationRecipe",
    trained: "Artifact",
    consensus: "Mapping[Domain, Artifact]",
    merged: "Artifact",
    router: "Artifact",
    playbook: "Artifact",
) -> "DomainModels":
    from capibara_assets.consensus.experts import read_accepted, read_experts
    from capibara_assets.evaluation.domain_contenders import DomainModels
    from capibara_assets.playbooks.render import render_playbook

    experts = read_experts({d: a.directory("adapter") for d, a in consensus.items()})
    return DomainModels(
        domain=domain.value,
        base=base,
        playbook=render_playbook(
            playbook.frame("bullets"), lambda text: len(base.tokenizer.encode(text)), recipe.playbook_budget_tokens
        ),
        consensus=experts[domain],
        voters=read_accepted(trained.directory("voters"), consensus[domain].document("certificate")),
        experts={other.value: adapter for other, adapter in experts.items() if other != domain},
        merged=merged.directory("model"),
        router=_router(router, base),
        promoted=_promoted(inputs, domain, consensus[domain].digest),
    )


def _router(artifact: "Artifact", base: "Base") -> "Router | None":
    """None where there was nothing to train it on."""
    from capibara_assets.evaluation.router import Router

    if not artifact.has("router"):
        return None
    folder = artifact.directory("router")
    if json.loads((folder / "router.json").read_text("utf-8")).get("kind") != "embedding":
        return Router.read(folder)
    from capibara_assets.evaluation.embedding import embedder
    from capibara_assets.evaluation.router_recipe import RouterRecipe

    return Router.read(folder, embedder(base, RouterRecipe().embedding_tokens))


def _promoted(inputs: Inputs, domain: Domain, candidate: str) -> "LoraAdapter | None":
    """The adapter that serves the domain now; None where that is the base model, or the candidate itself."""
    from capibara_assets.evaluation.promotion import served
    from capibara_assets.evaluation.promotion_log import PromotionLog
    from capibara_assets.modeling.adapters import read_adapter

    head = PromotionLog(inputs.store).head()
    digest = served(head.promotion).get(domain.value) if head else None
    if digest is None or digest == candidate:
        return None
    return read_adapter(inputs.store.open("consensus_checkpoint", domain, digest).directory("adapter"))


def _look(
    inputs: Inputs,
    domain: Domain,
    items: "list[Item]",
    trained: "Artifact",
    candidate: "Artifact",
    recipe: "EvaluationRecipe",
    rule: "DecisionRule",
) -> "Look":
    from capibara_assets.assets.settings import setting_digest
    from capibara_assets.evaluation.looks import LOOKS, take_look

    return take_look(
        inputs.store.root / LOOKS,
        domain.value,
        items=[item.item_id for item in items],
        candidate=candidate.digest,
        contest=trained.digest,
        settings={
            "rule": setting_digest(rule),
            "recipe": setting_digest(recipe),
            "playbook": inputs.upstream[source_name("consolidated_playbook", domain)],
            **inputs.settings,
        },
        alpha=1 - rule.confidence,
    )


def _sources(
    domain: Domain,
    own: "Mapping[str, Artifact]",
    consensus: "Mapping[Domain, Artifact]",
    whole: "Mapping[str, Artifact]",
) -> "Iterator[Source]":
    from capibara_assets.evaluation.report import Source

    for name, artifact in own.items():
        yield Source(f"{name}[{domain}]", artifact.digest, _page(name, domain))
    for other, artifact in consensus.items():
        certificate = artifact.document("certificate")["digest"]
        name = f"consensus_checkpoint[{other}]"
        yield Source(name, artifact.digest, _page("consensus_checkpoint", other), f"certificate {certificate}")
    for name, artifact in whole.items():
        yield Source(name, artifact.digest, _page(name))


def _page(name: str, domain: Domain | None = None) -> str:
    """The asset's page in Dagster's UI, relative to its address."""
    return f"/assets/{name}?partition={domain}" if domain else f"/assets/{name}"
