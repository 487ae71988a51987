"""Conversion of a TPU slice's output into a finished training of one voter, as the graph publishes it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capibara_assets.datasets.exports import ABOUT
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.planning.writers.jax_config import JaxConfig
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.journal import read_lines
from capibara_assets.storage.mirror import file_system
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.jax.places import ADAPTER, METRICS
from capibara_assets.training.loop.result import VoterResult, write_result
from capibara_assets.training.monitoring.events import EventLog
from capibara_assets.training.recipe import CheckpointChoice, TrainingChoice, TrainingRecipe, VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.resume.points import Progress
from capibara_assets.training.step.settings import Settings
from capibara_assets.training.supervisor.assembly import assemble

VOTER = "slice"


@dataclass(frozen=True)
class SliceRun:
    """A run that has succeeded.

    Attributes:
        config: what its JAX trainer ran.
        result: its `result.json`.
        folder: with the adapter and `metrics.jsonl`.
        seconds: that its pods ran, over all attempts.
        dataset: digest of the `moe_dataset` whose export lay there when it was submitted; None: not known.
    """

    config: JaxConfig
    result: Mapping[str, Any]
    folder: Path
    seconds: float
    dataset: str | None


def exported_dataset(config: JaxConfig) -> str | None:
    """Digest of the `moe_dataset` whose export a configuration reads; None if none is recorded there."""
    system, path = file_system(f"{config.data.rpartition('/')[0]}/{ABOUT}")
    said = json.loads(system.cat_file(path)).get("dataset") if system.exists(path) else None
    return None if said is None else str(said)


def request_of(config: JaxConfig, dataset: Artifact, base: tuple[Path, str], work: Path) -> TrainingRequest:
    """The request that a configuration stands for: one voter on all groups; `base` is the model's folder and digest.

    Raises:
        InputError: it trains all weights and gives no adapter.
    """
    if config.lora is None:
        raise InputError(f"the plan trains all weights of {config.domain}'s model; the graph takes LoRA adapters")
    recipe = TrainingRecipe(
        name="slice",
        seed=config.seed,
        voters=(VoterSpec(name=VOTER, seed=config.seed, shard=0),),
        training=TrainingChoice.model_validate(
            {
                "max_steps": config.steps,
                "learning_rate": config.schedule.peak,
                "weight_decay": config.weight_decay,
                "evaluate_every": config.evaluate_every or config.steps,
            }
        ),
        checkpoint=CheckpointChoice.model_validate({"every": config.save_every}),
    )
    # All of the configuration decides the weights; where it reads and writes does not.
    decided = config.model_dump(mode="json", exclude={"base", "data", "validation", "output", "xla_cache", "chip"})
    return TrainingRequest(
        domain=config.domain,
        base_model=base[0],
        base_digest=base[1],
        dataset=dataset.directory() / "examples.parquet",
        dataset_digest=dataset.digest,
        lora=config.lora.model_dump(mode="json") | {"configuration": decided},
        recipe=recipe,
        seed=config.seed,
        work=work,
        out=work / "out",
    )


def assembled(request: TrainingRequest, run: SliceRun) -> dict[str, Any]:
    """Write `request.out` in the graph's layout: the voter's folder and the summary, which is returned.

    Raises:
        InputError: the trainer gave no losses, which are what the voter is judged by, or its adapter cannot be read.
    """
    result, (voter,) = run.result, request.recipe.voters
    losses = {name: result.get(name) for name in ("base_validation_loss", "validation_loss")}
    if missing := [name for name, value in losses.items() if not isinstance(value, int | float)]:
        raise InputError(f"the run on the slice has no {' and no '.join(missing)}: export a validation split, too")
    lines = _lines(run.folder / METRICS)
    progress = Progress(
        step=int(result["steps"]),
        base_loss=losses["base_validation_loss"],
        best_step=int(result["best_step"]),
        best_loss=losses["validation_loss"],
        tokens=sum(int(line.get("supervised", 0)) for line in lines),
        curve=[{key: line[key] for key in _POINT if key in line} for line in lines],
        seconds=run.seconds,
    )
    voter_run = VoterRun(request, voter, request.folder(voter), report=lambda event: None, poll=lambda: None)
    log = voter_run.log()
    _tell(log, run.config, lines)
    measured = {name: value for name, value in result.get("measured", {}).items() if name != "steps"}
    told = VoterResult(
        read_adapter(run.folder / ADAPTER), progress, _settings(run.config), _counts(run), speed=measured
    )
    write_result(voter_run, told, log)
    return assemble(request, {voter.name: request.folder(voter)}, {}, run.seconds, None)


_POINT = ("step", "loss", "learning_rate", "validation_loss")


def _lines(file: Path) -> list[dict[str, Any]]:
    """The trainer's lines in order; of a step that several attempts have done, the last one's."""
    last: dict[tuple[int, bool], dict[str, Any]] = {}
    for line in read_lines(file).entries.values():
        if "loss" in line or "validation_loss" in line:
            last[(int(line["step"]), "validation_loss" in line)] = line
    return [last[key] for key in sorted(last)]


def _tell(log: EventLog, config: JaxConfig, lines: list[dict[str, Any]]) -> None:
    log.write("started", 0, steps=config.steps, voter=VOTER, backend="jax", mesh=str(config.mesh), strategy="plain")
    for line in lines:
        step = int(line["step"])
        if "validation_loss" in line:
            log.write("validation", step, of=config.steps, validation_loss=line["validation_loss"])
            continue
        speed = {"tokens_per_s": round(line["tokens"] / line["seconds"], 1)} if line.get("seconds") else {}
        kept = {key: value for key, value in line.items() if key not in ("step", "seconds")}
        log.write("step", step, of=config.steps, **kept, **speed)


def _settings(config: JaxConfig) -> Settings:
    assert config.lora is not None  # `request_of` refuses it
    return Settings(
        rank=config.lora.rank,
        alpha=config.lora.alpha,
        dropout=0.0,
        modules=config.lora.modules,
        use_rslora=config.lora.rslora,
        use_dora=False,
        quantization="none",
        global_batch=config.examples or config.sequences,
        max_length=config.max_length or config.sequence,
        learning_rate=config.schedule.peak,
        epochs="auto",
        gradient_checkpointing=0,
        precision="fp32" if config.compute_dtype == "float32" else "bf16",
        attention="jax",
    )


def _counts(run: SliceRun) -> dict[str, Any]:
    config, result = run.config, run.result
    return {
        "validation_loss": result["validation_loss"],
        "published": {},
        "backend": "jax",
        "target": config.chip.target if config.chip is not None else None,
        "mesh": config.mesh.model_dump(mode="json"),
        "examples": result.get("examples"),
        "examples_left_out": result.get("left_out"),
        "steps": result["steps"],
        "steps_planned": config.steps,
    }
