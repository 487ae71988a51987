"""Knowledge assets: consolidated playbooks, and patterns and repair pairs from executions."""

from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg

from capibara_assets.assets.experience import ace_playbooks, e2b_executions
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.domains import Domain
from capibara_assets.metadata.experience_entries import consolidated_page, patterns_page
from capibara_assets.partitions import domains
from capibara_assets.resources import Recipes, Store


@dg.asset(partitions_def=domains, group_name="knowledge", kinds={"parquet"}, code_version="3", deps=[ace_playbooks])
def consolidated_playbook(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """The best bullets of the agents that graduated, deduplicated; empty where none has.

    Worry when it is empty although agents have graduated.
    """
    from capibara_assets.executions.recipe import ExperienceRecipe
    from capibara_assets.playbooks.consolidate import VOLATILE, consolidate
    from capibara_assets.playbooks.formats.write import write_playbook
    from capibara_assets.playbooks.graduation import AgentFilter, graduate
    from capibara_assets.playbooks.read import Playbooks

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "experience", ExperienceRecipe)
    playbooks, criteria = Playbooks.of(inputs.artifact("ace_playbooks")), AgentFilter(**recipe.agent_filter())
    agents = graduate(playbooks, criteria, as_of=recipe.as_of, half_life_days=recipe.evidence_half_life_days)
    consolidation = consolidate(playbooks.bullets, agents, domain, **recipe.playbook_size())
    with TemporaryDirectory() as folder:
        write_playbook(consolidation.bullets, domain.value, Path(folder))
        artifact = inputs.publish(
            "consolidated_playbook",
            domain,
            tables=consolidation.tables(),
            documents=consolidation.documents(),
            trees={"ace": Path(folder)},
            volatile=VOLATILE,
        )
    return materialized(artifact, inputs, consolidated_page(consolidation))


@dg.asset(partitions_def=domains, group_name="knowledge", kinds={"parquet"}, code_version="8", deps=[e2b_executions])
def e2b_patterns(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
    """Code patterns (functions, queries, API calls, ...) and repair pairs (failing code with traceback, later fix).

    Worry when there are executions but no patterns, or no repair pairs.
    """
    from capibara_assets.executions.patterns.extract import extract_knowledge
    from capibara_assets.executions.recipe import ExperienceRecipe

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    recipe = inputs.recipe(recipes, "experience", ExperienceRecipe)
    read = inputs.artifact("e2b_executions", domain)
    texts = inputs.store.work_dir("e2b_patterns", domain, "texts")
    executions, around, commands = (read.frame(name) for name in ("executions", "around", "commands"))
    extracted = extract_knowledge(executions, around, commands, domain, recipe, texts)
    artifact = inputs.publish("e2b_patterns", domain, tables=extracted.tables())
    return materialized(artifact, inputs, patterns_page(extracted))
