"""Orbax and T5X folders that a stranger made: what they state is refused before memory or time is spent on it."""

import gzip
import json
import os
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from capibara_assets.checkpoints.content import to_numpy
from capibara_assets.checkpoints.formats import read
from capibara_assets.errors import InputError
from capibara_assets_tests.late import late

ocp = late("orbax.checkpoint", reason="the extra tpu is not installed")

Spoil = Callable[[Path], object]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that Orbax wrote in plain zarr."""
    folder = tmp_path_factory.mktemp("orbax") / "saved"
    ocp.PyTreeCheckpointer(use_ocdbt=False).save(folder, {"w": np.ones(4, np.float32), "b": np.ones(2, np.float32)})
    return folder


def t5x(folder: Path, stored: bytes = bytes(8), **values: Any) -> Path:
    """A checkpoint of T5X with one array, of which `.zarray` states these values."""
    array = folder / "target.w"
    array.mkdir(parents=True)
    usual = {
        "chunks": [2], "compressor": None, "dtype": "<f4", "fill_value": None, "filters": None, "order": "C",
        "shape": [2], "zarr_format": 2,
    }  # fmt: skip
    (array / ".zarray").write_text(json.dumps(usual | values))
    (array / "0").write_bytes(stored)
    spec = {"driver": "zarr", "dtype": "float32", "kvstore": {"driver": "file", "path": "target.w/"}}
    spec["metadata"] = {"shape": (usual | values)["shape"]}
    index = {"version": 3, "optimizer": {"target": {"w": spec}, "state": {"step": 1}}}
    (folder / "checkpoint").write_bytes(msgpack.packb(index))
    return folder


def zarray(**values: Any) -> Spoil:
    def spoil(folder: Path) -> None:
        file = folder / "w" / ".zarray"
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    return spoil


def tree(change: Callable[[dict[str, Any]], object]) -> Spoil:
    def spoil(folder: Path) -> None:
        file = folder / "_METADATA"
        document = json.loads(file.read_text())
        change(document)
        file.write_text(json.dumps(document))

    return spoil


def each(**values: Any) -> Spoil:
    return tree(lambda document: [leaf.update(values) for leaf in document["tree_metadata"].values()])


SPOILT = {
    "sixteen terabytes of nothing": zarray(shape=[1 << 42], chunks=[1 << 20]),
    "a chunk of terabytes": zarray(shape=[1 << 36], chunks=[1 << 36]),
    "a chunk larger than the array": zarray(chunks=[1 << 34]),
    "a billion chunks": zarray(shape=[1 << 28], chunks=[1]),
    "a type that is none": zarray(dtype="<U4000"),
    "a negative shape": zarray(shape=[-4]),
    "an array without a document": lambda folder: (folder / "w" / ".zarray").unlink(),
    "a list": lambda folder: (folder / "_METADATA").write_text("[1, 2]"),
    "nothing": lambda folder: (folder / "_METADATA").write_text(""),
    "a number for a tree": tree(lambda document: document.update(tree_metadata=7)),
    "numbers for keys": each(key_metadata=3),
    "lists for types": each(value_metadata={"value_type": ["x"], "skip_deserialize": False}),
    "a note of ours that is none": tree(lambda document: document.update(custom_metadata={"capibara": "[]"})),
    "a note of ours of a number": tree(lambda document: document.update(custom_metadata={"capibara": 5})),
    "a chunk cut off": lambda folder: os.truncate(folder / "w" / "0", 3),
    "a chunk of noise": lambda folder: (folder / "w" / "0").write_bytes(b"\xa5" * 40),
    "a document cut off": lambda folder: os.truncate(folder / "_METADATA", 60),
    "a number of five thousand digits": lambda folder: (folder / "_METADATA").write_text('{"a": 1' + "0" * 5000 + "}"),
    "nested for ever": lambda folder: (folder / "_METADATA").write_text('{"a":' * 50_000 + "1" + "}" * 50_000),
    "two gibibytes of tree": lambda folder: os.truncate(folder / "_METADATA", 2 << 30),
    "two gibibytes of an array's document": lambda folder: os.truncate(folder / "w" / ".zarray", 2 << 30),
}
STATED: dict[str, dict[str, Any]] = {
    "four terabytes of nothing": {"shape": [1 << 40], "chunks": [1 << 20]},
    "a chunk of gigabytes": {"shape": [1 << 34], "chunks": [1 << 34]},
    "a packed chunk of gigabytes": {"shape": [1 << 31], "chunks": [1 << 31], "compressor": {"id": "gzip", "level": 1}},
    "a chunk larger than the array": {"chunks": [1 << 34]},
    "a hundred million chunks": {"shape": [1 << 27], "chunks": [1]},
    "text for a shape": {"shape": "ab"},
    "a shape of texts": {"shape": ["a"]},
    "a negative shape": {"shape": [-1]},
    "no chunks": {"chunks": [0]},
    "forty dimensions": {"shape": [1] * 40, "chunks": [1] * 40},
    "a type that is none": {"dtype": ["x"]},
}


def refused(folder: Path) -> str:
    """What is said of a folder that is read whole, within two seconds of processor time."""
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        for source in read(folder).tensors.values():
            to_numpy(source)
    assert time.process_time() - began < 2 and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_folder_of_orbax_is_refused_at_once(saved: Path, tmp_path: Path, name: str) -> None:
    for file in saved.rglob("*"):  # not `copytree`: two gibibytes of a former test are not copied
        target = tmp_path / "foreign" / file.relative_to(saved)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.is_file():
            target.write_bytes(file.read_bytes())
    assert read(tmp_path / "foreign").tensors.keys() == {"w", "b"}
    SPOILT[name](tmp_path / "foreign")
    assert str(tmp_path) in refused(tmp_path / "foreign")


@pytest.mark.parametrize("name", STATED)
def test_a_spoilt_folder_of_t5x_is_refused_at_once(tmp_path: Path, name: str) -> None:
    assert to_numpy(read(t5x(tmp_path / "sound")).tensors["target/w"]).tolist() == [0, 0]
    assert str(tmp_path) in refused(t5x(tmp_path / "foreign", gzip.compress(bytes(1 << 20)), **STATED[name]))


def test_a_chunk_that_goes_on_is_not_unpacked(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(256 << 20), 1)
    words = refused(t5x(tmp_path / "foreign", packed, compressor={"id": "gzip", "level": 1}))
    assert "is damaged or incomplete" in words


@pytest.mark.parametrize("index", [[], 3, {"version": [3], "optimizer": {}}, {"version": 3, "optimizer": []}])
def test_an_index_of_other_types_is_refused(tmp_path: Path, index: Any) -> None:
    folder = t5x(tmp_path / "foreign")
    (folder / "checkpoint").write_bytes(msgpack.packb(index))
    with pytest.raises(InputError):
        for source in read(folder, "t5x").tensors.values():
            to_numpy(source)


@pytest.mark.parametrize(
    "change",
    [{"kvstore": "x"}, {"kvstore": {}}, {"metadata": 3}, {"metadata": {}}, {"metadata": {"shape": 2}}, {"dtype": []}],
)
def test_a_spec_of_other_types_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = t5x(tmp_path / "foreign")
    index = msgpack.unpackb((folder / "checkpoint").read_bytes())
    index["optimizer"]["target"]["w"] |= change
    (folder / "checkpoint").write_bytes(msgpack.packb(index))
    assert "foreign" in refused(folder) or "target/w" in refused(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"transform": {"input_inclusive_min": [0], "input_exclusive_max": [2], "output": [{"input_dimension": 0}]}},
        {"metadata_key": "other"},
        {"path": "sub"},
        {"schema": {"chunk_layout": {"inner_order": [0]}}},
    ],
)
def test_a_spec_that_shows_other_values_than_its_folder_holds_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    folder = t5x(tmp_path / "foreign")
    index = msgpack.unpackb((folder / "checkpoint").read_bytes())
    index["optimizer"]["target"]["w"] |= change
    (folder / "checkpoint").write_bytes(msgpack.packb(index))
    assert re.search(r"opens target/w with (transform|metadata_key|two paths|schema)", refused(folder))


@pytest.mark.parametrize("shape", [(-1, 2), (-2, -2)])
def test_an_array_of_the_index_with_a_negative_shape_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    folder = t5x(tmp_path / "foreign")
    array = msgpack.ExtType(1, msgpack.packb((shape, "float32", bytes(4 * abs(shape[0] * shape[1])))))
    state = {"version": 3, "optimizer": {"target": {"w": array}, "state": {"step": 1}}}
    (folder / "checkpoint").write_bytes(msgpack.packb(state))
    assert str(folder) in refused(folder)


@pytest.mark.parametrize("header", [
    b'{"a\\ud800b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}',
    b'{"b": {"dtype": "F32", "shape": [0, %d, %d], "data_offsets": [0, 0]}}' % (1 << 62, 1 << 62),
])  # fmt: skip
def test_names_and_shapes_that_no_other_format_can_have_are_refused(tmp_path: Path, header: bytes) -> None:
    body = bytes(8) if b"[0, 8]" in header else b""
    (tmp_path / "foreign.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + body)
    assert "foreign.safetensors: " in refused(tmp_path / "foreign.safetensors")
