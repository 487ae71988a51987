"""The training loop of the JAX trainer: steps on a device mesh, validation, resume points, and final weights as files.

One process drives all devices of its host. On a slice of several hosts each host runs this program (jax.distributed
connects them) and holds its own shards of every array; host 0 writes the files.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from capibara_assets.datasets.tokens.tokenising import EncodedSet
from capibara_assets.errors import InputError
from capibara_assets.modeling.base import load_tokenizer
from capibara_assets.modeling.files import ADAPTER_WEIGHTS, base_digest
from capibara_assets.modeling.jax import lora, weights
from capibara_assets.modeling.jax.attention import LANES
from capibara_assets.modeling.jax.placement import Placement
from capibara_assets.modeling.jax.sizes import StepSettings
from capibara_assets.modeling.jax.step import supervised, tables, train_step
from capibara_assets.planning.accounting import Method, Optimizer
from capibara_assets.planning.writers.jax_config import JaxConfig
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.journal import append
from capibara_assets.storage.jsonfiles import write_json_atomic
from capibara_assets.training.jax.devices import device_mesh, join_hosts, on_host, placed, placed_batch
from capibara_assets.training.jax.measured import StepMeter
from capibara_assets.training.jax.places import ADAPTER, METRICS, MODEL, POINTS, RESULT, JaxPlaces
from capibara_assets.training.jax.rows import Rows, read_examples, step_rows
from capibara_assets.training.jax.saved import JaxResumePoint, newest_point, save_point
from capibara_assets.training.jax.validation import Validation, validation_of
from capibara_assets.training.resume.points import Progress
from capibara_assets.training.step.settings import scheduled

Tree = dict[str, Any]


def _silent(*_: Any) -> None:
    """Neither listens nor stops."""


@dataclass(frozen=True)
class Watch:
    """Callbacks for the progress of a training.

    Attributes:
        started: gets the progress that it begins with, and further figures.
        line: gets each line of metrics, of a step (`loss`) or a validation (`validation_loss`).
        poll: called before each step; what it raises ends the training, after a resume point.
    """

    started: Callable[[Progress, dict[str, Any]], None] = _silent
    line: Callable[[dict[str, Any]], None] = _silent
    poll: Callable[[], None] = _silent


@dataclass(frozen=True)
class JaxTraining:
    """The outcome of a JAX training.

    Attributes:
        folder: its output.
        losses: nats per supervised token of each step of this process, in order.
        started_at: step of the resume point it started from; 0 for a new training.
        progress: validations, losses, tokens and seconds over all attempts.
        measured: the speed of this attempt (`measured.StepMeter.document`).
    """

    folder: Path
    losses: tuple[float, ...]
    started_at: int
    progress: Progress
    measured: dict[str, Any]


@dataclass
class _Job:
    """A training under way: what stays, and its state on the mesh (`trained`, `state`, `best`)."""

    config: JaxConfig
    places: JaxPlaces
    key: str
    mesh: Any
    settings: StepSettings
    rows: Callable[[int], Rows]
    examples: EncodedSet
    validation: Validation | None
    meter: StepMeter
    trained: Tree
    frozen: Tree
    state: Tree
    progress: Progress
    resumed_from: int
    passed_over: list[str]
    best: Tree = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)

    @property
    def writes(self) -> bool:
        """Whether this is the host that writes."""
        import jax

        return bool(jax.process_index() == 0)


def learning_rate(config: JaxConfig, step: int) -> float:
    """The rate of step `step` (from 0): linear warm-up, then half a cosine to `final` at the last step, or constant."""
    plan = config.schedule
    if plan.kind == "constant" and step >= plan.warmup_steps:
        return plan.peak
    return scheduled(step, config.steps, plan.warmup_steps, plan.peak, plan.final / plan.peak)


def step_settings(config: JaxConfig, platform: str) -> StepSettings:
    """The step's settings on a platform; fused attention is for TPUs only.

    Raises:
        InputError: the JAX step does not support the configuration.
    """
    if config.weight_dtype != "float32":
        raise InputError("the JAX trainer keeps trained weights in float32: set weight_dtype: float32")
    if config.optimizer is Optimizer.ADAMW_8BIT:
        raise InputError("the JAX trainer has adamw and adafactor; 8-bit AdamW is not among them")
    adapter = config.lora
    scale = 2.0 if adapter is None else adapter.alpha / (adapter.rank**0.5 if adapter.rslora else adapter.rank)
    fused = platform == "tpu" and config.model.family == "decoder" and config.sequence % LANES == 0
    return StepSettings(
        method="lora" if config.method is Method.LORA else "full",
        remat=config.remat.value,
        optimizer="adafactor" if config.optimizer is Optimizer.ADAFACTOR else "adamw",
        chunks=config.logit_chunks,
        compute=config.compute_dtype,
        attention="splash" if fused else "plain",
        lora_rank=adapter.rank if adapter else 0,
        lora_scale=scale,
        lora_modules=adapter.modules if adapter else (),
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
        micro_steps=config.micro_steps,
        packed=config.packing and config.model.family == "decoder",
    )


def train(config: JaxConfig, watch: Watch | None = None) -> JaxTraining:
    """Run or resume a training.

    Writes `points/` (resume points), `metrics.jsonl` (one line a step or validation), and at the end the model or
    adapter in Transformers' or PEFT's form and `result.json`; on an object store, too.

    Raises:
        InputError: a location cannot be read, the devices do not match the mesh, data or weights do not fit, or the
            loss is not finite.
        Exception: what `watch.poll` raised; a resume point was written before.
    """
    watch = watch or Watch()
    join_hosts()
    job = _prepare(config)
    watch.started(job.progress, {"passed_over": job.passed_over, "left_out": job.examples.left_out})
    step = _compiled(job)
    compiled = {"compile_seconds": round(job.meter.compile_seconds, 3), "device": job.meter.kind}
    _tell(job, watch, {"step": job.progress.step, **compiled})
    began, before = time.monotonic(), job.progress.seconds
    while True:
        job.progress.seconds = before + time.monotonic() - began
        _poll(job, watch)
        _validate_if_due(job, watch)
        if job.progress.step == config.steps:
            break
        _take_step(job, step, watch)
        if job.progress.step % config.save_every == 0 and job.progress.step < config.steps:
            _save(job)
    job.progress.seconds = before + time.monotonic() - began
    return _publish(job)


def _poll(job: _Job, watch: Watch) -> None:
    """Ask whether to go on; where not, leave a resume point."""
    try:
        watch.poll()
    except Exception:
        if job.progress.step > job.resumed_from:
            _save(job)
        raise


def _prepare(config: JaxConfig) -> _Job:
    """Read everything, and place weights and state of the newest resume point, or of a start, on the mesh."""
    import jax

    if config.xla_cache is not None:
        jax.config.update("jax_compilation_cache_dir", config.xla_cache)
    places = JaxPlaces.of(config)
    devices = jax.devices()
    settings = step_settings(config, jax.default_backend())
    mesh = device_mesh(config.mesh)
    tokenizer = load_tokenizer(places.base)
    examples = read_examples(config, places.data, tokenizer)
    validation = validation_of(config, settings, mesh, places.validation, tokenizer)
    trained_table, frozen_table, state_table = tables(config.model, settings)
    loaded = weights.read_model(config.model, places.base)
    key = _key(config, places)
    point, passed_over = newest_point(places.output / POINTS, key)
    if point is None:
        start = loaded if config.method is Method.FULL else _start(config, settings, places)
        zeros = {name: np.zeros(entry.size, np.float32) for name, entry in state_table.items()}
        point = JaxResumePoint(0, key, start, zeros)
    return _Job(
        config=config,
        places=places,
        key=key,
        mesh=mesh,
        settings=settings,
        rows=step_rows(config, examples),
        examples=examples,
        validation=validation,
        meter=StepMeter(config, jax.default_backend(), devices[0].device_kind),
        trained=placed(mesh, point.trained, trained_table, "float32"),
        frozen=placed(mesh, {name: loaded[name] for name in frozen_table}, frozen_table, config.compute_dtype),
        state=placed(mesh, point.state, state_table, "float32"),
        progress=point.progress,
        resumed_from=point.step,
        passed_over=passed_over,
        best=dict(point.best),
    )


def _start(config: JaxConfig, settings: StepSettings, places: JaxPlaces) -> Tree:
    """The LoRA factors that a new training begins with."""
    table, _, _ = tables(config.model, settings)
    if places.start is None:
        return lora.initial(table, config.seed)
    return weights.read_adapter(config.model, table, places.start)


def _compiled(job: _Job) -> Callable[..., Any]:
    """The step as compiled program; its time is the meter's, apart from that of steps."""
    import jax

    began = time.monotonic()
    step = jax.jit(train_step(job.config.model, job.settings, Placement(job.mesh)), donate_argnums=(0, 2))
    batch = placed_batch(job.mesh, job.rows(min(job.progress.step, job.config.steps - 1)).batch())
    zero = np.float32(0)
    compiled: Callable[..., Any] = step.lower(job.trained, job.frozen, job.state, zero, zero, batch).compile()
    job.meter.compile_seconds = time.monotonic() - began
    return compiled


def _take_step(job: _Job, step: Callable[..., Any], watch: Watch) -> None:
    """One optimizer step, its figures, and its line of metrics. Raises InputError: the loss is not finite."""
    config, progress, began = job.config, job.progress, time.monotonic()
    rows = job.rows(progress.step)
    batch = rows.batch()
    rate = learning_rate(config, progress.step)
    job.trained, job.state, _, value = step(
        job.trained, job.frozen, job.state, np.float32(progress.step), np.float32(rate), placed_batch(job.mesh, batch)
    )
    loss = float(value)
    if not math.isfinite(loss):
        raise InputError(f"step {progress.step + 1}: the loss is {loss}; lower schedule.peak or check the data")
    seconds, used = time.monotonic() - began, rows.used_tokens
    progress.step += 1
    counted = int(supervised(config.model, batch))
    progress.tokens += counted
    progress.curve.append({"step": progress.step, "loss": loss, "learning_rate": rate})
    job.losses.append(loss)
    job.meter.steps.append((seconds, used))
    line = {"step": progress.step, "loss": loss, "learning_rate": rate, "tokens": used, "supervised": counted}
    samples = {} if rows.examples is None else {"samples": rows.examples}
    _tell(job, watch, line | samples | job.meter.figures(seconds, used))


def _validate_if_due(job: _Job, watch: Watch) -> None:
    """Validate before the first and after the last step, and as often between as the configuration says."""
    config, progress = job.config, job.progress
    if job.validation is None or progress.validated >= progress.step:
        return
    between = config.evaluate_every is not None and progress.step % config.evaluate_every == 0
    if not between and progress.step not in (0, config.steps):
        return
    loss = job.validation.loss(job.trained, job.frozen)
    if progress.judged(loss) and config.publish == "best":
        job.best = on_host(job.trained)
    _tell(job, watch, {"step": progress.step, "validation_loss": loss})


def _tell(job: _Job, watch: Watch, line: dict[str, Any]) -> None:
    if job.writes:
        append(job.places.output / METRICS, json.dumps(line).encode())
    watch.line(line)


def _save(job: _Job) -> None:
    trained, state = on_host(job.trained), on_host(job.state)
    if job.writes:
        point = JaxResumePoint(job.progress.step, job.key, trained, state, job.progress, job.best)
        job.places.save_point(save_point(job.places.output / POINTS, point))


def _publish(job: _Job) -> JaxTraining:
    """Write the weights to publish and the result."""
    config, places, progress = job.config, job.places, job.progress
    final = job.best if config.publish == "best" and job.best else on_host(job.trained)
    measured = job.meter.document()
    if job.writes:
        if config.method is Method.LORA:
            weights.save_adapter(config.model, job.settings, final, config.base, places.output / ADAPTER)
        else:
            weights.save_model(config.model, final, places.base, places.output / MODEL)
        result = {
            "steps": config.steps,
            "resumed_from": job.resumed_from,
            "passed_over": job.passed_over,
            "left_out": job.examples.left_out,
            "examples": len(job.examples.encoded),
            "loss": job.losses[-1] if job.losses else None,
            "base_validation_loss": progress.base_loss,
            "validation_loss": _validation_loss(job),
            "best_step": progress.best_step if config.publish == "best" else config.steps,
            "measured": measured,
        }
        write_json_atomic(places.output / RESULT, result)
        places.publish(last=RESULT)
    return JaxTraining(places.output, tuple(job.losses), job.resumed_from, progress, measured)


def _validation_loss(job: _Job) -> float | None:
    """The validation loss of the published weights; None without validation."""
    if job.config.publish == "best":
        return job.progress.best_loss
    losses = [point["validation_loss"] for point in job.progress.curve if "validation_loss" in point]
    return float(losses[-1]) if losses else None


def _key(config: JaxConfig, places: JaxPlaces) -> str:
    """Digest of everything that determines the weights; a resume point must have the same."""
    where = {"output", "save_every", "base", "data", "validation", "start", "xla_flags", "xla_cache", "chip"}
    determining = config.model_dump(mode="json", exclude=where)
    files = {"data": places.data, "validation": places.validation}
    read = {name: sha256_file(file) for name, file in files.items() if file is not None and file.is_file()}
    start = sha256_file(places.start / ADAPTER_WEIGHTS) if places.start else None
    whole = {"config": determining, "base": base_digest(places.base), "start": start, **read}
    return sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
