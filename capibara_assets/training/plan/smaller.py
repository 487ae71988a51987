"""The next smaller setting of a training, tried once after a voter runs out of memory.

The examples of an optimizer step stay the same and so does the loss; only fewer of them are in memory at a time.
"""

from dataclasses import dataclass
from pathlib import Path

from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.settings import Settings

_GROUPS, _PLACE = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@dataclass(frozen=True)
class SmallerSetting:
    """A recipe that needs less memory, and what differs."""

    recipe: TrainingRecipe
    said: str


def smaller_setting(recipe: TrainingRecipe, settings: Settings, longest: int) -> SmallerSetting | None:
    """The next smaller setting; None if only another model, precision or length would need less.

    Args:
        longest: tokens of the longest example: a micro-batch holds one at least.
    """
    training, hardware = recipe.training, recipe.hardware
    pinned = isinstance((hardware.deepspeed or {}).get("train_micro_batch_size_per_gpu"), int)
    if training.micro_batch is not None and training.micro_batch > 1 and not pinned:
        whole = settings.global_batch // hardware.processes
        micro = next(size for size in range(training.micro_batch // 2, 0, -1) if whole % size == 0)
        said = f"micro_batch {micro} x accumulation {whole // micro} in place of micro_batch {training.micro_batch}"
        changes = {
            "micro_batch": micro,
            "accumulation": whole // micro if training.accumulation is not None else None,
            "micro_batch_tokens": max(longest, training.micro_batch_tokens // 2),  # of validations
        }
        return SmallerSetting(_with_training(recipe, changes), said)
    tokens = max(longest, training.micro_batch_tokens // 2)
    if training.micro_batch is None and tokens < training.micro_batch_tokens:
        said = f"micro_batch_tokens {tokens} in place of {training.micro_batch_tokens}"
        return SmallerSetting(_with_training(recipe, {"micro_batch_tokens": tokens}), said)
    if settings.gradient_checkpointing != 1:
        checkpointed = hardware.model_copy(update={"gradient_checkpointing": 1})
        said = "gradient_checkpointing 1: every layer is computed again in the backward pass"
        return SmallerSetting(recipe.model_copy(update={"hardware": checkpointed}), said)
    return None


def _with_training(recipe: TrainingRecipe, changes: dict[str, int | None]) -> TrainingRecipe:
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=changes)})


def kills_for_memory(groups: Path = _GROUPS, place: Path = _PLACE) -> int:
    """Number of processes of this control group that the system killed for lack of memory; 0 if not counted.

    Args:
        groups: where the control groups are mounted.
        place: the kernel's lines on which of them this process is in, of either version.
    """
    for line in place.read_text("utf-8").splitlines() if place.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            folder, name = groups / "memory", "memory.oom_control"
        elif not controllers:
            folder, name = groups, "memory.events"
        else:
            continue
        for file in (folder / path.lstrip("/") / name, folder / name):  # a container sees its own as the root
            if file.is_file():
                return _count(file)
    return 0


def _count(file: Path) -> int:
    for line in file.read_text("utf-8").splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0
