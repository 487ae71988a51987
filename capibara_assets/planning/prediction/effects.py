"""Efficiency model: the expected share of a nominal rate that each kernel class reaches, and the effects that shift it.

A step takes `sum(term · exp(expected + effects))`. An effect is shared by all runs that have its name, is normally
distributed around zero, and its spread bounds what is physically plausible: a term's own factor, its factor on GPUs or
TPUs, a chip family's, a framework's, a number format's. The calibration fits all effects together; one without runs
stays at zero, so an unknown chip or framework is predicted from what all have in common.
"""

from collections.abc import Iterator
from math import log
from typing import NamedTuple

from capibara_assets.planning.hardware.machine import Machine
from capibara_assets.planning.prediction.roofline import TERMS
from capibara_assets.planning.workload import Workload


class Expectation(NamedTuple):
    """A term's prior factor on its nominal seconds (GPU, TPU), and prior spreads of its effects (in logarithms)."""

    gpu: float
    tpu: float
    spread: float
    kind_spread: float


class Effect(NamedTuple):
    """One shared correction: the index of its term (None: all terms) and its prior spread."""

    name: str
    term: int | None
    spread: float


# Matrix products come near the best measured GEMM; attention kernels do not (FlashAttention-2 gets 70 % of an A100, 35
# % of an H100: Dao 2023, Shah et al. 2024). XLA fuses elementwise work and hides tensor parallelism's sums behind
# products (Wang et al. 2023); gathers are prefetched behind the layer before. What overlaps has a factor below 1.
EXPECTED: dict[str, Expectation] = {
    "matmul": Expectation(1.08, 1.08, 0.08, 0.08),
    "matmul8": Expectation(1.3, 1.3, 0.2, 0.1),
    "experts": Expectation(1.25, 1.25, 0.2, 0.1),
    "attention": Expectation(1.8, 1.4, 0.3, 0.3),
    "softmax": Expectation(1.5, 1.5, 0.5, 0.3),
    "operands": Expectation(0.7, 0.4, 0.5, 0.3),
    "casts": Expectation(0.7, 0.4, 0.5, 0.3),
    "reread": Expectation(0.2, 0.2, 0.5, 0.3),
    "elementwise": Expectation(0.7, 0.6, 0.4, 0.3),
    "routing": Expectation(1.2, 0.8, 0.5, 0.2),
    "logits": Expectation(0.8, 0.6, 0.5, 0.2),
    "optimizer": Expectation(1.0, 1.0, 0.3, 0.2),
    "gather": Expectation(0.5, 0.4, 0.5, 0.3),
    "reduce": Expectation(0.5, 0.4, 0.5, 0.3),
    "tensor": Expectation(0.9, 0.3, 0.5, 0.3),
    "exchange": Expectation(1.0, 1.0, 0.5, 0.3),
    "network": Expectation(0.6, 0.6, 0.5, 0.3),
    "offload": Expectation(0.1, 0.06, 0.5, 0.2),
    "jitter": Expectation(0.008, 0.01, 0.5, 0.3),
    "launch": Expectation(1.0, 1.0, 0.5, 0.3),
}
MANY_EXPERTS = 64  # from here on experts are narrow and their products are grouped, not one for each expert
EAGER = 2.0  # unfused elementwise work passes through memory about twice as often
OVERLAPPED = 0.6  # asynchronous tensor parallelism leaves about this share of its sums exposed
# Spreads of the shared corrections. A chip's overall factor is small, since its rates are in the terms; frameworks
# differ by more than that on the same chip.
ARCHITECTURE, ARCHITECTURE_TERM, ARCHITECTURE_ATTENTION, FAMILY = 0.08, 0.20, 0.30, 0.05
SOFTWARE, SOFTWARE_TERM, GENERATION = 0.15, 0.20, 0.15
FORMAT, SWITCH = 0.30, 0.40
BY_ARCHITECTURE = ("matmul", "attention", "elementwise", "network", "jitter", "experts", "routing")
BY_SOFTWARE = ("matmul", "attention", "elementwise", "operands")


def expected_logs(load: Workload, machine: Machine) -> list[float]:
    """Logarithm of each term's expected factor, without effects, in the order of `TERMS`."""
    logs = []
    for term in TERMS:
        expectation = EXPECTED[term]
        value = log(expectation.tpu if machine.kind == "tpu" else expectation.gpu)
        if term == "elementwise" and load.eager:
            value += log(EAGER)
        if term == "tensor" and load.overlapped_tensor:
            value += log(OVERLAPPED)
        logs.append(value)
    return logs


def effects(load: Workload, machine: Machine) -> Iterator[Effect]:
    """The effects that apply to a workload on a machine."""
    for index, term in enumerate(TERMS):
        expectation = EXPECTED[term]
        yield Effect(f"term {term}", index, expectation.spread)
        yield Effect(f"{machine.kind} {term}", index, expectation.kind_spread)
    yield Effect(f"architecture {machine.architecture}", None, ARCHITECTURE)
    for term in BY_ARCHITECTURE:
        spread = ARCHITECTURE_ATTENTION if term == "attention" else ARCHITECTURE_TERM
        yield Effect(f"architecture {machine.architecture} {term}", TERMS.index(term), spread)
    yield Effect(f"family {machine.family}", None, FAMILY)
    yield Effect(f"software {load.software}", None, SOFTWARE)
    for term in BY_SOFTWARE:
        yield Effect(f"software {load.software} {term}", TERMS.index(term), SOFTWARE_TERM)
    if load.generation:
        yield Effect(f"generation {load.software} {load.generation}", None, GENERATION)
    if load.eight_bit:
        yield Effect(f"format {load.software} {load.precision}", TERMS.index("matmul8"), FORMAT)
    if load.shape.experts >= MANY_EXPERTS:
        for term in ("experts", "routing"):
            yield Effect(f"many experts {term}", TERMS.index(term), SWITCH)
    if load.eager:
        yield Effect("eager elementwise", TERMS.index("elementwise"), SWITCH)
    if load.overlapped_tensor:
        yield Effect("overlapped tensor", TERMS.index("tensor"), SWITCH)
