"""One base with the LoRA of several voters on it: rows of different voters go through one matrix product."""

import torch
from torch import Tensor, nn

from capibara_assets.errors import InputError
from capibara_assets.modeling.base import load_base
from capibara_assets.modeling.collators import collator
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.step.settings import Settings
from capibara_assets.training.step.subject import ADAPTER, LossModule, Subject, adapter_config, peft_names, with_lora


class StackedLora(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A frozen projection with the LoRA of several voters; rows lie voter by voter, equally many of each.

    Attributes:
        a: (voters, r, in), b: (voters, out, r): every voter's factors; `PlainStepper`s work on views of them.
        active: numbers of the voters whose rows these are, in the order of the rows.
    """

    def __init__(self, base: nn.Linear, a: Tensor, b: Tensor, voters: int, scale: float):
        super().__init__()
        self.base, self.scale = base, scale
        self.a = nn.Parameter(a.detach().repeat(voters, 1, 1))
        self.b = nn.Parameter(b.detach().repeat(voters, 1, 1))
        self.active: list[int] = list(range(voters))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, length, in) -> (rows, length, out)."""
        a, b = self.a, self.b
        if len(self.active) < len(a):
            a, b = a[self.active], b[self.active]
        result: Tensor = self.base(x)
        own = x.reshape(len(a), -1, x.shape[-1])
        change = torch.bmm(torch.bmm(own, a.mT), b.mT) * self.scale
        return result + change.view(result.shape)


def stacked_subject(
    request: TrainingRequest, settings: Settings, device: torch.device
) -> tuple[Subject, dict[str, StackedLora]]:
    """One base with all voters' LoRA on it, drawn from the request's seed as `load_subject` draws it.

    Raises:
        InputError: the base is not the one requested, or a LoRA module is not a linear layer.
    """
    base = load_base(request.base_model, attention=settings.attention)
    if base.digest != request.base_digest:
        raise InputError(f"base model {request.base_model} is not the one requested: its files have changed")
    base.model.to(device)
    adapted = with_lora(base, settings, request.seed)
    trainable = {name: value for name, value in adapted.named_parameters() if value.requires_grad}
    subject = Subject(
        base=base,
        adapted=adapted,
        loss=LossModule(base.model, device, settings.precision),
        trainable=trainable,
        adapter_config=adapter_config(adapted, request.base_model.name),
        peft_names=peft_names(adapted, trainable),
        layout=collator(base.model.config, "causal", None),
        device=device,
    )
    layers = {}
    for name in sorted({name.partition(".lora_")[0] for name in trainable}):
        layer = adapted.get_submodule(name)
        linear = layer.base_layer
        if type(linear) is not nn.Linear:
            raise InputError(f"{name} is a {type(linear).__name__}: only linear layers can be trained batched")
        if settings.precision == "bf16":  # rounded once, not in every pass: the very same numbers
            linear.weight = nn.Parameter(linear.weight.detach().bfloat16(), requires_grad=False)
        layers[name] = StackedLora(
            linear,
            layer.lora_A[ADAPTER].weight,
            layer.lora_B[ADAPTER].weight,
            len(request.recipe.voters),
            float(layer.scaling[ADAPTER]),
        ).to(device)
        parent, _, child = name.rpartition(".")
        setattr(adapted.get_submodule(parent), child, layers[name])
    return subject, layers
