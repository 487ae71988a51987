"""Side by side on held-out examples, the router, and what serving should load now."""

from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg

from capibara_assets.assets.consensus import consensus_checkpoint, merged_checkpoint
from capibara_assets.assets.datasets import moe_dataset, routing_dataset
from capibara_assets.assets.inputs import CHECKPOINTS, INPUTS, Inputs, latest_metadata, materialized, source_name
from capibara_assets.assets.knowledge import consolidated_playbook
from capibara_assets.assets.training import trained_adapters
from capibara_assets.domains import Domain
from capibara_assets.metadata import bar_chart, plot
from capibara_assets.partitions import domains
from capibara_assets.resources import BaseModel, Recipes, Store


@dg.asset(
    partitions_def=domains,
    group_name="evaluation",
    kinds={"parquet", "json"},
    code_version="1",
    deps=[
        moe_dataset,
        consolidated_playbook,
        trained_adapters,
        dg.AssetDep(consensus_checkpoint, partition_mapping=dg.AllPartitionMapping()),
        merged_checkpoint,
    ],
)
def evaluation(
    context: dg.AssetExecutionContext, store: Store, recipes: Recipes, base_model: BaseModel
) -> dg.MaterializeResult:
    """Base, base + playbook, voters, every domain's expert and the merged model on one test split; the decision."""
    from capibara_assets.consensus.experts import read_accepted, read_experts
    from capibara_assets.evaluation.contenders import held_out, mean_losses, score
    from capibara_assets.evaluation.decision import decide
    from capibara_assets.evaluation.recipe import DecisionRule
    from capibara_assets.evaluation.schema import ExampleLoss
    from capibara_assets.modeling.base import load_base
    from capibara_assets.playbooks.render import render_playbook

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    rule = inputs.recipe(recipes, "decision", DecisionRule)
    base = load_base(base_model.path)
    inputs.setting("base_model", base.digest)
    test = held_out(inputs.artifact("moe_dataset", domain).frame("examples"), rule)
    playbook = render_playbook(
        inputs.artifact("consolidated_playbook", domain).frame("bullets"),
        lambda text: len(base.tokenizer.encode(text)),
        rule.playbook_budget_tokens,
    )
    inputs.artifact("consensus_checkpoint", domain)  # its own is required, the others' are welcome
    consensus = inputs.every("consensus_checkpoint")
    experts = read_experts({d: a.directory("adapter") for d, a in consensus.items()})
    voters = read_accepted(
        inputs.artifact("trained_adapters", domain).directory("voters"), consensus[domain].document("certificate")
    )
    contenders = {
        **voters,
        "consensus": experts[domain],
        **{f"expert:{other}": adapter for other, adapter in experts.items() if other != domain},
    }
    merged = inputs.artifact("merged_checkpoint").directory("model")
    losses = score(base, test, playbook, contenders, merged, rule)
    decision = decide(domain, losses, rule)
    means = mean_losses(losses)
    artifact = inputs.publish(
        "evaluation",
        domain,
        tables={"losses": (ExampleLoss, losses)},
        documents={"decision": decision.model_dump(mode="json"), "means": means},
    )
    return materialized(
        artifact,
        inputs,
        {
            "verdict": decision.verdict,
            "why": dg.MetadataValue.md(decision.reason),
            "test_examples": losses["example_id"].n_unique(),
            "losses": plot(bar_chart(means, "test loss, nats per token")),
            "means": dg.MetadataValue.json(means),
        },
    )


@dg.asset(
    group_name="evaluation", kinds={"scikitlearn"}, code_version="2", deps=[routing_dataset, consensus_checkpoint]
)
def expert_router(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """Picks (or mixes) experts for a prompt; trained on the routing dataset, over the domains that have an expert."""
    from capibara_assets.evaluation.recipe import DecisionRule
    from capibara_assets.evaluation.router import accuracy, train_router

    inputs = Inputs.of(context, store)
    rule = inputs.recipe(recipes, "decision", DecisionRule)
    routing = inputs.artifact("routing_dataset")
    experts = [d.value for d in inputs.every("consensus_checkpoint")]
    if why := routing.document("statistics")["left_out"]:
        report = {"trained": False, "why": why, "experts": experts}
        artifact = inputs.publish("expert_router", None, documents={"report": report})
        return materialized(artifact, inputs, {"report": dg.MetadataValue.json(report)})
    routes = routing.frame("routes")
    router = train_router(routes, experts, rule.seed)
    test_accuracy, prompts = accuracy(router, routes, "test")
    report = {
        "trained": True,
        "experts": list(router.experts),
        "test_accuracy": test_accuracy,
        "test_prompts": prompts,
    }
    with TemporaryDirectory() as folder:
        router.write(Path(folder))
        artifact = inputs.publish("expert_router", None, trees={"router": Path(folder)}, documents={"report": report})
    return materialized(artifact, inputs, {"report": dg.MetadataValue.json(report)})


@dg.asset(
    group_name="evaluation", kinds={"json"}, code_version="1", deps=[evaluation, merged_checkpoint, expert_router]
)
def promoted_model(context: dg.AssetExecutionContext, store: Store) -> dg.MaterializeResult:
    """What serving should load now; the pointer moves only for domains whose gate passes, and says why otherwise."""
    from capibara_assets.evaluation.promotion import moves, promote
    from capibara_assets.lineage.checkpoints import serving_checkpoints

    inputs = Inputs.of(context, store)
    decisions = {domain: artifact.document("decision") for domain, artifact in inputs.every("evaluation").items()}
    # What was judged is promoted: a later checkpoint may not have been evaluated yet.
    judged = {d: latest_metadata(inputs.instance, "evaluation", d)[INPUTS]["upstream"] for d in decisions}
    checkpoints = {d: upstream[source_name("consensus_checkpoint", d)] for d, upstream in judged.items()}
    previous = inputs.previous("promoted_model")
    before = previous.document("promotion") if previous else None
    router = inputs.artifact("expert_router")
    promotion = promote(
        decisions,
        checkpoints,
        merged=inputs.artifact("merged_checkpoint").digest,
        router=router.digest if router.document("report").get("trained", True) else None,
        previous=before,
    )
    artifact = inputs.publish("promoted_model", None, documents={"promotion": promotion})
    lines = [f"- **{domain}**: {entry['reason']}" for domain, entry in promotion["domains"].items()]
    return materialized(
        artifact,
        inputs,
        {
            "serving": dg.MetadataValue.json(promotion["serving"]),
            CHECKPOINTS: dg.MetadataValue.json(serving_checkpoints(inputs.store, promotion)),
            "moved": moves(promotion, before),
            "why": dg.MetadataValue.md("\n".join(lines)),
        },
    )
