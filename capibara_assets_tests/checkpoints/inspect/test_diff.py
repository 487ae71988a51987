"""Distances of checkpoints against numpy's on whole arrays, what is not read, and what a NaN does."""

import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from capibara_assets.checkpoints import content as contents
from capibara_assets.checkpoints import tree
from capibara_assets.checkpoints.content import Content, of_bytes, of_numpy, of_torch
from capibara_assets.checkpoints.inspect.diff import Diff, NameDiff, Side, diff, layer_of, stored_side
from capibara_assets.checkpoints.store.reading import PieceRead, Reader
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter


def side(name: str, tensors: dict[str, Any], **rest: Any) -> Side:
    sources = {key: of_numpy(np.asarray(value)) for key, value in tensors.items()}
    return Side(name, Content(tensors=sources, **rest))


def compared(a: dict[str, Any], b: dict[str, Any], **rest: Any) -> Diff:
    return diff(side("A", a, **rest), side("B", b, **rest))


def test_distances_are_those_of_the_whole_arrays_across_block_and_piece_borders() -> None:
    random = np.random.default_rng(0)
    a = random.normal(size=(3 << 20) + 7).astype(np.float32)  # 12 MiB: two pieces, a dozen blocks
    b = a.copy()
    b[-5:] += 1  # the last block differs, all others are equal
    b[100] -= 2
    (found,) = compared({"w": a}, {"w": b}).tensors
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert found.status == "changed"
    assert found.l2 == pytest.approx(np.linalg.norm(y - x), rel=1e-12)
    assert found.relative == pytest.approx(np.linalg.norm(y - x) / np.linalg.norm(x), rel=1e-12)
    assert found.cosine == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y), rel=1e-12)
    assert found.max_abs == np.abs(y - x).max()
    assert (found.differing, found.elements, found.not_finite) == (6, x.size, (0, 0))


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float64, np.int8]
)
def test_short_element_types_are_summed_in_float64(dtype: Any) -> None:
    a = np.arange(1, 4001) % 7
    b = a + (np.arange(4000) % 3 == 0)
    (found,) = compared({"w": a.astype(dtype)}, {"w": b.astype(dtype)}).tensors
    assert found.l2 == pytest.approx(math.sqrt(1334), rel=1e-15)
    assert found.norms[0] == pytest.approx(np.linalg.norm(a.astype(np.float64)), rel=1e-15)
    assert found.max_abs == 1


def test_another_element_type_is_compared_by_value_and_another_shape_is_not() -> None:
    a = np.array([1.0, 2.0, 3.0], np.float32)
    found = compared({"w": a, "v": a}, {"w": a.astype(ml_dtypes.bfloat16), "v": a.reshape(1, 3)})
    v, w = found.tensors
    assert (w.status, w.dtypes, w.l2, w.differing, w.cosine) == ("other dtype", ("F32", "BF16"), 0.0, 0, 1.0)
    assert (v.status, v.shapes, v.l2) == ("other shape", ((3,), (1, 3)), None)
    assert not found.equal
    empty = np.empty((0, 3), np.float32)
    assert compared({"e": empty}, {"e": empty.astype(np.float16)}).tensors[0].status == "other dtype"
    assert compared({"e": empty}, {"e": empty}).equal


def test_pieces_of_types_of_other_sizes_are_brought_together() -> None:
    """16 MiB of float64 are two pieces, the same numbers in float8 a part of one."""
    a = (np.arange((2 << 20) + 3) % 5).astype(np.float64)
    b = a.copy()
    b[-1] += 4
    (found,) = compared({"w": a}, {"w": b.astype(ml_dtypes.float8_e4m3fn)}).tensors
    assert (found.status, found.l2, found.differing) == ("other dtype", 4.0, 1)


def test_complex_numbers_count_with_both_parts() -> None:
    a, b = np.array([1 + 1j, 2, 0]), np.array([1 + 1j, 2, 3 + 4j])
    (found,) = compared({"w": a.astype(np.complex64)}, {"w": b.astype(np.complex64)}).tensors
    assert (found.l2, found.max_abs, found.differing) == (5.0, 5.0, 1)
    assert found.cosine == pytest.approx(np.vdot(a, b).real / np.linalg.norm(a) / np.linalg.norm(b))


@given(
    arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)),
    arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)),
)
def test_whatever_the_numbers_equal_means_equal_bits_and_distances_are_of_the_finite_ones(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]
) -> None:
    length = min(len(a), len(b))
    a, b = a[:length], b[:length]
    (found,) = compared({"w": a}, {"w": b}).tensors
    assert (found.status == "equal") == (a.tobytes() == b.tobytes())
    finite = np.isfinite(a) & np.isfinite(b)
    assert found.not_finite == (int((~np.isfinite(a)).sum()), int((~np.isfinite(b)).sum()))
    x, y = a[finite].astype(np.float64), b[finite].astype(np.float64)
    assert found.l2 == pytest.approx(np.linalg.norm(y - x))
    assert compared({"w": a}, {"w": a}).equal


def test_a_layer_that_went_out_of_the_numbers_is_first_and_said() -> None:
    a = {f"layers.{n}.weight": np.ones(4, np.float32) for n in range(3)}
    b = {
        "layers.0.weight": a["layers.0.weight"] * 3,
        "layers.1.weight": np.array([1, np.nan, np.inf, 1], np.float32),
        "layers.2.weight": a["layers.2.weight"] * 2,
    }
    found = compared(a, b)
    assert [layer.layer for layer in found.layers] == ["layers.1", "layers.0", "layers.2"]
    assert found.layers[0].not_finite == (0, 2)
    assert [layer.relative for layer in found.layers] == [0.0, 2.0, 1.0]


def test_layers_are_told_by_their_number_and_those_without_by_their_module() -> None:
    names = {
        "model.layers.3.self_attn.q_proj.weight": "model.layers.3",
        "base_model.model.model.layers.11.mlp.up_proj.lora_A.weight": "model.layers.11",
        "encoder.block.0.layer.1.DenseReluDense.wi_0.weight": "encoder.block.0",
        "target/encoder/layers_0/attention/query/kernel": "target/encoder/layers_0",
        "optimizer/state/12/exp_avg": "optimizer/state/12",
        "model/h.5.attn.weight": "model/h.5",
        "model.norm.weight": "model.norm",
        "model.embed_tokens.lora_embedding_A": "model.embed_tokens",
        "fc1.weight": "fc1",
        "lm_head.lora_B.weight": "lm_head",
        "weight": "weight",
    }
    assert {name: layer_of(name) for name in names} == names


def test_added_removed_files_values_and_ties() -> None:
    def state(step: int, extra: bool) -> Content:
        shared = torch.ones(3)
        nested = {"w": shared, "head": shared, "lr": 0.1, "step": step, "only": torch.zeros(1) if extra else 0}
        tensors, shape, ties = tree.flatten(nested)
        files = {"config.json": of_bytes(b"%d" % step), "same.txt": of_bytes(b"x")}
        return Content({name: of_torch(t) for name, t in tensors.items()}, tree=shape, ties=ties, files=files)

    found = diff(Side("A", state(1, True)), Side("B", state(2, False)))
    assert [tensor.name for tensor in found.tensors] == ["w"]  # `head` is the same tensor on both sides
    assert (found.added, found.removed) == ((), ("only",))
    assert (found.files.changed, found.files.added, found.values.changed) == (("config.json",), (), ("step",))
    assert found.values.added == ("only",)


def test_a_tie_that_came_undone_is_compared_by_value() -> None:
    one, two = of_torch(torch.ones(2)), of_torch(torch.tensor([1.0, 5.0]))
    tied = Content({"w": one}, ties={"head": "w"})
    found = diff(Side("A", tied), Side("B", Content({"w": one, "head": two})))
    assert [(tensor.name, tensor.l2) for tensor in found.tensors] == [("head", 4.0), ("w", 0.0)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Digests of the pieces that are read from stores, as they are read."""
    found: list[str] = []
    read = Reader.read

    def noted(reader: Reader, job: PieceRead) -> None:
        found.append(job.digest)
        read(reader, job)

    monkeypatch.setattr(Reader, "read", noted)
    return found


def test_of_two_checkpoints_of_a_store_only_what_differs_is_read_twice(tmp_path: Path, reads: list[str]) -> None:
    random = np.random.default_rng(4)
    store = CheckpointStore(tmp_path / "store")
    a = random.normal(size=(contents.PIECE // 4 * 3 + 5)).astype(np.float32)  # three pieces and a bit
    b = a.copy()
    b[contents.PIECE // 4 + 1] = np.nan
    b[-1] += 1
    frozen = torch.ones(1000)
    files = {"config.json": b"{}"}
    one = store.open(store.save({"w": torch.from_numpy(a), "f": frozen, "t": frozen}, 1, "m", files=files))
    two = store.open(store.save({"w": torch.from_numpy(b), "f": frozen, "t": frozen}, 2, "m", files=files))
    reads.clear()
    found = diff(stored_side("m@v1", one), stored_side("m@v2", two))
    ours, theirs = one.manifest.tensors["w"].pieces, two.manifest.tensors["w"].pieces
    assert sorted(reads) == sorted([*ours, theirs[1], theirs[3]])
    tensors = {tensor.name: tensor for tensor in found.tensors}
    assert (tensors["f"].status, tensors["f"].l2) == ("equal", None)
    whole = compared({"w": a}, {"w": b}).tensors[0]
    changed = tensors["w"]
    assert (changed.differing, changed.not_finite, changed.max_abs) == (2, (0, 1), whole.max_abs)
    assert (changed.l2, changed.relative, changed.cosine) == pytest.approx((whole.l2, whole.relative, whole.cosine))
    assert found.files == NameDiff((), (), ()) and found.values == NameDiff((), (), ())

    reads.clear()
    assert diff(stored_side("m@v1", one), stored_side("m@v1", one)).equal and reads == []
    copy = CheckpointStore(tmp_path / "other")  # digests of another store say nothing: all is read
    other = copy.write(one.content(), one.manifest.about)
    reads.clear()
    assert diff(stored_side("m@v1", one), stored_side("m@v1", other)).equal
    assert len(reads) == 2 * (len(ours) + 1)


def test_one_block_is_in_flight_not_the_tensor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "w"
    path.write_bytes(bytes(64 << 20))
    source = contents.InFile(path, "BF16", (32 << 20,))
    tracemalloc.start()
    diff(Side("A", Content({"w": source})), Side("B", Content({"w": source})))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * contents.PIECE + (24 << 20)


def adapter(r: int, alpha: int, seed: int, out: int = 9, into: int = 7, **config: Any) -> tuple[Content, Any, Any]:
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(r, into)).astype(np.float32), random.normal(size=(out, r)).astype(np.float32)
    return of_factors(a, b, r=r, lora_alpha=alpha, **config), a, b


def of_factors(a: Any, b: Any, **config: Any) -> Content:
    prefix = "base_model.model.model.layers.0.q_proj"
    tensors = {f"{prefix}.lora_A.weight": of_numpy(a), f"{prefix}.lora_B.weight": of_numpy(b)}
    stated = json.dumps({"peft_type": "LORA"} | config).encode()
    return Content(tensors, kind="adapter", files={"adapter_config.json": of_bytes(stated)})


def test_weight_changes_of_lora_are_compared_whatever_their_ranks() -> None:
    one, a1, b1 = adapter(4, 8, 1)
    two, a2, b2 = adapter(2, 8, 2, use_rslora=True)
    found = diff(Side("A", one), Side("B", two))
    (delta,) = found.deltas
    first = 2.0 * (b1.astype(float) @ a1.astype(float))
    second = 8 / math.sqrt(2) * (b2.astype(float) @ a2.astype(float))
    assert (delta.module, delta.ranks, delta.scales) == ("model.layers.0.q_proj", (4, 2), (2.0, 8 / math.sqrt(2)))
    assert delta.l2 == pytest.approx(np.linalg.norm(second - first), rel=1e-12)
    assert delta.relative == pytest.approx(np.linalg.norm(second - first) / np.linalg.norm(first), rel=1e-12)
    assert delta.cosine == pytest.approx(
        np.sum(first * second) / np.linalg.norm(first) / np.linalg.norm(second), rel=1e-12
    )
    assert [tensor.status for tensor in found.tensors] == ["other shape", "other shape"]
    (layer,) = found.layers
    assert (layer.layer, layer.delta_l2, layer.delta_relative) == ("model.layers.0", delta.l2, delta.relative)


def test_the_same_change_by_other_factors_is_no_change_to_thirteen_digits() -> None:
    one, a, b = adapter(3, 3, 5)
    turn = np.linalg.qr(np.random.default_rng(6).normal(size=(3, 3)))[0].astype(np.float32)
    turn = turn.astype(np.float64)
    other = of_factors(np.linalg.inv(turn) @ a.astype(float), b.astype(float) @ turn, r=3, lora_alpha=3)
    (delta,) = diff(Side("A", one), Side("B", other)).deltas
    assert delta.relative is not None and delta.relative < 1e-14
    assert delta.cosine == pytest.approx(1, abs=1e-14)


def test_equal_factors_under_another_alpha_are_another_adapter() -> None:
    one, a, b = adapter(2, 4, 3)
    found = diff(Side("A", one), Side("B", of_factors(a, b, r=2, lora_alpha=8)))
    assert [tensor.status for tensor in found.tensors] == ["equal", "equal"]
    (delta,) = found.deltas
    assert (delta.relative, delta.cosine) == (pytest.approx(1.0), pytest.approx(1.0))
    assert [layer.layer for layer in found.layers] == ["model.layers.0"]
    assert found.files.changed == ("adapter_config.json",)
    assert not found.equal
    assert diff(Side("A", one), Side("B", one)).deltas == ()


def test_the_distance_of_weight_changes_is_that_of_the_adapters_own_code() -> None:
    one, a1, b1 = adapter(4, 8, 1, alpha_pattern={"q_proj": 32})
    two, a2, b2 = adapter(4, 8, 2)
    names = [f"base_model.model.model.layers.0.q_proj.lora_{half}.weight" for half in "AB"]
    dense = [
        LoraAdapter(config, dict(zip(names, map(torch.from_numpy, pair), strict=True))).delta("model.layers.0.q_proj")
        for config, pair in (
            ({"r": 4, "lora_alpha": 8, "alpha_pattern": {"q_proj": 32}}, (a1, b1)),
            ({"r": 4, "lora_alpha": 8}, (a2, b2)),
        )
    ]
    (delta,) = diff(Side("A", one), Side("B", two)).deltas
    assert delta.l2 == pytest.approx(float(torch.linalg.norm(dense[1] - dense[0])), rel=1e-6)


def test_factors_that_are_not_finite_and_scales_that_are_unknown_are_said() -> None:
    one, a, b = adapter(2, 4, 3)
    nan = of_factors(np.full_like(a, np.nan), b, r=2, lora_alpha=4)
    (delta,) = diff(Side("A", one), Side("B", nan)).deltas
    assert (delta.l2, delta.cosine) == (None, None)
    bare = Content(nan.tensors)
    found = diff(Side("A", one), Side("B", bare))
    assert found.notes == ("weight changes are not compared: B has no adapter_config.json, so its scale is unknown",)
    dora = of_factors(a, 2 * b, r=2, lora_alpha=4, use_dora=True)
    assert "DoRA" in diff(Side("A", one), Side("B", dora)).notes[0]
    broken = Content(one.tensors, files={"adapter_config.json": of_bytes(b"{")})
    with pytest.raises(InputError, match=r"adapter_config\.json of B is not JSON"):
        diff(Side("A", one), Side("B", broken))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"r": 0}, "r is 0, expected a whole number from 1"),
        ({"r": -1}, "r is -1, expected"),
        ({"r": 2.5}, "r is 2.5, expected"),
        ({"r": True}, "r is True, expected"),
        ({"lora_alpha": float("nan")}, "lora_alpha is nan, expected a finite number"),
        ({"alpha_pattern": {"q_proj": "x"}}, "alpha_pattern of 'q_proj' is 'x', expected a finite number"),
        ({"rank_pattern": {"q_proj": -1}}, "rank_pattern of 'q_proj' is -1, expected a whole number from 1"),
        ({"rank_pattern": [1]}, "rank_pattern is no object"),
        ({"peft_type": "EVIL"}, "peft_type is 'EVIL', expected 'LORA'"),
        ({"peft_type": None}, "peft_type is None, expected 'LORA'"),
    ],
)
def test_an_adapter_without_a_scale_is_refused_on_either_side(config: dict[str, Any], said: str) -> None:
    one, a, b = adapter(2, 4, 3)
    odd = of_factors(a, 2 * b, **({"r": 2, "lora_alpha": 4} | config))
    for first, second, name in ((one, odd, "B"), (odd, one, "A")):
        with pytest.raises(InputError) as caught:
            diff(Side("A", first), Side("B", second))
        assert str(caught.value).startswith(f"adapter_config.json of {name}: {said}")


def test_a_setting_that_is_stated_twice_is_no_setting() -> None:
    one, _, _ = adapter(2, 4, 3)
    twice = Content(one.tensors, files={"adapter_config.json": of_bytes(b'{"r": 2, "lora_alpha": 4, "r": 8}')})
    with pytest.raises(InputError, match=r"adapter_config\.json of B is ambiguous: 'r' is there twice"):
        diff(Side("A", one), Side("B", twice))
