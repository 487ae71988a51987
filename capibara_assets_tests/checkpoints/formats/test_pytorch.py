"""Files of torch.save: whatever torch writes is read without unpickling, and comes back the same for torch."""

import argparse
import io
import os
import pickle
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings

from capibara_assets.checkpoints import tree
from capibara_assets.checkpoints.content import Content, InFile, of_bytes, to_torch
from capibara_assets.checkpoints.formats import detect_format, pytorch
from capibara_assets.checkpoints.formats.pickled import stored_sizes
from capibara_assets.checkpoints.tree import plain_values
from capibara_assets.errors import InputError
from capibara_assets_tests.checkpoints.formats.archives import rewritten
from capibara_assets_tests.checkpoints.formats.kept import kept, same
from capibara_assets_tests.checkpoints.formats.states import flat, nested


def through(state: Any, folder: Path) -> Any:
    """A state that torch saved, we read and put away, we wrote and torch loaded."""
    for name in ("there.pt", "back.pt"):
        (folder / name).unlink(missing_ok=True)
    torch.save(state, folder / "there.pt")
    pytorch.write(kept(pytorch.read(folder / "there.pt")), folder / "back.pt")
    return torch.load(folder / "back.pt", weights_only=True)


def distinct_names(state: Any) -> bool:
    """Whether no dictionary has both an integer key and the same key as text, which names of tensors cannot tell."""
    if isinstance(state, dict):
        return len({str(key) for key in state}) == len(state) and all(map(distinct_names, state.values()))
    return all(map(distinct_names, state)) if isinstance(state, list | tuple) else True


@given(state=nested())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_nested_state_comes_back_the_same(state: dict[Any, Any], tmp_path: Path) -> None:
    assume(distinct_names(state))
    assert same(through(state, tmp_path), state)


@given(state=flat())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flat_state_comes_back_the_same(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    assert same(through(state, tmp_path), state)


def test_a_training_state_trains_on_as_the_original(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.randn(16, 4)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state(), "step": 1}
    back = through(state, tmp_path)
    assert back["model"]._metadata == model.state_dict()._metadata
    expected = [step(), step()]
    model.load_state_dict(back["model"])
    optimizer.load_state_dict(back["optimizer"])
    assert [step(), step()] == expected


def test_tied_tensors_keep_one_storage_and_the_file_holds_it_once(tmp_path: Path) -> None:
    weight = torch.randn(100, 100)
    back = through({"embed": weight, "head": weight, "other": torch.nn.Parameter(weight)}, tmp_path)
    assert back["embed"].data_ptr() == back["head"].data_ptr() == back["other"].data_ptr()
    assert (tmp_path / "back.pt").stat().st_size < 1.2 * weight.nbytes


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    torch.save({"a": torch.arange(5.0), "b": 1}, tmp_path / "a.pt")
    for name in ("one.pt", "two.pt"):
        pytorch.write(pytorch.read(tmp_path / "a.pt"), tmp_path / name)
    assert (tmp_path / "one.pt").read_bytes() == (tmp_path / "two.pt").read_bytes()


def test_reading_maps_the_file_and_copies_nothing(tmp_path: Path) -> None:
    torch.save({"a": torch.arange(1000.0)}, tmp_path / "a.pt")
    source = pytorch.read(tmp_path / "a.pt").tensors["a"]
    [before] = [bytes(piece) for piece in source.pieces()]
    data = (tmp_path / "a.pt").read_bytes()
    place = data.index(before)
    with (tmp_path / "a.pt").open("r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 4)
    [after] = [bytes(piece) for piece in source.pieces()]
    assert after == b"\xff" * 4 + before[4:]


def test_the_format_of_old_is_read(tmp_path: Path) -> None:
    state = OrderedDict(a=torch.arange(3), b=torch.nn.Parameter(torch.ones(2)))
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    pytorch.write(pytorch.read(tmp_path / "old.pth"), tmp_path / "new.pth")
    assert same(torch.load(tmp_path / "new.pth"), state)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old"])
def test_what_needs_unpickling_is_refused_by_the_name_of_its_class(tmp_path: Path, zipped: bool) -> None:
    state = {"weights": torch.zeros(1), "args": argparse.Namespace(lr=1)}
    torch.save(state, tmp_path / "args.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match=r"args.pt holds objects of argparse.Namespace: nothing is unpickled") as told:
        pytorch.read(tmp_path / "args.pt")
    assert "torch.save(model.state_dict()" in str(told.value)


def test_a_pickle_that_is_refused_warns_of_nothing_before(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    (tmp_path / "x.bin").write_bytes(pickle.dumps({"a": print}, protocol=4))
    with pytest.raises(InputError, match=r"x\.bin (holds objects of|is damaged)"):
        pytorch.read(tmp_path / "x.bin")
    assert not recwarn.list


class MakesFolder:
    """Unpickled, this makes a folder: the harmless kind of what a pickle can do."""

    def __init__(self, folder: Path):
        self.folder = str(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.folder,))


@pytest.mark.parametrize("kind", ["zip", "old", "raw pickle"])
def test_no_code_of_a_file_runs(tmp_path: Path, kind: str) -> None:
    state, file = {"a": MakesFolder(tmp_path / "made")}, tmp_path / "evil.bin"
    if kind == "raw pickle":
        file.write_bytes(pickle.dumps(state, protocol=2))
    else:
        torch.save(state, file, _use_new_zipfile_serialization=kind == "zip")
    with pytest.raises(InputError, match=r"evil.bin (holds objects of posix.mkdir|is damaged)"):
        pytorch.read(file)
    assert not (tmp_path / "made").exists()


def damaged(kind: str) -> bytes:
    buffer = io.BytesIO()
    torch.save({"a": torch.arange(1000)}, buffer)
    data = buffer.getvalue()
    return {"empty": b"", "text": b"not a checkpoint", "cut": data[:-50], "cut early": data[:500]}[kind]


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "cut early"])
def test_a_damaged_file_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "broken.pt").write_bytes(damaged(kind))
    with pytest.raises(InputError, match=r"broken.pt is damaged or no file of torch.save.*: copy it again"):
        pytorch.read(tmp_path / "broken.pt")


@pytest.mark.parametrize(
    ("odd", "what"),
    [
        (torch.eye(3).to_sparse(), "torch.sparse_coo"),
        (torch.zeros(2, dtype=torch.complex32), "complex32"),
        (2j, "complex"),
    ],
    ids=["sparse", "half complex", "complex number"],
)
def test_what_has_no_plain_bytes_is_named_by_its_place(tmp_path: Path, odd: Any, what: str) -> None:
    torch.save({"model": {"odd": odd}}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=f"model/odd.*{what}"):
        pytorch.read(tmp_path / "a.pt")


def test_files_lie_beside_the_state_in_a_folder_and_are_refused_by_a_single_file(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(torch.arange(3.0).numpy().tobytes())
    content = Content(
        {"w": InFile(tmp_path / "w", "F32", (3,))},
        "model",
        files={"config.json": of_bytes(b"{}"), "a/b": of_bytes(b"")},
    )
    with pytest.raises(InputError, match=r"cannot carry 2 files: a/b, config.json; give a folder's name"):
        pytorch.write(content, tmp_path / "one.pt")
    assert not (tmp_path / "one.pt").exists()
    pytorch.write(content, tmp_path / "folder")
    back = pytorch.read(tmp_path / "folder")
    assert set(back.files) == {"config.json", "a/b"}
    assert torch.equal(to_torch(back.tensors["w"]), torch.arange(3.0))
    with pytest.raises(InputError, match="exists already"):
        pytorch.write(content, tmp_path / "folder")


@pytest.mark.parametrize("count", [1, 64])
def test_more_than_the_machine_holds_is_refused_before_it_is_taken(tmp_path: Path, count: int) -> None:
    (tmp_path / "sparse").touch()
    many = {f"w{number}": InFile(tmp_path / "sparse", "F32", (2**46 // count,)) for number in range(count)}
    with pytest.raises(InputError, match=r"all tensors at once: these have 281,474,976,710,656 bytes, this machine "):
        pytorch.write(Content(many), tmp_path / "one.pt")
    assert not (tmp_path / "one.pt").exists()


def test_a_failing_write_leaves_nothing(tmp_path: Path) -> None:
    gone = Content({"w": InFile(tmp_path / "missing", "F32", (3,))})
    for name in ("one.pt", "folder"):
        with pytest.raises(FileNotFoundError):
            pytorch.write(gone, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [0, 8, 60, 68, 128])
def test_a_tensor_that_its_member_does_not_fill_is_refused(tmp_path: Path, kept: int) -> None:
    """Also where another member has as many bytes as it should."""
    path = tmp_path / "state.pt"
    torch.save({"w": torch.arange(16.0), "v": torch.ones(16), "b": torch.ones(32, dtype=torch.bfloat16)}, path)
    rewritten(path, lambda name, content: (content * 2)[:kept] if name.endswith("/data/0") else content)
    with pytest.raises(InputError, match="damaged"):
        pytorch.read(path)


def test_each_kind_of_storage_is_as_long_as_its_member(tmp_path: Path) -> None:
    kinds = [
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.bool,
    ]
    kinds += [torch.uint8, torch.uint16, torch.complex64, torch.complex128, torch.float8_e4m3fn]
    shared = torch.arange(12.0)
    state = {str(kind): torch.zeros(n, dtype=kind) for n, kind in enumerate(kinds)}
    torch.save({**state, "whole": shared, "part": shared[3:], "deep": [{"x": (torch.ones(5),)}]}, tmp_path / "state.pt")
    read = pytorch.load(tmp_path / "state.pt")
    assert {name: len(read[name]) for name in state} == {name: n for n, name in enumerate(state)}
    assert read["part"].tolist() == shared[3:].tolist() and read["deep"][0]["x"][0].sum() == 5


def test_a_storage_that_is_named_twice_is_told_twice() -> None:
    class Two(pickle.Pickler):
        def persistent_id(self, value: object) -> object:
            return ("storage", "torch FloatStorage", "0", "cpu", int(value)) if isinstance(value, float) else None

    buffer = io.BytesIO()
    Two(buffer, 2).dump([4.0, 2.0])
    assert list(stored_sizes(buffer.getvalue())) == [("0", 16), ("0", 8)]


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_changed_byte_is_found_by_its_members_checksum(tmp_path: Path, place: str) -> None:
    path = tmp_path / "state.pt"
    torch.save({"first": torch.full((300_000,), 9.0), "last": torch.full((50,), 7.0)}, path)
    value = torch.tensor([9.0 if place == "first" else 7.0]).numpy().tobytes()
    content = bytearray(path.read_bytes())
    content[content.rindex(value * 2)] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="Bad CRC-32"):
        pytorch.read(path)


def test_a_file_without_checksums_is_read(tmp_path: Path) -> None:
    from torch.utils.serialization import config

    with config.patch({"save.compute_crc32": False}):
        torch.save({"w": torch.ones(4)}, tmp_path / "state.pt")
    assert to_torch(pytorch.read(tmp_path / "state.pt").tensors["w"]).tolist() == [1.0] * 4


def test_lists_within_themselves_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_MOST_REPEATS", 1000)
    pairs: list[Any] = [1]
    for _ in range(60):
        pairs = [pairs, pairs]
    torch.save({"w": torch.ones(2), "pairs": pairs}, tmp_path / "bomb.pt")
    with pytest.raises(InputError, match="list more than 1,000 times"):
        pytorch.read(tmp_path / "bomb.pt")


def test_what_holds_itself_and_what_has_no_plain_bytes_is_told(tmp_path: Path) -> None:
    itself: dict[str, Any] = {"w": torch.ones(2)}
    itself["again"] = itself
    torch.save(itself, tmp_path / "itself.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save({"n": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}, tmp_path / "nested.pt")
    torch.save({"m": torch.empty(3, device="meta")}, tmp_path / "meta.pt")
    said = {
        "itself": "nested too deep, or within themselves",
        "nested": "n is a nested tensor",
        "meta": "m is on the meta",
    }
    for name, words in said.items():
        with pytest.raises(InputError, match=words):
            pytorch.read(tmp_path / f"{name}.pt")


def test_detection(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "a.pth")
    assert detect_format(tmp_path / "a.pth") == "pytorch"
    with pytest.raises(InputError, match="does not exist"):
        detect_format(tmp_path / "b.pth")


def test_module_versions_are_no_plain_values(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(1, 1).state_dict(), tmp_path / "a.pt")
    assert plain_values(pytorch.read(tmp_path / "a.pt").tree) == {}
