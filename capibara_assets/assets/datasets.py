"""Training sets: groups and splits over all domains, examples per domain, prompts for the router."""

from functools import partial

import dagster as dg

from capibara_assets.assets.imports import IMPORTED, imported_examples
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.assets.knowledge import consolidated_playbook, e2b_patterns
from capibara_assets.domains import Domain
from capibara_assets.metadata import bar_chart, counts, plot, preview
from capibara_assets.partitions import domains
from capibara_assets.resources import Recipes, Store


@dg.asset(group_name="datasets", kinds={"parquet"}, code_version="2", deps=[e2b_patterns, consolidated_playbook])
def example_groups(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """Groups (problem, sandbox, near-duplicates) and their split, over all domains at once; a group keeps its split."""
    import polars as pl

    from capibara_assets.datasets.groups import assign_groups
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.datasets.schema import Group

    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "dataset", DatasetRecipe)
    patterns = inputs.every("e2b_patterns")
    executions = pl.concat([a.frame("executions") for a in patterns.values()]).unique(
        "execution_id", maintain_order=True
    )
    repairs = pl.concat([a.frame("repairs") for a in patterns.values()]).unique("pair_id", maintain_order=True)
    previous = inputs.previous("example_groups")
    former = previous.frame("groups") if previous else None
    cache = inputs.store.work_dir("example_groups", None, "readings")
    groups = assign_groups(executions, repairs, former, recipe, cache=cache)
    artifact = inputs.publish("example_groups", None, tables={"groups": (Group, groups)})
    return materialized(
        artifact,
        inputs,
        {
            "executions": groups.height,
            "groups": groups["group_id"].n_unique(),
            "splits": counts(dict(groups["split"].value_counts().iter_rows())),
            "left_out": int(groups["reason_left_out"].is_not_null().sum()),
            "preview": preview(groups),
        },
    )


@dg.asset(
    partitions_def=domains,
    group_name="datasets",
    kinds={"parquet"},
    code_version="2",
    deps=[e2b_patterns, consolidated_playbook, example_groups, imported_examples],
)
def moe_dataset(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """Verified, deduplicated, leak-free training examples of one domain, as chat messages with their provenance."""
    from capibara_assets.datasets.benchmark_items import benchmark_digests
    from capibara_assets.datasets.clusters import Cluster
    from capibara_assets.datasets.decontamination import Contaminated
    from capibara_assets.datasets.examples import Evidence, build_dataset
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.datasets.schema import Example, LeftOut
    from capibara_assets.datasets.verification import verify
    from capibara_assets.storage.kept import keeping

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "dataset", DatasetRecipe)
    patterns, playbook = inputs.artifact("e2b_patterns", domain), inputs.artifact("consolidated_playbook", domain)
    evidence = Evidence(
        executions=patterns.frame("executions"),
        patterns=patterns.frame("patterns"),
        repairs=patterns.frame("repairs"),
        bullets=playbook.frame("bullets"),
    )
    imported = inputs.available(IMPORTED, domain)
    if benchmarks := recipe.decontamination.benchmarks:
        inputs.setting("benchmarks", benchmark_digests(benchmarks))
    # one cache for all domains: a repair is executed for its language and for debug
    cache = inputs.store.work_dir("moe_dataset", None, "verdicts")
    with keeping(inputs.store.work_dir("moe_dataset", domain, "texts")):
        dataset = build_dataset(
            domain,
            evidence,
            inputs.artifact("example_groups").frame("groups"),
            recipe,
            reexecute=partial(verify, recipe=recipe.verification, cache=cache),
            imported=imported.frame("examples") if imported else None,
        )
    artifact = inputs.publish(
        "moe_dataset",
        domain,
        tables={
            "examples": (Example, dataset.examples),
            "left_out": (LeftOut, dataset.left_out),
            "clusters": (Cluster, dataset.clusters),
            "contaminated": (Contaminated, dataset.contaminated),
        },
        documents={"statistics": dataset.statistics, "reexecution": dataset.reexecution},
        volatile=("reexecution.json",),  # seconds, cache hits and what this machine can isolate
    )
    histogram = dataset.examples["difficulty"].hist(bins=[i / 10 for i in range(11)])["count"].to_list()
    return materialized(
        artifact,
        inputs,
        {
            "examples": dataset.examples.height,
            "splits": counts(dict(dataset.examples["split"].value_counts().iter_rows())),
            "kinds": counts(dict(dataset.examples["kind"].value_counts().iter_rows())),
            "left_out": counts(dict(dataset.left_out["reason"].value_counts().iter_rows())),
            "missing": dg.MetadataValue.md("\n".join(f"- {line}" for line in dataset.statistics["missing"])),
            "verified": dg.MetadataValue.json(dataset.statistics["verified"]),
            "duplicates": dg.MetadataValue.json(dataset.statistics["duplicates"]),
            "contaminated": dataset.statistics["contaminated"]["examples"],
            "reexecution": dg.MetadataValue.json(dataset.reexecution),
            "difficulty": plot(
                bar_chart({f".{i}": float(n) for i, n in enumerate(histogram)}, "examples by difficulty")
            ),
            "preview": preview(dataset.examples, ["kind", "split", "difficulty", "quality", "messages"]),
        },
    )


@dg.asset(group_name="datasets", kinds={"parquet"}, code_version="2", deps=[moe_dataset])
def routing_dataset(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """Prompt → domain examples for the router, over every domain that exists."""
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.datasets.routing import LEFT_OUT, balance, build_routing
    from capibara_assets.datasets.schema import Route

    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "dataset", DatasetRecipe)
    examples = {domain: artifact.frame("examples") for domain, artifact in inputs.every("moe_dataset").items()}
    routes = build_routing(examples, recipe)
    figures = balance(routes) | {"left_out": None if recipe.include_routing else LEFT_OUT}
    artifact = inputs.publish(
        "routing_dataset", None, tables={"routes": (Route, routes)}, documents={"statistics": figures}
    )
    return materialized(
        artifact,
        inputs,
        {
            "prompts": routes.height,
            "statistics": dg.MetadataValue.json(figures),
            "domains": counts(figures["by_domain"]),
            "preview": preview(routes),
        },
    )
