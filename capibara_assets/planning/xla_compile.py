"""Lowering and compiling a step for a TPU slice, in a process of its own: `python -m capibara_assets.planning.xla_compile`.

Reads a case from stdin and prints a verdict as JSON. libtpu is one to a process and its settings have to stand before jax
is imported; the caller, often Dagster, stays free of both.
"""

import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capibara_assets.modeling.jax.placement import MESH_AXES, Placement
from capibara_assets.modeling.jax.step import abstract_arguments, train_step
from capibara_assets.planning.hardware import GIB
from capibara_assets.planning.xla_case import XlaCase, versions

if TYPE_CHECKING:
    from capibara_assets.planning.xla import XlaVerdict

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
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# The compiler's two ways of saying that a program does not fit: before it has placed buffers, and after.
_EARLY = re.compile(r"required for HLO temporaries \(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)")
_PLACED = re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm")


def lower(case: XlaCase, mesh: Any) -> Any:
    """`jax.stages.Lowered` of the case's step over `mesh`, abstract or of a topology.

    Raises:
        ValueError: an axis does not divide; jax names the sizes.
    """
    import jax

    settings = case.settings
    arguments = abstract_arguments(case.shape, settings, case.global_batch, case.sequence, mesh)
    step = jax.jit(train_step(case.shape, settings, Placement(mesh)), donate_argnums=(0, 2))
    return step.trace(*arguments).lower(lowering_platforms=("tpu",))


def lower_case(case: XlaCase) -> "XlaVerdict":
    """Trace and lower over an abstract mesh: no device and no libtpu needed."""
    from jax.sharding import AbstractMesh

    from capibara_assets.planning.xla import NOT_COMPILED, XlaVerdict

    mesh = AbstractMesh((case.mesh.data, case.mesh.fsdp, case.mesh.tensor), MESH_AXES)
    try:
        lower(case, mesh)
    except ValueError as error:
        return XlaVerdict(
            status="does not lower", lowered=False, detail=f"does not lower: {error}", versions=versions()
        )
    return XlaVerdict(
        status=NOT_COMPILED,
        lowered=True,
        detail=f"lowered for TPU over {case.mesh}: every sharding divides; memory is arithmetic only",
        versions=versions(),
    )


def compile_case(case: XlaCase) -> "XlaVerdict":
    """Compile with libtpu in this process: memory, collectives and verdict of the real compiler."""
    from jax.errors import JaxRuntimeError
    from jax.experimental import topologies

    from capibara_assets.planning.xla import XlaVerdict

    topology = topologies.get_topology_desc(case.topology, platform="tpu", **case.topology_options)
    mesh = topologies.make_mesh(topology, (case.mesh.data, case.mesh.fsdp, case.mesh.tensor), MESH_AXES)
    started = time.monotonic()
    lowered = lower(case, mesh)
    lowered_at = time.monotonic()
    try:
        compiled = lowered.compile()
    except JaxRuntimeError as error:
        message = str(error)
        if "RESOURCE_EXHAUSTED" not in message and "Hbm" not in message:
            raise
        return XlaVerdict(
            status="does not fit",
            lowered=True,
            detail=message[:2000],
            versions=versions(),
            memory=shortage(message),
            lower_seconds=lowered_at - started,
            compile_seconds=time.monotonic() - lowered_at,
            host_peak_bytes=host_peak_bytes(),
        )
    seconds = time.monotonic() - lowered_at
    memory = compiled.memory_analysis()
    taken = {
        "arguments": int(memory.argument_size_in_bytes),
        "temporaries": int(memory.temp_size_in_bytes),
        "outputs": int(memory.output_size_in_bytes),
        "aliased": int(memory.alias_size_in_bytes),
        "code": int(memory.generated_code_size_in_bytes),
        "peak": int(memory.peak_memory_in_bytes),
    }
    return XlaVerdict(
        status="compiled",
        lowered=True,
        detail=f"compiled for {case.topology}: peak {taken['peak'] / GIB:.2f} GiB a chip",
        memory=taken,
        collectives=_collectives(compiled),
        versions=versions(),
        lower_seconds=lowered_at - started,
        compile_seconds=seconds,
        host_peak_bytes=host_peak_bytes(),
    )


def shortage(message: str) -> dict[str, int]:
    """What the compiler said it needs and has, in bytes; empty where its message says neither."""
    for pattern, needed in ((_PLACED, "needed"), (_EARLY, "needed_temporaries")):
        found = pattern.search(message)
        if found:
            amounts = [round(float(found[at]) * _UNITS[found[at + 1]]) for at in (1, 3)]
            return {needed: amounts[0], "available": amounts[1]}
    return {}


def _collectives(compiled: Any) -> dict[str, int] | None:
    """Collective operations by kind; None where the backend cannot print its program (v6e cannot)."""
    try:
        text = compiled.as_text()
    except Exception as error:  # noqa: BLE001 (the compiler's own RET_CHECK; its Python type differs between versions)
        if "RET_CHECK" not in str(error) and "INTERNAL" not in str(error):
            raise
        return None
    counts = Counter(
        kind for line in text.splitlines() for kind in COLLECTIVES if f" {kind}(" in line or f" {kind}-start(" in line
    )
    return dict(sorted(counts.items()))


def host_peak_bytes() -> int | None:
    """The most memory that this process has held (VmHWM); None where /proc does not say."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def main(action: str, document: str) -> str:
    """The verdict on a case, as JSON."""
    case = XlaCase.model_validate_json(document)
    verdict = lower_case(case) if action == "lower" else compile_case(case)
    return verdict.model_dump_json()


if __name__ == "__main__":
    os.environ.update(SETTINGS)
    print(main(sys.argv[1], sys.stdin.read()))
