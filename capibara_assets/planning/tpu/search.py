"""Exhaustive search for the best layout of a training step on a target: the Pareto front of time, memory and cost.

Tries all meshes that divide chips and model, sequences per shard, accumulation, recomputation and packing. Layouts that
cannot fit are pruned early: a mesh whose state alone is too large, and batches larger than one that did not fit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Breakdown, Method, Remat, size
from capibara_assets.planning.footprint import footprint
from capibara_assets.planning.hardware.machine import Machine, machine_of
from capibara_assets.planning.mesh import Mesh, largest_tensor
from capibara_assets.planning.prediction.calibration import EfficiencyCalibration, Rates, rates, shipped
from capibara_assets.planning.prediction.step_time import StepPrediction, predict
from capibara_assets.planning.tpu.layouts import RowFilling, SearchProblem, batches, layouts, row_tokens, splits
from capibara_assets.planning.workload import Workload, policy

NOISE_BATCHES = 4.0
"""Gradient noise scale over the batch that the recipe asks for.

McCandlish et al. 2018 (arXiv 1812.06162): to the same loss a batch B needs (1 + B/noise scale) times the examples of
an infinitely small one. A recipe's batch is assumed to be a quarter of the scale: it needs a quarter more examples, and
five times the least number of steps. The scale is not measured (it would be the gradients' variance over their mean).
"""
MOST_REFUSED = 12  # refusals kept, nearest to fitting first
FIXED = ("gather", "reduce", "network", "optimizer", "launch", "operands")  # terms that need not grow with the batch
DIGITS = 3  # significant digits to which layouts count as equally fast


@dataclass(frozen=True)
class FeasibleLayout:
    """A layout that fits in memory, with its predicted time and cost.

    Attributes:
        seconds: for one row's data on the whole target, weighted by the number of examples that the batch size needs
            (gradient-noise heuristic); layouts are ranked by it.
        usd: dollars of the same; chip-hours where the target has no price.
    """

    load: Workload
    remat: Remat
    lengths: RowFilling
    memory: Breakdown
    prediction: StepPrediction
    seconds: float
    usd: float

    @property
    def mesh(self) -> Mesh:
        return self.load.mesh

    @property
    def global_batch(self) -> int:
        return int(self.load.global_batch)

    def examples(self, row: float) -> float:
        """The global batch in rows of `row` data tokens."""
        return self.global_batch * self.lengths.sequence * self.lengths.filled / row

    def __str__(self) -> str:
        packed = ", packed" if self.lengths.packed else ""
        split = f" in {self.load.micro_steps} passes" if self.load.micro_steps > 1 else ""
        return f"{self.mesh}, remat {self.remat}, {self.global_batch} x {self.lengths.sequence} tokens{split}{packed}"


@dataclass(frozen=True)
class Refusal:
    """A layout that does not fit in memory, and the arithmetic."""

    setting: str
    reason: str
    bytes: int


@dataclass(frozen=True)
class Front:
    """Result of a search.

    Attributes:
        plans: the Pareto front of time, memory and cost, best first: fastest, then less recomputation, fewer shards.
        refused: layouts that do not fit, nearest to fitting first.
        binds: what limits the best plan: compute, HBM, ICI/NVLink, DCN/network, host, pipeline, or memory where a
            layout that does not fit would have been faster.
        budget: bytes per chip that a layout may fill.
        reasons: explanations of the best plan, by setting.
    """

    plans: tuple[FeasibleLayout, ...]
    refused: tuple[Refusal, ...]
    binds: str
    budget: int
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> FeasibleLayout:
        return self.plans[0]


Weigh = Callable[[Workload], Breakdown]
ShareOf = Callable[[FeasibleLayout], float]


def search(problem: SearchProblem, *, weigh: Weigh = footprint, goal: ShareOf | None = None) -> Front:
    """Find the Pareto front of all layouts that fit.

    Args:
        problem: model, target and limits.
        weigh: computes the memory of a workload on one chip.
        goal: predicted share of a throughput; what reaches it is then the front, leanest first, or the nearest leads

    Raises:
        InputError: nothing fits (with the least layout's arithmetic), or no peak or bandwidth is declared.
    """
    budget = int(problem.target.usable_bytes * problem.limits.headroom)
    hunt = _Search(problem, shipped(), weigh, budget)
    hunt.goal = goal
    one = machine_of(problem.target)
    for slices in problem.slices:
        machine = replace(one, chips=one.chips * slices)
        for mesh in layouts(problem, slices):
            for lengths in problem.lengths:
                for remat in problem.limits.remat:
                    hunt.explore(machine, mesh, lengths, remat)
    hunt.refused.sort(key=lambda one: (one.bytes, one.setting))
    if not hunt.front:
        raise InputError(_nothing_fits(problem, hunt.refused, budget))
    plans = _leanest_first(hunt, tuple(sorted(hunt.front, key=_order)))
    best = plans[0]
    faster = hunt.fastest_refused if hunt.fastest_refused and hunt.fastest_refused[0] < 0.98 * best.seconds else None
    return Front(
        plans=plans,
        refused=tuple(hunt.refused[:MOST_REFUSED]),
        binds="memory" if faster else best.prediction.binds,
        budget=budget,
        reasons=_reasons(problem, best, faster, hunt.tried, hunt.fitting, budget) | _steered(hunt, best),
    )


def _leanest_first(hunt: "_Search", plans: tuple[FeasibleLayout, ...]) -> tuple[FeasibleLayout, ...]:
    """The layouts that reach the goal, least memory first; where none does, the nearest before the usual front."""
    near = (hunt.nearest[1],) if hunt.nearest is not None else ()
    leanest = sorted(hunt.reaching, key=lambda one: (one.memory.total, *_order(one)))
    return tuple(leanest) or (*near, *(one for one in plans if one not in near))


def _steered(hunt: "_Search", best: FeasibleLayout) -> dict[str, str]:
    if hunt.goal is None:
        return {}
    why = "the least memory of those predicted to reach" if hunt.reaching else "none is predicted to reach, nearest to"
    count = f"{hunt.fitting} settings fit of {hunt.tried} tried"
    return {"mesh": f"{best.mesh}: {why} the throughput asked for: {hunt.goal(best):.1%} of it; {count}"}


class _Search:
    """State of a search: the front so far, refusals, and counts."""

    def __init__(self, problem: SearchProblem, fitted: EfficiencyCalibration, weigh: Weigh, budget: int) -> None:
        self.problem, self.fitted, self.weigh, self.budget = problem, fitted, weigh, budget
        self.goal: ShareOf | None = None
        self.reaching: list[FeasibleLayout] = []
        self.nearest: tuple[float, FeasibleLayout] | None = None
        self.front: list[FeasibleLayout] = []
        self.refused: list[Refusal] = []
        self.fastest_refused: tuple[float, str] | None = None
        self.tried = self.fitting = 0
        self._known: Rates | None = None  # shared: all layouts of a search have one framework, format and chip

    def explore(self, machine: Machine, mesh: Mesh, lengths: RowFilling, remat: Remat) -> None:
        """Try batches on one mesh, ascending, until they no longer fit or can no longer be better.

        Without a pipeline more micro-steps are never faster, so they are tried only where fewer do not fit.
        """
        problem = self.problem
        wanted = max(1, round(problem.wanted * row_tokens(problem) / (lengths.sequence * lengths.filled)))
        for rows in batches(wanted, mesh.batch_shards, problem.limits.batch_growth):
            last: FeasibleLayout | None = None
            for passes in splits(rows, mesh, problem):
                load = _load(problem, mesh, lengths, remat, rows, passes)
                self.tried += 1
                memory = self.weigh(load)
                if memory.total > self.budget:
                    self._refuse(machine, load, lengths, remat, memory)
                    continue
                self.fitting += 1
                last = _choice(problem, load, remat, lengths, memory, self._predict(load, machine))
                self._keep(last)
                if mesh.pipeline == 1:
                    break
            if last is None and mesh.pipeline == 1:
                return
            if last is not None and self._hopeless(last):
                return

    def _predict(self, load: Workload, machine: Machine) -> StepPrediction:
        if self._known is None:
            self._known = rates(load, machine, self.fitted)
        return predict(load, machine, self.fitted, known=self._known)

    def _refuse(self, machine: Machine, load: Workload, lengths: RowFilling, remat: Remat, memory: Breakdown) -> None:
        setting = f"{load.mesh}, remat {remat}, {int(load.global_batch)} x {load.sequence} tokens"
        refusal = Refusal(setting, f"{memory.arithmetic()} of {size(self.budget)}", memory.total)
        self.refused.append(refusal)
        if load.micro_steps == 1:
            seconds = _cost(self.problem, load, lengths, self._predict(load, machine))
            if self.fastest_refused is None or seconds < self.fastest_refused[0]:
                self.fastest_refused = (seconds, setting)

    def _keep(self, choice: FeasibleLayout) -> None:
        self.front = _with(self.front, choice)
        if self.goal is not None:
            if (share := self.goal(choice)) >= 1:
                self.reaching = _with(self.reaching, choice)
            self.nearest = max(self.nearest or (share, choice), (share, choice), key=lambda one: one[0])

    def _hopeless(self, smaller: FeasibleLayout) -> bool:
        """Whether no larger batch on the same mesh can reach the front.

        A larger batch needs more memory and no fewer examples, and saves at most the time of the terms in FIXED.
        """
        if self.goal is not None:  # a larger batch may reach what this does not, and takes more memory where this does
            return self.goal(smaller) >= 1
        seconds = smaller.prediction.step_seconds[1]
        growing = seconds - sum(smaller.prediction.terms[name] for name in FIXED)
        bound = smaller.seconds * growing / seconds
        return any(other.seconds <= bound and other.memory.total <= smaller.memory.total for other in self.front)


def _load(problem: SearchProblem, mesh: Mesh, lengths: RowFilling, remat: Remat, rows: int, passes: int) -> Workload:
    return Workload(
        shape=problem.shape,
        sequence=lengths.sequence,
        inputs=lengths.sequence if problem.shape.family == "t5" else 0,
        global_batch=rows * mesh.batch_shards,
        mesh=mesh,
        micro_steps=passes,
        recompute=policy(remat, problem.software),
        precision=problem.precision,
        weight_bytes=problem.weight_bytes,
        optimizer=problem.optimizer,
        method=problem.method,
        lora_rank=problem.lora_rank,
        lora_modules=problem.lora_modules,
        software=problem.software,
        logit_chunks=problem.logit_chunks,
    )


def examples_factor(batch: float, wanted: int) -> float:
    """Examples needed for the same loss with this batch, relative to the wanted batch (see NOISE_BATCHES)."""
    scale = NOISE_BATCHES * wanted
    return (1 + batch / scale) / (1 + wanted / scale)


def rate_factor(batch: float, wanted: int) -> float:
    """Factor on the recipe's learning rate: Adam's square-root rule (Malladi et al. 2022) up to the noise scale.

    Beyond the noise scale a larger batch no longer improves the gradient, and a larger rate is not safe.
    """
    return sqrt(min(batch, NOISE_BATCHES * wanted) / wanted)


def _cost(problem: SearchProblem, load: Workload, lengths: RowFilling, predicted: StepPrediction) -> float:
    """Seconds per row of data, weighted by the examples that the batch needs."""
    useful = load.global_batch * lengths.sequence * lengths.filled
    return predicted.step_seconds[1] / useful * examples_factor(useful / row_tokens(problem), problem.wanted)


def _choice(
    problem: SearchProblem,
    load: Workload,
    remat: Remat,
    lengths: RowFilling,
    memory: Breakdown,
    predicted: StepPrediction,
) -> FeasibleLayout:
    seconds = _cost(problem, load, lengths, predicted)
    hourly = problem.target.price.usd_per_hour
    rate = (hourly if hourly is not None else problem.target.chips) * load.mesh.slices / 3600
    return FeasibleLayout(load, remat, lengths, memory, predicted, seconds, seconds * rate)


def _with(front: list[FeasibleLayout], choice: FeasibleLayout) -> list[FeasibleLayout]:
    """A front with a layout, if none on it dominates that, and without those that it dominates."""
    if any(_beats(other, choice) for other in front):
        return front
    return [*(other for other in front if not _beats(choice, other)), choice]


def _beats(one: FeasibleLayout, other: FeasibleLayout) -> bool:
    """Whether `one` dominates `other`: no worse in time, memory and cost; of equal ones the simpler wins."""
    mine, theirs = _figures(one), _figures(other)
    if mine == theirs:
        return _order(one) <= _order(other)
    return all(a <= b for a, b in zip(mine, theirs, strict=True))


def _figures(choice: FeasibleLayout) -> tuple[float, float, float]:
    seconds = _round(choice.seconds)
    # Dollars of the rounded time: rounded separately, equal times could differ in cost.
    return (seconds, float(choice.memory.total), seconds * float(f"{choice.usd / choice.seconds:.6g}"))


def _order(choice: FeasibleLayout) -> tuple[float, ...]:
    mesh = choice.mesh
    simplest = (mesh.slices, mesh.pipeline, mesh.tensor, mesh.expert, mesh.data, choice.load.micro_steps)
    return (
        _round(choice.seconds),
        list(Remat).index(choice.remat),
        *simplest,
        choice.global_batch,
        choice.memory.total,
    )


def _round(value: float) -> float:
    """Round to DIGITS significant digits, so that equally fast layouts tie."""
    return float(f"{value:.{DIGITS}g}")


def _nothing_fits(problem: SearchProblem, refused: Sequence[Refusal], budget: int) -> str:
    shape, target = problem.shape, problem.target
    what = "fine-tuned whole" if problem.method is Method.FULL else "fine-tuned with LoRA"
    if not refused:
        return (
            f"{shape.name} cannot be laid out on {target.name}: no batch within {problem.limits.micro_batch}"
            f" sequences a chip and pass; ask for fewer examples a step, or a larger slice"
        )
    closest = refused[0]
    return (
        f"{shape.name} ({shape.parameters / 1e9:.3g} B parameters) cannot be {what} on {target.name}: a chip has"
        f" {target.memory.usable_gib:g} GiB usable, {size(budget)} at {problem.limits.headroom:.0%}; the smallest of"
        f" all settings ({closest.setting}) needs {closest.reason}. Take a larger slice or a smaller model."
    )


def _reasons(
    problem: SearchProblem,
    best: FeasibleLayout,
    faster: tuple[float, str] | None,
    tried: int,
    fitting: int,
    budget: int,
) -> dict[str, str]:
    """Explanations of the best plan, by setting."""
    parts = sorted(best.prediction.resources.items(), key=lambda one: -one[1])
    told = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in parts if seconds > 0.005 * parts[0][1])
    reasons = {
        "mesh": (
            f"{best.mesh}: fastest to the same loss of {fitting} settings that fit ({tried} tried);"
            f" {best.prediction.binds} binds ({told}); tensor has to divide {largest_tensor(problem.shape)} (heads,"
            " key/value heads, MLP, vocabulary)"
        ),
        "remat": f"{best.memory.arithmetic()} of {size(budget)}: "
        + (
            "nothing needs recomputing"
            if best.remat is Remat.NONE
            else "less recomputation does not fit or is not faster"
        ),
    }
    useful = best.examples(row_tokens(problem))
    reasons["batch"] = (
        f"{problem.wanted} examples a step asked for, {useful:.4g} taken ({best.global_batch} rows,"
        f" {best.mesh.batch_shards} shards): to the same"
        f" loss a batch B needs (1 + B/noise scale) times the examples (McCandlish et al. 2018), the scale taken as"
        f" {NOISE_BATCHES:g} times what is asked for: {examples_factor(useful, problem.wanted):.2f} times as many here"
    )
    reasons["learning_rate"] = (
        f"{rate_factor(useful, problem.wanted):.3g} times the recipe's: the square root of the batch over what was"
        " asked for, Adam's rule (Malladi et al. 2022), no further than the noise scale"
    )
    if len(problem.lengths) > 1:
        filled = ", ".join(
            f"{'packed' if one.packed else 'padded'} to {one.sequence}: {one.filled:.0%} data"
            for one in problem.lengths
        )
        reasons["packing"] = f"{filled}; {'packed' if best.lengths.packed else 'padded'} is faster"
    if faster is not None:
        reasons["memory"] = f"{faster[1]} would be {best.seconds / faster[0] - 1:.0%} faster, but does not fit"
    return reasons
