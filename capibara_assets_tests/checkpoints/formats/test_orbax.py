"""Orbax's checkpoints: what Orbax's own checkpointers write is read, what we write they restore."""

import json
import shutil
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from capibara_assets.checkpoints.content import Content, of_bytes, of_numpy, to_bytes, to_numpy
from capibara_assets.checkpoints.formats import convert, detect_format, huggingface, orbax, zarr
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets_tests.checkpoints.formats.kept import bytes_of, kept
from capibara_assets_tests.checkpoints.formats.nested_states import (
    assert_same,
    bits,
    flat_contents,
    nested_contents,
    ordered,
    values,
)
from capibara_assets_tests.late import late

ocp = late("orbax.checkpoint", reason="the extra tpu is not installed")
jax = late("jax", reason="the extra tpu is not installed")

RANDOM = np.random.default_rng(0)
STATE = {
    "params": {
        "dense": {
            "kernel": RANDOM.standard_normal((7, 5)).astype(np.float32),
            "bias": np.array([1.5, -0.0, np.nan], ml_dtypes.bfloat16),
        },
        "f8": np.arange(4).astype(ml_dtypes.float8_e4m3fn),
        "with.point": np.arange(3, dtype=np.int8),
    },
    "opt": [np.arange(6, dtype=np.uint16).reshape(2, 3), {"count": np.array(3, np.int32)}, None, {}],
    "step": 12,
    "rate": 0.1,
    "done": False,
    "name": "run 1",
    "temperature": np.float32(0.7),
}
TENSORS = {
    "params/dense/kernel": STATE["params"]["dense"]["kernel"],
    "params/dense/bias": STATE["params"]["dense"]["bias"],
    "params/f8": STATE["params"]["f8"],
    "params/with.point": STATE["params"]["with.point"],
    "opt/0": STATE["opt"][0],
    "opt/1/count": STATE["opt"][1]["count"],
    "temperature": STATE["temperature"],
}
VALUES = {"step": 12, "rate": 0.1, "done": False, "name": "run 1"}


def save(handler, folder: Path, state=None) -> None:
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(folder, state or STATE)


def restore(folder: Path):
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        return checkpointer.restore(folder)


def flat(node, keys=()) -> dict:
    """Every leaf of what Orbax restored: arrays by their bits."""
    if isinstance(node, dict | list | tuple) and node:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        return {name: leaf for key, child in items for name, leaf in flat(child, (*keys, str(key))).items()}
    return {keys: bits(node) if hasattr(node, "dtype") else (type(node), node)}


@pytest.mark.parametrize(
    "how", [{}, {"use_ocdbt": False}, {"use_zarr3": True}, {"use_zarr3": True, "use_ocdbt": False}]
)
def test_what_orbax_wrote_is_read_bit_for_bit(tmp_path: Path, how: dict):
    save(ocp.PyTreeCheckpointHandler(**how), tmp_path / "item")
    content = orbax.read(tmp_path / "item")
    assert {name: bits(to_numpy(source)) for name, source in content.tensors.items()} == {
        name: bits(array) for name, array in TENSORS.items()
    }
    tree = dict(content.tree["dict"])
    assert {name: tree[name]["value"] for name in VALUES} == VALUES
    assert [type(tree[name]["value"]) for name in VALUES] == [type(value) for value in VALUES.values()]
    assert tree["opt"]["list"][2:] == [{"value": None}, {"dict": []}]
    assert content.files == {} and content.origin["scalars"] == ["temperature"]
    assert orbax.detect(tmp_path / "item") and detect_format(tmp_path / "item") == "orbax"


@pytest.mark.parametrize("how", [{}, {"use_ocdbt": False}])
def test_there_and_back_orbax_restores_the_same(tmp_path: Path, how: dict):
    save(ocp.PyTreeCheckpointHandler(**how), tmp_path / "item")
    orbax.write(kept(orbax.read(tmp_path / "item")), tmp_path / "again")
    assert flat(restore(tmp_path / "again")) == flat(restore(tmp_path / "item"))
    again, first = orbax.read(tmp_path / "again"), orbax.read(tmp_path / "item")
    assert_same(again, first)
    assert again.origin == first.origin


def test_standard_checkpointer_reads_ours_and_we_its(tmp_path: Path):
    state = {"a": {"b": np.arange(6.0).reshape(2, 3)}, "c": jax.numpy.ones((3,), "bfloat16"), "n": 3}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "theirs", state)
    content = orbax.read(tmp_path / "theirs")
    assert {name: bits(to_numpy(source)) for name, source in content.tensors.items()} == {
        "a/b": bits(state["a"]["b"]),
        "c": bits(state["c"]),
    }
    orbax.write(content, tmp_path / "ours")
    with ocp.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "ours", jax.tree.map(np.zeros_like, state))
    assert bits(restored["a"]["b"]) == bits(state["a"]["b"]) and bits(restored["c"]) == bits(state["c"])
    assert restored["n"] == 3


def test_steps_of_a_manager_with_their_metrics(tmp_path: Path):
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"], best_mode="min")
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        for step in (3, 20):
            tree = {"w": np.full((2, 2), step, np.float32)}
            manager.save(step, args=ocp.args.StandardSave(tree), metrics={"loss": 1.0 / step})
            manager.wait_until_finished()
    with pytest.raises(InputError, match="several steps: name one of 3, 20"):
        orbax.read(tmp_path / "run")
    content = orbax.read(tmp_path / "run/20")
    assert to_numpy(content.tensors["w"])[0, 0] == 20
    assert {name: json.loads(to_bytes(file)) for name, file in content.files.items()} == {
        "metrics/metrics": {"loss": 0.05}
    }
    assert orbax.detect(tmp_path / "run") and orbax.detect(tmp_path / "run/20/default")


def test_a_step_of_several_items_gives_a_tree_each(tmp_path: Path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        items = {"params": {"w": np.ones(2)}, "opt": {"w": np.zeros(3)}}
        save_args = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        manager.save(1, args=ocp.args.Composite(**save_args, info=ocp.args.JsonSave({"lr": 1})))
        manager.wait_until_finished()
    content = orbax.read(tmp_path / "run")
    assert {name: bits(to_numpy(source)) for name, source in content.tensors.items()} == {
        "params/w": bits(np.ones(2)),
        "opt/w": bits(np.zeros(3)),
    }
    assert {name: json.loads(to_bytes(file)) for name, file in content.files.items()} == {"info/metadata": {"lr": 1}}


@settings(max_examples=settings.default.max_examples // 3, deadline=None)
@given(flat_contents(empty=False))
def test_flat_names_come_back_and_orbax_restores_them_nested(content: Content):
    with tempfile.TemporaryDirectory() as folder:
        orbax.write(kept(content), Path(folder) / "out")
        assert_same(orbax.read(Path(folder) / "out"), content)
        assert flat(restore(Path(folder) / "out")) == {
            tuple(name.split(".")): bits(to_numpy(content.tensors[content.ties.get(name, name)]))
            for name in (*content.tensors, *content.ties)
        }


@settings(max_examples=settings.default.max_examples // 3, deadline=None)
@given(nested_contents(empty=False, tuples=True))
def test_nested_states_come_back(content: Content):
    with tempfile.TemporaryDirectory() as folder:
        orbax.write(kept(content), Path(folder) / "out")
        assert_same(orbax.read(Path(folder) / "out"), content)


def test_a_hugging_face_model_goes_there_and_back(tmp_path: Path):
    content = Content(
        {
            "model.embed.weight": of_numpy(np.arange(12, dtype=np.float32).reshape(4, 3)),
            "model.layers.0.q.weight": of_numpy(np.ones((3, 3), ml_dtypes.bfloat16)),
        },
        kind="model",
        files={"config.json": of_bytes(b'{"model_type": "x"}'), "sub/vocab.txt": of_bytes(b"a\nb")},
    )
    huggingface.write(content, tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "orbax", "orbax")
    convert(tmp_path / "orbax", tmp_path / "t5x", "t5x")
    convert(tmp_path / "t5x", tmp_path / "back", "huggingface")
    assert bytes_of(tmp_path / "back") == bytes_of(tmp_path / "hf")


def test_a_nested_checkpoint_of_others_gets_names_with_points_and_loses_nothing(tmp_path: Path):
    params = {"layer": {"0": {"w": np.ones((2, 2), np.float32)}, "1": {"w": np.zeros(2, np.float32)}}}
    save(ocp.PyTreeCheckpointHandler(), tmp_path / "item", params)
    convert(tmp_path / "item", tmp_path / "hf", "huggingface")
    assert huggingface.read(tmp_path / "hf").tensors.keys() == {"layer.0.w", "layer.1.w"}
    convert(tmp_path / "hf", tmp_path / "again", "orbax")
    assert flat(restore(tmp_path / "again")) == flat(params)
    save(ocp.PyTreeCheckpointHandler(), tmp_path / "whole")
    with pytest.raises(InputError) as caught:
        convert(tmp_path / "whole", tmp_path / "no", "huggingface")
    for text in ("done (plain value)", "name (plain value)", "step (plain value)"):
        assert text in str(caught.value)


def test_points_in_the_keys_of_others_stay_there(tmp_path: Path):
    state = {"w.kernel": np.ones(2), "b%20#?": np.zeros(2)}
    for how in ({}, {"use_ocdbt": False}):
        name = "".join(how)
        save(ocp.PyTreeCheckpointHandler(**how), tmp_path / f"it%em#{name}", state)
        content = orbax.read(tmp_path / f"it%em#{name}")
        assert {key: bits(to_numpy(source)) for key, source in content.tensors.items()} == {
            key: bits(array) for key, array in state.items()
        }
        orbax.write(content, tmp_path / f"again#{name}")
        assert flat(restore(tmp_path / f"again#{name}")) == flat(state)
    with pytest.raises(InputError, match=r"w\.kernel \(a point in a key\)"):
        huggingface.write(content, tmp_path / "hf")


def test_ties_tuples_and_ordered_dictionaries_come_back_and_others_see_plain_ones(tmp_path: Path):
    tree = {"odict": [["z", {"parameter": "z"}], ["a", {"tuple": [{"tensor": "a/0"}, {"float": "inf"}]}]]}
    content = Content({"z": of_numpy(np.ones(2))}, tree=tree, ties={"a/0": "z"})
    orbax.write(content, tmp_path / "out")
    back = orbax.read(tmp_path / "out")
    assert back.tree == tree and back.ties == content.ties and values(back.tensors) == values(content.tensors)
    restored = restore(tmp_path / "out")
    assert bits(restored["a"][0]) == bits(restored["z"]) and restored["a"][1] == float("inf")


def test_metadata_of_its_writer_is_kept(tmp_path: Path):
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        arguments = ocp.args.PyTreeSave({"w": np.ones(2)}, custom_metadata={"tokens": 5, "by": ["me"]})
        checkpointer.save(tmp_path / "theirs", args=arguments)
    orbax.write(orbax.read(tmp_path / "theirs"), tmp_path / "ours")
    metadata = ocp.PyTreeCheckpointHandler().metadata(tmp_path / "ours")
    assert metadata.custom_metadata == {"tokens": 5, "by": ["me"]}


def test_large_tensors_are_written_and_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(zarr, "CHUNK", 1 << 16)
    array = RANDOM.standard_normal((480, 300))
    prime = RANDOM.standard_normal((97, 301))  # no number of rows divides it evenly
    orbax.write(Content({"a.b": of_numpy(array), "a.c": of_numpy(prime)}), tmp_path / "out")
    metadata = ocp.PyTreeCheckpointHandler().metadata(tmp_path / "out").tree["a"]
    assert metadata["b"].storage.chunk_shape == (24, 300) and metadata["c"].storage.chunk_shape == (25, 301)
    back = orbax.read(tmp_path / "out")
    assert to_numpy(back.tensors["a.b"]).tobytes() == array.tobytes()
    assert to_numpy(back.tensors["a.c"]).tobytes() == prime.tobytes()


def test_what_orbax_cannot_carry_is_named(tmp_path: Path):
    tree = {
        "dict": [
            ["e", {"tensor": "e"}],
            [3, {"tensor": "x"}],
            ["b", {"bytes": ""}],
            ["a/b", {"tensor": "x"}],
            ["x", {"tensor": "x"}],
        ]
    }
    content = Content({"e": of_numpy(np.ones((0, 2))), "x": of_numpy(np.ones(2))}, tree=tree)
    with pytest.raises(InputError) as caught:
        orbax.write(content, tmp_path / "out")
    for text in ("cannot carry 4", "e (a tensor without", "3 (its key is no text)", "b (a bytes)", "a~1b (a key"):
        assert text in str(caught.value)
    tree = {"dict": [["a.b", {"tensor": "x"}], ["a", {"dict": [["b", {"tensor": "y"}]]}]]}
    with pytest.raises(InputError, match=r"a\.b and a/b in one place"):
        ones = of_numpy(np.ones(1))
        orbax.write(Content({"x": ones, "y": ones}, tree=tree), tmp_path / "out")
    with pytest.raises(InputError, match="files called _METADATA, d/x"):
        orbax.write(Content({"x": ones}, files=dict.fromkeys(("_METADATA", "d/x"), of_bytes(b""))), tmp_path / "out")
    with pytest.raises(InputError, match="nothing in it"):
        orbax.write(Content({}), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_fails_leaves_nothing_behind_and_its_own_error(tmp_path: Path):
    class Damaged:
        dtype, shape = "F32", (4, 4)

        def pieces(self):
            yield memoryview(bytes(32))
            raise IntegrityError("pack 12 is damaged")

    with pytest.raises(IntegrityError, match="pack 12 is damaged"):
        orbax.write(Content({"a.b": Damaged(), "a.c": of_numpy(np.ones(3))}), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_damage_is_found(tmp_path: Path):
    orbax.write(Content({"a.b": of_numpy(RANDOM.standard_normal((64, 64)))}), tmp_path / "out")
    data = max((path for path in (tmp_path / "out").rglob("d/*")), key=lambda path: path.stat().st_size)
    whole = data.read_bytes()
    data.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"a\.b|arrays do not fit"):
        to_numpy(orbax.read(tmp_path / "out").tensors["a.b"])
    data.write_bytes(whole)
    (tmp_path / "out/manifest.ocdbt").unlink()
    with pytest.raises(InputError, match="do not fit"):
        orbax.read(tmp_path / "out")


@pytest.mark.parametrize("ocdbt", [True, False])
def test_an_array_that_the_metadata_does_not_name_is_not_lost(tmp_path: Path, ocdbt: bool):
    save(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt), tmp_path / "out")
    assert "temperature" in orbax.read(tmp_path / "out").tensors
    file = tmp_path / "out" / "_METADATA"
    metadata = json.loads(file.read_text())
    leaf = next(name for name in metadata["tree_metadata"] if "temperature" in name)
    del metadata["tree_metadata"][leaf]
    file.write_text(json.dumps(metadata))
    with pytest.raises(InputError, match="its _METADATA does not name temperature, which it stores"):
        orbax.read(tmp_path / "out")


@pytest.mark.parametrize("zarr3", [False, True])
def test_no_head_of_an_array_leaves_out_what_was_written(tmp_path: Path, zarr3: bool):
    save(
        ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=zarr3), tmp_path / "out", {"w": jax.numpy.ones((64, 48))}
    )
    file = tmp_path / "out/w" / ("zarr.json" if zarr3 else ".zarray")
    whole = file.read_text().rstrip()
    assert orbax.read(tmp_path / "out").tensors["w"].shape == (64, 48)
    file.write_text(f'{whole[:-1]}, "shape": [32, 48]}}')
    with pytest.raises(InputError, match="ambiguous"):  # TensorStore takes the last
        orbax.read(tmp_path / "out")
    head = json.loads(whole)
    file.write_text(json.dumps(head | {"shape": [32, 48]}))
    fewer = f"{tmp_path}/out/w states the shape .32, 48., and .64, 48. was written: it was changed"
    with pytest.raises(InputError, match=fewer):
        orbax.read(tmp_path / "out")
    index = tmp_path / "out/_METADATA"
    metadata = json.loads(index.read_text())
    for leaf in metadata["tree_metadata"].values():
        del leaf["value_metadata"]["write_shape"]  # as before Orbax noted it
    index.write_text(json.dumps(metadata))
    assert orbax.read(tmp_path / "out").tensors["w"].shape == (32, 48)
    beyond = file.parent / ("c/1/0" if zarr3 else "1.0")
    beyond.parent.mkdir(exist_ok=True)
    beyond.write_bytes(b"")
    with pytest.raises(InputError, match="holds the chunk .*, which lies beyond its shape" if not zarr3 else "shape"):
        halved = (
            {"chunks": [32, 48]}
            if not zarr3
            else {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [32, 48]}}}
        )
        file.write_text(json.dumps(head | {"shape": [32, 48]} | halved))
        orbax.read(tmp_path / "out")


def test_a_missing_array_is_named_before_orbax_looks(tmp_path: Path):
    save(ocp.PyTreeCheckpointHandler(use_ocdbt=False), tmp_path / "out")
    shutil.rmtree(tmp_path / "out/params.dense.bias")
    with pytest.raises(InputError, match=r"its _METADATA and its arrays do not fit: params.dense.bias is not stored"):
        orbax.read(tmp_path / "out")


def test_folders_that_are_none_of_its_checkpoints_say_so(tmp_path: Path):
    with pytest.raises(InputError, match="no _METADATA"):
        orbax.read(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="no folder"):
        orbax.read(tmp_path / "file")
    assert not orbax.detect(tmp_path) and not orbax.detect(tmp_path / "file")


def test_trees_are_compared_whatever_the_order_of_their_keys():
    one = {"dict": [["a", {"value": 1}], ["b", {"list": [{"odict": []}]}]]}
    other = {"dict": [["b", {"list": [{"odict": []}]}], ["a", {"value": 1}]]}
    assert ordered(one) == ordered(other) != ordered({"dict": [["a", {"value": 2}], ["b", {"value": 1}]]})
