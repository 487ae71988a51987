"""Jobs started by a person or a schedule: reading experience, training a domain, merging, evaluating, promoting."""

import dagster as dg

from capibara_assets.assets.manual_promotion import promote_against_the_gate, take_back
from capibara_assets.partitions import domains

read_experience_job = dg.define_asset_job(
    "read_experience",
    dg.AssetSelection.assets("ace_playbooks", "e2b_logs"),
    description="Read all playbooks and execution logs.",
)
domain_knowledge_job = dg.define_asset_job(
    "domain_knowledge",
    dg.AssetSelection.assets("e2b_executions", "e2b_patterns", "consolidated_playbook"),
    partitions_def=domains,
    description="Executions, patterns and playbook of a domain. Backfill all domains, then run group_examples.",
)
group_examples_job = dg.define_asset_job(
    "group_examples",
    dg.AssetSelection.assets("example_groups"),
    description="Groups and train/validation/test splits over all domains.",
)
domain_adapter_job = dg.define_asset_job(
    "domain_adapter",
    dg.AssetSelection.assets("moe_dataset", "lora_config", "tpu_config", "trained_adapters", "consensus_checkpoint"),
    partitions_def=domains,
    description="A domain from its dataset to its consensus checkpoint. Backfill it over all domains.",
)
merge_job = dg.define_asset_job(
    "merge_experts",
    dg.AssetSelection.assets("routing_dataset", "merged_checkpoint", "moe_checkpoint", "expert_router"),
    description="Merged model, mixture of experts and router from all available experts.",
)
evaluate_job = dg.define_asset_job(
    "evaluate",
    dg.AssetSelection.assets("evaluation"),
    partitions_def=domains,
    description="Compare all contenders of a domain on its test split.",
)
promote_job = dg.define_asset_job(
    "promote",
    dg.AssetSelection.assets("promoted_model"),
    description="Promote the checkpoints of domains whose evaluation passes the gate.",
)


@dg.job(description="Promote a checkpoint regardless of the gate. Give the reason; it is recorded with your name.")
def promote_by_hand() -> None:
    promote_against_the_gate()


@dg.job(description="Roll back to the previously served checkpoints. With the default config: by one step.")
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
