"""Automation conditions: an asset re-materializes when data versions change and checks pass, not on mere re-runs.

Only partitions of chosen domains do: a domain that nobody asked for does not start by itself. A training waits, too,
for what the deployment's `automation` asks for; what stands behind it does, and the other domains are not held up.
"""

import dagster as dg

from capibara_assets.automation.chosen import ChosenDomains
from capibara_assets.automation.retraining.condition import HeldBack

AC = dg.AutomationCondition
_chosen = ChosenDomains()
_held = HeldBack()
_trained = dg.AssetSelection.assets(
    "trained_adapters", "consensus_checkpoint", "merged_checkpoint", "moe_checkpoint", "expert_router", "evaluation"
)
_newly_wanted = (AC.missing() & _chosen).newly_true()

_changed = AC.any_deps_match(AC.data_version_changed()).since_last_handled()
_complete = ~AC.any_deps_missing() & ~AC.any_deps_match(AC.execution_failed())
# An input that is about to change itself: where two inputs stand one behind the other, the later one is waited for,
# or a consensus would be made of new data and old adapters, and once more when the new adapters are there. While what
# the later one reads is being made, its checks have not passed: only one that has failed tells that nothing is coming
_refused = AC.any_deps_match(AC.any_checks_match(AC.check_failed(), blocking_only=True))
_due = _chosen & _changed & _complete & ~_refused
_settled = ~AC.any_deps_match(AC.in_progress() | AC.will_be_requested() | _due.with_label("due"))
_quiet = _chosen & _settled & ~AC.in_progress() & AC.all_deps_blocking_checks_passed()

on_new_data = ((_changed | _newly_wanted) & _complete & _quiet).with_label("on new data")
# The hold is last: it sees the domains that are due, which share what is left of the day
on_enough_new_data = (on_new_data & ~_held).with_label("on new data, as the deployment's rules allow")


def on_new_data_without(*keys: str) -> dg.AutomationCondition:
    """Like `on_new_data`, where the named inputs may be missing: imports are optional."""
    others_missing = AC.any_deps_missing().ignore(dg.AssetSelection.assets(*keys))
    complete = ~others_missing & ~AC.any_deps_match(AC.execution_failed())
    return ((_changed | _newly_wanted) & complete & _quiet).with_label("on new data, with what was imported")


def over_available(*keys: str) -> dg.AutomationCondition:
    """Like `on_new_data`, over the available partitions of the named inputs: a merge does not wait for all domains."""
    others_missing = AC.any_deps_missing().ignore(dg.AssetSelection.assets(*keys))
    return (_changed & ~others_missing & _quiet).with_label("on new data, over the domains there are")


# Behind trainings: what comes out of one counts at once, also where newer data wait for the next one; what waits there
# neither wakes anything, until its domain has been trained, nor holds up the others
_news = (
    AC.any_deps_match(AC.data_version_changed()).allow(_trained)
    | AC.any_deps_match(AC.data_version_changed() & ~_held).ignore(_trained)
).since_last_handled()
_settled_behind = ~AC.any_deps_match(AC.in_progress() | AC.will_be_requested() | (_due & ~_held).with_label("due"))
_quiet_behind = _chosen & _settled_behind & ~AC.in_progress() & AC.all_deps_blocking_checks_passed()

_any_there = AC.any_deps_match(~AC.missing()).allow(_trained)  # nothing stands over no domain at all

on_trained = ((_news | _newly_wanted) & _complete & _quiet_behind).with_label("on new data that was trained on")


def over_trained(*keys: str) -> dg.AutomationCondition:
    """Like `over_available`, behind trainings."""
    others_missing = AC.any_deps_missing().ignore(dg.AssetSelection.assets(*keys))
    return (_news & ~others_missing & _any_there & _quiet_behind).with_label("on new data, over the domains there are")


CONDITIONS: dict[str, dg.AutomationCondition] = {
    "e2b_executions": on_new_data,
    "consolidated_playbook": on_new_data,
    "e2b_patterns": on_new_data,
    "example_groups": over_available("e2b_patterns", "consolidated_playbook"),
    "moe_dataset": on_new_data_without("imported_examples"),
    "routing_dataset": over_available("moe_dataset"),
    "lora_config": on_new_data,
    "tpu_config": on_new_data,
    "trained_adapters": on_enough_new_data,
    "consensus_checkpoint": on_trained,
    "merged_checkpoint": over_trained("consensus_checkpoint", "moe_dataset"),
    "moe_checkpoint": over_trained("consensus_checkpoint", "moe_dataset"),
    "expert_router": over_trained("consensus_checkpoint"),
    "evaluation": over_trained("consensus_checkpoint"),
    "promoted_model": over_trained("evaluation"),
}
