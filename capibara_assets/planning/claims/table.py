"""Every figure that the specification promises about plans, beside what we compute or measure: the claims table.

Nothing is typed in as a result: each row is computed from the hardware's files, the model's shape and the calibration,
or measured (claims_measured.py). Figures of published runs are quoted with their source.
"""

from collections.abc import Callable, Iterable, Sequence

from capibara_assets.planning.claims import lora as claims_lora
from capibara_assets.planning.claims import mistral as claims_mistral
from capibara_assets.planning.claims import tpu as claims_tpu
from capibara_assets.planning.claims.claim import Claim
from capibara_assets.planning.claims.measured import Measured
from capibara_assets.planning.recipe import PlanningRecipe

ROWS: Sequence[Callable[[PlanningRecipe, Measured | None], Claim]] = (
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
)


def claims(recipe: PlanningRecipe, measured: Measured | None = None) -> tuple[Claim, ...]:
    """Every row of the table.

    Args:
        recipe: the deployment's choices.
        measured: of this machine (`claims_measured.measure`); without it the measured halves of rows are left out, and
            the rows say "computed".
    """
    return tuple(row(recipe, measured) for row in ROWS)


def render_markdown(rows: Iterable[Claim]) -> str:
    """The table, for a page or a materialization."""
    lines = ["| claim | ours | how | verdict | why |", "|---|---|---|---|---|"]
    for row in rows:
        cells = (row.claim, row.ours, row.how, f"**{row.verdict}**", row.why)
        lines.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
