"""The computing environment: device, threads, determinism, and the fingerprint that a bit-exact resume requires."""

import os
import platform
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capibara_assets.modeling.attention import AttentionPlace, require_attention
from capibara_assets.modeling.files import read_config
from capibara_assets.modeling.heads import chosen_head
from capibara_assets.modeling.precision import fast_precision
from capibara_assets.training.ranks import ALONE, Ranks
from capibara_assets.training.recipe import HardwareChoice
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.step.settings import Settings, resolve

_LIBRARIES = {"zero2": ("deepspeed",), "accelerate": ("accelerate",)}  # backend -> further libraries that compute


def pick_device(ranks: Ranks = ALONE) -> torch.device:
    """This process's GPU if there is one, else the CPU."""
    if ranks.world > 1:
        return ranks.device
    return torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")


def settings_on(request: TrainingRequest, device: torch.device) -> Settings:
    """The settings of a request on a device, for its base. Raises InputError: as `resolve` and `require_attention`."""
    config, cuda = read_config(request.base_model), device.type == "cuda"
    head, fastest = chosen_head(config, request.recipe.model.head), fast_precision(device)
    settings = resolve(request.recipe, request.lora, fastest=fastest, cuda=cuda, head=head, config=config)
    require_attention(settings.attention, config, AttentionPlace(cuda, settings.precision))
    return settings


def compute_settings(hardware: HardwareChoice, device: torch.device) -> None:
    """Set threads, determinism and matrix precision of this process."""
    torch.set_num_threads(hardware.threads)
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cuda")
    torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads memory before writing it
    if device.type == "cuda":
        os.environ.setdefault("FLASH_ATTENTION_DETERMINISTIC", "1")  # its backward pass adds in any order without it
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may choose anew on each run
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = hardware.tf32


@contextmanager
def one_order(device: torch.device) -> Iterator[None]:
    """Context in which sums on a GPU are added in one order, or an operation that has no such kernel raises.

    Merely warned, PyTorch's attention adds in any order in its backward pass: on an H200 a resumed run then ended with
    other bits than one that was not interrupted.
    """
    if device.type != "cuda":  # there all of it is in one order
        yield
        return
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(True, warn_only=True)


def has_no_order(error: RuntimeError) -> bool:
    """Whether an operation was refused in `one_order`."""
    return "deterministic" in str(error)


def fingerprint(
    device: torch.device, settings: Settings, hardware: HardwareChoice, ranks: Ranks = ALONE
) -> dict[str, Any]:
    """Everything that may change a bit of the result; resumed with an equal one, a run gives the same bits."""
    cuda = device.type == "cuda"
    libraries = [*_LIBRARIES.get(hardware.backend, ())]
    libraries += ["bitsandbytes"] if settings.quantised else []
    # 2: layers are fused and chunks of logits are larger on a GPU, and what is not quantised is bf16.
    changed = cuda or (settings.quantised and settings.precision == "bf16")
    return {
        **({"numerics": 2} if changed else {}),
        "attention": settings.attention,
        "backend": hardware.backend,
        "compile": hardware.compile,
        "cuda": f"{torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}" if cuda else None,
        "device": torch.cuda.get_device_name() if cuda else _processor(),
        "gradient_checkpointing": settings.gradient_checkpointing,
        "instructions": _instructions(),
        "kernels": _kernel_libraries(),
        "numpy": np.__version__,
        "peft": version("peft"),
        "precision": settings.precision,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "tf32": hardware.tf32,
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "world_size": ranks.world,
        **{library: version(library) for library in libraries},
    }


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Sorted names of the entries that differ between two fingerprints."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def seed_all(seed: int) -> None:
    """Seed every generator that a library may draw from: torch's on all devices, NumPy's, and Python's own."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _processor() -> str:
    """The processor's model; libraries choose block sizes by it, and thereby the order of sums."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            names = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(names, platform.machine())
    except OSError:  # not Linux
        return platform.processor() or platform.machine()


def _instructions() -> str:
    """The widest vector instructions torch uses, and the extensions by which oneDNN chooses its kernels."""
    known = torch.cpu.get_capabilities()
    extensions = [
        name for name in ("avx512_bf16", "avx512_fp16", "amx_bf16", "amx_tile", "sve_bf16") if known.get(name)
    ]
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA")
    return " ".join([torch.backends.cpu.get_cpu_capability(), *extensions, *([f"limit={limit}"] if limit else [])])


def _kernel_libraries() -> str:
    """Versions of MKL and oneDNN, where torch was built with them."""
    config = torch.__config__.show()
    versions = [re.search(pattern, config) for pattern in (r"Math Kernel Library Version (\S+)", r"MKL-DNN v([\d.]+)")]
    return ", ".join(f"{name} {one[1]}" for name, one in zip(("MKL", "oneDNN"), versions, strict=True) if one)
