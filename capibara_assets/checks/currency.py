"""Checks that an unpartitioned result was made of today's inputs: Dagster never shows one over partitions as stale."""

from collections.abc import Mapping

import dagster as dg

from capibara_assets.assets.inputs import INPUTS, latest_digest, latest_metadata, latest_time
from capibara_assets.checks.results import judged
from capibara_assets.domains import WHOLE
from capibara_assets.storage.manifest import title_of
from capibara_assets.training.monitoring.progress import duration

# The check of the merged model has its name from when it was the only one
NAMES = {
    "example_groups": "inputs_are_current",
    "routing_dataset": "inputs_are_current",
    "merged_checkpoint": "merged_inputs_are_current",
    "moe_checkpoint": "inputs_are_current",
    "expert_router": "inputs_are_current",
    "promoted_model": "inputs_are_current",
}


def currency_check(asset: str, name: str) -> dg.AssetChecksDefinition:
    """A check that only warns: the asset's inputs are those that it recorded when it was made."""

    @dg.asset_check(
        asset=asset,
        name=name,
        blocking=False,
        description="It was made of its inputs as they are now. The job `check_currency` runs this every morning.",
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        recorded: Mapping[str, str] = latest_metadata(context.instance, asset)[INPUTS]["upstream"]
        changed = older_than(context.instance, asset, recorded)
        good = f"made of the current {sum(map(bool, recorded.values()))} inputs"
        remedy = f"materialize {asset} again, or see on the automation's page why that waits"
        return judged([*changed.values()], good, remedy, warn=True, changed=[*changed])

    return check


def older_than(instance: dg.DagsterInstance, asset: str, recorded: Mapping[str, str]) -> dict[str, str]:
    """Recorded input -> how long after the asset it was made, of those that are others today.

    An input that was there before and was left out, since it had failed a blocking check, is none of them.
    """
    made, changed = latest_time(instance, asset) or 0.0, {}
    for source, digest in sorted(recorded.items()):
        name, _, where = source.partition("|")
        partition = None if where == WHOLE else where
        now, at = latest_digest(instance, name, partition) or "", latest_time(instance, name, partition) or 0.0
        if now != digest and (digest or at > made):
            shown = title_of(name, partition)
            when = f"{duration(at - made)} after it" if at > made else "while it was made"
            changed[source] = f"{shown} was made anew {when}" if now else f"{shown} is gone"
    return changed


CURRENCY_CHECKS = [currency_check(asset, name) for asset, name in NAMES.items()]
