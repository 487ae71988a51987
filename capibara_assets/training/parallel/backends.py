"""Chooses the stepper by the recipe's backend."""

from capibara_assets.errors import InputError
from capibara_assets.training.ranks import Ranks
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.settings import Settings
from capibara_assets.training.step.stepper import PlainStepper, Stepper
from capibara_assets.training.step.subject import Subject


def make_stepper(recipe: TrainingRecipe, subject: Subject, settings: Settings, ranks: Ranks) -> Stepper:
    """Make the stepper of the recipe's backend for a subject.

    Raises:
        InputError: the backend cannot train with these settings, or several processes were started for one.
    """
    scaled, backend = settings.precision == "fp16", recipe.hardware.backend
    if backend == "fsdp2" and settings.quantised:
        raise InputError(f"backend fsdp2 cannot shard a base held in {settings.quantization}: name ddp or zero2")
    if backend == "zero2" and scaled:
        raise InputError("backend zero2 does not scale the losses that fp16 needs: set precision to bf16, or name ddp")
    if backend == "single":
        if ranks.world > 1:
            raise InputError(
                f"backend single, but {ranks.world} processes were started: name ddp, fsdp2, zero2 or accelerate"
            )
        return PlainStepper(subject.trainable, recipe, subject.loss, scaled=scaled)
    # Imported here: torch's sharding is most of a second, and most voters train in one process.
    from capibara_assets.training.parallel.sharded import AccelerateStepper, DdpStepper, Fsdp2Stepper
    from capibara_assets.training.parallel.zero import Zero2Stepper

    match backend:
        case "ddp":
            return DdpStepper(subject, recipe, ranks, scaled=scaled)
        case "accelerate":
            return AccelerateStepper(subject, recipe, ranks, scaled=scaled)
        case "fsdp2":
            return Fsdp2Stepper(subject, recipe, ranks, scaled=scaled)
        case "zero2":
            return Zero2Stepper(subject, recipe, settings, ranks)
