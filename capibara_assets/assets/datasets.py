"""Dataset assets: groups and splits over all domains, training examples per domain, prompts for the router."""

from functools import partial
from typing import TYPE_CHECKING

import dagster as dg

from capibara_assets.assets.imports import IMPORTED, examples_of, imported_examples
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.assets.knowledge import consolidated_playbook, e2b_patterns
from capibara_assets.domains import Domain
from capibara_assets.metadata.dataset_entries import dataset_page, groups_page, routing_page
from capibara_assets.partitions import domains
from capibara_assets.resources import DataEngine, Recipes, Store

if TYPE_CHECKING:
    from capibara_assets.datasets.recipe import DatasetRecipe


@dg.asset(group_name="datasets", kinds={"parquet"}, code_version="4", deps=[e2b_patterns, consolidated_playbook])
def example_groups(
    context: dg.AssetExecutionContext, store: Store, recipes: Recipes, data_engine: DataEngine
) -> dg.MaterializeResult:
    """Groups of related executions (same problem, sandbox, near-duplicates) with their train/validation/test split.

    Computed over all domains; a group keeps its split for ever. Worry when many executions are left out, or when
    `too_large` names a group.
    """
    from capibara_assets.datasets.groups import assign_groups, group_statistics, grouped_tables
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.datasets.schema import Group

    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "dataset", DatasetRecipe)
    patterns = inputs.some("e2b_patterns").values()
    executions, repairs = grouped_tables(patterns)
    previous = inputs.previous("example_groups")
    former = previous.frame("groups") if previous else None
    cache = inputs.store.work_dir("example_groups", None, "readings")
    with data_engine.started() as cluster:
        groups = assign_groups(executions, repairs, former, recipe, cache=cache, cluster=cluster)
    statistics = group_statistics(groups, executions, recipe)
    artifact = inputs.publish(
        "example_groups", None, tables={"groups": (Group, groups)}, documents={"statistics": statistics}
    )
    return materialized(artifact, inputs, groups_page(groups, statistics))


@dg.asset(
    partitions_def=domains,
    group_name="datasets",
    kinds={"parquet"},
    code_version="36",
    deps=[e2b_patterns, consolidated_playbook, example_groups, imported_examples],
)
def moe_dataset(
    context: dg.AssetExecutionContext, store: Store, recipes: Recipes, data_engine: DataEngine
) -> dg.MaterializeResult:
    """Training examples of one domain as chat messages with provenance: verified, deduplicated, split without leakage.

    Worry when a split is small, a kind of example is missing, or many examples are left out.
    """
    from capibara_assets.datasets.examples import VOLATILE, Evidence
    from capibara_assets.datasets.making import make_dataset
    from capibara_assets.datasets.recipe import DatasetRecipe

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "dataset", DatasetRecipe)
    imported, grouped = inputs.available(IMPORTED, domain), inputs.artifact("example_groups")
    patterns, playbook = inputs.artifact("e2b_patterns", domain), inputs.artifact("consolidated_playbook", domain)
    evidence = Evidence.of(patterns, playbook, inputs.behind(grouped, "e2b_patterns", domain))
    own = examples_of(imported) if imported else None
    record_files(inputs, recipe)
    folder = partial(inputs.store.work_dir, "moe_dataset")
    with data_engine.started() as cluster:
        made = make_dataset(domain, evidence, grouped.frame("groups"), recipe, folder, own, cluster)
    tables, documents = made.tables(), made.documents()
    artifact = inputs.publish("moe_dataset", domain, tables=tables, documents=documents, volatile=VOLATILE)
    return materialized(artifact, inputs, dataset_page(made))


def record_files(inputs: Inputs, recipe: "DatasetRecipe") -> None:
    """Record the content of files that a dataset recipe names as inputs, independent of their location."""
    from capibara_assets.datasets.audit.verdicts import verdicts_digest
    from capibara_assets.datasets.duplicates.public_benchmarks import benchmark_digests

    if benchmarks := recipe.decontamination.benchmarks:
        inputs.setting("benchmarks", benchmark_digests(benchmarks))
    if recipe.exclusions:
        inputs.setting("exclusions", verdicts_digest(recipe.exclusions))


@dg.asset(group_name="datasets", kinds={"parquet"}, code_version="2", deps=[moe_dataset])
def routing_dataset(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """Prompts of all available domains, labelled by domain, to train the router. Worry when a domain is missing."""
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.datasets.routing import LEFT_OUT, balance, build_routing
    from capibara_assets.datasets.schema import Route

    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "dataset", DatasetRecipe)
    examples = {domain: artifact.frame("examples") for domain, artifact in inputs.some("moe_dataset").items()}
    routes = build_routing(examples, recipe)
    figures = balance(routes) | {"left_out": None if recipe.include_routing else LEFT_OUT}
    tables, documents = {"routes": (Route, routes)}, {"statistics": figures}
    artifact = inputs.publish("routing_dataset", None, tables=tables, documents=documents)
    return materialized(artifact, inputs, routing_page(routes, figures))
