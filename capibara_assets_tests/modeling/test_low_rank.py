"""Combinations of adapters against exact dense answers, the best rank, and PEFT's own reading of the result."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file

from capibara_assets.modeling.adapters import LoraAdapter, applied, read_adapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.low_rank import inner_products, merge_adapters
from capibara_assets_tests.modeling.tiny import MODULES


@pytest.fixture
def honest(tiny: Base) -> dict[str, LoraAdapter]:
    """Four adapters of rank 8 and scale 2 for all linear modules of the tiny base, with random weights."""
    names = [name for name, _ in tiny.model.named_modules() if name.rpartition(".")[2] in MODULES]
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "bias": "none", "target_modules": list(MODULES)}
    adapters = {}
    for number in range(4):
        random, tensors = torch.Generator().manual_seed(number), {}
        for name in names:
            rows, columns = tiny.model.get_submodule(name).weight.shape
            tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(8, columns, generator=random) / 8
            tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(rows, 8, generator=random) / 8
        adapters[f"voter-{number}"] = LoraAdapter(config, tensors)
    return adapters


def oracle_adapters(folder: Path, case: dict) -> list[LoraAdapter]:
    """The case's adapters; its layers `l0`, `l1` are the modules."""
    tensors = load_file(folder / case["adapters"])
    adapters = []
    for number, (rank, alpha) in enumerate(zip(case["ranks"], case["alphas"], strict=True)):
        own = {
            f"base_model.model.{layer}.{part}.weight": tensors[f"{layer}.a{number}.{part}"]
            for layer in ("l0", "l1")
            for part in ("lora_A", "lora_B")
        }
        config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "use_rslora": case["use_rslora"]}
        adapters.append(LoraAdapter(config, own))
    return adapters


def test_lora_oracles(shared: Path) -> None:
    folder = shared / "oracles" / "consensus"
    cases = json.loads((folder / "index.json").read_text())["lora"]
    assert len(cases) == 15
    for case in cases:
        answers = np.load(folder / case["file"])
        adapters = oracle_adapters(folder, case)
        exact = merge_adapters(adapters, case["weights"])
        assert exact.relative_error == 0.0
        rank = max(case["ranks"])
        best = merge_adapters(adapters, case["weights"], rank)
        assert best.config["r"] == rank
        squared_loss = squared_norm = 0.0
        for layer in ("l0", "l1"):
            dense = answers[f"expected_{layer}.exact_dense"]
            scale = max(1.0, float(np.abs(dense).max()))
            assert np.abs(exact.delta(layer).numpy() - dense).max() <= case["atol"] * scale, case["name"]
            lowered = answers[f"expected_{layer}.best_rank{rank}"]
            assert np.abs(best.delta(layer).numpy() - lowered).max() <= 3 * case["atol"] * scale, case["name"]
            squared_loss += float(np.square(dense - lowered).sum())
            squared_norm += float(np.square(dense).sum())
        assert best.relative_error == pytest.approx((squared_loss / squared_norm) ** 0.5, rel=1e-5)


def test_inner_products_are_those_of_the_dense_deltas(honest: dict[str, LoraAdapter]) -> None:
    adapters = list(honest.values())
    dense = np.stack([torch.cat([d.flatten().double() for d in a.deltas().values()]).numpy() for a in adapters])
    assert np.allclose(inner_products(adapters), dense @ dense.T, rtol=1e-5)


def test_different_modules_and_ranks_load_in_peft(tiny: Base, honest: dict[str, LoraAdapter], tmp_path: Path) -> None:
    """An adapter that lacks a module counts as zero there; odd ranks go through rank_pattern."""
    first, second = honest["voter-0"], honest["voter-1"]
    part = LoraAdapter(second.config, {n: t for n, t in second.tensors.items() if ".layers.1.mlp." not in n})
    merged = merge_adapters([first, part], [0.7, -0.2])
    write_adapter(merged, tmp_path)
    ids = torch.arange(10)[None]
    with torch.no_grad(), applied(tiny.model, read_adapter(tmp_path)):
        ours = tiny.model(ids).logits
        changed_weight = tiny.model.get_submodule("model.layers.1.mlp.up_proj").weight.clone()
    expected = tiny.model.get_submodule("model.layers.1.mlp.up_proj").weight + 0.7 * first.delta(
        "model.layers.1.mlp.up_proj"
    )
    assert torch.allclose(changed_weight, expected, atol=1e-6)
    copy = type(tiny.model).from_pretrained(tiny.path)
    with torch.no_grad():
        theirs = PeftModel.from_pretrained(copy, tmp_path).eval()(ids).logits
    assert torch.allclose(ours, theirs, atol=1e-4)


def test_a_decomposition_that_gives_up_is_done_another_way(
    honest: dict[str, LoraAdapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LAPACK's fast driver fails on some finite matrices of low rank; the slower one answers the same."""
    adapters = list(honest.values())
    usual = merge_adapters(adapters, [0.25] * 4, rank=3)

    def gives_up(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "svd", gives_up)
    other = merge_adapters(adapters, [0.25] * 4, rank=3)
    assert other.relative_error == pytest.approx(usual.relative_error)
    for name, tensor in usual.tensors.items():
        torch.testing.assert_close(other.tensors[name], tensor, rtol=1e-4, atol=1e-5)


def test_weights_have_to_fit(honest: dict[str, LoraAdapter]) -> None:
    with pytest.raises(ValueError, match="2 adapters need as many weights"):
        merge_adapters(list(honest.values())[:2], [1.0])


def test_three_identical_voters_give_the_voter_back(honest: dict[str, LoraAdapter]) -> None:
    adapter = honest["voter-0"]
    merged = merge_adapters([adapter] * 3, [1 / 3] * 3, rank=8)
    assert merged.relative_error < 1e-7
    for module in adapter.modules:
        assert torch.allclose(merged.delta(module), adapter.delta(module), atol=1e-6)
