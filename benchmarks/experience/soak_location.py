"""The code location of the bench `soak`: what the bench `sensor` has, and the clean-up."""

import dagster as dg

from capibara_assets.assets.experience import ace_playbooks, e2b_logs
from capibara_assets.automation.clean_up import clean_up
from capibara_assets.automation.sensors import new_experience
from capibara_assets.definitions import deployment_resources
from capibara_assets.deployment.environment import Deployment

defs = dg.Definitions(
    assets=[ace_playbooks, e2b_logs],
    jobs=[clean_up],
    sensors=[new_experience],
    resources=deployment_resources(Deployment.from_environment()),
    executor=dg.in_process_executor,
)
