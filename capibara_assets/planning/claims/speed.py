"""The claim about kernels, which only a measurement can answer."""

from capibara_assets.planning.claims.claim import Claim, Verdict
from capibara_assets.planning.claims.kernels import KERNELS
from capibara_assets.planning.claims.measured import MeasuredRatios
from capibara_assets.planning.recipe import PlanningRecipe

LEAST = 10.0  # of the claimed 10 to 50 times
_BENCH = "`python -m benchmarks train --part kernels` measures the same"


def kernels(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: kernels 10-50 times as fast."""
    claim = "Kernels (attention, matrix product, softmax): 10-50x faster"
    if measured is None:
        return Claim(claim, "not measured: --measure does", "measured", "cannot be judged", _BENCH)
    found = measured.kernels
    python = {name: float(found[name]) for name in KERNELS}
    numpy = {(side, name): ratio for side, ratios in found["over_numpy"].items() for name, ratio in ratios.items()}
    over_python, over_numpy = min(python.values()) >= LEAST, min(numpy.values()) >= LEAST
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
