"""A federated client's training: only some of LoRA's numbers are trained, optionally kept near their start.

`b_only` leaves every A as it was drawn from the shared seed (FFA-LoRA, Sun et al. 2024, arXiv 2403.12313): the sum of
clients' products is then linear in B, so that the mean of the B is exactly the mean of the products, without any cut.

`scales` moves one number for each rank component: B = S diag(s), with fixed signs S drawn from the module's name. The
gradient is projected onto the signs; its entries are then alike in a column up to sign, so AdamW's moments are, too,
and its step is exactly AdamW's on s. (VeRA, Kopiczko et al. 2024, arXiv 2310.11454, trains such vectors, others too.)
"""

import math

import torch
from torch import Tensor

from capibara_assets.errors import InputError
from capibara_assets.training.data.order import rank
from capibara_assets.training.loop.products import Product, detached, products
from capibara_assets.training.loop.tactics import Tactic
from capibara_assets.training.step.subject import Subject
from capibara_assets.training.strategy import ClientStrategy


def signs(module: str, shape: torch.Size | tuple[int, int]) -> Tensor:
    """(out, r) of +1 and -1 in float32, the same for all trainings: neither secret nor trained."""
    generator = torch.Generator().manual_seed(int(rank("signs", module)[:15], 16))
    return torch.randint(0, 2, tuple(shape), generator=generator).mul_(2).sub_(1).float()


def scales_of(b: Tensor, sign: Tensor) -> Tensor:
    """(r,) the numbers s whose S diag(s) is nearest to B (out, r); float64."""
    return (b.double() * sign.double()).mean(dim=0)


def along(b: Tensor, sign: Tensor) -> Tensor:
    """(r,) coordinates of B (out, r) along the unit vectors sign / sqrt(out): lengths are those of B; float64."""
    return math.sqrt(len(b)) * scales_of(b, sign)


def spread(values: Tensor, sign: Tensor) -> Tensor:
    """(out, r) the B with these coordinates, the reverse of `along`; float64."""
    return sign.double() * values / math.sqrt(len(sign))


def lora_only(subject: Subject) -> list[Product]:
    """The LoRA products of a subject that trains nothing else.

    Raises:
        InputError: layers besides LoRA are trained, or a module's change is not one product.
    """
    pairs = products(subject)
    if others := sorted(subject.trainable.keys() - {name for part in pairs for name in (part.a, part.b)}):
        raise InputError(
            f"{', '.join(others[:3])}: trained besides LoRA's factors, which clients with trained: b_only or scales, a "
            "proximal term, a server's optimizer or privacy cannot have: take a base whose files have all layers"
        )
    return pairs


class ClientTactic(Tactic):
    """The tactic of a client: changes gradients before each step, and projects B onto its signs after it.

    It has no state: the weights at the start are given again after an interruption.
    """

    def __init__(self, choice: ClientStrategy, subject: Subject):
        super().__init__(subject)
        self._choice = choice
        self._products = lora_only(subject)
        self._start = detached(subject.trainable) if choice.proximal else {}
        self._signs = {
            part.b: signs(part.module, subject.trainable[part.b].shape).to(subject.device)
            for part in self._products
            if choice.trained == "scales"
        }

    def before_step(self) -> None:
        for part in self._products:
            a, b = self.subject.trainable[part.a], self.subject.trainable[part.b]
            if self._choice.trained != "factors":
                a.grad = None  # AdamW skips it, weight decay included
            for name, value in ((part.a, a), (part.b, b)):
                if self._choice.proximal and value.grad is not None:
                    value.grad.add_(value.detach() - self._start[name], alpha=self._choice.proximal)
            if b.grad is not None and (sign := self._signs.get(part.b)) is not None:
                b.grad.copy_(sign * scales_of(b.grad, sign).to(b.dtype))

    def after_step(self, learning_rate: float, gradient_norm: float) -> None:
        with torch.no_grad():
            for name, sign in self._signs.items():
                b = self.subject.trainable[name]
                b.copy_(sign * scales_of(b, sign).to(b.dtype))
