"""Asset checks between the stages: table schemas, and conditions that a result must meet for the next stage.

Imports `assets` and what lies below it; only `definitions` and `automation` import it.
"""

from capibara_assets.checks.currency import CURRENCY_CHECKS
from capibara_assets.checks.models import MODEL_CHECKS
from capibara_assets.checks.schemas import SCHEMA_CHECKS
from capibara_assets.checks.stages import STAGE_CHECKS

ALL_CHECKS = [*SCHEMA_CHECKS, *STAGE_CHECKS, *MODEL_CHECKS, *CURRENCY_CHECKS]
