"""Products of float32 layers on a CPU by oneDNN, where that is faster.

PyTorch multiplies float32 matrices with MKL, which uses AVX-512 on Intel's processors alone; oneDNN uses it on all. The
products are as exact, but not the same to the last bit.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from capibara_assets.modeling.precision import Precision

_LEAST_ROWS = 16  # below, the product is bound by reading the weights, and a kernel for each row count costs more


def quick_products(device: torch.device, precision: Precision = "fp32") -> AbstractContextManager[object]:
    """Within it, this thread computes linear layers without gradients by oneDNN, where that is faster on a device."""
    usable = torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return _Products() if usable and (device.type, precision) == ("cpu", "fp32") else nullcontext()


class _Products(TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is functional.linear and not kwargs and _is_float32(*args) and not torch.is_grad_enabled():
            x, weight, bias = args if len(args) == 3 else (*args, None)
            return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return function(*args, **(kwargs or {}))


def _is_float32(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether all are plain float32 and the product is large, and no autocast makes it another."""
    if torch.is_autocast_enabled("cpu") or x.numel() < _LEAST_ROWS * x.shape[-1]:
        return False
    return all(type(each) in (Tensor, torch.nn.Parameter) and each.dtype == torch.float32
               for each in (x, weight, bias) if each is not None)  # fmt: skip
