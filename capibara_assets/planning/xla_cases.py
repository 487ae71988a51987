"""Steps that XLA has been asked about: known answers for our memory figure, and the fit of its few numbers."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets.errors import InputError
from capibara_assets.locations import resources_root
from capibara_assets.planning.accounting import Breakdown, Step
from capibara_assets.planning.hardware import GIB
from capibara_assets.planning.tpu_memory import CASES, Copies, Quantities, breakdown, quantities, tpu_memory
from capibara_assets.planning.xla_case import XlaCase

# What the compiler itself says that it leaves a program, of each kind of chip by its topology's name (libtpu 0.0.51).
USABLE_GIB = {"v4": 30.75, "v5e": 15.75, "v5": 95.73, "v6e": 31.24}
FITTED = ("calibration", "choice")
SMALLEST = GIB // 2  # smaller programs keep much of theirs in a chip's vector memory, which is not HBM
BOUNDS = {  # a copy is a copy: no more of a thing than a schedule could hold
    "layer_weights_full": (1.0, 4.0),
    "layer_weights_lora": (0.5, 3.0),
    "rebuilt": (3.0, 9.0),
    "rebuilt_wide": (0.0, 12.0),
    "passing": (0.0, 4.0),
    "partial_sums": (0.0, 12.0),
    "scores": (0.0, 8.0),
    "scores_passing": (0.0, 8.0),
    "embeddings_full": (0.5, 4.0),
    "embeddings_tied": (0.5, 4.0),
    "embeddings_lora": (0.5, 4.0),
    "logits": (0.5, 2.0),
    "logits_whole": (0.5, 2.0),
    "embedding_shards": (0.0, 6.0),
}


class KnownCase(BaseModel):
    """A step and what the compiler said about it.

    `calibration` cases are what our figures are fitted on; the others never are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    role: Literal["calibration", "judged", "near the limit", "choice"]
    case: XlaCase
    status: Literal["compiled", "fits", "does not fit"]
    memory: dict[str, int]
    compile_seconds: float | None = Field(default=None, description="until code was there, or buffers had their places")
    host_peak_bytes: int | None = None

    @property
    def fits(self) -> bool:
        return self.status != "does not fit"

    @property
    def limit(self) -> int:
        """Bytes that the compiler leaves a program on this chip."""
        return int(USABLE_GIB[self.case.topology.split(":")[0]] * GIB)

    @property
    def ours(self) -> Breakdown:
        """Our figure for the case."""
        one = self.case
        return tpu_memory(one.shape, one.mesh, step_of(one), micro_steps=one.micro_steps)


class KnownCases(BaseModel):
    """The file: where the answers come from, the numbers fitted on them, and the answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str
    versions: dict[str, str]
    step: str = Field(description="digest of the step's code, as `xla_case.step_digest` gives it")
    copies: Copies
    cases: tuple[KnownCase, ...]

    def of(self, *roles: str) -> list[KnownCase]:
        return [one for one in self.cases if one.role in roles]


def step_of(case: XlaCase) -> Step:
    """What memory depends on of a case."""
    return Step(
        sequences=case.global_batch // case.mesh.batch_shards // case.micro_steps,
        sequence=case.sequence,
        weight_bytes=4,
        compute_bytes=2,
        method=case.method,
        optimizer=case.optimizer,
        remat=case.remat,
        lora_rank=case.lora_rank,
        lora_modules=case.lora_modules,
        logit_chunks=case.chunks,
    )


@cache
def known_cases(file: Path | None = None) -> KnownCases:
    """The cases that ship, or those of a file.

    Raises:
        InputError: not such a file.
    """
    place = resources_root() / CASES if file is None else file
    try:
        return KnownCases.model_validate(json.loads(place.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as odd:
        raise InputError(f"{place} is no file of compiled cases: {odd}") from odd


def fit_copies(cases: Sequence[KnownCase]) -> Copies:
    """The numbers of copies for which our figures come nearest to the compiler's: least squares of relative errors.

    Meant for the roles FITTED: calibration, and the plans that the search chose, whose memory is judged nowhere.

    The largest error counts too (a twentieth of its square), since a plan fails by its worst figure. Deterministic.
    """
    import numpy as np
    from scipy.optimize import differential_evolution

    known = [one for one in cases if one.fits and one.memory["allotted"] >= SMALLEST]
    counted = [quantities(one.shape, one.mesh, step_of(one), one.micro_steps) for one in (each.case for each in known)]
    allotted = np.array([one.memory["allotted"] for one in known], float)
    # The fuller phase is the larger of two sums that are linear in the numbers: what is there anyway, and two matrices.
    there, backward, loss = (np.array(part, float) for part in zip(*map(_linear, counted), strict=True))

    def cost(values: Any) -> Any:
        fuller = np.maximum(backward[:, 1:] @ values + backward[:, :1], loss[:, 1:] @ values + loss[:, :1])
        errors = ((there[:, None] + fuller) / allotted[:, None] - 1) ** 2
        return errors.mean(axis=0) + 0.05 * errors.max(axis=0)

    best = differential_evolution(
        cost, list(BOUNDS.values()), seed=1, maxiter=1000, tol=1e-8, polish=False, vectorized=True, updating="deferred"
    )
    return Copies(**{name: round(float(value), 2) for name, value in zip(BOUNDS, best.x, strict=True)})


def _linear(found: Quantities) -> tuple[float, list[float], list[float]]:
    """Bytes that are there in any phase; and each phase as a constant and the factor of every number in BOUNDS."""
    nothing = Copies(**dict.fromkeys(BOUNDS, 0.0))
    there = float(breakdown(found, nothing).total - found.gradients)
    backward, loss = [float(found.gradients)], [0.0]
    for name in BOUNDS:
        one = breakdown(found, nothing.model_copy(update={name: 1.0}))
        passing = float(one.temporaries + (one.gathered if name.startswith("layer_") else 0))
        backward.append(passing)
        loss.append(float(one.logits + one.gathered) - (0.0 if not name.startswith("layer_") else float(one.gathered)))
    return there, backward, loss
