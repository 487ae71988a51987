"""Files of a TPU plan: configurations for T5X, MaxText and our JAX trainer, and launch scripts."""

from pathlib import Path

from capibara_assets.datasets.layout import split_file
from capibara_assets.deployment.locations import resources_root
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.recipe import TpuRecipe
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.planning.writers.jax_config import Chip, JaxConfig, Schedule, render_jax_config
from capibara_assets.planning.writers.launch import CONFIGURATIONS, CloudPlace, LaunchJob, Trainer, launch_files

TASKS_FILE = "capibara_tasks.py"
T5X_REQUIREMENTS = "requirements-t5x.txt"
SAVES = 4  # checkpoints per training


def jax_config_of(plan: TpuPlan, target: HardwareTarget, recipe: TpuRecipe) -> JaxConfig:
    """The configuration of our JAX trainer for this plan.

    Raises:
        pydantic.ValidationError: the plan is inconsistent (a defect of the planner).
    """
    storage = recipe.storage_root.rstrip("/")
    t5 = plan.shape.family == "t5"
    saves = max(1, plan.steps // SAVES)
    peak = target.peak("bf16")
    return JaxConfig(
        domain=plan.domain,
        model=plan.shape,
        base=f"{storage}/base/{plan.model}",
        data=split_file(storage, plan.domain, "train"),
        validation=split_file(storage, plan.domain, "validation"),
        evaluate_every=saves,
        publish="best" if plan.lora else "last",
        output=f"{storage}/{plan.domain}/jax",
        mesh=plan.mesh,
        sequences=plan.global_batch,
        sequence=plan.sequence,
        target_sequence=plan.sequence if t5 else None,
        packing=plan.packed,
        remat=plan.remat,
        method=plan.method,
        lora=plan.lora,
        optimizer=plan.optimizer,
        schedule=Schedule(
            kind="constant" if t5 else "cosine",
            peak=plan.learning_rate,
            warmup_steps=0 if t5 else plan.steps // 20,
        ),
        steps=plan.steps,
        save_every=saves,
        logit_chunks=plan.logit_chunks,
        xla_flags=recipe.xla_flags,
        chip=Chip(
            target=target.name,
            peak_tflops=peak and peak / 1e12,
            step_seconds=(plan.step_time.low, plan.step_time.middle, plan.step_time.high),
        ),
    )


def tpu_files(
    plan: TpuPlan, target: HardwareTarget, recipe: TpuRecipe, place: CloudPlace | None = None
) -> dict[str, str]:
    """File name -> text: every trainer's configuration, SeqIO tasks, T5X's requirements, launch scripts.

    Args:
        place: Google Cloud project and zone that the launch scripts take where their caller names none.

    Raises:
        InputError: the job's name is not valid for the launchers.
    """
    gin = resources_root() / "gin"
    files = {
        CONFIGURATIONS["jax"]: render_jax_config(jax_config_of(plan, target, recipe)),
        CONFIGURATIONS["t5x"]: plan.gin,
        TASKS_FILE: (gin / TASKS_FILE).read_text(encoding="utf-8"),
        T5X_REQUIREMENTS: (gin / T5X_REQUIREMENTS).read_text(encoding="utf-8"),
    }
    trainers: tuple[Trainer, ...] = ("jax", "t5x")
    if plan.maxtext is not None:
        files[CONFIGURATIONS["maxtext"]] = plan.maxtext
        trainers = ("jax", "maxtext", "t5x")
    job = LaunchJob(
        name=f"capibara-{plan.domain}",
        domain=plan.domain,
        trainers=trainers,
        files=files,
        storage_root=recipe.storage_root,
        slices=plan.mesh.slices,
        xla_flags=recipe.xla_flags,
        place=place or CloudPlace.model_validate({}),
    )
    return files | launch_files(job, target)


def write_files(folder: Path, files: dict[str, str]) -> Path:
    """Write files (name -> text) into a folder, created if needed; scripts become executable. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            (folder / name).chmod(0o755)
    return folder
