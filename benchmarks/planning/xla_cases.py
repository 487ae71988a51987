"""Training steps with the compiler's verdict: reference cases for our memory model, and the fit of its numbers."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Breakdown, DeviceStep
from capibara_assets.planning.hardware.targets import GIB
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.tpu.memory import (
    CASES,
    Copies,
    Quantities,
    breakdown,
    fitted,
    quantities,
    tpu_memory,
)
from capibara_assets.planning.xla.case import XlaCase
from capibara_assets.planning.xla.flops import StepFlops

# What the compiler itself says that it leaves a program, of each kind of chip by its topology's name (libtpu 0.0.51).
USABLE_GIB = {"v4": 30.75, "v5e": 15.75, "v5": 95.73, "v6e": 31.24}
SMALLEST = GIB // 2  # smaller programs keep much of theirs in a chip's vector memory, which is not HBM
ROUNDS = 60
SQUEEZED = 0.08  # share of a layer's temporaries that XLA saves when short of memory; see `least_memory`
LEAST_LOGITS = 0.5  # of their size in float32: one narrow copy
LARGEST = 1.3  # of the limit: what is refused by more is given up before the compiler has tried to make it fit
BOUNDS = {  # a copy is a copy: no more of a thing than a schedule could hold
    "hoisted": (0.0, 1.0),
    "layer_weights_full": (1.0, 4.0),
    "layer_weights_lora": (0.5, 3.0),
    "rebuilt": (3.0, 9.0),
    "rebuilt_wide": (0.0, 12.0),
    "passing": (0.0, 6.0),
    "passing_wide": (0.0, 12.0),
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


Role = Literal["calibration", "judged", "near the limit", "choice", "left out"]


class KnownCase(BaseModel):
    """A training step with the compiler's verdict.

    Our figures are fitted on `calibration` alone, in which no model is that is `judged`; `left out` are cases that were
    drawn for calibration and are of such a model: neither fitted nor counted. `choice` are the plans of
    `xla_draw.chosen_cases`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    role: Role
    case: XlaCase
    status: Literal["compiled", "fits", "does not fit"]
    memory: dict[str, int]
    compile_seconds: float | None = Field(default=None, description="until code was there, or buffers had their places")
    host_peak_bytes: int | None = None
    flops: StepFlops | None = Field(default=None, description="of a step and chip; only some cases were counted")

    @property
    def fits(self) -> bool:
        return self.status != "does not fit"

    @property
    def limit(self) -> int:
        """Bytes available to a program on this chip, according to the compiler."""
        return int(USABLE_GIB[self.case.topology.split(":")[0]] * GIB)

    @property
    def taken(self) -> int:
        """Bytes that the compiler allocated, or for a refusal the bytes it needs (0: not stated)."""
        return max(self.memory.get(name, 0) for name in ("allotted", "needed", "needed_temporaries"))

    @property
    def ours(self) -> Breakdown:
        """The memory of the case by our model."""
        one = self.case
        return tpu_memory(one.shape, one.mesh, step_of(one), micro_steps=one.micro_steps)

    @property
    def fits_by_ours(self) -> bool:
        """Whether the case fits by our model."""
        one = self.case
        return least_memory(one.shape, one.mesh, step_of(one), micro_steps=one.micro_steps).total <= self.limit


class KnownCases(BaseModel):
    """The file of reference cases: provenance, the fitted numbers of copies, and the cases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str
    versions: dict[str, str]
    step: str = Field(description="`STEP_VERSION` of modeling/jax/step.py when they were asked")
    copies: Copies
    cases: tuple[KnownCase, ...]

    def of(self, *roles: str) -> list[KnownCase]:
        return [one for one in self.cases if one.role in roles]

    def document(self) -> dict[str, Any]:
        """The file's content as JSON types, without fields that were not measured."""
        cases = [{name: value for name, value in one.items() if value is not None} for one in self._cases()]
        return {**self.model_dump(mode="json", exclude={"cases"}), "cases": cases}

    def _cases(self) -> list[dict[str, Any]]:
        return [one.model_dump(mode="json") for one in self.cases]


def with_answers(known: KnownCases, answered: Sequence[KnownCase]) -> KnownCases:
    """A copy with these cases in place of those with the same names, and new ones at the end."""
    new = {one.name: one for one in answered}
    kept = tuple(new.pop(one.name, one) for one in known.cases)
    return known.model_copy(update={"cases": (*kept, *new.values())})


def step_of(case: XlaCase) -> DeviceStep:
    """The settings of a case that memory depends on."""
    return DeviceStep(
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
    """The shipped reference cases, or those of a file.

    Raises:
        InputError: the file cannot be read as such.
    """
    place = resources_root() / CASES if file is None else file
    try:
        return KnownCases.model_validate(json.loads(place.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as odd:
        raise InputError(f"{place} is no file of compiled cases: {odd}") from odd


def fit_copies(cases: Sequence[KnownCase]) -> Copies:
    """Fit the numbers of copies to the compiler's memory by least squares of relative errors.

    Meant for the role `calibration`. With the fuller phase of every case given the figures are linear in the numbers:
    each round solves a bounded linear problem for the phases that the round before made the fuller ones. Deterministic.
    """
    import numpy as np
    from scipy.optimize import lsq_linear

    known = [one for one in cases if SMALLEST <= one.taken <= LARGEST * one.limit]
    counted = [quantities(one.shape, one.mesh, step_of(one), one.micro_steps) for one in (each.case for each in known)]
    taken = np.array([one.taken for one in known], float)
    # The fuller phase is the larger of two sums that are linear in the numbers: what is there anyway, and two matrices.
    there, backward, loss = (np.array(part, float) for part in zip(*map(_linear, counted), strict=True))
    bounds = np.array(list(BOUNDS.values())).T

    def error(values: Any) -> Any:
        fuller = np.maximum(backward[:, 1:] @ values + backward[:, 0], loss[:, 1:] @ values + loss[:, 0])
        return (there + fuller) / taken - 1

    best = values = bounds.mean(axis=0)
    for _ in range(ROUNDS):
        in_loss = loss[:, 1:] @ values + loss[:, 0] > backward[:, 1:] @ values + backward[:, 0]
        rows = np.where(in_loss[:, None], loss, backward)
        wanted = 1 - (there + rows[:, 0]) / taken
        solved = lsq_linear(rows[:, 1:] / taken[:, None], wanted, bounds).x
        values = (values + solved) / 2  # half way: phases that change places do not go on doing so
        best = min(best, values, key=lambda one: float((error(one) ** 2).mean()))
    return Copies(**{name: round(float(value), 2) for name, value in zip(BOUNDS, best, strict=True)})


def _linear(each: Quantities) -> tuple[float, list[float], list[float]]:
    """Bytes that are there in any phase; and each phase as a constant and the factor of every number in BOUNDS."""
    nothing = Copies(**dict.fromkeys(BOUNDS, 0.0))
    there = float(breakdown(each, nothing).total - each.gradients)
    backward, loss = [float(each.gradients)], [0.0]
    for name in BOUNDS:
        one = breakdown(each, nothing.model_copy(update={name: 1.0}))
        if name == "hoisted":  # there in either phase
            backward.append(float(each.narrow))
            loss.append(float(each.narrow))
            continue
        passing = float(one.temporaries + (one.gathered if name.startswith("layer_") else 0))
        backward.append(passing)
        loss.append(float(one.logits + one.gathered) - (0.0 if not name.startswith("layer_") else float(one.gathered)))
    return there, backward, loss


def least_memory(shape: ModelShape, mesh: Mesh, step: DeviceStep, *, micro_steps: int = 1) -> Breakdown:
    """Least memory on one chip with which XLA still compiles the step.

    Arguments and residuals are unchanged. When short of memory the compiler holds fewer of a layer's temporaries (it
    schedules later and recomputes cheap results), and at most one 16-bit copy of the logits, which their gradient
    replaces.
    """
    held = fitted()
    passing = ("rebuilt", "rebuilt_wide", "passing", "passing_wide", "partial_sums", "scores", "scores_passing")
    logits = ("logits", "logits_whole")
    fewer = {name: (1 - SQUEEZED) * getattr(held, name) for name in passing}
    fewer |= {name: min(LEAST_LOGITS, getattr(held, name)) for name in logits}
    return tpu_memory(shape, mesh, step, held.model_copy(update=fewer), micro_steps=micro_steps)
