"""One voter on a TPU slice: its examples exported, trained by the JAX trainer, its adapter written in PEFT's form.

What is learned is what the PyTorch trainer learns: the same examples in the same steps, the same start, schedule and
validation. The slice's plan says how it is laid out: mesh, rows, packing, recomputation.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import torch

from capibara_assets.datasets.layout import split_file
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter, write_adapter
from capibara_assets.modeling.base import load_tokenizer
from capibara_assets.modeling.files import base_digest
from capibara_assets.planning.accounting import Method
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.planning.writers.jax_config import Chip, JaxConfig, Lora, Schedule, render_jax_config
from capibara_assets.storage.commit import replace_folder
from capibara_assets.storage.jsonfiles import write_bytes_atomic
from capibara_assets.training.data.examples import validation_choice
from capibara_assets.training.data.order import ExampleOrder
from capibara_assets.training.data.voter_examples import VoterExamples
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.jax.places import ADAPTER
from capibara_assets.training.jax.rows import most_rows
from capibara_assets.training.jax.trainer import JaxTraining, Watch, train
from capibara_assets.training.loop.result import VoterResult, write_result
from capibara_assets.training.monitoring.events import EventLog
from capibara_assets.training.plan.slices import slice_settings
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.resume.points import Progress
from capibara_assets.training.step.settings import Settings, total_steps, warm_up_steps
from capibara_assets.training.step.subject import load_subject

CONFIGURATION, START, PROGRAMS = "jax.yaml", "jax_start", "jax_programs"


def train_jax_voter(run: VoterRun) -> Path:
    """Train one voter by the TPU plan of its request, or resume an earlier attempt.

    Returns:
        Folder of the finished adapter, manifest, curve, log and timings, as `loop.train.train_voter` gives it.

    Raises:
        Interrupted: stopped; a resume point was written if any step was done.
        InputError: the base, the dataset or the plan cannot be trained on, the devices do not fit the plan's mesh, or
            the loss is not finite.
    """
    began = time.monotonic()
    plan = TpuPlan.model_validate(run.request.tpu)
    if base_digest(run.request.base_model) != run.request.base_digest:
        raise InputError(f"base model {run.request.base_model} is not the one requested: its files have changed")
    _set_flags(plan)
    log = run.log()
    platform = _platform()
    settings = slice_settings(run.request, platform)
    start = lora_start(run.request, settings)
    examples = VoterExamples.read(run, settings, load_tokenizer(run.request.base_model))
    config = voter_config(run, plan, settings, examples)
    export(config, examples)
    write_bytes_atomic(run.folder / CONFIGURATION, render_jax_config(config).encode())
    telling = _Telling(run, log, config, examples, settings, began)
    try:
        done = train(config, Watch(started=telling.started, line=telling.line, poll=run.poll))
    except Interrupted:
        log.write("interrupted", telling.step)
        raise
    trained = read_adapter(done.folder / ADAPTER)
    adapter = LoraAdapter(start.config, trained.tensors)
    counts = _counts(config, plan, examples, done)
    speed = {name: value for name, value in done.measured.items() if name != "steps"}
    return write_result(run, VoterResult(adapter, done.progress, settings, counts, speed=speed), log)


def voter_config(run: VoterRun, plan: TpuPlan, settings: Settings, examples: VoterExamples) -> JaxConfig:
    """The configuration of the JAX trainer for one voter."""
    request, recipe = run.request, run.request.recipe
    lengths = [len(one.input_ids) for one in examples.train]
    steps = total_steps(lengths, settings, recipe)
    rows, passes = _rows(run, plan, settings, examples, steps)
    root = str(run.folder)
    target = find_target(plan.target)
    peak = target.peak("bf16")
    return JaxConfig(
        domain=request.domain,
        model=plan.shape,
        base=str(request.base_model),
        data=split_file(root, request.domain, "train"),
        validation=split_file(root, request.domain, "validation"),
        evaluate_every=recipe.training.evaluate_every,
        publish="best",
        output=str(run.folder / "jax"),
        mesh=plan.mesh,
        sequences=rows,
        micro_steps=passes,
        examples=settings.global_batch,
        order=run.order,
        length_window=recipe.data.length_window,
        sequence=_row_tokens(plan, settings),
        max_length=settings.max_length,
        too_long=recipe.data.too_long,
        packing=plan.packed,
        remat=plan.remat,
        method=Method.LORA,
        lora=Lora(rank=settings.rank, alpha=settings.alpha, rslora=settings.use_rslora, modules=settings.modules),
        start=str(request.work / START),
        weight_decay=recipe.training.weight_decay,
        clip_norm=recipe.training.max_gradient_norm,
        schedule=_schedule(recipe, settings, steps),
        steps=steps,
        save_every=recipe.checkpoint.every,
        seed=request.seed,
        compute_dtype="float32" if settings.precision == "fp32" else "bfloat16",
        logit_chunks=plan.logit_chunks if _row_tokens(plan, settings) % plan.logit_chunks == 0 else 1,
        xla_cache=str(request.work / PROGRAMS),
        chip=Chip(
            target=plan.target,
            peak_tflops=peak and peak / 1e12,
            step_seconds=(plan.step_time.low, plan.step_time.middle, plan.step_time.high),
        ),
    )


def export(config: JaxConfig, examples: VoterExamples) -> None:
    """Write the voter's examples for its configuration, with their ids, which determine their order."""
    run = examples.run
    validation_ids, _ = validation_choice(run.request, run.voter, examples.table, examples.encoded, examples.settings)
    split: tuple[tuple[str, str | None, Sequence[str]], ...] = (
        ("train", config.data, examples.ids),
        ("validation", config.validation, validation_ids),
    )
    for name, file, ids in split:
        assert file is not None, name
        rows = pl.DataFrame({"example_id": list(ids)}).join(
            examples.table.select("example_id", "messages"), on="example_id", how="left", maintain_order="left"
        )
        lines = (
            json.dumps({"example_id": one, "messages": json.loads(text)}, ensure_ascii=False) + "\n"
            for one, text in rows.iter_rows()
        )
        write_bytes_atomic(Path(file), "".join(lines).encode())


def lora_start(request: TrainingRequest, settings: Settings) -> LoraAdapter:
    """The adapter that every voter starts from, as the PyTorch trainer draws it; drawn once for all voters.

    Raises:
        InputError: the base is not the one requested, or has none of the LoRA modules.
    """
    folder = request.work / START
    if not folder.is_dir():
        subject = load_subject(request, settings, torch.device("cpu"))
        part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
        write_adapter(subject.adapter(subject.trainable), part)
        replace_folder(part, folder)
    return read_adapter(folder)


def _rows(run: VoterRun, plan: TpuPlan, settings: Settings, examples: VoterExamples, steps: int) -> tuple[int, int]:
    """Rows of a step, as many as its fullest one needs, and the passes of at most the plan's rows that they make."""
    lengths = [len(one.input_ids) for one in examples.train]
    window = run.request.recipe.data.length_window
    order = ExampleOrder(examples.ids, lengths, seed=run.order, global_batch=settings.global_batch, window=window)
    packed = _row_tokens(plan, settings) if plan.packed else None
    most, shards = most_rows(order, lengths, steps, packed), plan.mesh.batch_shards
    passes = -(-most // max(plan.global_batch, shards))
    return -(-most // (shards * passes)) * shards * passes, passes


def _row_tokens(plan: TpuPlan, settings: Settings) -> int:
    """Tokens of a row: the plan's, or, where the recipe takes longer examples, these in whole lanes."""
    return max(plan.sequence, -(-settings.max_length // 128) * 128)


def _schedule(recipe: TrainingRecipe, settings: Settings, steps: int) -> Schedule:
    return Schedule(
        peak=settings.learning_rate,
        warmup_steps=min(steps, warm_up_steps(steps, recipe)),
        final=settings.learning_rate * recipe.training.final_learning_rate,
    )


def _counts(config: JaxConfig, plan: TpuPlan, examples: VoterExamples, done: JaxTraining) -> dict[str, Any]:
    """What the manifest says beside the progress."""
    return {
        "validation_loss": done.progress.best_loss,
        "published": {},
        "backend": "jax",
        "target": plan.target,
        "mesh": plan.mesh.model_dump(mode="json"),
        "examples": len(examples.train),
        "validation_examples": len(examples.validation),
        "steps": done.progress.step,
        "steps_planned": config.steps,
        "examples_left_out": len(examples.encoded.left_out),
        "trainable_parameters": _trained(config),
    }


def _trained(config: JaxConfig) -> int:
    assert config.lora is not None
    return config.model.lora_parameters(config.lora.rank, config.lora.modules)


class _Telling:
    """Translates what the JAX trainer tells into the events of a voter's log."""

    def __init__(
        self,
        run: VoterRun,
        log: EventLog,
        config: JaxConfig,
        examples: VoterExamples,
        settings: Settings,
        began: float,
    ) -> None:
        self.run, self.log, self.config = run, log, config
        self.examples, self.settings, self.began = examples, settings, began
        self.step = 0

    def started(self, progress: Progress, about: dict[str, Any]) -> None:
        """Report `started`, preceded by skipped resume points and the point of continuation."""
        self.step = progress.step
        if about["passed_over"]:
            self.log.write("damaged", progress.step, points=about["passed_over"])
        if progress.step:
            self.log.write("resumed", progress.step, continuation="exact")
        encoded = self.examples.encoded
        self.log.write(
            "started",
            progress.step,
            steps=self.config.steps,
            domain=self.run.request.domain,
            voter=self.run.voter.name,
            pid=os.getpid(),
            examples=len(self.examples.train),
            validation=len(self.examples.validation),
            left_out=len(encoded.left_out),
            truncated=len(encoded.truncated),
            parameters=_trained(self.config),
            base_parameters=self.config.model.parameters,
            modules=list(self.settings.modules),
            new_layers=[],
            unread_layers=[],
            precision=self.settings.precision,
            backend="jax",
            processes=1,
            mesh=str(self.config.mesh),
            strategy=self.run.voter.strategy.kind,
            load_seconds=round(time.monotonic() - self.began, 3),
        )

    def line(self, line: dict[str, Any]) -> None:
        """`step` or `validation`."""
        self.step = step = line["step"]
        of = self.config.steps
        if "compile_seconds" in line:
            self.log.write("compiled", step, seconds=line["compile_seconds"], device=line["device"])
        elif "validation_loss" in line:
            self.log.write("validation", step, of=of, validation_loss=line["validation_loss"])
        else:
            further = {"share_of_peak": line["share_of_peak"]} if "share_of_peak" in line else {}
            self.log.write(
                "step",
                step,
                of=of,
                loss=line["loss"],
                learning_rate=line["learning_rate"],
                tokens=line["tokens"],
                supervised=line["supervised"],
                samples=line["samples"],
                micro_steps=self.config.micro_steps,
                tokens_per_s=round(line["tokens"] / line["seconds"], 1),
                samples_per_s=round(line["samples"] / line["seconds"], 2),
                compute_s=round(line["seconds"], 4),
                tflops_per_chip=line["tflops_per_chip"],
                **further,
            )


def _set_flags(plan: TpuPlan) -> None:
    """Hand the plan's flags to libtpu, which reads them when jax loads it, later in this process."""
    flags = plan.xla.get("flags", {}).get("flags", ())
    before = os.environ.get("LIBTPU_INIT_ARGS")
    if flags and not before:
        os.environ["LIBTPU_INIT_ARGS"] = " ".join(flags)


def _platform() -> str:
    import jax

    return str(jax.default_backend())
