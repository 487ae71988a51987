"""Throughput targets: parsing of values with units, and comparison with a chip's peak."""

import re
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import HardwareTarget

Unit = Literal["flops", "tokens"]
Scope = Literal["chip", "slice"]
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_PATTERN = re.compile(
    r"""^\s*(?P<number>\d[\d_,]*(?:\.\d+)?(?:e[+-]?\d+)?)\s*\+?\s*
        (?:(?P<scale>[kmgtpe]?)\s*(?P<unit>flop(?:s|/s|ps)?|tok(?:en)?s?(?:/s|ps)))?
        \s*(?:(?:/|\s+per\s+)\s*(?P<scope>chip|gpu|device|slice|pod|machine))?\s*$""",
    re.IGNORECASE | re.VERBOSE,
)


class ThroughputTarget(NamedTuple):
    """A throughput as the user wrote it; `unit` and `scope` are None where not given."""

    value: float
    unit: Unit | None
    scope: Scope | None
    text: str


class ThroughputReading(BaseModel):
    """One interpretation of a throughput target, compared with the hardware's peak."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    meaning: str
    tflops_per_chip: float
    tokens_per_second: float
    share_of_peak: float
    verdict: Literal["reached by published runs", "above every published run", "impossible"]
    arithmetic: str

    @property
    def fits(self) -> bool:
        return self.verdict != "impossible"


def parse_throughput(text: str) -> ThroughputTarget:
    """Parse "200TFLOPs/chip", "12 PFLOP/s per slice", "24,800 tokens/s", or a bare number such as "275+".

    A bare number stays ambiguous; `readings` evaluates each meaning.

    Raises:
        InputError: the text is not a throughput.
    """
    match = _PATTERN.match(text)
    if match is None:
        known = "200TFLOPs/chip, 12PFLOP/s/slice, 24800 tokens/s or a number"
        raise InputError(f"throughput {text!r} not understood; write {known}")
    value = float(match["number"].replace(",", "").replace("_", ""))
    if not 0 < value < float("inf"):
        raise InputError(f"throughput {text!r} is not a rate: give a finite number above 0")
    unit: Unit | None = None
    if match["unit"]:
        unit = "flops" if match["unit"].lower().startswith("flop") else "tokens"
        value *= _SCALES[(match["scale"] or "").lower()]
    scope: Scope | None = None
    if match["scope"]:
        scope = "chip" if match["scope"].lower() in {"chip", "gpu", "device"} else "slice"
    return ThroughputTarget(value, unit, scope, text.strip())


def readings(
    target: ThroughputTarget, hardware: HardwareTarget, flops_per_token: float
) -> tuple[ThroughputReading, ...]:
    """Every interpretation of the target, each with its arithmetic and verdict.

    FLOP/s and tokens/s are read per chip and per slice where not given; a bare number as TFLOP/s per chip, TFLOP/s per
    slice, and tokens/s of the slice.

    Args:
        target: what the user asked for.
        hardware: a target with a bf16 peak.
        flops_per_token: training FLOPs per token of the planned model.

    Raises:
        InputError: no peak is declared, or no meaning fits under it; the message carries the arithmetic.
    """
    peak = hardware.peak("bf16")
    if peak is None:
        raise InputError(f"{hardware.name} declares no bf16 peak ({hardware.peaks_note}): no throughput can be judged")
    answers = tuple(
        _read(value, unit, scope, hardware, peak, flops_per_token) for value, unit, scope in _meanings(target)
    )
    if not any(answer.fits for answer in answers):
        sums = "; ".join(answer.arithmetic for answer in answers)
        raise InputError(f"throughput {target.text!r} is impossible on {hardware.name}: {sums}")
    return answers


def _meanings(target: ThroughputTarget) -> list[tuple[float, Unit, Scope]]:
    if target.unit is None:
        tera = target.value * 1e12
        scopes: tuple[Scope, ...] = ("chip", "slice") if target.scope is None else (target.scope,)
        return [*((tera, "flops", scope) for scope in scopes), (target.value, "tokens", target.scope or "slice")]
    if target.scope is None:
        return [(target.value, target.unit, "chip"), (target.value, target.unit, "slice")]
    return [(target.value, target.unit, target.scope)]


def _read(
    value: float, unit: Unit, scope: Scope, hardware: HardwareTarget, peak: float, flops_per_token: float
) -> ThroughputReading:
    flops = value if unit == "flops" else value * flops_per_token
    per_chip = flops if scope == "chip" else flops / hardware.chips
    share = per_chip / peak
    best = hardware.efficiency.best if hardware.efficiency is not None else 1.0
    verdict: Literal["reached by published runs", "above every published run", "impossible"]
    if share >= 1:
        verdict, why = "impossible", "no sustained rate reaches a chip's peak"
    elif share > best:
        verdict, why = "above every published run", f"the best published run sustained {best:.1%}"
    else:
        verdict, why = "reached by published runs", f"the best published run sustained {best:.1%}"
    amount = f"{value / 1e12:,.6g} TFLOP/s" if unit == "flops" else f"{value:,.6g} tokens/s"
    steps = [f"read as {amount} per {scope}"]
    if unit == "tokens":
        steps.append(f"x {flops_per_token:,.4g} FLOPs per token = {flops / 1e12:,.4g} TFLOP/s per {scope}")
    if scope == "slice":
        steps.append(f"/ {hardware.chips} chips = {per_chip / 1e12:,.4g} TFLOP/s per chip")
    steps.append(f"{per_chip / 1e12:,.4g} of {peak / 1e12:,.6g} TFLOP/s peak = {share:.2%}; {why}")
    return ThroughputReading(
        meaning=f"{amount} per {scope}",
        tflops_per_chip=per_chip / 1e12,
        tokens_per_second=per_chip * hardware.chips / flops_per_token,
        share_of_peak=share,
        verdict=verdict,
        arithmetic=", ".join(steps),
    )
