"""Inputs of a domain's evaluation: models, test items, training examples, settings, and the sources of the report."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from capibara_assets.assets.inputs import Inputs, latest_digest, source_name
from capibara_assets.consensus.rounds.adopted import is_adopted
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.resources import BaseModel, Recipes
from capibara_assets.storage.jsonfiles import read_object

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.datasets.recipe import NearDuplicates
    from capibara_assets.evaluation.decision.test_uses import TestUse
    from capibara_assets.evaluation.decision_rule import DecisionRule
    from capibara_assets.evaluation.evaluate import Terms
    from capibara_assets.evaluation.items.items import Item
    from capibara_assets.evaluation.measuring.domain import DomainModels
    from capibara_assets.evaluation.recipe import EvaluationRecipe
    from capibara_assets.evaluation.report import ReportSource
    from capibara_assets.evaluation.routing.router import Router
    from capibara_assets.evaluation.tables import ReportContext
    from capibara_assets.modeling.adapters import LoraAdapter
    from capibara_assets.modeling.base import Base
    from capibara_assets.storage.artifact import Artifact

JOURNALS = "journals"
"""Work folder of a domain's journals; each line is keyed by all its inputs, so that the folder is never replaced."""


@dataclass(frozen=True)
class DomainRun:
    """The complete inputs of a domain's evaluation, and the additional content of its report (`beside`)."""

    models: "DomainModels"
    items: "list[Item]"
    training: "pl.DataFrame"
    near: "NearDuplicates"
    terms: "Terms"
    work: Path
    beside: "ReportContext"


def read_run(inputs: Inputs, recipes: Recipes, base_model: BaseModel, domain: Domain) -> DomainRun:
    """Read and record all inputs of the domain's evaluation.

    Raises:
        InputError: a result is missing or failed a blocking check, or a recipe does not validate.
    """
    import polars as pl

    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.evaluation.decision_rule import DecisionRule
    from capibara_assets.evaluation.evaluate import Terms
    from capibara_assets.evaluation.items.items import items_of
    from capibara_assets.evaluation.recipe import EvaluationRecipe
    from capibara_assets.evaluation.tables import ReportContext, curves_of

    recipe = inputs.recipe(recipes, "evaluation", EvaluationRecipe)
    rule = inputs.recipe(recipes, "decision", DecisionRule)
    base = inputs.base(base_model)
    results = _Results.read(inputs, domain)
    test = results.dataset.frame("examples").filter(pl.col("split") == "test").sort("example_id")
    items = items_of(test, executions_of(inputs, results.dataset))
    models = _models(inputs, results, base, recipe)
    training = training_examples(inputs, domain, results.dataset, results.consensus)
    near = inputs.recipe(recipes, "dataset", DatasetRecipe).near_duplicates
    return DomainRun(
        models=models,
        items=items,
        training=training,
        near=near,
        terms=Terms(recipe, rule, _test_use(inputs, results, items, recipe, rule)),
        work=inputs.store.work_dir("evaluation", domain, JOURNALS),
        beside=ReportContext(
            curves=curves_of(results.trained.document("summary")) if results.trained else {},
            router=results.router.document("report"),
            sources=tuple(_sources(results)),
        ),
    )


@dataclass(frozen=True)
class _Results:
    """Upstream artifacts of a domain's evaluation; `consensus` has those of all available domains.

    `trained` is None where the domain's consensus is a round's of several organisations and nothing was trained here.
    """

    domain: Domain
    dataset: "Artifact"
    trained: "Artifact | None"
    playbook: "Artifact"
    consensus: "Mapping[Domain, Artifact]"
    merged: "Artifact"
    router: "Artifact"

    @classmethod
    def read(cls, inputs: Inputs, domain: Domain) -> "_Results":
        """Open the artifacts of the latest materializations."""
        dataset = inputs.artifact("moe_dataset", domain)
        consensus = inputs.every("consensus_checkpoint", needed=domain)
        adopted = is_adopted(consensus[domain])
        trained = (inputs.available if adopted else inputs.artifact)("trained_adapters", domain)
        merged, router = inputs.artifact("merged_checkpoint"), inputs.artifact("expert_router")
        playbook = inputs.artifact("consolidated_playbook", domain)
        return cls(domain, dataset, trained, playbook, consensus, merged, router)

    @property
    def candidate(self) -> "Artifact":
        """The domain's own consensus checkpoint: the contender that the decision is about."""
        return self.consensus[self.domain]

    @property
    def voters(self) -> "Artifact":
        """The artifact with the voters' adapters: the consensus itself if they belong to other organisations."""
        return self.candidate if is_adopted(self.candidate) or self.trained is None else self.trained


def executions_of(inputs: Inputs, dataset: "Artifact") -> "pl.DataFrame":
    """The executions that a dataset was made from, of all domains (a session's cells may belong to several).

    They come from the artifacts that the dataset records as its inputs, not from the newest ones. If such an artifact
    was deleted (part of its data was forgotten), the newest replaces it.
    """
    import polars as pl

    from capibara_assets.executions.schema import Execution
    from capibara_assets.storage.records import table

    groups = dataset.manifest.inputs["upstream"].get("example_groups|_")
    if not groups:
        return table(Execution, [])
    grouped = _recorded_or_newest(inputs, "example_groups", None, groups)
    upstream = grouped.manifest.inputs["upstream"] if grouped else {}
    frames = [
        patterns.frame("executions")
        for domain in DOMAINS
        if (digest := upstream.get(f"e2b_patterns|{domain}"))
        and (patterns := _recorded_or_newest(inputs, "e2b_patterns", domain, digest))
    ]
    return pl.concat([table(Execution, []), *frames]).unique("execution_id", maintain_order=True)


def _recorded_or_newest(inputs: Inputs, name: str, domain: Domain | None, digest: str) -> "Artifact | None":
    """The artifact with that digest, or else the newest; None if there is none."""
    if (recorded := inputs.store.find(name, domain, digest)) is not None:
        return recorded
    newest = latest_digest(inputs.instance, name, domain)
    return inputs.store.open(name, domain, newest) if newest else None


def training_examples(
    inputs: Inputs, domain: Domain, dataset: "Artifact", consensus: "Mapping[Domain, Artifact]"
) -> "pl.DataFrame":
    """Examples that a contender may have been trained or selected on.

    The train and validation splits of the dataset and of each expert's own dataset, as its certificate names it.
    """
    import polars as pl

    datasets = {dataset.digest: dataset}
    for other, artifact in consensus.items():
        digest = artifact.document("certificate")["context"].get("moe_dataset")
        if (
            digest
            and digest not in datasets
            and (other_dataset := _recorded_or_newest(inputs, "moe_dataset", other, digest))
        ):
            datasets[digest] = other_dataset
    frames = [one.frame("examples").filter(pl.col("split") != "test") for one in datasets.values()]
    return pl.concat(frames).unique("example_id", maintain_order=True)


def _models(inputs: Inputs, results: _Results, base: "Base", recipe: "EvaluationRecipe") -> "DomainModels":
    from capibara_assets.consensus.choose.experts import read_accepted, read_experts
    from capibara_assets.evaluation.measuring.domain import DomainModels
    from capibara_assets.playbooks.formats.write import render_playbook

    domain, candidate = results.domain, results.candidate
    experts = read_experts({d: a.directory("adapter") for d, a in results.consensus.items()})
    bullets = results.playbook.frame("bullets")
    return DomainModels(
        domain=domain.value,
        base=base,
        playbook=render_playbook(bullets, lambda text: len(base.tokenizer.encode(text)), recipe.playbook_budget_tokens),
        consensus=experts[domain],
        voters=read_accepted(results.voters.directory("voters"), candidate.document("certificate")),
        experts={other.value: adapter for other, adapter in experts.items() if other != domain},
        merged=results.merged.directory("model"),
        router=_router(results.router, base),
        promoted=_promoted(inputs, domain, candidate.digest),
    )


def _router(artifact: "Artifact", base: "Base") -> "Router | None":
    """The trained router, or None if there was nothing to train it on."""
    from capibara_assets.evaluation.routing.router import Router

    if not artifact.has("router"):
        return None
    folder = artifact.directory("router")
    if read_object(folder / "router.json").get("kind") != "embedding":
        return Router.read(folder)
    from capibara_assets.evaluation.routing.embedding import embedder
    from capibara_assets.evaluation.routing.recipe import RouterRecipe

    return Router.read(folder, embedder(base, RouterRecipe().embedding_tokens))


def _promoted(inputs: Inputs, domain: Domain, candidate: str) -> "LoraAdapter | None":
    """The adapter served for the domain now; None if that is the base model or the candidate itself."""
    from capibara_assets.evaluation.serving.promotion import served
    from capibara_assets.evaluation.serving.promotion_log import PromotionLog
    from capibara_assets.modeling.adapters import read_adapter

    head = PromotionLog(inputs.store).head()
    digest = served(head.promotion).get(domain.value) if head else None
    if digest is None or digest == candidate:
        return None
    return read_adapter(inputs.store.open("consensus_checkpoint", domain, digest).directory("adapter"))


def _test_use(
    inputs: Inputs, results: _Results, items: "list[Item]", recipe: "EvaluationRecipe", rule: "DecisionRule"
) -> "TestUse":
    from capibara_assets.assets.settings import setting_digest
    from capibara_assets.evaluation.decision.test_uses import LEDGER, Trial, record_test_use

    trial = Trial(
        items=[item.item_id for item in items],
        candidate=results.candidate.digest,
        contest=results.voters.digest,
        settings={
            "rule": setting_digest(rule),
            "recipe": setting_digest(recipe),
            "playbook": inputs.upstream[source_name("consolidated_playbook", results.domain)],
            **inputs.settings,
        },
    )
    return record_test_use(inputs.store.root / LEDGER, results.domain.value, trial, alpha=1 - rule.confidence)


def _sources(results: _Results) -> "Iterator[ReportSource]":
    """The artifacts that the evaluation was made from, for the report, with links to Dagster's UI."""
    from capibara_assets.evaluation.report import ReportSource

    domain = results.domain
    for artifact in filter(None, (results.dataset, results.trained, results.playbook)):
        yield ReportSource(f"{artifact.name}[{domain}]", artifact.digest, _page(artifact.name, domain))
    for other, artifact in results.consensus.items():
        certificate = artifact.document("certificate")["digest"]
        name = f"consensus_checkpoint[{other}]"
        yield ReportSource(name, artifact.digest, _page("consensus_checkpoint", other), f"certificate {certificate}")
    for artifact in (results.merged, results.router):
        yield ReportSource(artifact.name, artifact.digest, _page(artifact.name))


def _page(name: str, domain: Domain | None = None) -> str:
    """Address of the asset's page in Dagster's UI, relative to its root."""
    return f"/assets/{name}?partition={domain}" if domain else f"/assets/{name}"
