"""Merging checkpoints: known answers, the algebra of the methods, real files in every layout, errors by name."""

import json
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from capibara_assets.checkpoints.formats import huggingface
from capibara_assets.cli.merge import merge as merge_command
from capibara_assets.consensus.checkpoint_merge import merge_checkpoints
from capibara_assets.consensus.merge_methods import METHODS
from capibara_assets.errors import InputError

SHAPES = {"model.embed_tokens.weight": (48, 24), "a.weight": (40, 24), "b.weight": (24, 40), "norm.weight": (24,)}
NEEDS = {
    "slerp": {"t": 0.35},
    "convex": {"weights": [0.5, 0.3, 0.2]},
    "ties": {"density": 0.5},
    "dare_linear": {"density": 0.5, "seed": 3},
    "dare_ties": {"density": 0.5, "seed": 3},
    "della": {"density": 0.5, "epsilon": 0.1, "seed": 3},
    "breadcrumbs": {"density": 0.8, "gamma": 0.05},
    "breadcrumbs_ties": {"density": 0.8, "gamma": 0.05},
    "sce": {"select_topk": 0.4},
}
COUNTS = {"slerp": 2, "nuslerp": 2, "arcee_fusion": 1}


def model(
    seed: int, around: Mapping[str, Tensor] | None = None, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    made = {name: 0.1 * torch.randn(shape, generator=random) for name, shape in SHAPES.items()}
    if around is not None:
        made = {name: around[name] + 0.2 * made[name] for name in SHAPES}
    return {name: tensor.to(dtype) for name, tensor in made.items()}


def saved(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True)
    save_file(dict(tensors), folder / "model.safetensors", {"format": "pt"})
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def sharded(folder: Path, source: Path, size: int) -> Path:
    """The same model in shards, written by the checkpoints' own writer."""
    content = huggingface.read(source)
    fresh = type(content)(content.tensors, content.kind, files=content.files)
    huggingface.write(fresh, folder, max_shard_size=size)
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def result(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return found


def options_of(method: str, base: Path, models: Sequence[Path]) -> dict[str, Any]:
    wanted = dict(NEEDS.get(method, {}))
    if "weights" in wanted:
        wanted["weights"] = wanted["weights"][: len(models)]
    return wanted | ({"base": base} if METHODS[method].base == "required" else {})


@pytest.fixture
def checkpoints(tmp_path: Path) -> tuple[Path, list[Path]]:
    """A base and three models that were trained from it."""
    base = model(0)
    folders = [saved(tmp_path / f"m{n}", model(n, base)) for n in (1, 2, 3)]
    return saved(tmp_path / "base", base), folders


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


@pytest.mark.parametrize("method", [m for m in METHODS if m not in COUNTS])
def test_the_result_is_the_same_for_any_order_layout_and_threads(
    checkpoints: tuple[Path, list[Path]], tmp_path: Path, method: str
) -> None:
    base, models = checkpoints
    weights = {"weights": [0.5, 0.3, 0.2]} if "weights" in METHODS[method].options else {}
    wanted = options_of(method, base, models) | weights
    merge_checkpoints(models, method, tmp_path / "one", threads=1, **wanted)
    cut = [sharded(tmp_path / f"cut{n}", path, 3000 + 2000 * n) for n, path in enumerate(models)]
    turned = {"weights": [0.2, 0.5, 0.3]} if weights else {}
    places = [cut[2], cut[0], cut[1]]
    merge_checkpoints(places, method, tmp_path / "other", threads=3, max_shard_size=4000, **wanted | turned)
    one, other = result(tmp_path / "one"), result(tmp_path / "other")
    assert len(list((tmp_path / "other").glob("*.safetensors"))) > 1
    assert one.keys() == other.keys() == SHAPES.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_combinations_are_summed_in_float64_and_rounded_as_torch_rounds(tmp_path: Path, count: int, dtype: str) -> None:
    """Rounded once to float32, from there to bfloat16; across the ends of the compiled loops' pieces."""
    random = torch.Generator().manual_seed(count)
    kind = getattr(torch, dtype)
    tensors = [torch.randn(3, 2049, generator=random).to(kind) for _ in range(count)]
    paths = [saved(tmp_path / f"m{n}", {"w": tensor}) for n, tensor in enumerate(tensors)]
    weights = torch.rand(count, generator=random).double().tolist()
    merge_checkpoints(paths, "linear", tmp_path / "out", weights=weights, normalize=False)
    order = sorted(range(count), key=weights.__getitem__)
    total = torch.zeros(3, 2049, dtype=torch.float64)
    for n in order:
        total = total + weights[n] * tensors[n].double()
    assert torch.equal(result(tmp_path / "out")["w"], total.float().to(kind))


def test_models_that_differ_late_are_told_apart(tmp_path: Path) -> None:
    base = torch.zeros(1 << 15)
    one, two = base.clone(), base.clone()
    one[1 << 14 :], two[1 << 14 :] = 1.0, 2.0
    start = saved(tmp_path / "base", {"w": base})
    paths = [saved(tmp_path / "m1", {"w": one}), saved(tmp_path / "m2", {"w": two})]
    for name, places in (("a", paths), ("b", paths[::-1])):
        merge_checkpoints(places, "dare_linear", tmp_path / name, base=start, density=0.5)
    assert torch.equal(result(tmp_path / "a")["w"], result(tmp_path / "b")["w"])


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


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    weights=st.lists(st.floats(0.01, 10), min_size=2, max_size=4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 1000),
)
def test_linear_is_the_weighted_mean(
    tmp_path_factory: pytest.TempPathFactory, weights: list[float], dtype: torch.dtype, seed: int
) -> None:
    place = tmp_path_factory.mktemp("linear")
    models = [model(seed + n, dtype=dtype) for n in range(len(weights))]
    paths = [saved(place / f"m{n}", tensors) for n, tensors in enumerate(models)]
    merge_checkpoints(paths, "linear", place / "out", weights=weights)
    for name, got in result(place / "out").items():
        exact = sum(w * m[name].double() for w, m in zip(weights, models, strict=True)) / sum(weights)
        assert torch.allclose(got.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-7)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=15)
@given(density=st.floats(0.05, 0.95), seed=st.integers(0, 1000), rounded=st.booleans())
def test_ties_keeps_exactly_the_largest_entries(
    tmp_path_factory: pytest.TempPathFactory, density: float, seed: int, rounded: bool
) -> None:
    place = tmp_path_factory.mktemp("ties")
    base, one = model(seed), model(seed + 1)
    if rounded:  # many equal magnitudes
        base, one = ({n: (8 * t).round() / 8 for n, t in tensors.items()} for tensors in (base, one))
    paths = saved(place / "base", base), saved(place / "m", one)
    merge_checkpoints([paths[1]], "ties", place / "out", base=paths[0], density=density)
    for name, got in result(place / "out").items():
        delta, change = (one[name] - base[name]).flatten(), (got - base[name]).flatten()
        kept = max(1, int(density * delta.numel()))
        largest = delta.abs().sort(descending=True).values[:kept]
        assert torch.allclose(change.abs().sort(descending=True).values[:kept], largest, atol=1e-6)
        assert int((change != 0).sum()) <= kept


def test_ties_of_agreeing_models_is_their_mean(tmp_path: Path) -> None:
    base = model(0)
    up = [{n: base[n] + (0.1 + 0.1 * k) * model(k)[n].abs() for n in base} for k in (1, 2, 3)]
    paths = [saved(tmp_path / f"m{k}", tensors) for k, tensors in enumerate(up)]
    merge_checkpoints(paths, "ties", tmp_path / "out", base=saved(tmp_path / "base", base))
    for name, got in result(tmp_path / "out").items():
        assert torch.allclose(got, torch.stack([tensors[name] for tensors in up]).mean(0), atol=1e-6)


def test_random_masks_depend_on_seed_tensor_and_model(checkpoints: tuple[Path, list[Path]], tmp_path: Path) -> None:
    base, models = checkpoints
    for number, seed in enumerate((1, 1, 2)):
        merge_checkpoints(models[:1], "dare_linear", tmp_path / f"o{number}", base=base, density=0.5, seed=seed)
    first, again, other = (result(tmp_path / f"o{number}") for number in range(3))
    assert all(torch.equal(first[name], again[name]) for name in first)
    origin = load_file(base / "model.safetensors")
    a, b = ((made["a.weight"] != origin["a.weight"]).flatten().double() for made in (first, other))
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.15
    c = (first["b.weight"] != origin["b.weight"]).flatten().double()
    assert abs(np.corrcoef(a, c)[0, 1]) < 0.15


@pytest.mark.parametrize("method", ["nuslerp", "model_stock"])
def test_interpolation_by_row_is_that_of_each_row_alone(tmp_path: Path, method: str) -> None:
    base, tensors = model(0), [model(n, model(0)) for n in (1, 2)]
    asked: dict[str, Any] = {"flatten": False} if method == "nuslerp" else {"filter_wise": True}
    paths = [saved(tmp_path / f"m{n}", t) for n, t in enumerate(tensors)]
    merge_checkpoints(paths, method, tmp_path / "out", base=saved(tmp_path / "base", base), **asked)
    rows = [saved(tmp_path / f"r{n}", {"a.weight": t["a.weight"][7]}) for n, t in enumerate(tensors)]
    row = saved(tmp_path / "row", {"a.weight": base["a.weight"][7]})
    merge_checkpoints(rows, method, tmp_path / "one", base=row)
    assert torch.allclose(result(tmp_path / "out")["a.weight"][7], result(tmp_path / "one")["a.weight"], atol=1e-7)


def test_nuslerp_by_column_is_by_row_of_the_transpose(tmp_path: Path) -> None:
    tensors = [model(n)["a.weight"] for n in (1, 2)]
    straight = [saved(tmp_path / f"s{n}", {"w": t}) for n, t in enumerate(tensors)]
    turned = [saved(tmp_path / f"t{n}", {"w": t.T.contiguous()}) for n, t in enumerate(tensors)]
    merge_checkpoints(straight, "nuslerp", tmp_path / "columns", weights=[0.7, 0.3], flatten=False, row_wise=True)
    merge_checkpoints(turned, "nuslerp", tmp_path / "rows", weights=[0.7, 0.3], flatten=False)
    assert torch.allclose(result(tmp_path / "columns")["w"], result(tmp_path / "rows")["w"].T, atol=1e-7)


@pytest.mark.parametrize("method", [m for m in METHODS if m not in COUNTS])
def test_tensors_that_are_zero_in_all_models_stay_zero(tmp_path: Path, method: str) -> None:
    """A bias that was never trained has no direction to interpolate."""
    tensors = [model(seed) | {"bias": torch.zeros(24)} for seed in range(4)]
    base, *models = (saved(tmp_path / f"m{n}", own) for n, own in enumerate(tensors))
    merge_checkpoints(models, method, tmp_path / "out", **options_of(method, base, models))
    assert torch.equal(result(tmp_path / "out")["bias"], torch.zeros(24))


def test_arcee_fusion_ranks_rows_that_hardly_changed(tmp_path: Path) -> None:
    """Their divergence is rounding, of either sign; the quartiles are those of the numbers as they are."""
    random = torch.Generator().manual_seed(4)
    base = 0.03 * torch.randn(18, 18, generator=random)
    changed = base + 3e-4 * torch.randn(18, 18, generator=random)
    paths = saved(tmp_path / "base", {"w": base}), saved(tmp_path / "m", {"w": changed})
    merge_checkpoints([paths[1]], "arcee_fusion", tmp_path / "out", base=paths[0])
    p, q = (torch.softmax(tensor, -1) + 1e-8 for tensor in (changed, base))
    divergence = (p * torch.log(p / q)).sum(-1, keepdim=True)
    assert bool((divergence < 0).any())
    importance = (changed - base).abs() * divergence
    q1, median, q3 = importance.flatten().sort().values[[80, 161, 242]]
    kept = importance >= median + 1.5 * (q3 - q1)
    assert 0 < int(kept.sum()) < 162
    assert torch.equal(result(tmp_path / "out")["w"], torch.where(kept, changed, base))


def test_weights_may_differ_by_pattern(checkpoints: tuple[Path, list[Path]], tmp_path: Path) -> None:
    _, models = checkpoints
    merge_checkpoints(models[:2], "linear", tmp_path / "out", weights=[{"a.*": 1.0, "*": 0.0}, {"a.*": 0.0, "*": 1.0}])
    got, (one, two) = result(tmp_path / "out"), (load_file(m / "model.safetensors") for m in models[:2])
    assert torch.equal(got["a.weight"], one["a.weight"])
    assert torch.equal(got["b.weight"], two["b.weight"])


def test_whole_numbers_scalars_and_what_only_the_base_has(tmp_path: Path) -> None:
    shared = {"steps": torch.arange(5), "scale": torch.tensor(2.0), "empty": torch.zeros(0, 3)}
    base = saved(tmp_path / "base", model(0) | shared | {"rotary.inv_freq": torch.ones(4)})
    models = [saved(tmp_path / f"m{n}", model(n) | shared | {"scale": torch.tensor(2.0 + n)}) for n in (1, 3)]
    for method in ("ties", "della", "model_stock", "task_arithmetic"):
        made = merge_checkpoints(models, method, tmp_path / method, base=base, **NEEDS.get(method, {}))
        got = result(tmp_path / method)
        assert made.only_base == ("rotary.inv_freq",)
        assert torch.equal(got["rotary.inv_freq"], torch.ones(4))
        assert torch.equal(got["steps"], torch.arange(5))
        assert got["scale"].shape == () and got["empty"].shape == (0, 3)
    assert float(result(tmp_path / "task_arithmetic")["scale"]) == 6.0
    (other := saved(tmp_path / "other", model(1) | shared | {"steps": torch.arange(5) + 1}))
    with pytest.raises(InputError, match="steps holds no floating-point numbers"):
        merge_checkpoints([models[0], other], "linear", tmp_path / "out")


def test_a_real_model_loads_and_its_manifest_holds(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    for number in range(2):
        torch.manual_seed(number)
        LlamaForCausalLM(config).save_pretrained(tmp_path / f"m{number}")
    config.tie_word_embeddings = False
    LlamaForCausalLM(config).save_pretrained(tmp_path / "untied")
    made = merge_checkpoints([tmp_path / "m0", tmp_path / "m1"], "linear", tmp_path / "out", dtype="bfloat16")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert loaded.dtype == torch.bfloat16
    assert loaded.lm_head.weight.data_ptr() == loaded.model.embed_tokens.weight.data_ptr()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    listed = {path.name for path in (tmp_path / "out").iterdir()} - {"manifest.json"}
    assert manifest["files"].keys() == listed and manifest["digest"] == made.digest
    made = merge_checkpoints([tmp_path / "m0", tmp_path / "untied"], "linear", tmp_path / "both")
    assert made.untied == ("lm_head.weight",)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "both")
    tied = load_file(tmp_path / "m0" / "model.safetensors")["model.embed_tokens.weight"]
    head = load_file(tmp_path / "untied" / "model.safetensors")["lm_head.weight"]
    assert torch.allclose(loaded.lm_head.weight, (tied + head) / 2, atol=1e-7)


def test_errors_say_what_where_and_what_to_do(checkpoints: tuple[Path, list[Path]], tmp_path: Path) -> None:
    base, (one, two, _) = checkpoints
    tensors = model(1)

    def fails(kind: type[Exception], match: str, paths: Sequence[Path], method: str = "linear", **given: Any) -> None:
        with pytest.raises(kind, match=match):
            merge_checkpoints(paths, method, tmp_path / "out", **given)
        assert not [path for path in tmp_path.iterdir() if path.name.startswith((".out", "out"))]

    fails(ValueError, "did you mean ties", [one], "tie", base=base)
    fails(ValueError, "did you mean density", [one], "ties", base=base, densty=0.5)
    fails(ValueError, "ties merges differences from a base", [one], "ties")
    fails(ValueError, "takes 2 models; 1 given", [one], "slerp", t=0.5)
    fails(ValueError, "slerp needs t", [one, two], "slerp")
    fails(ValueError, "at least 2 models besides its base; 1 given", [one], "model_stock", base=base)
    fails(ValueError, "sum to 0.9", [one, two], "convex", weights=[0.5, 0.4])
    fails(ValueError, "non-negative", [one, two], "convex", weights=[1.5, -0.5])
    fails(ValueError, "sum to 0", [one, two], "linear", weights=[1, -1])
    fails(ValueError, "3 values of weights for 2 models", [one, two], weights=[1, 2, 3])
    fails(ValueError, "density lies between", [one], "ties", base=base, density=1.5)
    fails(ValueError, "smaller epsilon", [one], "della", base=base, density=0.9, epsilon=0.2)
    missing = saved(tmp_path / "missing", {n: t for n, t in tensors.items() if n != "b.weight"})
    fails(InputError, "b.weight is in .*m1 and not in .*missing", [one, missing])
    larger = saved(tmp_path / "larger", tensors | {"model.embed_tokens.weight": torch.zeros(50, 24)})
    fails(InputError, "vocabularies differ.* 48 rows .* 50 in", [one, larger])
    wide = saved(tmp_path / "wide", tensors | {"a.weight": torch.zeros(40, 25)})
    fails(InputError, r"a.weight has shape \[40, 24\] in .*\[40, 25\]", [one, wide])
    half = saved(tmp_path / "half", model(1, dtype=torch.bfloat16))
    fails(InputError, 'F32 in .* and BF16 in .*dtype="bfloat16"', [one, half])
    fails(InputError, "does not exist", [one, tmp_path / "nothing"])
    merge_checkpoints([one, half], "linear", tmp_path / "mixed", dtype="bfloat16")
    with pytest.raises(InputError, match="exists already"):
        merge_checkpoints([one, two], "linear", tmp_path / "mixed")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_what_is_not_finite_is_named(
    checkpoints: tuple[Path, list[Path]], tmp_path: Path, method: str, value: float
) -> None:
    base, models = checkpoints
    tensors = load_file(models[0] / "model.safetensors")
    tensors["b.weight"][3, 17] = value
    bad = saved(tmp_path / "bad", tensors)
    paths = [bad, *models[1 : COUNTS.get(method, 3)]]
    with pytest.raises(InputError, match=r"b.weight of .*bad.* not finite, at \[3, 17\]"):
        merge_checkpoints(paths, method, tmp_path / "out", **options_of(method, base, paths))
    assert not (tmp_path / "out").exists()


def test_values_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"m{n}", {"w": torch.full((4,), 6e4)}) for n in (1, 2)]
    with pytest.raises(InputError, match=r"w: the merged value .* does not fit into F16"):
        merge_checkpoints(paths, "linear", tmp_path / "out", normalize=False, dtype="float16")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"m{n}", {"w": torch.ones(1 << 20)}) for n in (1, 2)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(InputError, match="no room to write"):
            merge_checkpoints(paths, "linear", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m1", "m2"]


GROWTH = """
import sys, threading, time
from pathlib import Path
from capibara_assets.consensus.checkpoint_merge import merge_checkpoints

base, one, other, out = map(Path, sys.argv[1:])
wanted = {"base": base, "density": 0.5}
merge_checkpoints([one], "ties", out / "warm", **wanted)

def anonymous():
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in status if line.startswith("RssAnon")).split()[1])

before, done = anonymous(), threading.Event()
peak = before

def watch():
    global peak
    while not done.is_set():
        peak = max(peak, anonymous())
        time.sleep(0.005)

watcher = threading.Thread(target=watch)
watcher.start()
merge_checkpoints([one, other], "ties", out / "out", **wanted)
done.set()
watcher.join()
print(peak - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    """In a process of its own: one that has run a thousand tests has memory to give back, or not, at any moment."""
    tensors = {f"layer.{n}.weight": torch.randn(1 << 10, 1 << 11) for n in range(16)}  # 16 of 8 MB
    paths = [saved(tmp_path / f"m{n}", {k: t + n for k, t in tensors.items()}) for n in range(3)]
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, *map(str, paths), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 96 << 20  # a model is 128 MB


def test_the_command_merges(checkpoints: tuple[Path, list[Path]], tmp_path: Path) -> None:
    base, models = checkpoints
    asked = ["ties", *map(str, models), "--base", str(base), "--out", str(tmp_path / "out"), "--density", "0.5"]
    weights = ["--weight", "0.5", "--weight", "0.3", "--weight", "0.2", "--set", "lambda=0.5", "--json"]
    done = CliRunner().invoke(merge_command, [*asked, *weights], catch_exceptions=False)
    assert json.loads(done.output)["tensors"] == len(SHAPES)
    made = merge_checkpoints(
        models, "ties", tmp_path / "again", base=base, density=0.5, weights=[0.5, 0.3, 0.2], scale=0.5
    )
    assert json.loads(done.output)["digest"] == made.digest
    failed = CliRunner().invoke(merge_command, ["linear", str(models[0]), "--out", str(tmp_path / "x"), "--set", "a=1"])
    assert isinstance(failed.exception, InputError)
