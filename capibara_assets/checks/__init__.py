"""Blocking asset checks: what must hold between two stages before data flows on.

Imports `assets`, `resources` and the libraries; only `definitions` imports it.
"""

from capibara_assets.checks.schemas import SCHEMA_CHECKS
from capibara_assets.checks.stages import STAGE_CHECKS

ALL_CHECKS = [*SCHEMA_CHECKS, *STAGE_CHECKS]
