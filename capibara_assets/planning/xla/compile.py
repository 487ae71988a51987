"""Lowering and compiling of a training step for a TPU slice, in a separate process.

`python -m capibara_assets.planning.xla.compile lower|place|compile` reads a case from stdin and prints a verdict as
JSON. A process can load libtpu only once, and its settings must be set before jax is imported; the caller (often
Dagster) loads neither.
"""

import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from capibara_assets.modeling.jax.placement import MESH_AXES, Placement
from capibara_assets.modeling.jax.step import abstract_arguments, train_step
from capibara_assets.planning.hardware.targets import GIB
from capibara_assets.planning.tpu.plan import NOT_COMPILED
from capibara_assets.planning.xla.case import XlaCase, versions
from capibara_assets.planning.xla.flops import StepFlops, step_flops
from capibara_assets.planning.xla.verdict import XlaVerdict

# Keep libtpu from querying a metadata server and from locking the machine; jax itself uses the CPU.
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
# The compiler's two messages for a program that does not fit: before buffer assignment, and after it.
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


def lower_case(case: XlaCase) -> XlaVerdict:
    """Trace and lower over an abstract mesh, without devices or libtpu."""
    try:
        lower(case, abstract_mesh(case))
    except ValueError as error:
        return XlaVerdict(
            status="does not lower", lowered=False, detail=f"does not lower: {error}", versions=versions()
        )
    return XlaVerdict(
        status=NOT_COMPILED,
        lowered=True,
        detail=f"lowered for TPU over {case.mesh}: every sharding divides; memory is arithmetic only",
        flops=flops_of(case),
        versions=versions(),
    )


def abstract_mesh(case: XlaCase) -> Any:
    """The case's mesh without devices."""
    from jax.sharding import AbstractMesh

    return AbstractMesh((case.mesh.data, case.mesh.fsdp, case.mesh.tensor), MESH_AXES)


def flops_of(case: XlaCase) -> StepFlops:
    """FLOPs of the step as XLA and we count them; lowers two or three shallow models (seconds)."""
    mesh = abstract_mesh(case)
    return step_flops(case, lambda shallow: lower(shallow, mesh))


def compile_case(case: XlaCase, *, whole: bool) -> XlaVerdict:
    """Compile with libtpu in this process: the compiler's memory, collectives and verdict.

    The compiler first optimises, schedules and assigns buffers (seconds; decides whether the program fits), then
    generates code (minutes). Without `whole` this process prints its verdict and EXITS after the first part, since the
    compiler cannot be told to stop there.
    """
    from jax.errors import JaxRuntimeError
    from jax.experimental import topologies
    from jax.experimental.mesh_utils import create_device_mesh
    from jax.sharding import Mesh

    topology = topologies.get_topology_desc(case.topology, platform="tpu", **case.topology_options)
    # Axes may share a side of the torus: 8 of a 4x4 slice are two of its columns.
    devices = create_device_mesh(
        (case.mesh.data, case.mesh.fsdp, case.mesh.tensor), topology.devices, allow_split_physical_axes=True
    )
    mesh = Mesh(devices, MESH_AXES)
    started = time.monotonic()
    lowered = lower(case, mesh)
    lowered_at = time.monotonic()
    # Before the compiler starts: without `whole` this process ends while compiling.
    flops = flops_of(case)
    counted_at = time.monotonic()

    def verdict(**result: Any) -> XlaVerdict:
        return XlaVerdict(
            lowered=True,
            versions=versions(),
            flops=flops,
            lower_seconds=lowered_at - started,
            compile_seconds=time.monotonic() - counted_at,
            host_peak_bytes=host_peak_bytes(),
            **result,
        )

    def placed(report: BufferReport) -> XlaVerdict:
        taken = report.allotted / GIB
        return verdict(
            status="fits",
            detail=f"XLA's buffers for {case.topology} take {taken:.2f} GiB a chip; code was not generated",
            memory=report.memory(),
            collectives=report.collectives,
        )

    with TemporaryDirectory(prefix="capibara-xla-") as folder:
        if not whole:
            Thread(target=_leave_when_placed, args=(Path(folder), placed), daemon=True).start()
        try:
            compiled = lowered.compile(compiler_options={"xla_dump_to": folder, "xla_dump_hlo_as_text": True})
        except JaxRuntimeError as error:
            message = str(error)
            if "RESOURCE_EXHAUSTED" not in message and "Hbm" not in message:
                raise
            return verdict(status="does not fit", detail=message[:2000], memory=shortage(message))
        report = read_report(Path(folder))
    memory = compiled.memory_analysis()
    taken = {
        "arguments": int(memory.argument_size_in_bytes),
        "temporaries": int(memory.temp_size_in_bytes),
        "outputs": int(memory.output_size_in_bytes),
        "aliased": int(memory.alias_size_in_bytes),
        "code": int(memory.generated_code_size_in_bytes),
        "peak": int(memory.peak_memory_in_bytes),
    }
    taken["allotted"] = taken["arguments"] + taken["temporaries"] + max(0, taken["outputs"] - taken["aliased"])
    return verdict(
        status="compiled",
        detail=f"compiled for {case.topology}: {taken['allotted'] / GIB:.2f} GiB a chip",
        memory=taken,
        collectives=report.collectives if report else None,
    )


@dataclass(frozen=True)
class BufferReport:
    """The compiler's report after buffer assignment.

    Attributes:
        allotted: bytes of HBM for the program: arguments, temporaries, and results that alias no argument.
        arguments: bytes of the arguments.
        collectives: collective operations in the optimised program, by kind.
    """

    allotted: int
    arguments: int
    collectives: dict[str, int]

    def memory(self) -> dict[str, int]:
        """Bytes as a verdict's `memory` lists them."""
        return {
            "arguments": self.arguments,
            "temporaries": self.allotted - self.arguments,
            "allotted": self.allotted,
        }


def read_report(folder: Path) -> BufferReport | None:
    """Read the report from the folder given by `xla_dump_to`; None while it is incomplete."""
    # The step's own module is the largest; the compiler also dumps small helpers.
    whole = sorted(folder.glob("*after_buffer_assignment.txt"), key=lambda file: file.stat().st_size)
    if not whole:
        return None
    stem = whole[-1].name.removesuffix("_after_buffer_assignment.txt")
    try:
        usage = (folder / f"{stem}-memory-usage-report.txt").read_text(encoding="utf-8")
        buffers = (folder / f"{stem}-buffer-assignment.txt").read_text(encoding="utf-8")
    except FileNotFoundError:  # the compiler writes them one after the other
        return None
    program = whole[-1].read_text(encoding="utf-8")
    total = re.search(r"Memory Space: default \(color=0\)\s+Total bytes: (\d+)", usage)
    if total is None or not program.rstrip().endswith("}"):
        return None
    arguments = re.findall(r"^allocation \d+: size (\d+), page 0, parameter", buffers, re.MULTILINE)
    return BufferReport(int(total[1]), sum(map(int, arguments)), count_collectives(program))


def _leave_when_placed(folder: Path, verdict: Callable[[BufferReport], XlaVerdict]) -> None:
    """Print the verdict and end the process as soon as the report is complete."""
    while True:
        time.sleep(0.2)
        report = read_report(folder)
        if report is not None:
            print(verdict(report).model_dump_json(), flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)  # the compiler's threads go on generating code and take no request to stop


def shortage(message: str) -> dict[str, int]:
    """Bytes needed and available according to the compiler's error message; empty if it states none."""
    for pattern, needed in ((_PLACED, "needed"), (_EARLY, "needed_temporaries")):
        match = pattern.search(message)
        if match:
            amounts = [round(float(match[at]) * _UNITS[match[at + 1]]) for at in (1, 3)]
            return {needed: amounts[0], "available": amounts[1]}
    return {}


def count_collectives(program: str) -> dict[str, int]:
    """Number of collective operations by kind in an optimised program's text; a start and its done count once."""
    counts = Counter(
        kind
        for line in program.splitlines()
        for kind in COLLECTIVES
        if f" {kind}(" in line or f" {kind}-start(" in line
    )
    return dict(sorted(counts.items()))


def host_peak_bytes() -> int | None:
    """Peak resident memory of this process (VmHWM), or None where /proc does not provide it."""
    try:
        match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def main(action: str, document: str) -> str:
    """The verdict on a case, as JSON."""
    case = XlaCase.model_validate_json(document)
    verdict = lower_case(case) if action == "lower" else compile_case(case, whole=action == "compile")
    return verdict.model_dump_json()


if __name__ == "__main__":
    os.environ.update(SETTINGS)
    print(main(sys.argv[1], sys.stdin.read()))
