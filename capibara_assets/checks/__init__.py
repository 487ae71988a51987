"""What must hold between stages: blocking asset checks."""

from capibara_assets.checks.schemas import SCHEMA_CHECKS
from capibara_assets.checks.stages import STAGE_CHECKS

ALL_CHECKS = [*SCHEMA_CHECKS, *STAGE_CHECKS]
