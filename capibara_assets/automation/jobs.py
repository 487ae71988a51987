"""Jobs a person or a schedule starts: reading the experience, a domain from end to end, merging, evaluating."""

import dagster as dg

from capibara_assets.assets.manual_promotion import promote_against_the_gate, take_back
from capibara_assets.partitions import domains

read_experience_job = dg.define_asset_job(
    "read_experience", dg.AssetSelection.assets("ace_playbooks", "e2b_logs"), description="Read every playbook and log."
)
domain_knowledge_job = dg.define_asset_job(
    "domain_knowledge",
    dg.AssetSelection.assets("e2b_executions", "e2b_patterns", "consolidated_playbook"),
    partitions_def=domains,
    description="A domain's executions, patterns and playbook; backfill it over the domains, then run group_examples.",
)
group_examples_job = dg.define_asset_job(
    "group_examples", dg.AssetSelection.assets("example_groups"), description="Groups and splits over all domains."
)
domain_adapter_job = dg.define_asset_job(
    "domain_adapter",
    dg.AssetSelection.assets("moe_dataset", "lora_config", "tpu_config", "trained_adapters", "consensus_checkpoint"),
    partitions_def=domains,
    description="A domain from its dataset to its consensus checkpoint; backfill it over the domains.",
)
merge_job = dg.define_asset_job(
    "merge_experts",
    dg.AssetSelection.assets("routing_dataset", "merged_checkpoint", "moe_checkpoint", "expert_router"),
    description="One model out of every expert there is.",
)
evaluate_job = dg.define_asset_job(
    "evaluate",
    dg.AssetSelection.assets("evaluation"),
    partitions_def=domains,
    description="All contenders side by side.",
)
promote_job = dg.define_asset_job(
    "promote", dg.AssetSelection.assets("promoted_model"), description="Move the serving pointer where the gate passes."
)


@dg.job(description="Have a checkpoint serve whatever the gate said: give the reason; it is noted who and why.")
def promote_by_hand() -> None:
    promote_against_the_gate()


@dg.job(description="Have serve again what served before: launch it as it is for one step back.")
def rollback() -> None:
    take_back()


JOBS = [
    read_experience_job,
    domain_knowledge_job,
    group_examples_job,
    domain_adapter_job,
    merge_job,
    evaluate_job,
    promote_job,
    promote_by_hand,
    rollback,
]
