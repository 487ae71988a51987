"""The model under training: what is computed again, what is compiled, and what is drawn where files lack it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from capibara_assets.modeling.base import load_base
from capibara_assets.training.monitoring.progress import progress_lines
from capibara_assets.training.step.settings import resolve
from capibara_assets.training.step.subject import fusible, load_subject
from capibara_assets_tests.modeling.tiny import save_tiny
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.loop.test_train import digests, train
from capibara_assets_tests.training.test_right import QUIET, losses


@pytest.mark.parametrize(("every", "expected"), [(1, [True, True]), (2, [True, False]), (0, [False, False])])
def test_every_nth_layer_is_computed_again(
    make_request: MakeRequest, two_layers: Path, every: int, expected: list[bool]
) -> None:
    request = make_request(base=two_layers, gradient_checkpointing=every)
    settings = resolve(request.recipe, request.lora, fastest="fp32")
    subject = load_subject(request, settings, torch.device("cpu"))
    layers = subject.base.model.get_submodule("model.layers")
    assert [layer.gradient_checkpointing for layer in layers] == expected


def test_computing_layers_again_changes_no_bit(make_request: MakeRequest, two_layers: Path) -> None:
    plain = train(make_request(work="plain", base=two_layers, gradient_checkpointing=0, max_steps=4))
    again = train(make_request(work="again", base=two_layers, gradient_checkpointing=2, max_steps=4))
    assert digests(plain) == digests(again)


def test_sharing_the_base_changes_no_bit(make_request: MakeRequest, nano: Path, tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "base", nano, torch.bfloat16)
    alone = train(make_request(work="alone", base=base, share_base=False, max_steps=4))
    together = make_request(work="together", base=base, max_steps=4)
    assert digests(train(together)) == digests(alone)
    assert len(list((together.work / "base").glob("*.safetensors"))) == 1


@pytest.mark.parametrize(
    ("device", "changes", "expected"),
    [
        ("cpu", {}, True),
        ("cpu", {"quantization": "bf16"}, False),
        ("cuda", {}, True),
        ("cuda", {"quantization": "bf16", "precision": "bf16"}, True),
        ("cuda", {"quantization": "bf16"}, False),
        ("cuda", {"quantization": "nf4"}, False),
        ("cuda", {"compile": True}, False),
        ("cuda", {"backend": "ddp"}, False),
    ],
)
def test_layers_are_fused(
    make_request: MakeRequest, two_layers: Path, device: str, changes: dict[str, Any], expected: bool
) -> None:
    request = make_request(base=two_layers, **changes)
    settings = resolve(request.recipe, request.lora, fastest="bf16", cuda=device == "cuda")
    assert fusible(load_base(two_layers), request, settings, torch.device(device)) is expected


@pytest.mark.extended
def test_compiled_it_has_the_same_losses(make_request: MakeRequest) -> None:
    plain = train(make_request(work="plain", lora=QUIET, max_steps=4))
    compiled = train(make_request(work="compiled", lora=QUIET, max_steps=4, compile=True))
    np.testing.assert_allclose(losses(compiled), losses(plain), atol=1e-4)


def test_layers_that_the_base_lacks_are_drawn_alike_and_said(
    make_request: MakeRequest, nano: Path, tmp_path: Path
) -> None:
    base = save_tiny(tmp_path / "base", nano)
    tensors = load_file(base / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    assert load_base(base, incomplete=True).new_layers == ("model.layers.1.mlp.up_proj.weight",)
    events = list[dict[str, Any]]()
    first = train(make_request(work="first", base=base, share_base=False, max_steps=2), events=events)
    again = train(make_request(work="again", base=base, max_steps=2))
    assert digests(first) == digests(again)
    started = next(event for event in events if event["event"] == "started")
    line = progress_lines(1)({"domain": "python", "voter": "voter-0", "time": 0.0, **started})
    assert line and "1 layers that its files lack, drawn at random (model.layers.1.mlp.up_proj.weight)" in line
    assert f"{started['parameters']:,} trainable parameters beside" in line and "down_proj, gate_proj" in line
