"""Which attention a base is trained with: by what its architecture declares, the device, and what is installed.

Imports neither torch nor Transformers: a plan states the choice before anything is loaded.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from capibara_assets.errors import InputError
from capibara_assets.modeling.precision import Precision

FLASH = "flash_attention_2"
FLASH_PACKAGE = "flash-attn"
SHORT = 512  # tokens up to which eager attention is faster in bf16 on a CPU than the fused kernel (measured)
_WANTED = Requirement(f"{FLASH_PACKAGE}>=2.3.3")  # Transformers takes no older one
_DECLARED = {"sdpa": re.compile(r"_supports_sdpa\s*=\s*True"), FLASH: re.compile(r"_supports_flash_attn\s*=\s*True")}
_OTHER_KERNELS = "_compatible_flash_implementations"  # gpt-oss: its sinks are in other packages' kernels only
_EITHER = frozenset({"eager", "sdpa"})


@dataclass(frozen=True)
class AttentionPlace:
    """Where attention is computed.

    Attributes:
        cuda: whether on a GPU.
        here: whether on this machine, whose packages are known.
    """

    cuda: bool
    precision: Precision
    here: bool = True


@dataclass(frozen=True)
class ChosenAttention:
    """Transformers' name of an attention implementation, and why it was chosen."""

    name: str
    reason: str


def chosen_attention(wanted: str, config: Mapping[str, Any], place: AttentionPlace, max_length: int) -> ChosenAttention:
    """The attention to train with.

    `auto` takes FlashAttention 2 on a GPU that computes in 16 bits where flash-attn is installed, eager attention where
    the architecture has nothing else or rows are short in bf16 on a CPU, and else `sdpa`: PyTorch's own kernels, with a
    flash kernel among them, which need no package.

    Args:
        wanted: the recipe's.
        config: of the base, as its config.json.
        max_length: tokens of a row, at most.
    """
    if wanted != "auto":
        return ChosenAttention(wanted, "the recipe names it")
    declared = declared_attention(str(config.get("model_type", "")))
    if "sdpa" not in declared:
        return ChosenAttention("eager", f"{config.get('model_type')} has no other in Transformers")
    if not place.cuda:
        if place.precision == "bf16" and max_length <= SHORT:
            return ChosenAttention("eager", f"faster in bf16 on a CPU up to {SHORT} tokens")
        return ChosenAttention("sdpa", "PyTorch's own kernels")
    if FLASH not in declared or place.precision == "fp32":
        return ChosenAttention("sdpa", "PyTorch's own kernels")
    if place.here and flash_problem() is None:
        return ChosenAttention(FLASH, f"{FLASH_PACKAGE} {version(FLASH_PACKAGE)} is installed")
    where = "here" if place.here else "there, for all that is known"
    return ChosenAttention("sdpa", f"PyTorch's own kernels; {FLASH_PACKAGE} is not installed {where}")


def flash_problem() -> str | None:
    """Why FlashAttention 2 cannot be used on this machine; None where it can."""
    try:
        found = version(FLASH_PACKAGE)
    except PackageNotFoundError:
        return f"{FLASH_PACKAGE} is not installed"
    return None if _WANTED.specifier.contains(found, prereleases=True) else f"{FLASH_PACKAGE} {found} is too old"


@cache
def declared_attention(model_type: str) -> frozenset[str]:
    """The implementations that Transformers declares for an architecture; eager and sdpa for one that it lacks."""
    package = find_spec("transformers")
    if package is None or package.origin is None or not re.fullmatch(r"[\w-]+", model_type):
        return _EITHER
    name = model_type.replace("-", "_")
    source = Path(package.origin).parent / "models" / name / f"modeling_{name}.py"
    if not source.is_file():
        return _EITHER
    text = source.read_text("utf-8")
    found = {kind for kind, declaration in _DECLARED.items() if declaration.search(text)}
    return frozenset(found - ({FLASH} if _OTHER_KERNELS in text else set())) | {"eager"}


def require_attention(wanted: str, config: Mapping[str, Any], place: AttentionPlace) -> None:
    """Raises InputError: FlashAttention 2 is wanted, and the place, the base or the installation has none."""
    if wanted != FLASH:
        return
    remedy = "set model.attention: auto, which takes PyTorch's own kernels"
    if not place.cuda:
        raise InputError(f"attention {FLASH} needs a CUDA GPU, and there is none: {remedy}")
    if place.precision == "fp32":
        raise InputError(f"attention {FLASH} computes in bf16 or fp16, not in fp32: name one of them, or {remedy}")
    if FLASH not in declared_attention(str(config.get("model_type", ""))):
        raise InputError(f"attention {FLASH}: Transformers has none for this base's architecture: {remedy}")
    if place.here and (problem := flash_problem()):
        raise InputError(
            f"attention {FLASH}: {problem}: `pip install {_WANTED} --no-build-isolation` (it needs CUDA's compiler), "
            f"or {remedy}"
        )
