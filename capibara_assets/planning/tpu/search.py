"""Every way to lay a training step out on a target, held against memory and predicted; the best ones, and what binds.

Exhaustive over mesh axes that divide chips and model, over sequences per shard, accumulation, recomputation and
packing. What cannot fit is cut off early: a mesh whose state alone is too large, and larger batches after one that did
not fit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Breakdown, Method, Remat, size
from capibara_assets.planning.footprint import footprint
from capibara_assets.planning.hardware.machine import Machine, machine_of
from capibara_assets.planning.mesh import Mesh, largest_tensor
from capibara_assets.planning.prediction.calibration import Calibration, Rates, rates, shipped
from capibara_assets.planning.prediction.step_time import Prediction, predict
from capibara_assets.planning.tpu.layouts import Lengths, Question, batches, layouts, row_tokens, splits
from capibara_assets.planning.workload import Workload, policy

NOISE_BATCHES = 4.0
"""Gradient noise scale over the batch that the recipe asks for.

McCandlish et al. 2018 (arXiv 1812.06162): to the same loss a batch B needs (1 + B/noise scale) times the examples of
an infinitely small one. A recipe's batch is taken to be a quarter of the scale: it needs a quarter more examples, and
five times the least number of steps. The scale could be measured (gradients' variance over their mean); it is not.
"""
MOST_REFUSED = 12  # refusals that are kept, nearest to fitting first
FIXED = ("gather", "reduce", "network", "optimizer", "launch", "operands")  # what need not grow with the batch
DIGITS = 3  # to which settings count as equally fast


@dataclass(frozen=True)
class Choice:
    """One setting that fits.

    Attributes:
        seconds: of one row's data on the whole target, weighed by the examples that its batch needs more or less (the
            gradient-noise heuristic); what settings are ranked by.
        usd: of the same; chip-hours where the target has no price.
    """

    load: Workload
    remat: Remat
    lengths: Lengths
    memory: Breakdown
    prediction: Prediction
    seconds: float
    usd: float

    @property
    def mesh(self) -> Mesh:
        return self.load.mesh

    @property
    def global_batch(self) -> int:
        return int(self.load.global_batch)

    def examples(self, row: float) -> float:
        """The batch in rows of `row` data tokens."""
        return self.global_batch * self.lengths.sequence * self.lengths.filled / row

    @property
    def rows_per_shard(self) -> int:
        return self.global_batch // self.mesh.batch_shards

    def __str__(self) -> str:
        packed = ", packed" if self.lengths.packed else ""
        split = f" in {self.load.micro_steps} passes" if self.load.micro_steps > 1 else ""
        return f"{self.mesh}, remat {self.remat}, {self.global_batch} x {self.lengths.sequence} tokens{split}{packed}"


@dataclass(frozen=True)
class Refusal:
    """A setting that does not fit, and the arithmetic."""

    setting: str
    reason: str
    bytes: int


@dataclass(frozen=True)
class Front:
    """What a search found.

    Attributes:
        plans: the Pareto front of time, memory and cost, best first: fastest, then less recomputation, fewer shards.
        refused: settings that do not fit, nearest first.
        binds: what limits the best plan: compute, HBM, ICI/NVLink, DCN/network, host, pipeline, or memory where a
        setting
            that does not fit would have been faster.
        tried: settings predicted or weighed.
        fitting: settings that fit.
    """

    plans: tuple[Choice, ...]
    refused: tuple[Refusal, ...]
    binds: str
    tried: int
    fitting: int
    budget: int
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> Choice:
        return self.plans[0]


Weigh = Callable[[Workload], Breakdown]


def search(question: Question, *, calibration: Calibration | None = None, weigh: Weigh = footprint) -> Front:
    """The Pareto front of all settings that fit.

    Args:
        question: model, target and limits.
        calibration: efficiencies; default: those that ship.
        weigh: memory of a workload on one chip.

    Raises:
        InputError: nothing fits (with the smallest setting's arithmetic), or the target has no peak or bandwidth.
    """
    fitted = shipped() if calibration is None else calibration
    budget = int(question.target.usable_bytes * question.limits.headroom)
    hunt = _Hunt(question, fitted, weigh, budget)
    one = machine_of(question.target)
    for slices in question.slices:
        machine = replace(one, chips=one.chips * slices)
        for mesh in layouts(question, slices):
            for lengths in question.lengths:
                for remat in question.limits.remat:
                    hunt.explore(machine, mesh, lengths, remat)
    hunt.refused.sort(key=lambda one: (one.bytes, one.setting))
    if not hunt.front:
        raise InputError(_nothing_fits(question, hunt.refused, budget))
    plans = tuple(sorted(hunt.front, key=_order))
    best = plans[0]
    faster = hunt.fastest_refused if hunt.fastest_refused and hunt.fastest_refused[0] < 0.98 * best.seconds else None
    return Front(
        plans=plans,
        refused=tuple(hunt.refused[:MOST_REFUSED]),
        binds="memory" if faster else best.prediction.binds,
        tried=hunt.tried,
        fitting=hunt.fitting,
        budget=budget,
        reasons=_reasons(question, best, faster, hunt.tried, hunt.fitting, budget),
    )


class _Hunt:
    """A search in progress: the front so far, what did not fit, and counts."""

    def __init__(self, question: Question, fitted: Calibration, weigh: Weigh, budget: int) -> None:
        self.question, self.fitted, self.weigh, self.budget = question, fitted, weigh, budget
        self.front: list[Choice] = []
        self.refused: list[Refusal] = []
        self.fastest_refused: tuple[float, str] | None = None
        self.tried = self.fitting = 0
        self._known: Rates | None = None  # all settings of one search share framework, format and chip

    def explore(self, machine: Machine, mesh: Mesh, lengths: Lengths, remat: Remat) -> None:
        """Batches on one mesh, rising, until they cannot fit or cannot be better any more.

        More passes of fewer sequences are never faster without a pipeline, so they are tried only where fewer do not
        fit.
        """
        question = self.question
        wanted = max(1, round(question.wanted * row_tokens(question) / (lengths.sequence * lengths.filled)))
        for rows in batches(wanted, mesh.batch_shards, question.limits.batch_growth):
            last: Choice | None = None
            for passes in splits(rows, mesh, question):
                load = _load(question, mesh, lengths, remat, rows, passes)
                self.tried += 1
                memory = self.weigh(load)
                if memory.total > self.budget:
                    self._refuse(machine, load, lengths, remat, memory)
                    continue
                self.fitting += 1
                last = _choice(question, load, remat, lengths, memory, self._predict(load, machine))
                self._keep(last)
                if mesh.pipeline == 1:
                    break
            if last is None and mesh.pipeline == 1:
                return
            if last is not None and self._hopeless(last):
                return

    def _predict(self, load: Workload, machine: Machine) -> Prediction:
        if self._known is None:
            self._known = rates(load, machine, self.fitted)
        return predict(load, machine, self.fitted, known=self._known)

    def _refuse(self, machine: Machine, load: Workload, lengths: Lengths, remat: Remat, memory: Breakdown) -> None:
        setting = f"{load.mesh}, remat {remat}, {int(load.global_batch)} x {load.sequence} tokens"
        refusal = Refusal(setting, f"{memory.arithmetic()} of {size(self.budget)}", memory.total)
        self.refused.append(refusal)
        if load.micro_steps == 1:
            seconds = _cost(self.question, load, lengths, self._predict(load, machine))
            if self.fastest_refused is None or seconds < self.fastest_refused[0]:
                self.fastest_refused = (seconds, setting)

    def _keep(self, choice: Choice) -> None:
        """Add to the front what nothing on it beats, and drop what the newcomer beats."""
        if any(_beats(other, choice) for other in self.front):
            return
        self.front = [other for other in self.front if not _beats(choice, other)]
        self.front.append(choice)

    def _hopeless(self, smaller: Choice) -> bool:
        """Whether no larger batch on the same mesh can reach the front: it needs more memory, as many examples or more,
        and saves at most what does not grow with the batch."""
        seconds = smaller.prediction.step_seconds[1]
        growing = seconds - sum(smaller.prediction.terms[name] for name in FIXED)
        bound = smaller.seconds * growing / seconds
        return any(other.seconds <= bound and other.memory.total <= smaller.memory.total for other in self.front)


def _load(question: Question, mesh: Mesh, lengths: Lengths, remat: Remat, rows: int, passes: int) -> Workload:
    return Workload(
        shape=question.shape,
        sequence=lengths.sequence,
        inputs=lengths.sequence if question.shape.family == "t5" else 0,
        global_batch=rows * mesh.batch_shards,
        mesh=mesh,
        micro_steps=passes,
        recompute=policy(remat, question.software),
        precision=question.precision,
        weight_bytes=question.weight_bytes,
        optimizer=question.optimizer,
        method=question.method,
        lora_rank=question.lora_rank,
        lora_modules=question.lora_modules,
        software=question.software,
        logit_chunks=question.logit_chunks,
    )


def examples_factor(batch: float, wanted: int) -> float:
    """Examples to the same loss with this batch, over those with the wanted one (see NOISE_BATCHES)."""
    scale = NOISE_BATCHES * wanted
    return (1 + batch / scale) / (1 + wanted / scale)


def rate_factor(batch: float, wanted: int) -> float:
    """Learning rate for this batch over the recipe's: Adam's square root (Malladi et al. 2022) up to the noise scale.

    Beyond the noise scale larger batches only repeat what a step already knows, and a larger rate is not safe.
    """
    return sqrt(min(batch, NOISE_BATCHES * wanted) / wanted)


def _cost(question: Question, load: Workload, lengths: Lengths, predicted: Prediction) -> float:
    """Seconds of one row's worth of data, weighed by how many examples the batch needs."""
    useful = load.global_batch * lengths.sequence * lengths.filled
    return predicted.step_seconds[1] / useful * examples_factor(useful / row_tokens(question), question.wanted)


def _choice(
    question: Question, load: Workload, remat: Remat, lengths: Lengths, memory: Breakdown, predicted: Prediction
) -> Choice:
    seconds = _cost(question, load, lengths, predicted)
    hourly = question.target.price.usd_per_hour
    rate = (hourly if hourly is not None else question.target.chips) * load.mesh.slices / 3600
    return Choice(load, remat, lengths, memory, predicted, seconds, seconds * rate)


def _beats(one: Choice, other: Choice) -> bool:
    """Whether `one` is as good in time, memory and cost at once; of equals the simpler wins."""
    mine, theirs = _figures(one), _figures(other)
    if mine == theirs:
        return _order(one) <= _order(other)
    return all(a <= b for a, b in zip(mine, theirs, strict=True))


def _figures(choice: Choice) -> tuple[float, float, float]:
    seconds = _round(choice.seconds)
    # Dollars of the rounded time: rounded on their own, equal times could differ in cost.
    return (seconds, float(choice.memory.total), seconds * float(f"{choice.usd / choice.seconds:.6g}"))


def _order(choice: Choice) -> tuple[float, ...]:
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
    """So that equal settings tie."""
    return float(f"{value:.{DIGITS}g}")


def _nothing_fits(question: Question, refused: Sequence[Refusal], budget: int) -> str:
    shape, target = question.shape, question.target
    what = "fine-tuned whole" if question.method is Method.FULL else "fine-tuned with LoRA"
    if not refused:
        return (
            f"{shape.name} cannot be laid out on {target.name}: no batch within {question.limits.micro_batch}"
            f" sequences a chip and pass; ask for fewer examples a step, or a larger slice"
        )
    closest = refused[0]
    return (
        f"{shape.name} ({shape.parameters / 1e9:.3g} B parameters) cannot be {what} on {target.name}: a chip has"
        f" {target.memory.usable_gib:g} GiB usable, {size(budget)} at {question.limits.headroom:.0%}; the smallest of"
        f" all settings ({closest.setting}) needs {closest.reason}. Take a larger slice or a smaller model."
    )


def _reasons(
    question: Question,
    best: Choice,
    faster: tuple[float, str] | None,
    tried: int,
    fitting: int,
    budget: int,
) -> dict[str, str]:
    """Why the best plan is what it is."""
    parts = sorted(best.prediction.resources.items(), key=lambda one: -one[1])
    told = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in parts if seconds > 0.005 * parts[0][1])
    reasons = {
        "mesh": (
            f"{best.mesh}: fastest to the same loss of {fitting} settings that fit ({tried} tried);"
            f" {best.prediction.binds} binds ({told}); tensor has to divide {largest_tensor(question.shape)} (heads,"
            " key/value heads, MLP, vocabulary)"
        ),
        "remat": f"{best.memory.arithmetic()} of {size(budget)}: "
        + (
            "nothing needs recomputing"
            if best.remat is Remat.NONE
            else "less recomputation does not fit or is not faster"
        ),
    }
    useful = best.examples(row_tokens(question))
    reasons["batch"] = (
        f"{question.wanted} examples a step asked for, {useful:.4g} taken ({best.global_batch} rows,"
        f" {best.mesh.batch_shards} shards): to the same"
        f" loss a batch B needs (1 + B/noise scale) times the examples (McCandlish et al. 2018), the scale taken as"
        f" {NOISE_BATCHES:g} times what is asked for: {examples_factor(useful, question.wanted):.2f} times as many here"
    )
    reasons["learning_rate"] = (
        f"{rate_factor(useful, question.wanted):.3g} times the recipe's: the square root of the batch over what was"
        " asked for, Adam's rule (Malladi et al. 2022), no further than the noise scale"
    )
    if len(question.lengths) > 1:
        filled = ", ".join(
            f"{'packed' if one.packed else 'padded'} to {one.sequence}: {one.filled:.0%} data"
            for one in question.lengths
        )
        reasons["packing"] = f"{filled}; {'packed' if best.lengths.packed else 'padded'} is faster"
    if faster is not None:
        reasons["memory"] = f"{faster[1]} would be {best.seconds / faster[0] - 1:.0%} faster, but does not fit"
    return reasons
