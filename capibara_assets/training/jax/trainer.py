"""The training loop of the JAX trainer: steps on a device mesh, with losses, resume points and final weights as files.

One process drives all devices of its host. On a slice of several hosts each host runs this program (jax.distributed
connects them) and holds its own shards of every array; host 0 writes the files.
"""

import json
import math
import time
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from capibara_assets.errors import InputError
from capibara_assets.modeling.files import base_digest
from capibara_assets.modeling.jax import lora, weights
from capibara_assets.modeling.jax.attention import LANES
from capibara_assets.modeling.jax.placement import BATCH, MESH_AXES, Placement
from capibara_assets.modeling.jax.sizes import StepSettings, Table
from capibara_assets.modeling.jax.step import tables, train_step
from capibara_assets.planning.accounting import Method, Optimizer
from capibara_assets.planning.writers.jax_config import JaxConfig
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import write_json_atomic
from capibara_assets.training.causes import TPU
from capibara_assets.training.jax.rows import read_rows
from capibara_assets.training.jax.saved import JaxResumePoint, newest_point, save_point

Tree = dict[str, Any]
RESULT, METRICS, POINTS = "result.json", "metrics.jsonl", "points"


@dataclass(frozen=True)
class JaxTraining:
    """The outcome of a JAX training.

    Attributes:
        folder: its output.
        losses: nats per supervised token of each step of this process, in order.
        started_at: step of the resume point it started from; 0 for a new training.
    """

    folder: Path
    losses: tuple[float, ...]
    started_at: int


def learning_rate(config: JaxConfig, step: int) -> float:
    """The rate of step `step` (from 0): linear warm-up, then cosine to `final` at the last step, or constant."""
    plan = config.schedule
    if step < plan.warmup_steps:
        return plan.peak * (step + 1) / plan.warmup_steps
    if plan.kind == "constant":
        return plan.peak
    share = (step - plan.warmup_steps) / max(1, config.steps - 1 - plan.warmup_steps)
    return plan.final + (plan.peak - plan.final) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


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


def train(config: JaxConfig) -> JaxTraining:
    """Run or resume a training.

    Writes `points/` (resume points), `metrics.jsonl` (one line a step), and at the end the model or adapter in
    Transformers' or PEFT's form and `result.json`.

    Raises:
        InputError: a path is not local, the devices do not match the mesh, data or weights do not fit, or the loss is
            not finite.
    """
    import jax
    from jax.sharding import Mesh

    base, data, output = (_local(path) for path in (config.base, config.data, config.output))
    if _on_several_hosts():
        jax.distributed.initialize()
    settings = step_settings(config, jax.default_backend())
    mesh = Mesh(_devices(config), MESH_AXES)
    rows = read_rows(config, data, _tokenizer(base))
    trained_table, frozen_table, state_table = tables(config.model, settings)
    loaded = weights.read_model(config.model, base)
    key = _key(config, base, data)
    point, skipped = newest_point(output / POINTS, key)
    if point is None:
        start = loaded if config.method is Method.FULL else lora.initial(trained_table, config.seed)
        point = JaxResumePoint(
            0, key, start, {name: np.zeros(entry.size, np.float32) for name, entry in state_table.items()}
        )
    place = partial(_place, mesh)
    trained, state = place(point.trained, trained_table, "float32"), place(point.state, state_table, "float32")
    frozen = place({name: loaded[name] for name in frozen_table}, frozen_table, config.compute_dtype)
    del loaded
    step = jax.jit(train_step(config.model, settings, Placement(mesh)), donate_argnums=(0, 2))
    losses: list[float] = []
    for number in range(point.step, config.steps):
        began = time.monotonic()
        batch = _batch(mesh, rows.of_step(number, config.sequences, config.seed))
        rate = learning_rate(config, number)
        trained, state, _, loss = step(trained, frozen, state, np.float32(number), np.float32(rate), batch)
        losses.append(float(loss))
        if not math.isfinite(losses[-1]):
            raise InputError(f"step {number + 1}: the loss is {losses[-1]}; lower schedule.peak or check the data")
        line = {"step": number + 1, "loss": losses[-1], "learning_rate": rate, "seconds": time.monotonic() - began}
        done = number + 1
        saving = done % config.save_every == 0 and done < config.steps
        kept = (_host(trained), _host(state)) if saving else None
        if jax.process_index() == 0:
            _log(output / METRICS, line)
            if kept is not None:
                save_point(output / POINTS, JaxResumePoint(done, key, *kept))
    final = _host(trained)
    if jax.process_index() == 0:
        _publish(config, settings, final, base, output)
        result = {"steps": config.steps, "resumed_from": point.step, "passed_over": skipped, "left_out": rows.left_out}
        write_json_atomic(output / RESULT, {**result, "rows": len(rows), "loss": losses[-1] if losses else None})
    return JaxTraining(output, tuple(losses), point.step)


def _publish(config: JaxConfig, settings: StepSettings, final: Tree, base: Path, output: Path) -> None:
    if config.method is Method.LORA:
        weights.save_adapter(config.model, settings, final, config.base, output / "adapter")
    else:
        weights.save_model(config.model, final, base, output / "model")


def _local(path: str) -> Path:
    if "://" in path:
        raise InputError(
            f"{path}: the JAX trainer reads and writes local folders; copy it to the hosts, or mount it (gcsfuse)"
        )
    return Path(path)


def _on_several_hosts() -> bool:
    """Whether this host is one of several of a TPU slice, by the TPU VM's environment."""
    import os

    return len([host for host in os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",") if host]) > 1


def _devices(config: JaxConfig) -> Any:
    import jax
    from jax.experimental.mesh_utils import create_device_mesh

    odd = [name for name in ("pipeline", "expert", "slices") if getattr(config.mesh, name) > 1]
    if odd:
        raise InputError(
            f"the JAX trainer shards over data, fsdp and tensor in one slice; the mesh has {', '.join(odd)}"
        )
    if jax.device_count() != config.mesh.chips:
        platform = jax.default_backend()
        lost = "" if platform == "tpu" else f"; {TPU.name}: {TPU.remedy}"
        found = f"here are {jax.device_count()} ({platform})"
        raise InputError(f"{config.mesh} needs {config.mesh.chips} devices; {found}{lost}")
    lengths = (config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    return create_device_mesh(lengths, jax.devices(), allow_split_physical_axes=True)


def _tokenizer(base: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base)


def _key(config: JaxConfig, base: Path, data: Path) -> str:
    """Digest of everything that determines the weights; a resume point must have the same."""
    determining = config.model_dump(
        mode="json", exclude={"output", "save_every", "validation", "base", "data", "xla_flags"}
    )
    whole = {"config": determining, "base": base_digest(base), "data": sha256_file(data)}
    return sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _place(mesh: Any, arrays: Tree, table: Table, dtype: str) -> Tree:
    """Place arrays on the mesh; each host provides only its own shards."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    placed: Tree = {}
    for name, weight in table.items():
        values = arrays[name].astype(jax.numpy.dtype(dtype))
        sharding = NamedSharding(mesh, PartitionSpec(*weight.axes))
        placed[name] = jax.make_array_from_callback(weight.size, sharding, lambda index, values=values: values[index])
    return placed


def _batch(mesh: Any, arrays: Tree) -> Tree:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    sharding = NamedSharding(mesh, PartitionSpec(BATCH, None))
    return {
        name: jax.make_array_from_callback(values.shape, sharding, lambda index, values=values: values[index])
        for name, values in arrays.items()
    }


def _host(arrays: Tree) -> Tree:
    """Copy whole arrays into this host's memory; collective if there are several hosts."""
    import jax

    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        arrays = multihost_utils.process_allgather(arrays, tiled=True)
    return {name: np.asarray(value) for name, value in arrays.items()}


def _log(file: Path, line: dict[str, float]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
