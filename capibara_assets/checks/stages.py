"""Asset checks between stages: empty, leaking or diverging results do not reach the next stage."""

import math

import dagster as dg

from capibara_assets.assets.inputs import Inputs
from capibara_assets.domains import Domain
from capibara_assets.partitions import domains
from capibara_assets.resources import BaseModel, Recipes, Store

SHOWN = 20  # problems listed by a check that may find thousands


@dg.asset_check(asset="e2b_executions", blocking=True, partitions_def=domains)
def executions_not_empty(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """The domain has at least one execution."""
    artifact = Inputs(context.instance, store.open()).artifact("e2b_executions", Domain(context.partition_key))
    count = artifact.frame("executions").height
    return dg.AssetCheckResult(passed=count > 0, metadata={"executions": count})


@dg.asset_check(asset="example_groups", blocking=False)
def no_group_dominates(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """No group of related executions holds more of a domain than the dataset recipe's `largest_group`."""
    artifact = Inputs(context.instance, store.open()).artifact("example_groups")
    too_large = artifact.document("statistics")["too_large"]
    return dg.AssetCheckResult(
        passed=not too_large, severity=dg.AssetCheckSeverity.WARN, metadata={"too_large": too_large}
    )


@dg.asset_check(asset="moe_dataset", blocking=True, partitions_def=domains)
def no_leakage(context: dg.AssetCheckExecutionContext, store: Store, recipes: Recipes) -> dg.AssetCheckResult:
    """No group, sandbox, execution, (nearly) equal text or problem is in two splits, over all available domains."""
    from capibara_assets.datasets.checks import leakage
    from capibara_assets.datasets.recipe import DatasetRecipe

    inputs = Inputs(context.instance, store.open())
    examples = {domain: artifact.frame("examples") for domain, artifact in inputs.every("moe_dataset").items()}
    leaks = leakage(examples, recipes.load("dataset", DatasetRecipe).near_duplicates)
    return dg.AssetCheckResult(passed=not leaks, metadata={"leaks": leaks})


@dg.asset_check(asset="moe_dataset", blocking=True, partitions_def=domains)
def examples_valid(context: dg.AssetCheckExecutionContext, store: Store, recipes: Recipes) -> dg.AssetCheckResult:
    """Messages alternate, every example has provenance, no kind of example dominates, and no split is too small."""
    from capibara_assets.datasets.checks import balance_problems, example_problems, size_problems
    from capibara_assets.datasets.recipe import DatasetRecipe

    domain = Domain(context.partition_key)
    examples = Inputs(context.instance, store.open()).artifact("moe_dataset", domain).frame("examples")
    recipe = recipes.load("dataset", DatasetRecipe)
    problems = [
        *example_problems(domain, examples),
        *size_problems(examples, recipe.minimum_examples),
        *balance_problems(domain, examples, recipe),
    ]
    return dg.AssetCheckResult(passed=not problems, metadata={"problems": problems})


@dg.asset_check(asset="moe_dataset", blocking=True, partitions_def=domains)
def labels_supervised(
    context: dg.AssetCheckExecutionContext, store: Store, base_model: BaseModel
) -> dg.AssetCheckResult:
    """Under the base model's chat template each example has supervised tokens, all of them the assistant's."""
    from transformers import AutoTokenizer

    from capibara_assets.datasets.checks import label_audit

    examples = Inputs(context.instance, store.open()).artifact("moe_dataset", Domain(context.partition_key))
    tokenizer = AutoTokenizer.from_pretrained(base_model.path, local_files_only=True, trust_remote_code=False)
    problems = label_audit(examples.frame("examples"), tokenizer)
    return dg.AssetCheckResult(passed=not problems, metadata={"problems": problems[:SHOWN], "count": len(problems)})


@dg.asset_check(asset="moe_dataset", blocking=True, partitions_def=domains)
def no_secrets(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """No text matches a secret's pattern in the training examples (placeholders are allowed)."""
    from capibara_assets.datasets.checks import secret_problems

    artifact = Inputs(context.instance, store.open()).artifact("moe_dataset", Domain(context.partition_key))
    problems = secret_problems(artifact.frame("examples"))
    return dg.AssetCheckResult(passed=not problems, metadata={"problems": problems})


@dg.asset_check(asset="routing_dataset", blocking=True)
def routes_valid(context: dg.AssetCheckExecutionContext, store: Store, recipes: Recipes) -> dg.AssetCheckResult:
    """Every prompt has a domain, no group of prompts is in two splits, and all domains have the same weight."""
    from capibara_assets.datasets.checks import route_problems
    from capibara_assets.datasets.recipe import DatasetRecipe

    routes = Inputs(context.instance, store.open()).artifact("routing_dataset").frame("routes")
    problems = route_problems(routes, recipes.load("dataset", DatasetRecipe).routing)
    return dg.AssetCheckResult(passed=not problems, metadata={"problems": problems})


@dg.asset_check(asset="trained_adapters", blocking=True, partitions_def=domains)
def adapters_better_than_base(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """At least 2f+1 of the n registered voters have a finite loss below the base model's on their validation shard."""
    artifact = Inputs(context.instance, store.open()).artifact("trained_adapters", Domain(context.partition_key))
    summary = artifact.document("summary")
    voters, needed = summary["voters"], summary["quorum"]
    good = [
        name
        for name, voter in voters.items()
        if math.isfinite(voter["validation_loss"]) and voter["validation_loss"] < voter["base_validation_loss"]
    ]
    losses = {name: [voter["base_validation_loss"], voter["validation_loss"]] for name, voter in voters.items()}
    return dg.AssetCheckResult(
        passed=len(good) >= needed, metadata={"better": good, "needed": needed, "losses": losses}
    )


@dg.asset_check(asset="consensus_checkpoint", blocking=True, partitions_def=domains)
def consensus_not_worse(context: dg.AssetCheckExecutionContext, store: Store, recipes: Recipes) -> dg.AssetCheckResult:
    """The consensus adapter's loss is below the base model's and within the tolerance of the best accepted voter's."""
    from capibara_assets.consensus.recipe import ConsensusRecipe

    tolerance = recipes.load("consensus", ConsensusRecipe).tolerance
    artifact = Inputs(context.instance, store.open()).artifact("consensus_checkpoint", Domain(context.partition_key))
    losses, certificate = artifact.document("losses"), artifact.document("certificate")
    best = min(losses[voter["name"]] for voter in certificate["voters"] if voter["accepted"])
    consensus, base = losses["consensus"], losses["base"]
    passed = math.isfinite(consensus) and consensus <= best * (1 + tolerance) and consensus < base
    return dg.AssetCheckResult(
        passed=passed, metadata={"consensus": consensus, "best_voter": best, "base": base, "tolerance": tolerance}
    )


@dg.asset_check(asset="evaluation", blocking=True, partitions_def=domains)
def evaluation_valid(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """All contenders have finite losses on the same examples, every answer has a grade, and no contender crashed.

    A contender that loses is valid (contract 15).
    """
    from capibara_assets.evaluation.tables import validity_problems

    artifact = Inputs(context.instance, store.open()).artifact("evaluation", Domain(context.partition_key))
    problems = validity_problems(
        {name: artifact.frame(name) for name in ("losses", "answers", "grades")},
        artifact.document("metrics"),
        artifact.document("decision"),
    )
    return dg.AssetCheckResult(passed=not problems, metadata={"problems": problems})


STAGE_CHECKS = [
    executions_not_empty,
    no_group_dominates,
    no_leakage,
    examples_valid,
    labels_supervised,
    no_secrets,
    routes_valid,
    adapters_better_than_base,
    consensus_not_worse,
    evaluation_valid,
]
