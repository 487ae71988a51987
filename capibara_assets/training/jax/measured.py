"""Measured speed of a JAX training: compiling apart from steps, TFLOP/s of a chip and its share of the peak."""

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from capibara_assets.planning.accounting import Method, flops_per_token
from capibara_assets.planning.writers.jax_config import JaxConfig


@dataclass
class StepMeter:
    """Collects what one attempt of a training took.

    Attributes:
        platform, kind: of the devices, such as `tpu` and `TPU v5 lite`.
        compile_seconds: tracing, lowering and compiling of the step.
        steps: (seconds, tokens that are not padding) of each step.
    """

    config: JaxConfig
    platform: str
    kind: str
    compile_seconds: float = 0.0
    steps: list[tuple[float, int]] = field(default_factory=list)

    @property
    def flops_per_step(self) -> float:
        """Model FLOPs of a step over all chips: padding counted, recomputation not, attention in full, as plans do."""
        config = self.config
        lora = config.lora
        trained = config.model.lora_parameters(lora.rank, lora.modules) if lora else 0
        method = Method.LORA if lora else Method.FULL
        per_token = flops_per_token(config.model, config.sequence, method=method, lora_parameters=trained)
        return per_token * config.sequences * config.sequence

    def figures(self, seconds: float, used: int) -> dict[str, float]:
        """The speed of one step of `seconds` with `used` tokens that are no padding."""
        config = self.config
        tflops = self.flops_per_step / seconds / config.mesh.chips / 1e12
        share = {} if self.peak is None else {"share_of_peak": tflops / self.peak}
        return {"seconds": seconds, "tokens_per_second": used / seconds, "tflops_per_chip": tflops, **share}

    @property
    def peak(self) -> float | None:
        """TFLOP/s of a chip at most; None unless the devices are the TPU chips that the plan is for."""
        chip = self.config.chip
        return chip.peak_tflops if chip is not None and self.platform == "tpu" else None

    def document(self) -> dict[str, Any]:
        """The figures of the attempt, its steps' median, beside the plan's; `share_of_peak` is None without a peak."""
        chip = self.config.chip
        found: dict[str, Any] = {
            "platform": self.platform,
            "device": self.kind,
            "devices": self.config.mesh.chips,
            "compile_seconds": round(self.compile_seconds, 3),
            "steps": len(self.steps),
        }
        if not self.steps:
            return found
        seconds = median(taken for taken, _ in self.steps)
        used = sum(tokens for _, tokens in self.steps) / len(self.steps)
        predicted = chip.step_seconds if chip is not None else None
        return found | {
            "step_seconds": seconds,
            "rows_tokens_per_second": self.config.sequences * self.config.sequence / seconds,
            "tokens_per_second": used / seconds,
            "tflops_per_chip": self.flops_per_step / seconds / self.config.mesh.chips / 1e12,
            "share_of_peak": self.figures(seconds, 0).get("share_of_peak"),
            "peak_note": None
            if self.peak
            else f"no share of a peak: the devices are {self.kind}"
            + (f", the plan is for {chip.target}" if chip is not None else ""),
            "planned_for": chip.target if chip is not None else None,
            "predicted_step_seconds": predicted,
            "measured_over_predicted": seconds / predicted[1] if predicted and self.platform == "tpu" else None,
        }
