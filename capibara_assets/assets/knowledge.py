"""What the experience teaches: consolidated playbooks, patterns and repair pairs."""

from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg

from capibara_assets.assets.experience import ace_playbooks, e2b_executions
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.domains import Domain
from capibara_assets.metadata import counts, preview
from capibara_assets.partitions import domains
from capibara_assets.resources import Recipes, Store


@dg.asset(partitions_def=domains, group_name="knowledge", kinds={"parquet"}, code_version="3", deps=[ace_playbooks])
def consolidated_playbook(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """The top bullets of graduated agents, deduplicated, with statistics; validly empty when nobody graduates."""
    from capibara_assets.executions.recipe import ExperienceRecipe
    from capibara_assets.playbooks.consolidate import consolidate
    from capibara_assets.playbooks.graduation import AgentFilter, graduate
    from capibara_assets.playbooks.read import Playbooks
    from capibara_assets.playbooks.schema import Agent, Consolidated
    from capibara_assets.playbooks.write import write_playbook

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "experience", ExperienceRecipe)
    playbooks = inputs.artifact("ace_playbooks")
    read = Playbooks(*(playbooks.frame(table) for table in ("bullets", "quarantine", "files", "runs")))
    agents = graduate(
        read, AgentFilter(**recipe.agent_filter()), as_of=recipe.as_of, half_life_days=recipe.evidence_half_life_days
    )
    consolidation = consolidate(
        read.bullets,
        agents,
        domain,
        top_k=recipe.top_k,
        budget_tokens=recipe.playbook_budget_tokens,
        coverage=recipe.playbook_coverage,
    )
    with TemporaryDirectory() as folder:
        write_playbook(consolidation.bullets, domain.value, Path(folder))
        artifact = inputs.publish(
            "consolidated_playbook",
            domain,
            tables={"bullets": (Consolidated, consolidation.bullets), "agents": (Agent, agents)},
            documents={"statistics": consolidation.statistics},
            trees={"ace": Path(folder)},
            # of all agents: they must not wake domains they have no word on
            volatile=("statistics.json", "agents.parquet"),
        )
    return materialized(
        artifact,
        inputs,
        {
            "bullets": consolidation.bullets.height,
            "graduated_agents": agents.filter(agents["graduated"]).height,
            "agents": preview(
                agents, ["agent_id", "graduated", "missed", "graduation_score", "interactions", "success_rate"]
            ),
            "statistics": dg.MetadataValue.json(consolidation.statistics),
            "preview": preview(consolidation.bullets, ["rank", "content", "helpful", "harmful", "score", "compressed"]),
        },
    )


@dg.asset(partitions_def=domains, group_name="knowledge", kinds={"parquet"}, code_version="2", deps=[e2b_executions])
def e2b_patterns(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """Functions, queries, API calls … and repair pairs (failing code + traceback → later fix), with their evidence."""
    from capibara_assets.executions.patterns import extract_patterns, success_by_language
    from capibara_assets.executions.recipe import ExperienceRecipe
    from capibara_assets.executions.repairs import find_repairs
    from capibara_assets.executions.schema import Execution, Pattern, RepairPair
    from capibara_assets.executions.selection import evidence, in_window
    from capibara_assets.storage.kept import keeping

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "experience", ExperienceRecipe)
    executions = in_window(inputs.artifact("e2b_executions", domain).frame("executions"), recipe)
    with keeping(inputs.store.work_dir("e2b_patterns", domain, "texts")):
        patterns = extract_patterns(executions, domain, recipe)
    repairs = find_repairs(executions)
    artifact = inputs.publish(
        "e2b_patterns",
        domain,
        tables={
            "executions": (Execution, evidence(executions, repairs, recipe)),
            "patterns": (Pattern, patterns),
            "repairs": (RepairPair, repairs),
        },
    )
    return materialized(
        artifact,
        inputs,
        {
            "executions": executions.height,
            "patterns": patterns.height,
            "repair_pairs": repairs.height,
            "kinds": counts(dict(patterns["kind"].value_counts().iter_rows())),
            "success_by_language": preview(success_by_language(patterns)),
            "preview": preview(patterns, ["kind", "name", "language", "frequency", "success_rate", "explanation"]),
            "repairs": preview(repairs, ["language", "error_name", "distance", "diff"]),
        },
    )
