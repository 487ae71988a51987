"""Throughput targets: parsing of values with units, and comparison with a chip's peak and with a plan's prediction."""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import HardwareTarget

Unit = Literal["flops", "tokens"]
Scope = Literal["chip", "slice"]
Span = tuple[float, float, float]
Reached = Literal["predicted to reach it", "within the prediction's interval", "predicted to miss it"]
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
    """One interpretation of a throughput target, compared with the hardware's peak and with a plan's prediction."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    meaning: str
    unit: Unit = "flops"
    tflops_per_chip: float
    tokens_per_second: float
    share_of_peak: float
    verdict: Literal["reached by published runs", "above every published run", "impossible"]
    arithmetic: str
    steers: bool = Field(default=False, description="the reading that the plan was chosen by")
    predicted: Span | None = Field(default=None, description="of the plan, as a share of the target: low, middle, high")
    plan: Reached | None = Field(default=None, description="whether the plan is predicted to reach it")

    @property
    def fits(self) -> bool:
        return self.verdict != "impossible"

    def share(self, tokens_per_second: float, flops_per_token: float, chips: int) -> float:
        """A predicted rate over this target; one of FLOPs depends on the FLOPs that each token takes."""
        if self.unit == "tokens":
            return tokens_per_second / self.tokens_per_second
        return tokens_per_second * flops_per_token / chips / (self.tflops_per_chip * 1e12)

    def beside(self, shares: Span) -> "ThroughputReading":
        """The reading with what a plan is predicted to reach of it."""
        low, middle, high = shares
        if middle >= 1:
            plan: Reached = "predicted to reach it"
        else:
            plan = "within the prediction's interval" if high >= 1 else "predicted to miss it"
        told = f"; this plan: {middle:.1%} of it predicted [{low:.1%}, {high:.1%}]"
        return self.model_copy(update={"predicted": shares, "plan": plan, "arithmetic": self.arithmetic + told})


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


def goal_of(answers: Iterable[ThroughputReading]) -> ThroughputReading:
    """The reading that a plan is chosen by: the one that asks for most of those that are possible."""
    return max((one for one in answers if one.fits), key=lambda one: one.share_of_peak)


def compared(
    answers: Iterable[ThroughputReading], predicted: Span | None, flops_per_token: float, chips: int
) -> tuple[ThroughputReading, ...]:
    """The readings beside a plan's prediction; the one that plans are chosen by is marked.

    Args:
        answers: of `readings`.
        predicted: tokens/s of the plan over all chips (low, middle, high); None where nothing is predicted.
        flops_per_token: training FLOPs per token of the plan.
        chips: of the plan.
    """
    given = tuple(answers)
    goal = goal_of(given)
    marked = (one.model_copy(update={"steers": one == goal}) for one in given)
    if predicted is None:
        return tuple(marked)
    low, middle, high = predicted

    def share(one: ThroughputReading, rate: float) -> float:
        return one.share(rate, flops_per_token, chips)

    return tuple(one.beside((share(one, low), share(one, middle), share(one, high))) for one in marked)


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
        unit=unit,
        tflops_per_chip=per_chip / 1e12,
        tokens_per_second=per_chip * hardware.chips / flops_per_token,
        share_of_peak=share,
        verdict=verdict,
        arithmetic=", ".join(steps),
    )
