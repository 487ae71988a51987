"""Steppers for several processes on torch: DDP, FSDP2, and DDP through Hugging Face accelerate.

Losses are already divided by the supervised tokens of the global batch, so gradients have to be summed over the
processes. DDP averages them, so there losses are first multiplied by the number of processes.
"""

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from capibara_assets.errors import InputError
from capibara_assets.training.ranks import Ranks, group_of_one
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.stepper import PlainStepper
from capibara_assets.training.step.subject import Subject

# Every process has the same weights by construction: the base by its digest, LoRA's by the seed or the resume point.
# `find_unused_parameters` is not only for unused ones (an expert without a token): without it DDP rebuilds its buckets
# after the first step, and a resumed run, whose first step is another one, would sum in another order.
_DDP: dict[str, Any] = {
    "find_unused_parameters": True,
    "broadcast_buffers": False,
    "gradient_as_bucket_view": True,
}


class DdpStepper(PlainStepper):
    """The whole model in every process; gradients are averaged in the last backward pass of a step."""

    def __init__(self, subject: Subject, recipe: TrainingRecipe, ranks: Ranks, *, scaled: bool):
        super().__init__(subject.trainable, recipe, subject.loss, scaled=scaled)
        warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")
        group_of_one()
        self._world = ranks.world
        self._loss = self._wrapped = DistributedDataParallel(subject.loss, init_sync=False, **_DDP)

    def micro_step(self, *, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self._wrapped.no_sync()

    def backward(self, loss: Tensor) -> None:
        super().backward(loss * self._world)


class AccelerateStepper(PlainStepper):
    """DDP, with the model wrapped and the backward pass run by accelerate."""

    def __init__(self, subject: Subject, recipe: TrainingRecipe, ranks: Ranks, *, scaled: bool):
        """Wrap the model.

        Raises:
            InputError: the environment (`accelerate config`, ACCELERATE_*) configures accelerate for another backend.
        """
        from accelerate import Accelerator
        from accelerate.utils import DistributedDataParallelKwargs, DistributedType

        super().__init__(subject.trainable, recipe, subject.loss, scaled=scaled)
        warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")
        self._world = ranks.world
        self._accelerator = Accelerator(
            cpu=subject.device.type == "cpu",
            mixed_precision="no",  # autocast is in the loss module, the scaler in this class
            kwargs_handlers=[DistributedDataParallelKwargs(**_DDP)],
        )
        kind = self._accelerator.distributed_type
        if kind not in (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU):
            raise InputError(
                f"accelerate is configured for {kind.value} (ACCELERATE_* in the environment): "
                "unset it, or name backend fsdp2 or zero2"
            )
        self._loss = self._wrapped = self._accelerator.prepare_model(subject.loss)

    def micro_step(self, *, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self._accelerator.no_sync(self._wrapped)

    def backward(self, loss: Tensor) -> None:
        self._accelerator.backward(self._scaler.scale(loss * self._world))


class Fsdp2Stepper(PlainStepper):
    """The frozen base sharded, gathered layer by layer for computing; the trained weights whole in each process.

    Only the base is too large for one process. LoRA weights are a hundredth of it; kept whole, they stay plain tensors
    for averages, tactics and clipping, which change them in place. Their gradients are summed once a step.
    """

    def __init__(self, subject: Subject, recipe: TrainingRecipe, ranks: Ranks, *, scaled: bool):
        group_of_one()
        mesh = init_device_mesh(subject.device.type, (ranks.world,))
        trained = set(subject.trainable.values())
        for layer in _layers(subject.loss.model):
            fully_shard(layer, mesh=mesh, ignored_params=trained)
        fully_shard(subject.loss, mesh=mesh, ignored_params=trained)
        super().__init__(subject.trainable, recipe, subject.loss, scaled=scaled)

    def step(self, learning_rate: float) -> float | None:
        self._sum_gradients()
        return super().step(learning_rate)

    def _sum_gradients(self) -> None:
        """Sum the gradients over the processes in one collective; a missing gradient counts as zero."""
        parameters = list(self._parameters.values())
        gradients = [torch.zeros_like(value) if value.grad is None else value.grad for value in parameters]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        pieces = flat.split([value.numel() for value in parameters])
        for value, piece in zip(parameters, pieces, strict=True):
            value.grad = piece.view_as(value)


def _layers(model: nn.Module) -> Sequence[nn.Module]:
    """The repeated blocks of an architecture, by Transformers' `_no_split_modules`."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]
