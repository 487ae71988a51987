"""The code location of the bench `sensor`: the sensor and what it wakes, without the stages that follow."""

import dagster as dg

from capibara_assets.assets.experience import ace_playbooks, e2b_logs
from capibara_assets.automation.sensors import new_experience
from capibara_assets.definitions import deployment_resources
from capibara_assets.deployment.environment import Deployment

defs = dg.Definitions(
    assets=[ace_playbooks, e2b_logs],
    sensors=[new_experience],
    resources=deployment_resources(Deployment.from_environment()),
    executor=dg.in_process_executor,
)
