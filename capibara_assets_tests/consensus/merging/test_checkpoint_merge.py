"""Merging checkpoints: real files in every layout, any order and number of threads, errors by name."""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from capibara_assets.checkpoints.formats import huggingface
from capibara_assets.cli.checkpoint.merge import merge as merge_command
from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints
from capibara_assets.consensus.merging.methods import METHODS
from capibara_assets.errors import InputError
from capibara_assets_tests.consensus.small_checkpoints import COUNTS, NEEDS, SHAPES, model, options_of, result, saved


def sharded(folder: Path, source: Path, size: int) -> Path:
    """The same model in shards, written by the checkpoints' own writer."""
    content = huggingface.read(source)
    fresh = type(content)(content.tensors, content.kind, files=content.files)
    huggingface.write(fresh, folder, max_shard_size=size)
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


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


def test_models_that_differ_late_are_told_apart(tmp_path: Path) -> None:
    base = torch.zeros(1 << 15)
    one, two = base.clone(), base.clone()
    one[1 << 14 :], two[1 << 14 :] = 1.0, 2.0
    start = saved(tmp_path / "base", {"w": base})
    paths = [saved(tmp_path / "m1", {"w": one}), saved(tmp_path / "m2", {"w": two})]
    for name, places in (("a", paths), ("b", paths[::-1])):
        merge_checkpoints(places, "dare_linear", tmp_path / name, base=start, density=0.5)
    assert torch.equal(result(tmp_path / "a")["w"], result(tmp_path / "b")["w"])


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


def test_a_model_without_output_layer_is_not_merged(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=False,
    )  # fmt: skip
    for number in range(2):
        LlamaForCausalLM(config).save_pretrained(tmp_path / f"m{number}")
    merge_checkpoints([tmp_path / "m0", tmp_path / "m1"], "linear", tmp_path / "whole")
    for number in range(2):
        file = tmp_path / f"m{number}" / "model.safetensors"
        tensors = load_file(file)
        del tensors["lm_head.weight"]
        save_file(tensors, file, {"format": "pt"})
    with pytest.raises(InputError, match=r"m0 has no output layer, and its config\.json does not tie one"):
        merge_checkpoints([tmp_path / "m0", tmp_path / "m1"], "linear", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_errors_say_what_where_and_what_to_do(checkpoints: tuple[Path, list[Path]], tmp_path: Path) -> None:
    base, (one, two, _) = checkpoints
    tensors = model(1)

    def fails(kind: type[Exception], match: str, paths: Sequence[Path], method: str = "linear", **given: Any) -> None:
        with pytest.raises(kind, match=match):
            merge_checkpoints(paths, method, tmp_path / "out", **given)
        assert not [path for path in tmp_path.iterdir() if path.name.startswith((".out", "out"))]

    fails(ValueError, "did you mean 'ties'", [one], "tie", base=base)
    fails(ValueError, "did you mean 'density'", [one], "ties", base=base, densty=0.5)
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


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('{"hidden_size": -32}', "hidden_size is -32, models have 1 to"),
        ('{"num_attention_heads": 0}', "num_attention_heads is 0, models have 1 to"),
        ('{"vocab_size": "4096"}', "vocab_size is '4096', expected a whole number"),
        ('{"rope_theta": -1}', "rope_theta is -1, expected"),
        ('{"dtype": "float3"}', "dtype is 'float3', expected"),
        ('{"r": 1, "r": 1}', "is ambiguous: 'r' is there twice"),
        ("\ufeff{}", "byte order mark"),
        ("[]", "expected a JSON object, found list"),
        ('{"vocab_size": 9, "eos_token_id": 999}', "eos_token_id"),
    ],
)
def test_a_config_of_no_model_is_not_merged(config: str, said: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "one", model(1))
    (folder / "config.json").write_text(config, "utf-8")
    with pytest.raises(InputError) as caught:
        merge_checkpoints([folder], "linear", tmp_path / "out")
    assert said in str(caught.value) and str(folder / "config.json") in str(caught.value)


LIKE = {"model_type": "llama", "hidden_act": "silu", "rope_theta": 1e4, "rms_norm_eps": 1e-5, "vocab_size": 9}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"model_type": "mistral"}, "model_type is llama in "),
        ({"rope_theta": 5e6}, "rope_parameters is .*10000.0.* in "),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 5e6, "rope_type": "default"}}, "rope_parameters is "),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}}, ""),
        ({"rope_scaling": {"type": "linear", "factor": 8.0}}, "rope_parameters is "),
        ({"hidden_act": None}, ""),
        ({"rms_norm_eps": None}, "rms_norm_eps is 1e-05 in "),  # the default of the class
        ({"hidden_act": "gelu"}, "hidden_act is silu in "),
        ({"rms_norm_eps": 0.1}, "rms_norm_eps is 1e-05 in "),
        ({"max_position_embeddings": 77, "_name_or_path": "x", "eos_token_id": 3}, ""),
        ({"rope_theta": None}, ""),
    ],
)
def test_models_that_make_something_else_of_equal_tensors_are_not_merged(
    other: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """What one makes of the other's weights is noise, and no shape tells."""
    config = {name: value for name, value in {**LIKE, **other}.items() if value is not None}
    models = [saved(tmp_path / "one", model(1), LIKE), saved(tmp_path / "two", model(2), config)]
    if not said:
        merge_checkpoints(models, "linear", tmp_path / "out", weights=[0.5, 0.5])
        return
    with pytest.raises(InputError, match=f"^{said}.*one/config.json and .*: merge checkpoints of the same arch"):
        merge_checkpoints(models, "linear", tmp_path / "out", weights=[0.5, 0.5])


INFINITE = [("linear", float("-inf"))]  # one sum tells both; of the others in `make test-all`
INFINITE += [
    pytest.param(method, float("-inf"), marks=pytest.mark.extended) for method in METHODS if method != "linear"
]


@pytest.mark.parametrize(("method", "value"), [*((method, float("nan")) for method in METHODS), *INFINITE])
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


@pytest.mark.parametrize("odd", [{"weights": [1e308, 1e308]}, {"weights": 10**400}, {"weights": [-1e31, 1.0]}], ids=str)
def test_weights_that_no_sum_holds_are_refused(tmp_path: Path, odd: dict[str, Any]) -> None:
    paths = [saved(tmp_path / f"m{n}", {"w": torch.ones(4)}) for n in (1, 2)]
    with pytest.raises(ValueError, match="weights is a number"):
        merge_checkpoints(paths, "linear", tmp_path / "out", **odd)
    assert merge_checkpoints(paths, "linear", tmp_path / "out", weights=[1e30, 1e30]).tensors == 1


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
from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints

base, one, other, small, out = map(Path, sys.argv[1:])
wanted = {"density": 0.5}
# Kernels are compiled, and torch's threads started, by a merge that takes the same way with next to nothing.
merge_checkpoints([small / "m1", small / "m2"], "ties", out / "warm", base=small / "m0", **wanted)

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
merge_checkpoints([one, other], "ties", out / "out", base=base, **wanted)
done.set()
watcher.join()
print(peak - before)
"""


@pytest.mark.parametrize(("rows", "layers"), [(1 << 7, 24), pytest.param(1 << 10, 16, marks=pytest.mark.extended)])
def test_memory_does_not_grow_with_the_model(tmp_path: Path, rows: int, layers: int) -> None:
    """In a process of its own: one that has run a thousand tests has memory to give back, or not, at any moment."""
    tensors = {f"layer.{n}.weight": torch.randn(rows, 1 << 11) for n in range(layers)}
    paths = [saved(tmp_path / f"m{n}", {k: t + n for k, t in tensors.items()}) for n in range(3)]
    small = tmp_path / "small"
    small.mkdir()
    for n in range(3):
        # many entries are equal, so that some are at the cut: these take a sort, as some of the large tensors do
        saved(small / f"m{n}", {"layer.0.weight": torch.arange(1 << 14).reshape(1 << 7, 1 << 7) % 5 * float(n)})
    asked = [sys.executable, "-c", GROWTH, *map(str, (*paths, small, tmp_path))]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    whole = sum(tensor.nbytes for tensor in tensors.values())  # 128 MiB, 24 in `make test`
    assert int(done.stdout) < whole * 3 // 4


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
