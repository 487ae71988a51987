"""T5X's checkpoints: what T5X wrote is read as it restored it; what we write is what flax and TensorStore read."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from capibara_assets.checkpoints.content import Content, InFile, of_bytes, of_numpy, to_bytes, to_numpy
from capibara_assets.checkpoints.formats import FORMATS, convert, detect_format, flax_msgpack, huggingface, t5x
from capibara_assets.checkpoints.formats.flax_msgpack import Inline
from capibara_assets.errors import InputError
from capibara_assets_tests.checkpoints.formats.kept import bytes_of, kept
from capibara_assets_tests.checkpoints.formats.nested_states import (
    assert_same,
    bits,
    flat_contents,
    nested_contents,
    values,
)
from capibara_assets_tests.checkpoints.limits import files_of_at_most
from capibara_assets_tests.forked import Forked, Say
from capibara_assets_tests.late import late

ts = late("tensorstore", reason="the extra tpu is not installed")
serialization = late("flax.serialization", reason="flax, the reference reader, is not installed")
msgpack = late("msgpack", reason="the extra tpu is not installed")

ARCHIVE = Path(__file__).with_name("written_by_t5x.tar.gz")
"""`checkpoint_1000` of a T5 v1.1 of one layer with Adafactor, bfloat16 target, saved on four (faked) devices by T5X's
`Checkpointer` (google-research/t5x at cc342d4, jax 0.10.2); `restored.json` has what T5X restored from it."""


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("t5x")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def reference(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every array of a checkpoint as flax and TensorStore give it: path -> type, shape, bytes."""
    state = serialization.msgpack_restore((folder / "checkpoint").read_bytes())
    found = {}

    def walk(node, keys):
        if isinstance(node, dict) and "kvstore" in node:
            spec = {**node, "kvstore": {"driver": "file", "path": f"{folder}/{node['kvstore']['path']}"}}
            del spec["metadata"]["chunks"], spec["metadata"]["compressor"]  # as T5X does before it opens an array
            found["/".join(keys)] = bits(ts.open(spec, open=True).result().read().result())
        elif isinstance(node, dict | list):
            for key, child in node.items() if isinstance(node, dict) else enumerate(node):
                walk(child, (*keys, str(key)))
        elif isinstance(node, np.ndarray | np.generic):
            found["/".join(keys)] = bits(node)

    walk(state["optimizer"], ())
    return found


def ours(content: Content) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: bits(to_numpy(source)) for name, source in content.tensors.items()}


def test_what_t5x_wrote_is_what_t5x_restored(theirs: Path):
    restored = json.loads((theirs / "restored.json").read_text())
    content = t5x.read(theirs / "checkpoint_1000")
    found = {
        name: [dtype, list(shape), hashlib.sha256(data).hexdigest()]
        for name, (dtype, shape, data) in ours(content).items()
    }
    assert found == restored
    assert len(found) == 146
    assert {name.rpartition("/")[2] for name in found if name.startswith("state/param_states")} == {
        *("m", "v", "v_row", "v_col")
    }
    assert to_numpy(content.tensors["state/step"]) == 1000
    assert content.tensors["target/token_embedder/embedding"].dtype == "BF16"
    assert t5x.detect(theirs / "checkpoint_1000") and t5x.detect(theirs)
    assert values(t5x.read(theirs).tensors) == values(content.tensors)


def test_a_checkpoint_of_t5x_comes_back_the_same_from_our_writer(theirs: Path, tmp_path: Path):
    content = t5x.read(theirs / "checkpoint_1000")
    t5x.write(kept(content), tmp_path / "again")
    again = t5x.read(tmp_path / "again")
    assert_same(again, content)
    assert again.origin == content.origin
    assert reference(tmp_path / "again") == reference(theirs / "checkpoint_1000") == ours(content)
    names = {path.name for path in (theirs / "checkpoint_1000").iterdir()}
    assert {path.name for path in (tmp_path / "again").iterdir()} == names


@given(flat_contents(empty=True))
def test_flat_names_come_back_and_the_reference_reads_them_nested(content: Content):
    with tempfile.TemporaryDirectory() as folder:
        t5x.write(kept(content), Path(folder) / "out")
        assert_same(t5x.read(Path(folder) / "out"), content)
        expected = {
            f"target/{name.replace('.', '/')}": bits(to_numpy(content.tensors[content.ties.get(name, name)]))
            for name in (*content.tensors, *content.ties)
        }
        found = reference(Path(folder) / "out")
        assert found.pop("state/step") == bits(np.int32(0))
        assert found == expected


@given(nested_contents(empty=True, tuples=False))
def test_nested_states_come_back(content: Content):
    with tempfile.TemporaryDirectory() as folder:
        t5x.write(kept(content), Path(folder) / "out")
        assert_same(t5x.read(Path(folder) / "out"), content)


def test_a_hugging_face_model_goes_there_and_back(tmp_path: Path):
    content = Content(
        {
            "model.embed.weight": of_numpy(np.arange(12, dtype=np.float32).reshape(4, 3)),
            "model.layers.0.q.weight": of_numpy(np.ones((3, 3), ml_dtypes.bfloat16)),
            "model.layers.10.q.weight": of_numpy(np.zeros((2, 3), ml_dtypes.float8_e5m2)),
        },
        kind="model",
        files={"config.json": of_bytes(b'{"model_type": "x"}'), "sub/vocab.txt": of_bytes(b"a\nb")},
    )
    huggingface.write(content, tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "t5x", "t5x")
    assert detect_format(tmp_path / "t5x") == "t5x"
    convert(tmp_path / "t5x", tmp_path / "back", "huggingface")
    assert bytes_of(tmp_path / "back") == bytes_of(tmp_path / "hf")


def test_paths_of_other_machines_and_buckets_mean_folders_here(theirs: Path, tmp_path: Path):
    folder = tmp_path / "checkpoint_1000"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    state = serialization.msgpack_restore((folder / "checkpoint").read_bytes())
    forms = (
        lambda p: {"kvstore": {"driver": "gcs", "bucket": "t5x-dummy-bucket", "path": f"old/checkpoint_1000/{p}"}},
        lambda p: {"kvstore": {"driver": "gcs", "bucket": "b"}, "path": p.rstrip("/")},  # TensorStore before 0.1.14
        lambda p: {"kvstore": {"driver": "gfile", "path": f"/elsewhere/checkpoint_1000/{p}"}},
    )
    count = 0

    def move(node):
        nonlocal count
        for value in list(node.values()):
            if isinstance(value, dict) and "kvstore" in value:
                value.update(forms[count % 3](value["kvstore"]["path"]))
                count += 1
            elif isinstance(value, dict):
                move(value)

    move(state["optimizer"])
    assert count > 30
    (folder / "checkpoint").write_bytes(serialization.msgpack_serialize(state))
    assert values(t5x.read(folder).tensors) == values(t5x.read(theirs / "checkpoint_1000").tensors)


def test_an_index_alone_with_all_arrays_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flax.serialization.MAX_CHUNK_SIZE", 40)  # flax: 1 GiB
    arrays = {"a": np.arange(60, dtype=np.float32).reshape(5, 12), "b": np.float32(2.5), "c": np.arange(3)}
    state = {"version": 3, "optimizer": {"state": {"step": np.int32(5)}, "target": arrays}}
    (tmp_path / "checkpoint_5").write_bytes(serialization.to_bytes(state))
    assert t5x.detect(tmp_path / "checkpoint_5") and t5x.detect(tmp_path)
    content = t5x.read(tmp_path)
    assert {name: bits(to_numpy(source)) for name, source in content.tensors.items()} == {
        "state/step": bits(np.int32(5)),
        **{f"target/{name}": bits(array) for name, array in arrays.items()},
    }
    assert isinstance(content.tensors["target/c"], InFile)  # its bytes are still in the file


def test_large_arrays_in_the_index_are_cut_as_flax_cuts_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flax_msgpack, "LARGEST", 40)
    array = np.arange(61, dtype=np.uint16).reshape(61, 1)
    file = io.BytesIO()
    flax_msgpack.write({"a": Inline(of_numpy(array)), "n": 1, "list": [None, "x", Inline(of_numpy(array[:2]))]}, file)
    assert b"__msgpack_chunked_array__" in file.getvalue()
    restored = serialization.msgpack_restore(file.getvalue())
    assert bits(restored["a"]) == bits(array)
    assert restored["n"] == 1 and restored["list"][:2] == [None, "x"] and bits(restored["list"][2]) == bits(array[:2])


def test_arrays_that_t5x_could_not_read_from_zarr_stay_in_the_index(tmp_path: Path):
    tensors = {"a.u": of_numpy(np.arange(9, dtype=np.uint16)), "a.e": of_numpy(np.empty((0, 2), np.float16))}
    t5x.write(Content(tensors), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["checkpoint"]
    assert values(t5x.read(tmp_path / "out").tensors) == values(tensors)


def test_what_msgpack_cannot_carry_is_named(tmp_path: Path):
    leaf = {"tensor": "x"}
    tree = {
        "dict": [
            ["pair", {"tuple": [{"value": 1}]}],
            [3, leaf],
            ["sizes", {"size": [2]}],
            ["a/b", {"value": 1}],
            ["huge", {"value": 1 << 64}],
            ["x", leaf],
        ]
    }
    content = Content({"x": of_numpy(np.ones(2))}, tree=tree)
    with pytest.raises(InputError) as caught:
        t5x.write(content, tmp_path / "out")
    message = str(caught.value)
    assert "cannot carry 5" in message
    for text in (
        "pair (a tuple)",
        "3 (its key is no text)",
        "sizes (a size)",
        "a~1b (a key",
        "huge (an integer beyond",
    ):
        assert text in message
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_tensorstore_takes_for_a_path_is_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"a\\b \(a key that is empty, or has a / or \\ in it\)"):
        t5x.write(Content({"a\\b": of_numpy(np.ones(1))}), tmp_path / "out")


@pytest.mark.parametrize(
    ("names", "named"),
    [(["a.b", "a"], "a (a tensor where another name has a folder)"), (["a..b"], "a..b (a part of its name is empty)")],
)
def test_names_that_do_not_nest_are_named(tmp_path: Path, names: list[str], named: str):
    with pytest.raises(InputError, match=r"cannot carry 1 of") as caught:
        t5x.write(Content({name: of_numpy(np.ones(1)) for name in names}), tmp_path / "out")
    assert named in str(caught.value)


def test_two_arrays_in_one_folder_and_files_with_its_names_are_refused(tmp_path: Path):
    tree = {"dict": [["a.b", {"tensor": "a.b"}], ["a", {"dict": [["b", {"tensor": "a/b"}]]}]]}
    ones = of_numpy(np.ones(1))
    with pytest.raises(InputError, match=r"target\.a\.b: a key has a point"):
        t5x.write(Content({"a.b": ones, "a/b": ones}, tree=tree), tmp_path / "out")
    with pytest.raises(InputError, match="files called checkpoint"):
        t5x.write(Content({"a": ones}, files={"checkpoint": of_bytes(b"x")}), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"version": 1, "optimizer": {}}, "version 1"),
        ({"version": 3}, "can be read"),
        ({"version": 3, "optimizer": {"target": {"z": 1 + 2j}}}, "target/z is a complex number"),
        ({"version": 3, "optimizer": {"target": {1: 2}}}, "no text"),
    ],
)
def test_indexes_that_cannot_be_read_say_why(tmp_path: Path, state: dict, says: str):
    (tmp_path / "checkpoint").write_bytes(serialization.msgpack_serialize(state))
    with pytest.raises(InputError, match=says):
        t5x.read(tmp_path)


def test_the_bfloat16_of_version_2_is_no_uint16(tmp_path: Path):
    spec = {"driver": "zarr", "dtype": "uint16", "kvstore": {"driver": "file", "path": "target.w/"}}
    spec["metadata"] = {"shape": [3], "chunks": [3], "compressor": {"id": "gzip"}}
    here = {**spec, "kvstore": {"driver": "file", "path": f"{tmp_path}/target.w/"}}
    ts.open(here, create=True).result().write(np.arange(3, dtype=np.uint16)).result()
    for version in (3, 2):
        state = {"version": version, "optimizer": {"target": {"w": spec}}}
        (tmp_path / "checkpoint").write_bytes(serialization.msgpack_serialize(state))
        if version == 3:
            assert to_numpy(t5x.read(tmp_path).tensors["target/w"]).tolist() == [0, 1, 2]
    with pytest.raises(InputError, match=r"version 2.*target/w are"):
        t5x.read(tmp_path)


def test_an_index_that_is_cut_off_anywhere_is_an_error(theirs: Path, tmp_path: Path):
    whole = (theirs / "checkpoint_1000/checkpoint").read_bytes()
    for length in (*range(40), *range(40, len(whole), 997), len(whole) - 1):
        (tmp_path / "checkpoint").write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"cut off|empty"):
            t5x.read(tmp_path)
    (tmp_path / "checkpoint").write_bytes(whole + b"\xc0")
    with pytest.raises(InputError, match="goes on after"):
        t5x.read(tmp_path)


def test_a_folder_that_is_gone_and_a_type_that_changed_are_found(tmp_path: Path):
    t5x.write(Content({"a.b": of_numpy(np.ones((2, 3)))}), tmp_path / "out")
    metadata = tmp_path / "out/target.a.b/.zarray"
    metadata.write_text(metadata.read_text().replace("<f8", "<f4"))
    with pytest.raises(InputError, match=r"float32\[2, 3\].*float64\[2, 3\]"):
        t5x.read(tmp_path / "out")
    metadata.unlink()
    with pytest.raises(InputError, match="should hold target/a/b"):
        t5x.read(tmp_path / "out")


def test_a_chunk_of_ours_that_is_gone_is_damage_and_one_of_t5x_may_be_zeros(theirs: Path, tmp_path: Path):
    t5x.write(Content({"a.b": of_numpy(np.zeros((2, 3)))}), tmp_path / "out")
    (tmp_path / "out/target.a.b/0.0").unlink()
    with pytest.raises(InputError, match=r"target\.a\.b.*missing"):
        to_numpy(t5x.read(tmp_path / "out").tensors["a.b"])


def test_several_steps_are_to_be_chosen_from(theirs: Path, tmp_path: Path):
    for step in (2, 10):
        t5x.write(Content({"a": of_numpy(np.ones(step))}), tmp_path / f"checkpoint_{step}")
    with pytest.raises(InputError, match="name one of checkpoint_2, checkpoint_10"):
        t5x.read(tmp_path)
    with pytest.raises(InputError, match="no file 'checkpoint'"):
        t5x.read(theirs / "checkpoint_1000/target.token_embedder.embedding")


def test_the_iterators_state_beside_the_index_is_a_file(theirs: Path, tmp_path: Path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "checkpoint_1000/train_ds-000-of-001.index").write_bytes(b"iterator")
    content = t5x.read(tmp_path / "checkpoint_1000")
    assert {name: to_bytes(file) for name, file in content.files.items()} == {"train_ds-000-of-001.index": b"iterator"}


EXTRA = ("tensorstore", "msgpack", "orbax", "jax", "flax")


def test_without_the_extra_a_checkpoint_is_known_and_the_extra_is_named(theirs: Path):
    def work(say: Say) -> None:
        for name in [name for name in sys.modules if name.startswith("capibara_assets.checkpoints.")]:
            del sys.modules[name]  # imported anew, without the extra
        for name in [name for name in sys.modules if name.split(".")[0] in EXTRA] + list(EXTRA):
            sys.modules[name] = None  # type: ignore[assignment]
        from capibara_assets.checkpoints.formats import detect_format, read

        say(detect_format(theirs / "checkpoint_1000"))
        try:
            read(theirs / "checkpoint_1000")
        except InputError as error:
            say(error)

    done = Forked(work)
    said = done.rest()
    assert done.wait() == 0 and said.splitlines()[0] == "t5x"
    assert "needs msgpack, tensorstore" in said and "capibara-assets[tpu]" in said


@pytest.mark.extended
@pytest.mark.parametrize("name", ["t5x", "orbax"])
def test_memory_stays_flat_whatever_the_size_of_a_tensor(tmp_path: Path, name: str):
    code = """
import sys, threading, time
from pathlib import Path
import numpy as np
from capibara_assets.checkpoints.content import Content, PIECE, of_numpy
from capibara_assets.checkpoints.formats import FORMATS

class Large:  # 128 MiB that nobody holds
    dtype, shape = "F32", (512, 65536)
    def pieces(self):
        piece = (np.arange(PIECE // 4) % 65521).astype(np.float32).view(np.uint8).data
        for _ in range(16):
            yield piece

def anonymous():
    text = Path("/proc/self/status").read_text()
    return int(text.partition("RssAnon:")[2].split()[0]) << 10

peak = 0
def watch():
    global peak
    while True:
        peak = max(peak, anonymous())
        time.sleep(0.002)

form, folder = FORMATS[sys.argv[1]], Path(sys.argv[2])
form.write(Content({"a.b": of_numpy(np.ones(3))}), folder / "warm")
[piece for piece in form.read(folder / "warm").tensors["a.b"].pieces()]
before = anonymous()
threading.Thread(target=watch, daemon=True).start()
form.write(Content({"a.b": Large()}), folder / "large")
assert sum(len(piece) for piece in form.read(folder / "large").tensors["a.b"].pieces()) == 1 << 27
print(peak - before)
"""
    done = subprocess.run([sys.executable, "-c", code, name, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 96 << 20


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path):
    content = Content({"a.b": of_numpy(np.random.default_rng(0).standard_normal((500, 500)))})
    for name in ("t5x", "orbax"):
        with files_of_at_most(100 << 10), pytest.raises(InputError, match="no room to write"):
            FORMATS[name].write(content, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
