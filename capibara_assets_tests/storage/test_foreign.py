"""Folders from elsewhere: what leads out of them, never ends or is another thing than it seems is refused at once."""

import json
import os
import pickle
import shutil
import socket
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from capibara_assets.checkpoints.formats import read
from capibara_assets.consensus.api import merge_checkpoints
from capibara_assets.datasets.imported.read import read_examples
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.evaluation.contenders.model_folder import model_folder, opened
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.modeling.base import load_base
from capibara_assets.modeling.files import check_safetensors, validate_base, without_code
from capibara_assets.modeling.skeleton import skeleton
from capibara_assets.storage.foreign import (
    open_stored,
    read_by_library,
    read_document,
    read_stored,
    require_plain,
    stored_table,
)
from capibara_assets.storage.journal import append, read_lines
from capibara_assets.storage.locks import locked
from capibara_assets.storage.ranges import LocalRangeReader
from capibara_assets_tests.modeling.tiny import save_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny", nano)


@pytest.fixture
def foreign(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "foreign"))


def config(folder: Path, **values: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def out_of_it(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder.parent / "elsewhere.json").write_text("{}")
    (folder / "tokenizer.json").symlink_to(folder.parent / "elsewhere.json")


def a_document_of_300_mib(folder: Path) -> None:
    os.truncate(folder / "tokenizer.json", 300 << 20)


def to_nowhere(folder: Path) -> None:
    (folder / "extra").symlink_to(folder / "extra")


def a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "special_tokens_map.json")


def a_socket(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # names of sockets are short
    try:
        socket.socket(socket.AF_UNIX).bind("vocab.json")
    finally:
        os.chdir(here)


def an_index_out_of_it(folder: Path) -> None:
    shutil.copyfile(folder / "model.safetensors", folder.parent / "stolen.safetensors")
    (folder / "model.safetensors").unlink()
    names = {"model.embed_tokens.weight": "../stolen.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


def a_deep_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000)


def a_wide_embedding(folder: Path) -> None:
    config(folder, hidden_size=1 << 19, vocab_size=1 << 23)


def endless_layers(folder: Path) -> None:
    config(folder, num_hidden_layers=10**9)


def a_negative_size(folder: Path) -> None:
    config(folder, vocab_size=-1)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (out_of_it, "tokenizer.json is a link out of its folder"),
        (a_document_of_300_mib, "tokenizer.json has 314,572,800 bytes, files of its kind have up to 268,435,456"),
        (to_nowhere, "extra is a link that leads nowhere"),
        (a_pipe, "is no file but a pipe"),
        (a_socket, "is no file but a pipe, socket or device"),
        (an_index_out_of_it, r"names '\.\./stolen.safetensors', which is no file of the folder"),
        (a_deep_config, "nested too deeply"),
        (a_wide_embedding, "does not fit into"),
        (endless_layers, "num_hidden_layers is 1000000000"),
        (a_negative_size, "vocab_size is -1"),
    ],
)
def test_a_model_folder_is_refused_at_once(foreign: Path, spoil: Callable[[Path], None], words: str) -> None:
    spoil(foreign)
    began = time.process_time()
    with pytest.raises(InputError, match=words) as caught:
        load_base(foreign)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError), opened(model_folder(foreign)):
        pass
    assert time.process_time() - began < 2


def test_a_checkpoint_and_an_adapter_are_refused_alike(foreign: Path, tmp_path: Path) -> None:
    out_of_it(foreign)
    for name in (None, "huggingface"):
        with pytest.raises(InputError, match="a link out of its folder"):
            read(foreign, name)
    os.mkfifo(tmp_path / "weights.safetensors")
    with pytest.raises(InputError, match="is no file but a pipe"):
        read(tmp_path / "weights.safetensors")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").symlink_to(tmp_path / "foreign" / "config.json")
    with pytest.raises(InputError, match="a link out of its folder"):
        read_adapter(adapter)


def test_links_inside_and_into_the_cache_of_a_snapshot_are_followed(model: Path, tmp_path: Path) -> None:
    """As Hugging Face's cache lays models out; and as a folder may name its own files twice."""
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "c0ffee", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(model.iterdir())):
        shutil.copyfile(file, blobs / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs") / str(number))
    (snapshot / "again.json").symlink_to("config.json")
    require_plain(snapshot)
    assert load_base(snapshot).digest


def test_a_merge_brings_no_code_along(foreign: Path, tmp_path: Path) -> None:
    """Neither that of the first model's config nor that of its tokenizer's, whatever else the merge changes in them."""
    names = {"auto_map": {"AutoModelForCausalLM": "modeling_evil.Evil"}}
    config(foreign, **names)
    tokenizer = foreign / "tokenizer_config.json"
    stated = json.loads(tokenizer.read_text())
    tokenizer.write_text(json.dumps(stated | names))
    for number, options in enumerate(({}, {"dtype": "bfloat16"})):
        out = tmp_path / f"merged-{number}"
        merge_checkpoints([foreign, foreign], "linear", out, **options)
        assert "auto_map" not in json.loads((out / "config.json").read_text())
        assert json.loads((out / "tokenizer_config.json").read_text()) == stated
        assert load_base(out).digest


def test_a_config_of_absurd_sizes_builds_no_skeleton(model: Path) -> None:
    stated = json.loads((model / "config.json").read_text())
    with pytest.raises(InputError, match="num_hidden_layers is 100000"):
        skeleton({**stated, "num_hidden_layers": 100_000}, "tiny")


def test_compressed_or_doubled_members_of_a_pt_file_are_no_weights(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(4096)}, tmp_path / "sound.pt")
    for name, method, doubled in (("compressed", zipfile.ZIP_DEFLATED, False), ("doubled", zipfile.ZIP_STORED, True)):
        with zipfile.ZipFile(tmp_path / "sound.pt") as sound, zipfile.ZipFile(tmp_path / f"{name}.pt", "w") as spoilt:
            for member in sound.namelist():
                spoilt.writestr(member, sound.read(member), compress_type=method)
            if doubled:
                with pytest.warns(UserWarning, match="Duplicate name"):
                    spoilt.writestr(sound.namelist()[0], b"other")
        with pytest.raises(InputError, match="compressed or doubled members"):
            read(tmp_path / f"{name}.pt")
    assert len(read(tmp_path / "sound.pt").tensors) == 1


def test_terabytes_made_of_one_number_are_not_unpacked(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1).expand(1 << 40)}, tmp_path / "bomb.pt")
    with pytest.raises(InputError, match=r"w is 4,398,046,511,104 bytes made of 4 stored ones"):
        read(tmp_path / "bomb.pt")
    torch.save({"w": torch.ones(8).expand(4, 8)}, tmp_path / "sound.pt")
    assert len(read(tmp_path / "sound.pt").tensors) == 1


@pytest.mark.parametrize("alone", [True, False])
def test_a_terabyte_of_holes_is_not_read(tmp_path: Path, alone: bool) -> None:
    file = tmp_path / "m" / "model.safetensors"
    file.parent.mkdir()
    size = 1 << 40
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(file, 8 + len(header) + size)
    with pytest.raises(InputError, match=r"1,099,511,627,8\d\d bytes, of which [\d,]+ are stored"):
        read(file if alone else file.parent)


def test_a_state_that_only_unpickling_could_restore_runs_nothing(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Runs()))
    with pytest.raises(InputError):
        read(tmp_path / "evil.pt")
    save_file({"w": torch.zeros(2)}, tmp_path / "sound.safetensors")
    assert not (tmp_path / "ran").exists()


def an_index_of(places: object) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))

    return spoil


def no_names_of_classes(folder: Path) -> None:
    config(folder, architectures=[None, 5])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (an_index_of(["a"]), "does not name a file for each tensor"),
        (an_index_of({"a": {}}), "does not name a file for each tensor"),
        (an_index_of(None), "does not name a file for each tensor"),
        (an_index_of({"a": "a" * 5000}), "which is no file of the folder"),
        (an_index_of({"a": "a\0b"}), "is missing, though"),
        (no_names_of_classes, "not a causal language model"),
    ],
)
def test_a_folder_whose_values_are_of_other_types(foreign: Path, spoil: Callable[[Path], None], words: str) -> None:
    spoil(foreign)
    with pytest.raises(InputError, match=words):
        validate_base(foreign)


@pytest.mark.parametrize("offsets", ['[0, "8"]', "[0, null]", "[0]", "[" * 200_000])
def test_a_header_of_other_types_is_damaged(tmp_path: Path, offsets: str) -> None:
    header = ('{"a": {"dtype": "F32", "shape": [2], "data_offsets": ' + offsets + "}}").encode()
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(InputError, match=r"header is (not readable|nested too deeply)"):
        check_safetensors(tmp_path / "w.safetensors")


def test_a_header_with_a_name_twice_is_refused_at_once(tmp_path: Path) -> None:
    entry = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    header = ("{" + ",".join(f'"{n}":{entry}' for n in [*range(60_000), 59_999]) + "}").encode()
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    began = time.process_time()
    with pytest.raises(InputError, match="the entry '59999' twice"):
        read(tmp_path / "w.safetensors")
    assert time.process_time() - began < 2


def test_what_is_read_in_one_piece_neither_waits_nor_ends_never(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 42)
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, words in (("pipe", "is no file but a pipe"), ("zero", "is no file but"), ("sparse", "more than 1,000")):
        with pytest.raises(InputError, match=words):
            read_document(tmp_path / name, 1000)
    with pytest.raises(InputError, match="cannot read"):
        read_document(tmp_path / "a\0b")
    (tmp_path / "sound").write_bytes(b"x" * 1000)
    assert read_document(tmp_path / "sound", 1000) == b"x" * 1000


NO_FILES = {
    "a pipe": os.mkfifo,
    "a socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a hole": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 1 << 42),
}
"""What may lie at the place of a store's own file."""


@pytest.mark.parametrize("spoil", NO_FILES.values(), ids=NO_FILES)
def test_a_stores_own_file_is_opened_by_the_check_that_foreign_ones_get(
    spoil: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    spoil(Path("own"))
    journal, sound = Path("own"), Path("sound")
    for opens in (
        lambda: read_stored(journal),
        lambda: open_stored(journal, os.O_WRONLY | os.O_APPEND),
        lambda: LocalRangeReader(journal),
        lambda: read_lines(journal),
        lambda: append(journal, b"{}"),
        lambda: locked(journal).__enter__(),
    ):
        with pytest.raises(IntegrityError, match=r"^own (is no file but|has 4,398,046,511,104 bytes)"):
            opens()
    append(sound, b"{}")
    with locked(sound):
        assert read_stored(sound) == b"{}\n" and read_lines(sound).entries == {1: {}}
    with pytest.raises(IntegrityError, match="more than 2 bytes"):
        read_stored(sound, 2)
    with pytest.raises(FileNotFoundError):
        read_stored(Path("nothing"))


def cut(path: Path) -> None:
    pl.DataFrame({"a": range(1000)}).write_parquet(path)
    os.truncate(path, 200)


def no_table(path: Path) -> None:
    path.write_text("PAR1 and nothing else PAR1")


@pytest.mark.parametrize("spoil", [*NO_FILES.values(), cut, no_table], ids=[*NO_FILES, "cut", "no table"])
def test_a_stores_own_table_too(spoil: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spoil(Path("own"))
    words = "^own (is no file but|has 4,398,046,511,104 bytes|is no table that can be read: .*; make it again$)"
    with pytest.raises(IntegrityError, match=words), stored_table(Path("own"), "make it again") as table:
        table.collect()
    pl.DataFrame({"a": [1, 2]}).write_parquet("sound")
    with stored_table(Path("sound"), "make it again") as table:
        assert table.collect()["a"].to_list() == [1, 2]
    with pytest.raises(IntegrityError, match="missing; make it again"), stored_table(Path("no"), "make it again"):
        pass


def test_a_name_that_no_file_has_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        require_plain(tmp_path / ("a" * 5000))


class PanicException(BaseException):
    """As Rust's libraries raise it."""


@pytest.mark.parametrize("raised", [KeyError("x"), TypeError("a\nb"), AttributeError("no"), PanicException("index")])
def test_what_a_library_raises_is_one_line(raised: BaseException) -> None:
    with (
        pytest.raises(InputError, match=rf"^model m: {type(raised).__name__} .+$") as caught,
        read_by_library("model m"),
    ):
        raise raised
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(3), InputError("as it is")])
def test_what_is_no_librarys_fault_passes(raised: BaseException) -> None:
    with pytest.raises(type(raised)) as caught, read_by_library("model m"):
        raise raised
    assert caught.value is raised


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (rb'{"\u0061uto_map": {"A": "evil.B"}, "x": 1}', {"x": 1}),
        (b'{"text_config": {"auto_map": {"A": "evil.B"}, "x": [{"auto_map": 1}]}}', {"text_config": {"x": [{}]}}),
        (b'{"custom_generate": "evil/repository"}', {}),
    ],
)
def test_code_is_not_named_in_another_spelling_or_part(text: bytes, left: object) -> None:
    assert json.loads(without_code("config.json", text)) == left
    assert without_code("config.json", b'{"x":  1}') == b'{"x":  1}'


def test_a_table_that_decodes_to_many_times_its_file_is_refused_at_once(tmp_path: Path) -> None:
    ones = pa.array([0] * 20_000, pa.int8())
    for name, text in (("bomb", "A" * 100_000), ("long", "A" * 1_000)):
        prompts = pa.DictionaryArray.from_arrays(ones, [text])
        table = pa.table({"prompt": prompts, "completion": ["B"] * 20_000})
        if name == "bomb":
            listed = pa.ListArray.from_arrays(list(range(20_001)), prompts)
            pq.write_table(pa.table({"messages": listed}), tmp_path / "listed.parquet", row_group_size=20_000)
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=20_000)
    require_plain(tmp_path / "long.parquet")
    begun = time.process_time()
    for name in ("bomb", "listed"):
        with pytest.raises(InputError, match="its rows hold more than 512 MiB, the file"):
            read_examples(tmp_path / f"{name}.parquet")
    assert time.process_time() - begun < 2
    (tmp_path / "none.parquet").write_bytes(b"PAR1 and no more")
    require_plain(tmp_path / "none.parquet")  # whoever reads it says what it is
