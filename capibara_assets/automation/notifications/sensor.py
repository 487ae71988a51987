"""The sensor that sends notifications, in deployments that name webhooks."""

import dagster as dg

from capibara_assets.automation.prompt import TICK_SECONDS
from capibara_assets.automation.sensors import STATUS
from capibara_assets.deployment.environment import Deployment


def notification_sensors(deployment: Deployment) -> list[dg.SensorDefinition]:
    """The notification sensor, or none if no webhook is configured."""
    if not deployment.notifications.webhooks:
        return []

    @dg.sensor(
        name="notifications",
        minimum_interval_seconds=TICK_SECONDS,
        default_status=STATUS,
        description="Sends failed checks, changes of what is served, rejected voters and spent budgets to webhooks.",
    )
    def notifications(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        from capibara_assets.automation.notifications.sending import send  # redaction takes a second to load

        assert context.repository_def is not None
        checks = sorted(context.repository_def.asset_graph.asset_check_keys)
        lines = send(context.instance, deployment, checks)
        for line in lines:
            context.log.info(line)
        return dg.SkipReason("; ".join(lines) or "nothing new to tell")

    return [notifications]
