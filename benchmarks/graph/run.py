"""A whole run in a process and a home of its own, as a user would start it."""

import os
import subprocess
import sys
from pathlib import Path

from capibara_assets.deployment.environment import Deployment


def run_command(home: str, seed: int, experience: str | None, domains: str, profile: str) -> Deployment:
    """`capibara run` in a process and a home of its own, its progress on our stderr; the deployment it made."""
    environment = {**os.environ, "CAPIBARA_HOME": home, "DAGSTER_HOME": "", "CAPIBARA_SEED": str(seed)}
    if experience:
        environment["CAPIBARA_EXPERIENCE"] = str(Path(experience).resolve())
    command = [sys.executable, "-m", "capibara_assets.cli", "run", "--domains", domains, "--profile", profile]
    subprocess.run(command, env=environment, stdout=sys.stderr, check=True)
    return Deployment.from_environment({**environment, "CAPIBARA_PROFILE": profile})
