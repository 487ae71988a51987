"""The condition that holds a domain's training back, and the sensor whose ticks say so."""

import dagster as dg
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._record import copy

from capibara_assets.automation.chosen import chosen_domains
from capibara_assets.automation.prompt import TICK_SECONDS, PromptAutomation
from capibara_assets.automation.retraining.facts import TRAINED, explained, known
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import Domain


class HeldBack(dg.AutomationCondition[dg.AssetKey]):
    """Automation condition: true for domains due for training that the deployment's rules delay.

    For trainings, domains that are due in the same tick share the day's remaining budget. Last in a condition,
    it sees no others. False without rules, and for assets that are not partitioned.
    """

    @property
    def name(self) -> str:
        return "training held back"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        deployment, empty = Deployment.from_environment(), context.get_empty_subset()
        if not deployment.automation.limited or context.partitions_def is None:
            return dg.AutomationResult(context, empty)
        instance = context.asset_graph_view.instance
        facts = known(instance, deployment.name, context.evaluation_time.timestamp(), 0.0)
        candidates = [Domain(key) for key in context.candidate_subset.expensively_compute_partition_keys()]
        if context.key == dg.AssetKey(TRAINED):
            decisions = facts.together(deployment, candidates)
        else:
            decisions = {domain: facts.alone[domain] for domain in candidates}
        held = {domain.value for domain, one in decisions.items() if one.held}
        return dg.AutomationResult(context, context.candidate_subset.compute_intersection_with_partition_keys(held))


class ExplainedAutomation(PromptAutomation):
    """An automation sensor that says of each chosen domain why it is trained, or is not.

    In the tick's log; as the reason of a skipped tick, too, where Dagster keeps one; and on the runs that it asks for.
    """

    def look(self, context: dg.SensorEvaluationContext) -> SensorExecutionData:
        data = super().look(context)
        if not Deployment.from_environment().automation.limited:
            return data
        decisions = explained(context.instance, chosen_domains(context.instance), TICK_SECONDS)
        context.log.info("; ".join(map(str, decisions)))
        if data.run_requests:
            return copy(data, run_requests=[_because(one, decisions) for one in data.run_requests])
        return copy(data, skip_message="; ".join(map(str, decisions)))


BECAUSE = "capibara/because"


def _because(request: dg.RunRequest, decisions: list) -> dg.RunRequest:
    """A run request with the reason of its domain as a tag, where it trains."""
    reasons = {one.domain.value: one.reason for one in decisions}
    if dg.AssetKey(TRAINED) not in (request.asset_selection or ()) or request.partition_key not in reasons:
        return request
    return copy(request, tags={**request.tags, BECAUSE: reasons[request.partition_key]})
