"""The claims table: each figure that the specification claims about plans, beside the one we compute or measure.

No result is typed in: each row is computed from the hardware files, the model's shape and the calibration, or measured
(`claims.measured`). Figures of published runs are quoted with their source.
"""

from collections.abc import Callable, Iterable, Sequence

from capibara_assets.planning.claims import lora as claims_lora
from capibara_assets.planning.claims import mistral as claims_mistral
from capibara_assets.planning.claims import tpu as claims_tpu
from capibara_assets.planning.claims.claim import Claim, Verdict
from capibara_assets.planning.claims.kernels import KERNELS
from capibara_assets.planning.claims.measured import MeasuredRatios
from capibara_assets.planning.recipe import PlanningRecipe

LEAST_KERNEL_RATIO = 10.0  # of the claimed 10 to 50 times
_BENCH = "`python -m benchmarks train --part kernels` measures the same"


def kernels(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: kernels 10-50 times as fast."""
    claim = "Kernels (attention, matrix product, softmax): 10-50x faster"
    if measured is None:
        return Claim(claim, "not measured: --measure does", "measured", "cannot be judged", _BENCH)
    found = measured.kernels
    python = {name: float(found[name]) for name in KERNELS}
    numpy = {(side, name): ratio for side, ratios in found["over_numpy"].items() for name, ratio in ratios.items()}
    over_python, over_numpy = min(python.values()) >= LEAST_KERNEL_RATIO, min(numpy.values()) >= LEAST_KERNEL_RATIO
    verdict: Verdict = "holds" if over_numpy and over_python else "holds in part" if over_python else "does not hold"
    beside = "; ".join(
        f"at {side} " + ", ".join(f"{name} {ratio:g}x" for name, ratio in ratios.items())
        for side, ratios in found["over_numpy"].items()
    )
    return Claim(
        claim=claim,
        ours=f"over plain Python {', '.join(f'{name} {ratio:,.0f}x' for name, ratio in python.items())}; over NumPy"
        f" {beside}",
        how="measured",
        verdict=verdict,
        why=f"matrices of {found['size']} a side and larger, one thread, float32, results compared, masks that keep a"
        " fifth. Plain Python is a baseline that nobody trains with; NumPy is what a user would write, and calls the"
        f" same kind of library for its products. {_BENCH}",
        values=python | {f"{name}_over_numpy_{side}": ratio for (side, name), ratio in numpy.items()},
    )


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
    kernels,
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
