"""torch.distributed.checkpoint: what torch saved, alone or in several ranks, and what torch loads of ours."""

import json
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as torch_dcp
from hypothesis import HealthCheck, assume, given, settings
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from capibara_assets.checkpoints.content import Content, of_bytes, of_torch, to_torch
from capibara_assets.checkpoints.formats import convert, dcp, dcp_metadata, detect_format, huggingface, pytorch, read
from capibara_assets.errors import InputError
from capibara_assets_tests.checkpoints.formats.kept import bytes_of, kept, same
from capibara_assets_tests.checkpoints.formats.ranks import two_ranks
from capibara_assets_tests.checkpoints.formats.states import flat, nested
from capibara_assets_tests.checkpoints.formats.test_pytorch import distinct_names


def saved_by_torch(state: Any, folder: Path) -> Path:
    torch_dcp.save(state, storage_writer=torch_dcp.FileSystemWriter(folder), no_dist=True)
    return folder


def saved_by_us(state: Any, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / "state.pt")
    dcp.write(kept(pytorch.read(folder / "state.pt")), folder / "dcp")
    return folder / "dcp"


def keys_once_joined(state: Any, path: str = "", seen: set[str] | None = None) -> bool:
    """Whether DCP can tell the entries apart: it joins keys by dots."""
    seen = set() if seen is None else seen
    children: Any = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else None
    if children is None or path in seen:
        return path not in seen and not seen.add(path)  # type: ignore[func-returns-value]
    return all(keys_once_joined(child, f"{path}.{key}", seen) for key, child in children)


@given(state=nested())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_nested_state_comes_back_the_same(state: dict[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    assume(distinct_names(state) and keys_once_joined(state))
    folder = saved_by_us(state, tmp_path_factory.mktemp("nested"))
    assert same(pytorch.state_of(kept(dcp.read(folder))), state)


@given(state=flat())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flat_content_comes_back_the_same(
    state: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("flat") / "dcp"
    dcp.write(Content({name: of_torch(tensor) for name, tensor in state.items()}), folder)
    assert same(dict(sorted(pytorch.state_of(kept(dcp.read(folder))).items())), dict(sorted(state.items())))


def example() -> dict[str, Any]:
    weight = torch.randn(3, 4)
    return {
        "model": OrderedDict(w=weight, tied=weight, half=torch.randn(2).bfloat16(), empty=torch.empty(0, 2)),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.95)}]},
        "pair": (1, torch.ones(2)),
        "step": 7,
    }


def test_what_we_write_torch_loads(tmp_path: Path) -> None:
    state = example()
    folder = saved_by_us(state, tmp_path)
    blank = {
        "model": {name: torch.zeros_like(tensor) for name, tensor in state["model"].items()},
        "step": 0,
        "pair": None,
    }
    torch_dcp.load(blank, storage_reader=torch_dcp.FileSystemReader(folder), no_dist=True)
    assert same(blank["model"], dict(state["model"]))
    assert blank["step"] == 7
    assert same(blank["pair"], state["pair"])
    # torch's own tool of conversion finds every entry, too
    dcp_to_torch_save(folder, tmp_path / "all.pt")
    whole = torch.load(tmp_path / "all.pt", weights_only=False)
    assert same(whole["optimizer"]["param_groups"], state["optimizer"]["param_groups"])
    assert same(whole["optimizer"]["state"]["0"], state["optimizer"]["state"][0])


def test_what_torch_wrote_is_read_as_torch_reads_it(tmp_path: Path) -> None:
    folder = saved_by_torch(example(), tmp_path / "dcp")
    dcp_to_torch_save(folder, tmp_path / "all.pt")
    expected = torch.load(tmp_path / "all.pt", weights_only=False)
    assert detect_format(folder) == "dcp"
    found = pytorch.state_of(kept(dcp.read(folder)))
    assert same(dict(sorted(found["model"].items())), dict(sorted(expected["model"].items())))
    assert found["step"] == expected["step"] == 7
    assert same(found["pair"], expected["pair"])
    assert same(found["optimizer"]["state"], expected["optimizer"]["state"])
    assert same(found["optimizer"]["param_groups"], expected["optimizer"]["param_groups"])


def test_a_model_goes_to_dcp_and_back_byte_for_byte(nano: Path, tmp_path: Path) -> None:
    convert(nano, tmp_path / "dcp", "dcp")
    assert detect_format(tmp_path / "dcp") == "dcp"
    convert(tmp_path / "dcp", tmp_path / "back", "huggingface")
    assert bytes_of(tmp_path / "back") == bytes_of(nano)


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.save(example(), tmp_path / "a.pt")
    for name in ("one", "two"):
        convert(tmp_path / "a.pt", tmp_path / name, "dcp")
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")


RANKS = """
import sys
from pathlib import Path
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

folder, rank, port = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
whole = {"rows": torch.randn(5, 3), "columns": torch.randn(3, 7).bfloat16(), "one row": torch.randn(1, 4),
         "copies": torch.arange(6), "plain": torch.randn(2)}
places = {"rows": Shard(0), "columns": Shard(1), "one row": Shard(0), "copies": Replicate()}
state = {"tensors": {name: distribute_tensor(tensor, mesh, [places[name]]) if name in places else tensor
                     for name, tensor in whole.items()}}
model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(4, 5)).square().mean().backward()
optimizer.step()
state["model"], state["optimizer"] = get_state_dict(model, optimizer)
state["step"] = 1
dcp.save(state, storage_writer=dcp.FileSystemWriter(folder / "dcp"))
def full(node):
    if isinstance(node, DTensor):
        return node.full_tensor()
    if isinstance(node, dict):
        return {key: full(value) for key, value in node.items()}
    return [full(value) for value in node] if isinstance(node, list) else node
state = full(state)
if rank == 0:
    torch.save(state, folder / "whole.pt")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.extended
def test_shards_of_two_ranks_are_read_as_whole_tensors(tmp_path: Path) -> None:
    two_ranks(RANKS, str(tmp_path))
    assert {path.name for path in (tmp_path / "dcp").iterdir()} >= {"__0_0.distcp", "__1_0.distcp"}
    content = dcp.read(tmp_path / "dcp")
    expected = torch.load(tmp_path / "whole.pt")
    state = pytorch.state_of(kept(content))
    assert state["step"] == 1
    for part in ("tensors", "model"):
        assert same(dict(sorted(state[part].items())), dict(sorted(expected[part].items())))
    moments = expected["optimizer"]["state"]
    assert len(moments) == 4
    for name, moment in moments.items():
        assert same(dict(sorted(state["optimizer"]["state"][name].items())), dict(sorted(moment.items())))


def test_parts_in_the_files_of_two_ranks_are_read_as_one_tensor(tmp_path: Path) -> None:
    """What two ranks save, put together of what one saves twice."""
    whole = torch.randn(5, 3)
    folder = saved_by_torch({"w": whole[:3].clone(), "v": torch.ones(2)}, tmp_path / "dcp")
    other = saved_by_torch({"w": whole[3:].clone()}, tmp_path / "other")
    (other / "__0_0.distcp").rename(folder / "__1_0.distcp")
    theirs = pickle.loads((other / ".metadata").read_bytes())  # our own file of a moment ago
    [(index, info)] = theirs.storage_data.items()
    start = torch.Size([3, 0])

    def joined(document: Any) -> None:
        tensor, part = document.state_dict_metadata["w"], theirs.state_dict_metadata["w"].chunks[0]
        tensor.size, part.offsets = whole.shape, start
        tensor.chunks.append(part)
        document.storage_data[replace(index, offset=start, index=1)] = replace(info, relative_path="__1_0.distcp")

    edited(folder, joined)
    state = torch.load(as_torch_has_it(folder, tmp_path / "all.pt"))
    assert same(state["w"], whole)
    assert same(dict(sorted(pytorch.state_of(kept(dcp.read(folder))).items())), dict(sorted(state.items())))


def as_torch_has_it(folder: Path, file: Path) -> Path:
    dcp_to_torch_save(folder, file)
    return file


# --- what is refused


class MakesFolder:
    def __init__(self, folder: str):
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.folder,))


def test_no_code_of_a_metadata_file_runs(tmp_path: Path) -> None:
    folder = saved_by_torch({"w": torch.zeros(1)}, tmp_path / "dcp")
    (folder / ".metadata").write_bytes(pickle.dumps({"a": MakesFolder(str(tmp_path / "made"))}))
    with pytest.raises(InputError, match=r"names posix.mkdir, which is no part of a checkpoint's metadata"):
        dcp.read(folder)
    assert not (tmp_path / "made").exists()


def test_no_code_of_a_value_runs(tmp_path: Path) -> None:
    folder = saved_by_torch({"w": torch.zeros(1), "evil": MakesFolder(str(tmp_path / "made"))}, tmp_path / "dcp")
    with pytest.raises(InputError, match=r"__0_0.distcp \(evil\) holds objects of posix.mkdir: nothing is unpickled"):
        dcp.read(folder)
    assert not (tmp_path / "made").exists()


def edited(folder: Path, change: Any) -> None:
    document = pickle.loads((folder / ".metadata").read_bytes())  # our own file of a moment ago
    change(document)
    (folder / ".metadata").write_bytes(pickle.dumps(document))


def chunk(document: Any) -> Any:
    return document.state_dict_metadata["w"].chunks[0]


def moved(document: Any, **changes: Any) -> None:
    [info] = document.storage_data.values()
    for name, value in changes.items():
        setattr(info, name, value)


BROKEN: dict[str, tuple[Any, str]] = {
    "too small": (lambda d: setattr(chunk(d), "sizes", torch.Size([1])), r"parts of w are 1 numbers, its shape \[2\]"),
    "too large": (lambda d: setattr(chunk(d), "sizes", torch.Size([3])), r"part of w lies outside of its shape \[2\]"),
    "twice": (lambda d: d.state_dict_metadata["w"].chunks.append(chunk(d)), r"parts of w at \[0\] and \[0\] overlap"),
    "other file": (lambda d: moved(d, relative_path="__9_0.distcp"), r"__9_0.distcp is missing, though"),
    "outside": (lambda d: moved(d, relative_path="../x.distcp"), "outside of its folder"),
    "compressed": (lambda d: moved(d, transform_descriptors=["stream.zstd"]), "w was saved through stream.zstd"),
    "before it": (lambda d: moved(d, offset=-5), r"places [\d,]+ bytes at -5 of __0_0.distcp, which has [\d,]+"),
    "beyond": (lambda d: moved(d, length=2**50), "places 1,125,899,906,842,624 bytes at 0 of __0_0.distcp"),
    "far beyond": (lambda d: moved(d, offset=2**70), "places [\\d,]+ bytes at 1,180,591,620,717,411,303,424 of"),
    "no number": (lambda d: moved(d, length="x"), "is damaged or of a torch that this one does not know"),
    "no place": (lambda d: d.storage_data.clear(), "is damaged or of a torch that this one does not know"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_metadata_that_do_not_fit_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    folder = saved_by_torch({"w": torch.zeros(2)}, tmp_path / "dcp")
    edited(folder, change)
    with pytest.raises(InputError, match=message):
        dcp.read(folder)


@pytest.mark.parametrize(
    "data", [b"", b"\x80\x05.", b"no pickle", b"\x80\x04}."], ids=["empty", "stack", "text", "dict"]
)
def test_damaged_metadata_are_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ".metadata").write_bytes(data)
    with pytest.raises(InputError, match=r".metadata is damaged"):
        dcp_metadata.read_metadata(tmp_path)


def test_damaged_tensors_are_named_when_they_are_read(tmp_path: Path) -> None:
    folder = saved_by_torch({"w": torch.zeros(2), "v": torch.zeros(3)}, tmp_path / "dcp")
    metadata = dcp_metadata.read_metadata(folder)
    start = metadata.tensors["w"].chunks[0].start
    data = bytearray((folder / "__0_0.distcp").read_bytes())
    data[start : start + 40] = bytes(40)
    (folder / "__0_0.distcp").write_bytes(data)
    content = dcp.read(folder)
    assert torch.equal(to_torch(content.tensors["v"]), torch.zeros(3))
    with pytest.raises(InputError, match=r"__0_0.distcp \(w\) is damaged"):
        to_torch(content.tensors["w"])
    # and one whole tensor in the place of another
    other = metadata.tensors["v"].chunks[0]
    edited(folder, lambda d: [setattr(i, "offset", other.start) for i in d.storage_data.values()])
    with pytest.raises(InputError, match=r"what it holds of w is not the torch.float32 of shape \[2\]"):
        to_torch(dcp.read(folder).tensors["w"])


def test_a_changed_byte_is_found_by_its_tensors_checksum(tmp_path: Path) -> None:
    folder = saved_by_torch({"w": torch.full((5_000,), 9.0), "v": torch.zeros(3)}, tmp_path / "dcp")
    data = bytearray((folder / "__0_0.distcp").read_bytes())
    data[data.rindex(torch.full((2,), 9.0).numpy().tobytes())] ^= 1
    (folder / "__0_0.distcp").write_bytes(data)
    content = dcp.read(folder)
    assert torch.equal(to_torch(content.tensors["v"]), torch.zeros(3))
    with pytest.raises(InputError, match=r"__0_0.distcp \(w\) is damaged .*Bad CRC-32"):
        to_torch(content.tensors["w"])


def test_our_own_file_has_to_fit(tmp_path: Path) -> None:
    folder = saved_by_us({"w": torch.zeros(2)}, tmp_path)
    path = folder / "capibara_state.json"
    described = json.loads(path.read_text())
    described["tree"] = {"dict": [["x", {"tensor": "x"}]]}
    path.write_text(json.dumps(described))
    with pytest.raises(InputError, match=r"names tensors that the checkpoint has not: x; remove it"):
        dcp.read(folder)
    path.write_text("[]")
    with pytest.raises(InputError, match=r"capibara_state.json is damaged"):
        dcp.read(folder)
    path.unlink()
    assert set(dcp.read(folder).tensors) == {"w"}


def test_what_dcp_cannot_carry_is_named(tmp_path: Path) -> None:
    for value, message in (
        ({"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}, "duplicated flatten key a.b"),
        ([torch.zeros(1)], "this state is a list"),
    ):
        (tmp_path / "a.pt").unlink(missing_ok=True)
        torch.save(value, tmp_path / "a.pt")
        with pytest.raises(InputError, match=message):
            convert(tmp_path / "a.pt", tmp_path / "out", "dcp")
    clash = Content({"w": of_torch(torch.zeros(1))}, files={".metadata": of_bytes(b"")})
    with pytest.raises(InputError, match=r"two files of the checkpoint are called '.metadata'"):
        dcp.write(clash, tmp_path / "out")
    assert not (tmp_path / "out").exists()


COPY = r"""
import re, sys
from pathlib import Path
from capibara_assets.checkpoints.formats import convert
convert(Path(sys.argv[1]), Path(sys.argv[2]), "dcp")  # imports, buffers
def peak():  # not getrusage, which starts with what the parent process had
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
convert(Path(sys.argv[3]), Path(sys.argv[4]), "dcp")
convert(Path(sys.argv[4]), Path(sys.argv[5]), "huggingface")
print(peak() - before)
"""


@pytest.mark.extended
def test_converting_takes_memory_for_a_group_of_tensors_not_for_the_model(tmp_path: Path) -> None:
    huggingface.write(Content({"w": of_torch(torch.zeros(3))}), tmp_path / "small.safetensors")
    big = {f"layer.{i}": of_torch(torch.full((4 << 20,), float(i))) for i in range(16)}  # 16 MiB each
    huggingface.write(Content(big), tmp_path / "big.safetensors")
    names = ("small.safetensors", "s", "big.safetensors", "b", "again")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COPY, *(str(tmp_path / name) for name in names)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 96 << 10  # KiB, of 256 MiB
    assert bytes_of(tmp_path / "again") == {"big.safetensors": (tmp_path / "big.safetensors").read_bytes()}
    assert read(tmp_path / "again").kind == "model"
