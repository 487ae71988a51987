"""The claims table: each figure that the specification claims about plans, beside the one we compute or measure.

No result is typed in: each row is computed from the hardware files, the model's shape and the calibration, or measured
(`claims.measured`). Figures of published runs are quoted with their source.
"""

from collections.abc import Callable, Iterable, Sequence

from capibara_assets.planning.claims import lora as claims_lora
from capibara_assets.planning.claims import mistral as claims_mistral
from capibara_assets.planning.claims import speed as claims_speed
from capibara_assets.planning.claims import tpu as claims_tpu
from capibara_assets.planning.claims.claim import Claim
from capibara_assets.planning.claims.measured import MeasuredRatios
from capibara_assets.planning.recipe import PlanningRecipe

ROWS: Sequence[Callable[[PlanningRecipe, MeasuredRatios | None], Claim]] = (
    claims_lora.less_memory,
    claims_lora.faster_than_full,
    claims_tpu.tpu_utilisation,
    claims_tpu.memory_efficiency,
    claims_tpu.speed_up,
    claims_tpu.sustained_275,
    claims_lora.checkpointing_memory,
    claims_lora.checkpointing_compute,
    claims_lora.mixed_precision,
    claims_mistral.cpu_memory,
    claims_mistral.cpu_hours,
    claims_mistral.gpu_hours,
    claims_mistral.gpu_memory,
    claims_mistral.gpu_throughput,
    claims_speed.kernels,
)


def claims(recipe: PlanningRecipe, measured: MeasuredRatios | None = None) -> tuple[Claim, ...]:
    """Every row of the table.

    Args:
        recipe: the deployment's planning recipe.
        measured: ratios of this machine (`measured.measure`); None leaves out the measured half of each row.
    """
    return tuple(row(recipe, measured) for row in ROWS)


def render_markdown(rows: Iterable[Claim]) -> str:
    """The claims table as Markdown."""
    lines = ["| claim | ours | how | verdict | why |", "|---|---|---|---|---|"]
    for row in rows:
        cells = (row.claim, row.ours, row.how, f"**{row.verdict}**", row.why)
        lines.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
