"""Ask XLA about a TPU plan: lower its step for the slice without devices, and compile it where libtpu is installed.

Lowering (jax alone) shows that every sharding divides; only the compiler (extra `aot`, x86-64 Linux) tells the memory.
What was not compiled is called "not compiled", in so many words.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.errors import InputError
from capibara_assets.planning import jax_step
from capibara_assets.planning.hardware import GIB, HardwareTarget, find_target
from capibara_assets.planning.tpu import NOT_COMPILED, TpuPlan

# Keep libtpu from looking for a metadata server and from locking the machine; jax itself stays on the CPU.
SETTINGS = {
    "TPU_SKIP_MDS_QUERY": "1",
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
}
COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")


class XlaVerdict(BaseModel):
    """What XLA said about a plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Literal["compiled", "not compiled", "does not fit", "does not lower"]
    detail: str
    lowered: bool = Field(description="the step was traced and lowered for TPU over the plan's mesh")
    memory: dict[str, int] = Field(default_factory=dict, description="bytes per chip as the compiler allotted them")
    collectives: dict[str, int] = Field(default_factory=dict, description="collective operations, by kind")
    versions: dict[str, str] = Field(default_factory=dict)
    compile_seconds: float | None = Field(default=None, description="volatile: not part of the plan's document")

    def document(self) -> dict[str, Any]:
        """The verdict without what changes from run to run."""
        return self.model_dump(mode="json", exclude={"compile_seconds"})


def check_plan(plan: TpuPlan, *, compile_program: bool | None = None, timeout_s: float = 300.0) -> XlaVerdict:
    """Lower the plan's step and, where possible, compile it for the slice.

    Args:
        plan: a decoder plan; of other families the verdict says that there is no step for them.
        compile_program: None compiles where libtpu is installed; False never; True insists.
        timeout_s: limit for the compiler's process.

    Raises:
        InputError: `compile_program` is True and libtpu is not installed.
    """
    try:
        jax_step.check_supported(plan.shape)
    except InputError as refused:
        return XlaVerdict(status=NOT_COMPILED, lowered=False, detail=f"not lowered and not compiled: {refused}")
    if not find_spec("jax"):
        why = "jax is not installed (extra tpu)"
        return XlaVerdict(status=NOT_COMPILED, lowered=False, detail=f"not lowered and not compiled: {why}")
    installed = find_spec("libtpu") is not None
    if compile_program and not installed:
        raise InputError("compiling for a TPU slice needs libtpu: pip install 'capibara-assets[aot]' (x86-64 Linux)")
    lowered = _ask(plan, "lower", timeout_s)
    if lowered.status == "does not lower":
        return lowered
    if compile_program is False or not installed:
        why = "compiling was not asked for" if installed else "libtpu is not installed (extra aot)"
        return lowered.model_copy(update={"detail": f"{NOT_COMPILED}: {why}; {lowered.detail}"})
    try:
        return _ask(plan, "compile", timeout_s)
    except subprocess.TimeoutExpired:
        return lowered.model_copy(
            update={"detail": f"{NOT_COMPILED}: the compiler was stopped after {timeout_s:g} s; {lowered.detail}"}
        )


def with_verdict(plan: TpuPlan, verdict: XlaVerdict) -> TpuPlan:
    """The plan with XLA's answer in place of "not compiled"."""
    return plan.model_copy(update={"xla": verdict.document()})


def lower_plan(plan: TpuPlan) -> XlaVerdict:
    """Trace and lower the step for TPU over an abstract mesh: no device and no libtpu needed."""
    from jax.sharding import AbstractMesh

    mesh = AbstractMesh((plan.mesh.data, plan.mesh.fsdp, plan.mesh.tensor), ("data", "fsdp", "tensor"))
    versions = _versions("jax", "jaxlib")
    try:
        _lower(plan, mesh)
    except ValueError as error:  # jax names the array, the axis and the sizes
        return XlaVerdict(status="does not lower", lowered=False, detail=f"does not lower: {error}", versions=versions)
    return XlaVerdict(
        status=NOT_COMPILED,
        lowered=True,
        detail=f"lowered for TPU over {plan.mesh}: every sharding divides; memory is arithmetic only",
        versions=versions,
    )


def _lower(plan: TpuPlan, mesh: Any) -> Any:
    """`jax.stages.Lowered` of the plan's step, inputs sharded over `mesh` (abstract, or of a topology)."""
    from functools import partial

    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    shape = plan.shape
    axes = jax_step.partitions(shape)

    def abstract(size: tuple[int, ...], dtype: Any, spec: tuple[Any, ...]) -> Any:
        sharding = NamedSharding(mesh, PartitionSpec(*spec))
        sharding.shard_shape(size)  # raises, with the sizes, where an axis does not divide
        return jax.ShapeDtypeStruct(size, dtype, sharding=sharding)

    sizes = jax_step.parameter_shapes(shape)
    weights = {name: abstract(size, jnp.float32, axes[name]) for name, size in sizes.items()}
    moments = {f"{moment}.{name}": weight for moment in ("first", "second") for name, weight in weights.items()}
    tokens = abstract((plan.global_batch, plan.sequence), jnp.int32, (jax_step.BATCH, None))
    mask = abstract((plan.global_batch, plan.sequence), jnp.float32, (jax_step.BATCH, None))
    count = abstract((), jnp.float32, ())
    pinned = NamedSharding(mesh, PartitionSpec(jax_step.BATCH, None, None))
    step = partial(
        jax_step.train_step,
        shape,
        remat=plan.remat,
        chunks=plan.logit_chunks,
        dtype=jnp.bfloat16,
        constrain=lambda value: jax.lax.with_sharding_constraint(value, pinned),
    )
    return (
        jax.jit(step, donate_argnums=(0, 1))
        .trace(weights, moments, count, tokens, mask)
        .lower(lowering_platforms=("tpu",))
    )


def _ask(plan: TpuPlan, action: Literal["lower", "compile"], timeout_s: float) -> XlaVerdict:
    """Run this module in a process of its own.

    libtpu is one to a process and its settings have to stand before jax is imported; and the caller, often Dagster,
    stays free of jax and of those settings.
    """
    search = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    done = subprocess.run(
        [sys.executable, "-m", "capibara_assets.planning.xla", action],
        input=plan.model_dump_json(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **SETTINGS, "PYTHONPATH": search},
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"asking XLA to {action} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return XlaVerdict.model_validate_json(done.stdout.splitlines()[-1])


def compile_plan(plan: TpuPlan, target: HardwareTarget) -> XlaVerdict:
    """Compile with libtpu in this process; memory, collectives and verdict of the real compiler.

    Raises:
        InputError: the target names no XLA topology.
    """
    if target.xla_topology is None:
        raise InputError(f"{target.name} names no xla_topology: it cannot be compiled for")
    from jax.errors import JaxRuntimeError
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(target.xla_topology, platform="tpu", **target.xla_options)
    mesh = topologies.make_mesh(
        topology, (plan.mesh.data, plan.mesh.fsdp, plan.mesh.tensor), ("data", "fsdp", "tensor")
    )
    versions = _versions("jax", "jaxlib", "libtpu")
    lowered = _lower(plan, mesh)
    started = time.monotonic()
    try:
        compiled = lowered.compile()
    except JaxRuntimeError as error:
        message = str(error)
        if "RESOURCE_EXHAUSTED" not in message and "Hbm" not in message:
            raise
        return XlaVerdict(status="does not fit", lowered=True, detail=message[:2000], versions=versions)
    seconds = time.monotonic() - started
    memory = compiled.memory_analysis()
    taken = {
        "arguments": int(memory.argument_size_in_bytes),
        "temporaries": int(memory.temp_size_in_bytes),
        "outputs": int(memory.output_size_in_bytes),
        "aliased": int(memory.alias_size_in_bytes),
        "peak": int(memory.peak_memory_in_bytes),
    }
    return XlaVerdict(
        status="compiled",
        lowered=True,
        detail=f"compiled for {target.xla_topology}: peak {taken['peak'] / GIB:.2f} GiB a chip",
        memory=taken,
        collectives=_collectives(compiled),
        versions=versions,
        compile_seconds=seconds,
    )


def _collectives(compiled: Any) -> dict[str, int]:
    """Collective operations by kind; empty where the backend cannot print its program (v6e cannot)."""
    try:
        text = compiled.as_text()
    except Exception as error:  # the compiler's own RET_CHECK; its Python type differs between versions
        if "RET_CHECK" not in str(error) and "INTERNAL" not in str(error):
            raise
        return {}
    counts = Counter(
        kind for line in text.splitlines() for kind in COLLECTIVES if f" {kind}(" in line or f" {kind}-start(" in line
    )
    return dict(sorted(counts.items()))


def _versions(*packages: str) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def main(action: str, plan_json: str) -> str:
    """The verdict on a plan, as JSON, for the process that `check_plan` starts."""
    plan = TpuPlan.model_validate_json(plan_json)
    verdict = lower_plan(plan) if action == "lower" else compile_plan(plan, find_target(plan.target))
    return verdict.model_dump_json()


if __name__ == "__main__":
    print(main(sys.argv[1], sys.stdin.read()))
