"""The promoted model, which serving loads: changed by the gate, by a person or by a rollback, with a history."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.assets.consensus import merged_checkpoint
from capibara_assets.assets.evaluation import evaluation
from capibara_assets.assets.inputs import (
    CHECKPOINTS,
    INPUTS,
    Inputs,
    latest_metadata,
    materialized,
    source_name,
)
from capibara_assets.assets.routing import expert_router
from capibara_assets.domains import Domain
from capibara_assets.escaping.languages import Markdown, markdown_list, markdown_text
from capibara_assets.metadata.page import AssetPage, KeyFigure, PageVerdict
from capibara_assets.resources import Recipes, Store

if TYPE_CHECKING:
    from capibara_assets.evaluation.decision_rule import DecisionRule
    from capibara_assets.evaluation.serving.promotion_log import Action, Move
    from capibara_assets.storage.artifact import Artifact
    from capibara_assets.storage.store import ArtifactStore

NAME = "promoted_model"
Event = Callable[[dg.AssetMaterialization], Any]
Change = Callable[[dict[str, Any] | None, "list[Move]"], tuple[dict[str, Any], str]]


@dg.asset(
    group_name="evaluation", kinds={"json"}, code_version="2", deps=[evaluation, merged_checkpoint, expert_router]
)
def promoted_model(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """The checkpoints to serve now; a domain changes only when its evaluation passes the gate.

    Worry when a domain you trained stays on its old checkpoint: `why` gives the gate's reason.
    """
    from capibara_assets.evaluation.decision_rule import DecisionRule
    from capibara_assets.evaluation.serving.promotion import moves, promote
    from capibara_assets.evaluation.serving.promotion_log import PromotionLog

    inputs = Inputs.of(context, store)
    evaluated = inputs.every("evaluation")
    inputs.artifact("merged_checkpoint")  # recorded as an input; the model promoted is the one evaluated
    judged = {d: latest_metadata(inputs.instance, "evaluation", d)[INPUTS]["upstream"] for d in evaluated}
    decisions = _together(evaluated, inputs.recipe(recipes, "decision", DecisionRule))
    router = inputs.artifact("expert_router")

    def gate(now: dict[str, Any] | None, _: "list[Move]") -> tuple[dict[str, Any], str]:
        checkpoints = {d: upstream[source_name("consensus_checkpoint", d)] for d, upstream in judged.items()}
        usable = router.digest if router.document("report").get("trained", True) else None
        document = promote(decisions, checkpoints, merged=_merged(judged), router=usable, previous=now)
        return document, f"The gate passed in {', '.join(moves(document, now)) or 'every domain'}."

    document, move = PromotionLog(inputs.store).move("gate", gate, by="gate", imported=_before(inputs))
    artifact = _publish(inputs, document, _routing(inputs, router, evaluated, judged))
    return materialized(artifact, inputs, _page(inputs, document, move))


def change_manually(
    instance: dg.DagsterInstance, store: "ArtifactStore", action: "Action", change: Change, by: str, event: Event
) -> "Move | None":
    """Change what is served on request: record it in the history, publish, and report to Dagster.

    The asset's recorded inputs stay those that the gate read last, so that it stays current.

    Args:
        instance: the Dagster instance.
        store: the artifact store.
        action: kind of the change, for the history.
        change: maps the current promotion (None before the first) and the history to the new promotion and a reason.
        by: who changes it.
        event: receives the materialization, e.g. `instance.report_runless_asset_event`.

    Returns:
        The recorded change, or None if nothing changed.

    Raises:
        InputError: what `change` raises.
    """
    from capibara_assets.evaluation.serving.promotion_log import PromotionLog

    inputs = Inputs(instance, store)
    document, move = PromotionLog(store).move(action, change, by=by, imported=_before(inputs))
    last = latest_metadata(instance, NAME)
    known = last.get(INPUTS, inputs.record())
    inputs.upstream, inputs.settings, inputs.code_version = known["upstream"], known["settings"], known["code_version"]
    previous = inputs.previous(NAME)
    artifact = _publish(
        inputs, document, previous.document("routing") if previous and previous.has("routing") else None
    )
    shown = materialized(artifact, inputs, _page(inputs, document, move)).metadata
    event(dg.AssetMaterialization(NAME, metadata=shown, tags={"dagster/data_version": artifact.digest}))
    return move


def _together(evaluated: "Mapping[Domain, Artifact]", rule: "DecisionRule") -> dict[Domain, Mapping[str, Any]]:
    """The domains' decisions, adjusted for multiple comparisons (Holm); those of an older version unchanged."""
    from capibara_assets.evaluation.decision.decide import across_domains
    from capibara_assets.evaluation.schema import read_decision

    documents = {domain: artifact.document("decision") for domain, artifact in evaluated.items()}
    current = {domain.value: read_decision(one) for domain, one in documents.items() if "schema_version" in one}
    adjusted = across_domains(current, rule)
    return documents | {Domain(name): one.model_dump(mode="json") for name, one in adjusted.items()}


def _publish(inputs: Inputs, document: Mapping[str, Any], routing: Mapping[str, Any] | None) -> "Artifact":
    documents = {"promotion": document, **({"routing": routing} if routing else {})}
    return inputs.publish(NAME, None, documents=documents)


def _page(inputs: Inputs, document: Mapping[str, Any], move: "Move | None") -> AssetPage:
    from capibara_assets.lineage.checkpoints import serving_checkpoints

    lines = [
        Markdown(f"**{domain}** ({markdown_text(entry['verdict'])}): {markdown_text(entry['reason'])}")
        for domain, entry in document["domains"].items()
    ]
    experts, moved = document["serving"]["experts"], sorted(move.moved) if move else []
    behind = [domain for domain, entry in document["domains"].items() if entry["verdict"] != "promote"]
    words = f"{len(experts)} experts are served; moved now: {', '.join(moved) or 'nothing'}"
    if behind:
        words += f"; not promoted: {', '.join(behind)}, `why` gives the gate's reasons"
    return AssetPage(
        PageVerdict("look" if behind else "good", words),
        KeyFigure("experts_served", len(experts)),
        contents={
            "why": dg.MetadataValue.md(markdown_list(lines)),
            "moved": moved,
            "number": move.number if move else 0,
            "by": f"{move.by} ({move.action})" if move else "nobody: nothing moved",
        },
        records={
            "serving": dg.MetadataValue.json(document["serving"]),
            CHECKPOINTS: dg.MetadataValue.json(serving_checkpoints(inputs.store, document)),
        },
    )


def _before(inputs: Inputs) -> dict[str, Any] | None:
    """The promotion of the latest materialization, to start the history with if it has none."""
    previous = inputs.previous(NAME)
    return previous.document("promotion") if previous else None


def _merged(judged: Mapping[Domain, Mapping[str, str]]) -> str | None:
    """Digest of the merged model that all evaluations used; None if they used different ones, or none."""
    digests = {upstream.get(source_name("merged_checkpoint"), "") for upstream in judged.values()}
    return digests.pop() or None if len(digests) == 1 else None


def _routing(
    inputs: Inputs,
    router: "Artifact",
    evaluated: "Mapping[Domain, Artifact]",
    judged: Mapping[Domain, Mapping[str, str]],
) -> dict[str, Any] | None:
    """The router compared with the merged model and with the best expert per prompt, from the evaluations' losses."""
    import polars as pl

    from capibara_assets.datasets.routing import asked
    from capibara_assets.evaluation.routing.report import regret
    from capibara_assets.evaluation.routing.router import Router

    if not router.has("router") or router.document("router/router").get("kind") != "ngrams":
        return None
    domains = {}
    for domain, artifact in evaluated.items():
        digest = judged[domain].get(source_name("moe_dataset", domain))
        if digest and artifact.has("losses"):
            examples = inputs.store.open("moe_dataset", domain, digest).frame("examples")
            test = examples.filter(pl.col("split") == "test").select("example_id", "messages")
            domains[domain.value] = (artifact.frame("losses"), {i: asked(text) for i, text in test.iter_rows()})
    comparison = regret(Router.read(router.directory("router")), domains)
    return comparison.document() if comparison else None
