"""Products by oneDNN are those of PyTorch up to rounding, and only where nothing else is asked for."""

import pytest
import torch
from torch import nn

from capibara_assets.modeling.cpu.products import quick_products

CPU = torch.device("cpu")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(40, 24), (2, 20, 24), (3, 24)])
def test_the_product_is_the_same_up_to_rounding(bias: bool, shape: tuple[int, ...]):
    torch.manual_seed(0)
    layer, x = nn.Linear(24, 17, bias=bias), torch.randn(shape)
    with torch.no_grad():
        expected = layer(x)
        with quick_products(CPU):
            torch.testing.assert_close(layer(x), expected)


def test_gradients_other_types_and_autocast_are_left_alone():
    layer, x = nn.Linear(24, 17), torch.randn(40, 24)
    with quick_products(CPU):
        layer(x).sum().backward()
        assert layer.weight.grad is not None
        with torch.no_grad():
            assert layer.double()(x.double()).dtype == torch.float64
            layer.float()
            with torch.autocast("cpu", torch.bfloat16):
                assert layer(x).dtype == torch.bfloat16
