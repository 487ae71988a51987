"""A throughput that a LoRA plan is asked for: the leanest setting that is predicted to reach it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from capibara_assets.planning.accounting import DeviceStep, Method, Remat, flops_per_token, training_memory
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.lora.workload import lora_workload, predict_lora
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.prediction.throughput import (
    Span,
    ThroughputReading,
    compared,
    goal_of,
    parse_throughput,
    readings,
)
from capibara_assets.planning.recipe import PlanLevel, PlanningRecipe


@dataclass(frozen=True)
class AskedRate:
    """A throughput as it was asked for, for one model on one target.

    Attributes:
        answers: every reading of it.
        per_token: FLOPs of a training token.
        devices: that share the global batch.
    """

    base: ModelShape
    target: HardwareTarget
    answers: tuple[ThroughputReading, ...]
    per_token: float
    devices: int

    @classmethod
    def of(
        cls, text: str, base: ModelShape, step: DeviceStep, target: HardwareTarget, devices: int | None = None
    ) -> "AskedRate":
        """Read a throughput for the model, length and adapters of a step, on all devices of the target or on some.

        Raises:
            InputError: it is no throughput, the target declares no peak, or no reading is possible.
        """
        trained = base.lora_parameters(step.lora_rank, step.lora_modules)
        per_token = flops_per_token(base, step.sequence, method=Method.LORA, lora_parameters=trained)
        answers = readings(parse_throughput(text), target, per_token)
        return cls(base, target, answers, per_token, devices or target.chips)

    @property
    def goal(self) -> ThroughputReading:
        return goal_of(self.answers)

    def beside(self, step: DeviceStep, global_batch: int) -> tuple[ThroughputReading, ...]:
        """The readings beside what a step is predicted to do."""
        return compared(self.answers, self._predicted(step, global_batch), self.per_token, self.devices)

    def share(self, step: DeviceStep, global_batch: int) -> float:
        """The predicted share of the goal; 0 where nothing is predicted."""
        rates = self._predicted(step, global_batch)
        return 0.0 if rates is None else self.goal.share(rates[1], self.per_token, self.devices)

    def _predicted(self, step: DeviceStep, global_batch: int) -> Span | None:
        load = lora_workload(self.base, step, devices=self.devices, global_batch=global_batch)
        found = predict_lora(load, self.target)
        return None if found is None else found.tokens_per_second


def leanest(rate: AskedRate, step: DeviceStep, recipe: PlanningRecipe, global_batch: int) -> tuple[DeviceStep, str]:
    """The setting of least memory that is predicted to reach the rate, or else the one that comes nearest; and why.

    Tried are sequences per pass and recomputation, within the level's limits. The quantisation stays as planned: it
    changes what is learnt, and what unpacking it costs is not in the prediction.

    Args:
        rate: as asked for.
        step: as planned without it.
        recipe: whose level limits memory, recomputation and sequences.
        global_batch: sequences of an optimizer step.
    """
    budget = rate.target.usable_bytes * recipe.headroom
    most = recipe.limits.cpu_micro_batch if rate.target.kind == "cpu" else recipe.limits.micro_batch
    fitting = [
        (training_memory(rate.base, one).total, rate.share(one, global_batch), one)
        for one in _settings(step, recipe.limits, min(most, global_batch // rate.devices), global_batch // rate.devices)
        if training_memory(rate.base, one).total <= budget
    ]
    reaching = [one for one in fitting if one[1] >= 1]
    if reaching:
        _, share, found = min(reaching, key=lambda one: (one[0], -one[1]))
        what = f"the least memory of the {len(reaching)} of {len(fitting)} settings that are predicted to reach it"
    else:
        _, share, found = max(fitting, key=lambda one: (one[1], -one[0]))
        what = f"none of {len(fitting)} settings that fit is predicted to reach it, this comes nearest"
    return found, f"{rate.goal.meaning} asked for: {what} ({share:.1%} of it)"


def _settings(step: DeviceStep, limits: PlanLevel, most: int, whole: int) -> Iterator[DeviceStep]:
    """Sequences per pass in powers of two that divide the device's share, with and without recomputation."""
    again = [Remat.NONE] if Remat.NONE in limits.remat else []
    again += [Remat.FULL] if {Remat.MINIMAL, Remat.FULL} & set(limits.remat) else []
    sequences = 1
    while sequences <= most:
        if whole % sequences == 0:
            yield from (replace(step, sequences=sequences, remat=remat) for remat in again)
        sequences *= 2
