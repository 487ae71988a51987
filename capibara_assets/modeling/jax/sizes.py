"""Inputs of the JAX step: the sizes of a model, the settings of a step, and the table of weights."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from capibara_assets.errors import InputError

Axes = tuple[str | None, ...]


class ModelSizes(Protocol):
    """The sizes of a transformer, by the names that `planning.models.ModelShape` gives them."""

    name: str
    architecture: str
    layers: int
    encoder_layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    gated: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    experts: int
    position_buckets: int
    position_bias_in_every_layer: bool
    rope_theta: float
    norm_epsilon: float

    @property
    def family(self) -> Literal["decoder", "t5"]: ...


class Weight(NamedTuple):
    """One array of the model: its size (layers stacked along the first axis) and the mesh axis of each dimension."""

    size: tuple[int, ...]
    axes: Axes


Table = dict[str, Weight]
"""Arrays by name."""


@dataclass(frozen=True)
class StepSettings:
    """Settings of a training step.

    Attributes:
        method: `full` trains every weight in float32; `lora` freezes them and trains float32 factors.
        remat: what the backward pass recomputes: `none`, `minimal` (all but products with weights), `full` (all).
        chunks: parts of the sequence whose logits exist at once; has to divide the length of the targets.
        compute: precision of the layers; the loss, softmax and norms are float32 in any case.
        attention: `splash` is the fused Pallas kernel of TPUs; `plain` writes the scores out and runs anywhere.
        lora_scale: alpha / rank (alpha / sqrt(rank) for rsLoRA).
        clip_norm: gradients are scaled down to this norm over all weights; None leaves them.
        micro_steps: passes over parts of the batch whose gradients are summed before the update.
        packed: rows hold several examples, marked by `segments`; attention stays within each. Positions are not
            restarted: rotary attention depends on distances alone.
    """

    method: Literal["full", "lora"] = "full"
    remat: Literal["none", "minimal", "full"] = "none"
    optimizer: Literal["adamw", "adafactor"] = "adamw"
    chunks: int = 1
    compute: Literal["bfloat16", "float32"] = "float32"
    attention: Literal["plain", "splash"] = "plain"
    lora_rank: int = 0
    lora_scale: float = 2.0
    lora_modules: tuple[str, ...] = ()
    weight_decay: float = 0.0
    clip_norm: float | None = None
    micro_steps: int = 1
    packed: bool = False

    def __post_init__(self) -> None:
        if self.method == "lora" and (self.lora_rank < 1 or not self.lora_modules):
            raise InputError(
                f"LoRA needs a rank and modules; got rank {self.lora_rank}, modules {list(self.lora_modules)}"
            )
        for name in ("chunks", "micro_steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)}: there is at least one part")


def check_supported(sizes: ModelSizes, settings: StepSettings | None = None) -> None:
    """Refuse models and settings that this step does not implement.

    Raises:
        InputError: a mixture of experts, a decoder without a gated MLP, or an encoder-decoder on packed rows.
    """
    if settings is not None and settings.packed and sizes.family == "t5":
        raise InputError(f"{sizes.name} ({sizes.architecture}): the JAX step packs decoders' examples only")
    if sizes.experts > 1:
        raise InputError(f"{sizes.name} ({sizes.architecture}): the JAX step has no mixtures of experts")
    if sizes.family == "decoder" and not sizes.gated:
        raise InputError(f"{sizes.name} ({sizes.architecture}): the JAX step's decoders have a gated MLP")
