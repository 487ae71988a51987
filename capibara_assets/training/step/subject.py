"""The model under training: a frozen base with LoRA weights on it, and the loss of a batch as one forward pass."""

import gc
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.collators import Collate, Packing, collator
from capibara_assets.modeling.fused.layers import fuse
from capibara_assets.modeling.heads import task_type
from capibara_assets.modeling.light_imports import (
    LoraConfig,
    get_peft_model,
    get_peft_model_state_dict,
)
from capibara_assets.modeling.lora.targets import is_expert
from capibara_assets.modeling.losses import IGNORED, Batch, token_nll
from capibara_assets.modeling.precision import Precision, autocast, matrix_dtype
from capibara_assets.modeling.quantised import QuantisedLoading
from capibara_assets.modeling.recomputation import keep_every_nth
from capibara_assets.processes.hidden_libraries import without_bitsandbytes
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.step.settings import Settings

ADAPTER = "default"
_FUSED_AT_MOST = 256 << 20  # bytes of a base on a CPU
_FILLER = [Encoded(input_ids=[0, 0], labels=[IGNORED, IGNORED], supervised=0)]


class LossModule(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Batch -> negative log-likelihood of each of its supervised tokens, (supervised,) float32.

    One module with one forward pass, because that is what DDP, FSDP and `torch.compile` wrap.
    """

    def __init__(self, model: nn.Module, device: torch.device, precision: Precision):
        super().__init__()
        self.model, self._device, self._precision = model, device, precision

    def forward(self, batch: Batch) -> Tensor:
        with autocast(self._device, self._precision):
            return token_nll(self.model, batch)


@dataclass(frozen=True)
class Subject:
    """A model under training: a frozen base with trainable LoRA weights.

    Attributes:
        base: as loaded; its model contains the LoRA layers.
        adapted: PEFT's model.
        loss: batch -> losses of its supervised tokens.
        trainable: name -> trained parameter.
        adapter_config: PEFT's `adapter_config.json`; it names no path, so it is the same on every machine.
        peft_names: name of a trained parameter -> its name in PEFT's file.
        layout: collates examples to a batch, by the base's head.
    """

    base: Base
    adapted: Any
    loss: LossModule
    trainable: dict[str, nn.Parameter]
    adapter_config: dict[str, Any]
    peft_names: dict[str, str]
    device: torch.device
    layout: Collate

    @property
    def base_parameters(self) -> int:
        """Parameters of the frozen base; quantised ones are counted as they lie in memory."""
        return sum(value.numel() for value in self.adapted.parameters() if not value.requires_grad)

    def collate(self, examples: Sequence[Encoded]) -> Batch:
        """Examples as one batch on the model's device; without examples, a batch without any loss."""
        return self.layout(examples or _FILLER, self.device)

    def adapter(self, weights: Mapping[str, Tensor]) -> LoraAdapter:
        """These weights (by the names of `trainable`), not copied, as an adapter in PEFT's format."""
        return LoraAdapter(self.adapter_config, {self.peft_names[name]: value for name, value in weights.items()})


def load_subject(request: TrainingRequest, settings: Settings, device: torch.device) -> Subject:
    """Load the base and put LoRA weights on it, drawn from the seed: A uniform, B zero, so the initial change is zero.

    Raises:
        InputError: the base is not the one requested, cannot be loaded, or has none of the LoRA modules.
    """
    if device.type == "cuda":
        gc.collect()  # fused layers are cycles: a base that nobody uses any more would still lie on the GPU
    torch.manual_seed(request.seed)  # every voter draws the same weights for layers that the base's files lack
    base = load_base(
        request.base_model,
        held_dtype(settings),
        attention=settings.attention,
        head=settings.head,
        shared=request.work / "base" if shares_base(request, settings, device) else None,
        quantised=quantised_loading(settings, device),
        incomplete=True,  # told by the training's first line
    )
    if base.digest != request.base_digest:
        raise InputError(f"base model {request.base_model} is not the one requested: its files have changed")
    if not settings.quantised:  # those are on the device already
        base.model.to(device)
    adapted = with_lora(base, settings, request.seed)
    model: nn.Module = adapted.get_base_model()
    if fusible(base, request, settings, device):
        fuse(model, ADAPTER, matrix_dtype(settings.precision))
        if device.type == "cuda":
            torch.cuda.empty_cache()  # the room of the weights that went is too small for those that came
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        keep_every_nth(model, settings.gradient_checkpointing)
    loss = LossModule(model, device, settings.precision)
    if request.recipe.hardware.compile:
        loss.compile(dynamic=True)  # one graph for all lengths
    trainable = {name: value for name, value in adapted.named_parameters() if value.requires_grad}
    packing = Packing(settings.max_length, settings.attention) if request.recipe.data.packing else None
    return Subject(
        base=base,
        adapted=adapted,
        loss=loss,
        trainable=trainable,
        adapter_config=adapter_config(adapted, request.base_model.name),
        peft_names=peft_names(adapted, trainable),
        device=device,
        layout=collator(model.config, settings.head, packing),
    )


def held_dtype(settings: Settings) -> torch.dtype | None:
    """The dtype of the base's tensors that are not quantised, and so of the hidden states; None: float32.

    In fp16 a hidden state may be larger than the largest number.
    """
    in_bf16 = settings.quantised and settings.precision == "bf16"
    return torch.bfloat16 if in_bf16 or settings.quantization == "bf16" else None


def shares_base(request: TrainingRequest, settings: Settings, device: torch.device) -> bool:
    """Whether voters share the base's weights by memory mapping: several voters on a CPU, unquantised weights."""
    recipe = request.recipe
    plain = settings.quantization in ("none", "bf16")
    return recipe.hardware.share_base and len(recipe.voters) > 1 and device.type == "cpu" and plain


def fusible(base: Base, request: TrainingRequest, settings: Settings, device: torch.device) -> bool:
    """Whether to fuse the LoRA layers: with backend `single`, on a GPU, or on a CPU if the base is small.

    On a GPU the processor is busy starting kernels, and with PEFT's own layers a step starts more of them. A CPU's step
    of a small model is bound by memory traffic; in a large one the matrix products dominate, and a copy of the weights
    per voter costs more than fusing gains.
    """
    if request.recipe.hardware.backend != "single":
        return False
    if device.type == "cuda":
        plain = settings.quantization == "none" or (settings.quantization == "bf16" and settings.precision != "fp32")
        return plain and not request.recipe.hardware.compile
    small = sum(value.nbytes for value in base.model.parameters()) <= _FUSED_AT_MOST
    return device.type == "cpu" and settings.quantization == "none" and bool(small)


def quantised_loading(settings: Settings, device: torch.device) -> QuantisedLoading | None:
    """The quantisation of the base; None unless it is int8 or nf4.

    Raises:
        InputError: bitsandbytes is not installed.
    """
    kind = settings.quantization
    return QuantisedLoading.of(kind, device, settings.precision) if kind == "int8" or kind == "nf4" else None


def with_lora(base: Base, settings: Settings, seed: int) -> Any:
    """Wrap the base with PEFT; the LoRA weights are drawn from the seed."""
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha if settings.alpha % 1 else int(settings.alpha),
        lora_dropout=settings.dropout,
        target_modules=[name for name in settings.modules if not is_expert(name)],
        target_parameters=[name for name in settings.modules if is_expert(name)] or None,
        use_rslora=settings.use_rslora,
        use_dora=settings.use_dora,
        bias="none",
        task_type=task_type(settings.head),
    )
    torch.manual_seed(seed)
    try:
        with without_bitsandbytes():
            return get_peft_model(base.model, config, adapter_name=ADAPTER)
    except ValueError as error:
        raise InputError(f"LoRA modules {', '.join(settings.modules)} do not fit base {base.path}: {error}") from error


def adapter_config(adapted: Any, base_name: str) -> dict[str, Any]:
    """PEFT's config of the adapter as plain JSON."""
    config = adapted.peft_config[ADAPTER].to_dict()
    config = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    config |= {"base_model_name_or_path": base_name, "inference_mode": True}
    plain: dict[str, Any] = json.loads(json.dumps(config, default=str))
    return plain


def peft_names(adapted: Any, trainable: Mapping[str, Tensor]) -> dict[str, str]:
    """Name of a parameter -> its name in PEFT's file, by asking PEFT."""
    renamed = get_peft_model_state_dict(adapted, state_dict=dict(trainable), adapter_name=ADAPTER)
    by_identity = {id(value): name for name, value in renamed.items()}
    return {name: by_identity[id(value)] for name, value in trainable.items()}
