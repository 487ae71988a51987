"""Dataset assets: groups and splits over all domains, training examples per domain, prompts for the router."""

from functools import partial

import dagster as dg

from capibara_assets.assets.imports import IMPORTED, imported_examples
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.assets.knowledge import consolidated_playbook, e2b_patterns
from capibara_assets.domains import Domain
from capibara_assets.metadata.dataset_entries import dataset_entries, groups_entries, routing_entries
from capibara_assets.partitions import domains
from capibara_assets.resources import Recipes, Store


@dg.asset(group_name="datasets", kinds={"parquet"}, code_version="2", deps=[e2b_patterns, consolidated_playbook])
def example_groups(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """Groups of related executions (same problem, sandbox, near-duplicates) with their train/validation/test split.

    Computed over all domains; a group keeps its split for ever. Worry when many executions are left out.
    """
    import polars as pl

    from capibara_assets.datasets.groups import assign_groups
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.datasets.schema import Group

    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "dataset", DatasetRecipe)
    patterns = inputs.every("e2b_patterns").values()
    executions = pl.concat([one.frame("executions") for one in patterns]).unique("execution_id", maintain_order=True)
    repairs = pl.concat([one.frame("repairs") for one in patterns]).unique("pair_id", maintain_order=True)
    previous = inputs.previous("example_groups")
    former = previous.frame("groups") if previous else None
    cache = inputs.store.work_dir("example_groups", None, "readings")
    groups = assign_groups(executions, repairs, former, recipe, cache=cache)
    artifact = inputs.publish("example_groups", None, tables={"groups": (Group, groups)})
    return materialized(artifact, inputs, groups_entries(groups))


@dg.asset(
    partitions_def=domains,
    group_name="datasets",
    kinds={"parquet"},
    code_version="4",
    deps=[
        dg.AssetDep(e2b_patterns, partition_mapping=dg.AllPartitionMapping()),
        consolidated_playbook,
        example_groups,
        imported_examples,
    ],
)
def moe_dataset(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """Training examples of one domain as chat messages with provenance: verified, deduplicated, split without leakage.

    Worry when a split is small, a kind of example is missing, or many examples are left out.
    """
    from capibara_assets.datasets.duplicates.public_benchmarks import benchmark_digests
    from capibara_assets.datasets.examples import VOLATILE, Evidence, build_dataset
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.datasets.verification import verify
    from capibara_assets.storage.kept import keeping

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "dataset", DatasetRecipe)
    # of all domains: a session's cells are in several, and a prompt quotes the whole session
    patterns = inputs.every("e2b_patterns", domain)
    evidence = Evidence.of(
        patterns[domain], inputs.artifact("consolidated_playbook", domain), others=list(patterns.values())
    )
    imported, groups = inputs.available(IMPORTED, domain), inputs.artifact("example_groups").frame("groups")
    own = imported.frame("examples") if imported else None
    if benchmarks := recipe.decontamination.benchmarks:
        inputs.setting("benchmarks", benchmark_digests(benchmarks))
    # one cache for all domains, since a repair is executed for its language and again for debug
    cache = inputs.store.work_dir("moe_dataset", None, "verdicts")
    again = partial(verify, recipe=recipe.verification, cache=cache)
    with keeping(inputs.store.work_dir("moe_dataset", domain, "texts")):
        made = build_dataset(domain, evidence, groups, recipe, reexecute=again, imported=own)
    tables, documents = made.tables(), made.documents()
    artifact = inputs.publish("moe_dataset", domain, tables=tables, documents=documents, volatile=VOLATILE)
    return materialized(artifact, inputs, dataset_entries(made))


@dg.asset(group_name="datasets", kinds={"parquet"}, code_version="2", deps=[moe_dataset])
def routing_dataset(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """Prompts of all available domains, labelled by domain, to train the router. Worry when a domain is missing."""
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.datasets.routing import LEFT_OUT, balance, build_routing
    from capibara_assets.datasets.schema import Route

    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "dataset", DatasetRecipe)
    examples = {domain: artifact.frame("examples") for domain, artifact in inputs.every("moe_dataset").items()}
    routes = build_routing(examples, recipe)
    figures = balance(routes) | {"left_out": None if recipe.include_routing else LEFT_OUT}
    tables, documents = {"routes": (Route, routes)}, {"statistics": figures}
    artifact = inputs.publish("routing_dataset", None, tables=tables, documents=documents)
    return materialized(artifact, inputs, routing_entries(routes, figures))
