"""Why a plan's adapters are on the linear layers that they are on."""

from capibara_assets.modeling.lora.targets import EVERY_LINEAR
from capibara_assets.planning.models import ModelShape


def targets_reason(shape: ModelShape) -> str:
    """The rule that `ModelShape.lora_targets` follows, and what it leaves out of this model."""
    parts = [f"{EVERY_LINEAR}: an adapter on attention alone learns less at the same size"]
    if shape.experts > 1:
        parts.append("the experts are one parameter of three dimensions, no linear layers")
    if shape.counted is not None and shape.counted.left_out:
        parts.append(
            f"{', '.join(shape.counted.left_out)} left out: PEFT does not adapt linear layers of these names in a"
            f" {shape.architecture}"
        )
    return "; ".join(parts)
