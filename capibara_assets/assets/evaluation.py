"""The evaluation asset: all contenders of a domain on held-out examples, and the promotion decision."""

from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg

from capibara_assets.assets.consensus import consensus_checkpoint, merged_checkpoint
from capibara_assets.assets.datasets import moe_dataset
from capibara_assets.assets.inputs import Inputs, materialized
from capibara_assets.assets.knowledge import consolidated_playbook
from capibara_assets.assets.routing import expert_router
from capibara_assets.assets.training import trained_adapters
from capibara_assets.domains import Domain
from capibara_assets.partitions import DOES_WITHOUT, domains
from capibara_assets.resources import BaseModel, Recipes, Store

PAGE = "evaluation.html"


@dg.asset(
    partitions_def=domains,
    group_name="evaluation",
    kinds={"parquet", "json"},
    code_version="9",
    deps=[
        moe_dataset,
        consolidated_playbook,
        trained_adapters,
        dg.AssetDep(consensus_checkpoint, partition_mapping=dg.AllPartitionMapping()),
        merged_checkpoint,
        expert_router,
    ],
    tags={DOES_WITHOUT: "trained_adapters"},  # where the domain's consensus is a round's
)
def evaluation(
    context: dg.AssetExecutionContext, store: Store, recipes: Recipes, base_model: BaseModel
) -> dg.MaterializeResult:
    """All contenders compared on the domain's test split: losses, answers graded by execution, and the decision.

    Worry when the verdict is not a pass, intervals are wide, or answers could not be graded.
    """
    from capibara_assets.assets.evaluation_inputs import read_run
    from capibara_assets.evaluation.evaluate import evaluate_domain
    from capibara_assets.evaluation.tables import VOLATILE, documents_of, report_of, tables_of
    from capibara_assets.metadata.evaluation_entries import evaluation_asset_page
    from capibara_assets.metadata.evaluation_page import page

    domain = Domain(context.partition_key)
    inputs = Inputs.of(context, store)
    run = read_run(inputs, recipes, base_model, domain)
    evaluated = evaluate_domain(run.models, run.items, run.training, run.terms, near=run.near, work=run.work)
    report = report_of(evaluated, domain.value, run.terms, beside=run.beside)
    with TemporaryDirectory() as folder:
        (Path(folder) / PAGE).write_text(page(report), "utf-8")
        artifact = inputs.publish(
            "evaluation",
            domain,
            tables=tables_of(evaluated),
            documents=documents_of(evaluated),
            trees={"report": Path(folder)},
            volatile=VOLATILE,
        )
    shown = evaluation_asset_page(report, str(artifact.path / "report" / PAGE), len(run.items))
    return materialized(artifact, inputs, shown)
