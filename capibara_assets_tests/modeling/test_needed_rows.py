"""The last layer on the rows that a loss reads: the same losses, from fewer rows."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from capibara_assets.modeling import losses
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.losses import collate, token_losses
from capibara_assets.modeling.needed_rows import only_rows
from capibara_assets_tests.modeling.test_losses import EXAMPLES
from capibara_assets_tests.modeling.tiny import KINDS, save_tiny


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_losses_are_those_of_all_rows(
    kind: str, precision: Any, nano: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_base(save_tiny(tmp_path / kind, nano, kind=kind)).model
    rows: list[int] = []
    model.model.layers[-1].mlp.act_fn.register_forward_hook(lambda _m, _i, out: rows.append(out[..., 0].numel()))
    found = token_losses(model, EXAMPLES, batch_tokens=100_000, precision=precision)
    assert rows == [sum(one.supervised for one in EXAMPLES)]
    monkeypatch.setattr(losses, "only_rows", lambda *_: nullcontext())
    plain = token_losses(model, EXAMPLES, batch_tokens=100_000, precision=precision)
    assert rows[1:] == [collate(EXAMPLES, multiple=32 if precision == "bf16" else 1).input_ids.numel()]
    torch.testing.assert_close(torch.tensor(found.nll), torch.tensor(plain.nll), rtol=1e-6, atol=2e-6)


def test_gradients_unknown_layers_and_nearly_all_rows_are_left_alone(tiny: Base) -> None:
    rows, layer = torch.arange(5), type(tiny.model.model.layers[-1])
    assert isinstance(only_rows(tiny.model, rows, 100), nullcontext)  # gradients
    with torch.no_grad():
        assert not isinstance(only_rows(tiny.model, rows, 100), nullcontext)
        assert isinstance(only_rows(tiny.model, rows, 5), nullcontext)
        assert isinstance(only_rows(tiny.model, rows[:0], 100), nullcontext)
        tiny.model.model.layers[-1].__class__ = type("OtherDecoderLayer", (layer,), {})
        try:
            assert isinstance(only_rows(tiny.model, rows, 100), nullcontext)
        finally:
            tiny.model.model.layers[-1].__class__ = layer
