"""Asset checks between stages: empty, leaking or diverging results do not reach the next stage."""

import math

import dagster as dg

from capibara_assets.assets.inputs import Inputs
from capibara_assets.checks.results import judged
from capibara_assets.domains import Domain
from capibara_assets.partitions import domains
from capibara_assets.resources import BaseModel, Recipes, Store

MORE = (
    "train longer (--profile full) or on more examples of this domain; the curves on the page of trained_adapters show"
    " whether the losses still fall"
)


@dg.asset_check(asset="e2b_executions", blocking=True, partitions_def=domains)
def executions_not_empty(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """The domain has at least one execution."""
    domain = Domain(context.partition_key)
    count = Inputs(context.instance, store.open()).artifact("e2b_executions", domain).frame("executions").height
    problems = [] if count else [f"no execution of {domain} in the logs"]
    remedy = f"add logs with {domain} code to the experience folder, or leave {domain} out of --domains"
    return judged(problems, f"{count:,} executions", remedy, executions=count)


@dg.asset_check(asset="example_groups", blocking=False)
def no_group_dominates(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """No group of related executions holds more of a domain than the dataset recipe's `largest_group`."""
    artifact = Inputs(context.instance, store.open()).artifact("example_groups")
    too_large = artifact.document("statistics")["too_large"]
    remedy = "add executions of other problems, or raise `largest_group` in the recipe `dataset`"
    return judged(too_large, "no group holds more of a domain than the recipe allows", remedy, warn=True)


@dg.asset_check(asset="moe_dataset", blocking=True, partitions_def=domains)
def no_leakage(context: dg.AssetCheckExecutionContext, store: Store, recipes: Recipes) -> dg.AssetCheckResult:
    """No group, sandbox, execution, (nearly) equal text or problem is in two splits, over all available domains."""
    from capibara_assets.datasets.checks import leakage
    from capibara_assets.datasets.recipe import DatasetRecipe

    inputs = Inputs(context.instance, store.open())
    examples = {domain: artifact.frame("examples") for domain, artifact in inputs.every("moe_dataset").items()}
    leaks = leakage(examples, recipes.load("dataset", DatasetRecipe).near_duplicates)
    remedy = "materialize example_groups and then moe_dataset of all domains again; if it fails again, it is a bug"
    return judged(leaks, f"nothing is in two splits, over {len(examples)} domains", remedy)


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
    remedy = f"add executions of {domain} (`missing` on the page of moe_dataset says of which kind), or leave it out"
    return judged(problems, f"{examples.height:,} examples", remedy)


@dg.asset_check(asset="moe_dataset", blocking=True, partitions_def=domains)
def labels_supervised(
    context: dg.AssetCheckExecutionContext, store: Store, base_model: BaseModel
) -> dg.AssetCheckResult:
    """Under the base model's chat template each example has supervised tokens, all of them the assistant's."""
    from capibara_assets.datasets.checks import label_audit
    from capibara_assets.modeling.base import load_tokenizer

    examples = Inputs(context.instance, store.open()).artifact("moe_dataset", Domain(context.partition_key))
    problems = label_audit(examples.frame("examples"), load_tokenizer(base_model.path))
    remedy = f"mend the chat template of the base model in {base_model.path}, or choose another with --base-model"
    return judged(problems, "each example has supervised tokens, all of them the assistant's", remedy)


@dg.asset_check(asset="moe_dataset", blocking=True, partitions_def=domains)
def no_secrets(context: dg.AssetCheckExecutionContext, store: Store) -> dg.AssetCheckResult:
    """No text matches a secret's pattern in the training examples (placeholders are allowed)."""
    from capibara_assets.datasets.checks import secret_problems

    artifact = Inputs(context.instance, store.open()).artifact("moe_dataset", Domain(context.partition_key))
    problems = secret_problems(artifact.frame("examples"))
    remedy = "`capibara forget` the executions named, and report the pattern: redaction should have replaced it"
    return judged(problems, "no text matches a secret's pattern", remedy)


@dg.asset_check(asset="routing_dataset", blocking=True)
def routes_valid(context: dg.AssetCheckExecutionContext, store: Store, recipes: Recipes) -> dg.AssetCheckResult:
    """Every prompt has a domain, no group of prompts is in two splits, and all domains have the same weight."""
    from capibara_assets.datasets.checks import route_problems
    from capibara_assets.datasets.recipe import DatasetRecipe

    routes = Inputs(context.instance, store.open()).artifact("routing_dataset").frame("routes")
    problems = route_problems(routes, recipes.load("dataset", DatasetRecipe).routing)
    remedy = "materialize moe_dataset of all domains and routing_dataset again; if it fails again, it is a bug"
    return judged(problems, f"{routes.height:,} prompts, each with a domain and in one split", remedy)


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
    words = f"{len(good)} of {len(voters)} voters are better than the base, {needed} are needed"
    worse = [f"{name}: loss {own:.4f}, base {base:.4f}" for name, (base, own) in losses.items() if name not in good]
    problems = [] if len(good) >= needed else [words, *worse]
    return judged(problems, words, MORE, better=good, needed=needed, losses=losses)


@dg.asset_check(asset="consensus_checkpoint", blocking=True, partitions_def=domains)
def consensus_not_worse(context: dg.AssetCheckExecutionContext, store: Store, recipes: Recipes) -> dg.AssetCheckResult:
    """The consensus adapter's loss is below the base model's and within the tolerance of the best accepted voter's."""
    from capibara_assets.consensus.recipe import ConsensusRecipe

    tolerance = recipes.load("consensus", ConsensusRecipe).tolerance
    artifact = Inputs(context.instance, store.open()).artifact("consensus_checkpoint", Domain(context.partition_key))
    losses, certificate = artifact.document("losses"), artifact.document("certificate")
    best = min(losses[voter["name"]] for voter in certificate["voters"] if voter["accepted"])
    consensus, base = losses["consensus"], losses["base"]
    problems = consensus_problems(consensus, best, base, tolerance)
    words = f"loss {consensus:.4f}: base {base:.4f}, best accepted voter {best:.4f}"
    return judged(problems, words, MORE, consensus=consensus, best_voter=best, base=base, tolerance=tolerance)


def consensus_problems(consensus: float, best: float, base: float, tolerance: float) -> list[str]:
    """Problems of a consensus adapter's loss: above the base model's, or too far above the best voter's."""
    if not math.isfinite(consensus):
        return [f"the consensus adapter's loss is {consensus}"]
    problems, most = [], best * (1 + tolerance)
    if not consensus < base:
        problems.append(f"loss {consensus:.4f} is {consensus - base:.4f} above the base's {base:.4f}")
    if not consensus <= most:
        allowed = f"{most:.4f}, the best accepted voter's {best:.4f} and {tolerance:.0%}"
        problems.append(f"loss {consensus:.4f} is {consensus - most:.4f} above {allowed}")
    return problems


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
    remedy = "materialize evaluation of this domain again; a contender that crashes again is named with its error"
    return judged(problems, "all contenders were measured on the same examples", remedy)


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
