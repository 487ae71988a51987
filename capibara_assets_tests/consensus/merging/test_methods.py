"""Every merge method: mergekit's answers, and what none may change."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints
from capibara_assets.consensus.merging.methods import METHODS
from capibara_assets_tests.consensus.small_checkpoints import COUNTS, model, options_of, result, saved


def oracle_cases() -> list[str]:
    return [
        *("linear_float32", "linear_nonorm_float32", "slerp_float32", "nuslerp_float32", "nuslerp_base_float32"),
        *("task_arithmetic_float32", "ties_float32", "ties_nonorm_float32", "breadcrumbs_float32"),
        *("breadcrumbs_ties_float32", "model_stock_float32", "karcher_float32", "multislerp_float32"),
        *("sce_float32", "arcee_fusion_float32", "dare_linear_density1_float32", "dare_linear_seed7_float32"),
        *("dare_ties_seed7_float32", "della_seed7_float32", "linear_bfloat16", "slerp_bfloat16"),
        *("task_arithmetic_bfloat16", "ties_bfloat16", "model_stock_bfloat16"),
    ]


def oracle(shared: Path, name: str, out: Path) -> tuple[dict[str, Any], dict[str, Tensor], Path]:
    """(the case, what we make of it, the folder of the inputs)."""
    root = shared / "oracles" / "consensus"
    case = next(c for c in json.loads((root / "index.json").read_text())["mergekit"] if c["name"] == name)
    config = case["config"]
    inputs = root / "mergekit" / f"inputs_{config['dtype']}"
    wanted = dict(config.get("parameters", {}))
    for key in ("weight", "density", "gamma", "epsilon"):
        if values := [m["parameters"][key] for m in config["models"] if key in m.get("parameters", {})]:
            wanted[key] = values
    if "base_model" in config:
        wanted["base"] = inputs / f"{config['base_model']}.safetensors"
    if case["random"]:
        wanted["seed"] = case["seed"]
    paths = [inputs / f"{m['model']}.safetensors" for m in config["models"]]
    merge_checkpoints(paths, config["merge_method"], out, **wanted)
    return case, result(out), inputs


def at_the_cut(base: Tensor, model: Tensor) -> Tensor:
    """Entries whose importance lies within 1e-4 of arcee_fusion's threshold; a handful at most."""
    p, q = (torch.softmax(tensor.double(), -1) + 1e-8 for tensor in (model, base))
    importance = (model - base).abs() * (p * torch.log(p / q)).sum(-1, keepdim=True)
    ordered = importance.flatten().sort().values
    q1, median, q3 = (ordered[int(share * (len(ordered) - 1))] for share in (0.25, 0.5, 0.75))
    least = median + 1.5 * (q3 - q1)
    near = (importance - least).abs() <= 1e-4 * least
    assert int(near.sum()) <= 8
    return near


def test_every_oracle_is_listed(shared: Path) -> None:
    index = json.loads((shared / "oracles" / "consensus" / "index.json").read_text())
    assert {case["name"] for case in index["mergekit"]} == set(oracle_cases())


@pytest.mark.parametrize("name", oracle_cases())
def test_known_answers_of_mergekit(shared: Path, tmp_path: Path, name: str) -> None:
    case, got, inputs = oracle(shared, name, tmp_path / "out")
    if case["random"]:
        base = load_file(inputs / "base.safetensors")
        models = [load_file(inputs / f"m{n}.safetensors") for n in (1, 2, 3)]
        weights = [m["parameters"]["weight"] for m in case["config"]["models"]]
        plain = torch.cat(
            [sum(w * (m[n] - base[n]) for w, m in zip(weights, models, strict=True)).flatten() for n in base]  # type: ignore[union-attr]
        )
        change = torch.cat([(got[n] - base[n]).flatten() for n in base])
        expected = case["statistical"]
        # Four standard errors of a share among as many entries as there are; the other two move with it.
        spread = 4 * (0.125 * 0.875 / len(change)) ** 0.5
        assert float((change == 0).float().mean()) == pytest.approx(expected["expected_fraction_unchanged"], abs=spread)
        cosine = float(torch.cosine_similarity(plain, change, dim=0))
        assert cosine == pytest.approx(expected["cosine_with_task_arithmetic"], abs=0.015)
        assert float(change.norm() / plain.norm()) == pytest.approx(expected["norm_ratio"], rel=0.02)
        return
    wanted = load_file(shared / "oracles" / "consensus" / case["file"])
    assert got.keys() == wanted.keys()
    for tensor, answer in wanted.items():
        assert got[tensor].dtype == answer.dtype
        apart = (got[tensor].double() - answer.double()).abs()
        if case["config"]["merge_method"] == "arcee_fusion":
            # Its float32 divergence has the rounding of the processor's own vectors: it decides what is at the cut
            base, model = (load_file(inputs / f"{name}.safetensors")[tensor] for name in ("base", "m1"))
            apart = apart[~at_the_cut(base, model)]
        assert apart.max() <= case["atol"], tensor


@pytest.mark.parametrize("method", METHODS)
def test_identical_models_give_the_model(tmp_path: Path, method: str) -> None:
    same = model(1)
    count = COUNTS.get(method, 3)
    models = [saved(tmp_path / f"m{n}", same) for n in range(count)]
    base = saved(tmp_path / "base", same)
    merge_checkpoints(models, method, tmp_path / "out", **options_of(method, base, models))
    got = result(tmp_path / "out")
    # Coefficients that sum to 1 only up to rounding may move the last digit.
    assert all(torch.allclose(got[name], same[name], rtol=3e-7, atol=0) for name in same)


@pytest.mark.parametrize("method", [m for m in METHODS if m not in COUNTS])
def test_tensors_that_are_zero_in_all_models_stay_zero(tmp_path: Path, method: str) -> None:
    """A bias that was never trained has no direction to interpolate."""
    tensors = [model(seed) | {"bias": torch.zeros(24)} for seed in range(4)]
    base, *models = (saved(tmp_path / f"m{n}", own) for n, own in enumerate(tensors))
    merge_checkpoints(models, method, tmp_path / "out", **options_of(method, base, models))
    assert torch.equal(result(tmp_path / "out")["bias"], torch.zeros(24))
