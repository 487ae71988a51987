"""The distributions that a run needs besides the core, and which of them this machine lacks."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from capibara_assets.modeling.attention import FLASH, FLASH_PACKAGE
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.settings import Settings

if TYPE_CHECKING:
    from capibara_assets.training.plan.schema import TrainingPlan

_EXPORTERS = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow-skinny"}  # all of mlflow that is used
_EXTRAS = {"deepspeed": "gpu", "bitsandbytes": "gpu", **dict.fromkeys(_EXPORTERS.values(), "metrics")}


def needed_packages(
    recipe: TrainingRecipe | None, settings: "Settings | TrainingPlan | None" = None
) -> tuple[str, ...]:
    """Distributions that a run needs besides the core: by back end, optimizer, quantisation, attention, exporters."""
    if recipe is None:
        return ()
    quantised = settings is not None and settings.quantization in ("int8", "nf4")
    return (
        *(("deepspeed",) if recipe.hardware.backend == "zero2" else ()),
        *(("accelerate",) if recipe.hardware.backend == "accelerate" else ()),
        *(("bitsandbytes",) if quantised or recipe.training.optimizer == "adamw_8bit" else ()),
        *((FLASH_PACKAGE,) if settings is not None and settings.attention == FLASH else ()),
        *(_EXPORTERS[exporter] for exporter in recipe.report.exporters),
    )


def missing_packages(recipe: TrainingRecipe, settings: "Settings | TrainingPlan") -> list[str]:
    """A sentence for each distribution that a run needs and this machine lacks."""
    return [
        f"{name} is not installed, and the recipe needs it: {_remedy(name)}"
        for name in needed_packages(recipe, settings)
        if not _installed(name)
    ]


def _remedy(name: str) -> str:
    extra = _EXTRAS.get(name)
    return f"pip install 'capibara-assets[{extra}]'" if extra else f"pip install {name}"


def _installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False
