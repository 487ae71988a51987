"""Precision of matrix products: bf16 only where the hardware computes in it, decided without timing anything."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Quantization = Literal["none", "bf16", "int8", "nf4"]  # how the frozen base is held; adapters are float32
Precision = Literal["fp32", "bf16", "fp16"]  # of matrix products; weights, sums and losses stay float32

# Instructions that multiply bf16 matrices in hardware. Without them bf16 on a CPU is emulated, up to hundreds of
# times slower than float32.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})


def fast_precision(device: "torch.device") -> Precision:
    """bf16 where it is a speed-up on this device, else fp32; read from the processor's flags, never timed."""
    if device.type == "cuda":
        import torch

        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return processor_precision() if device.type == "cpu" else "fp32"


def processor_precision() -> Precision:
    """The precision that is fastest on this machine's processor."""
    return "bf16" if _BF16_FLAGS & processor_flags() else "fp32"


def autocast(device: "torch.device", precision: Precision) -> "torch.autocast":
    """A context in which matrices are multiplied in `precision`; for fp32 it changes nothing."""
    import torch

    enabled = precision != "fp32"
    return torch.autocast(device.type, matrix_dtype(precision) if enabled else None, enabled=enabled)


def matrix_dtype(precision: Precision) -> "torch.dtype":
    """The type that matrices are multiplied in."""
    import torch

    kinds: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    return kinds[precision]


@cache
def processor_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instruction-set flags as Linux names them; empty where there is no such file."""
    if not cpuinfo.is_file():
        return frozenset()
    lines = cpuinfo.read_text("utf-8", errors="replace").splitlines()
    flags = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(flags, []))
