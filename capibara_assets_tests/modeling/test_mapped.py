"""Mapped bases: the weights of the usual loading, bit for bit, and in memory once for two processes."""

import re
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from capibara_assets.modeling import mapped
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.heads import Head
from capibara_assets_tests.modeling.tiny import save_tiny
from capibara_assets_tests.modeling.tiny_heads import save_bert, save_t5


def save_mixture(folder: Path, tokenizer_of: Path) -> Path:
    save_tiny(folder, tokenizer_of)
    torch.manual_seed(1)
    config = MixtralConfig(vocab_size=4096, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                           num_attention_heads=2, num_key_value_heads=2, num_local_experts=4)  # fmt: skip
    MixtralForCausalLM(config).save_pretrained(folder)
    return folder


def make(kind: str, folder: Path, nano: Path) -> tuple[Path, Head]:
    match kind:
        case "stored in bfloat16":
            return save_tiny(folder, nano, torch.bfloat16), "causal"
        case "masked":
            return save_bert(folder), "masked"
        case "seq2seq":
            return save_t5(folder), "seq2seq"
        case "mixture":
            return save_mixture(folder, nano), "causal"
    return save_tiny(folder, nano), "causal"


KINDS = ["stored as used", "stored in bfloat16", "masked", "seq2seq", "mixture"]


def same(one: Base, other: Base) -> None:
    """Names, values, types, buffers that are not saved, and which weights are tied."""
    for part in ("named_parameters", "named_buffers"):
        expected, found = (dict(getattr(base.model, part)(remove_duplicate=False)) for base in (one, other))
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            assert value.dtype == found[name].dtype and torch.equal(value, found[name]), name
    tied = [len({id(value) for value in base.model.state_dict(keep_vars=True).values()}) for base in (one, other)]
    assert tied[0] == tied[1]
    assert one.digest == other.digest and not any(value.requires_grad for value in other.model.parameters())
    assert not other.model.training


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_weights_are_those_of_the_usual_loading(kind: str, dtype: Any, nano: Path, tmp_path: Path) -> None:
    folder, head = make(kind, tmp_path / "base", nano)
    usual = load_base(folder, dtype, head=head)
    for _ in range(2):  # the first may convert, the second finds the file
        found = load_base(folder, dtype, head=head, shared=tmp_path / "shared")
        same(usual, found)
        assert str(found.model.config.dtype).endswith(str(dtype).rpartition(".")[2])
    converted = len(list((tmp_path / "shared").glob("*.safetensors"))) if (tmp_path / "shared").is_dir() else 0
    plain = kind in ("stored as used", "masked", "seq2seq") and dtype == torch.float32
    assert converted == (0 if plain or (kind == "stored in bfloat16" and dtype == torch.bfloat16) else 1)


def test_layers_that_the_files_lack_are_named_and_those_they_have_too_many(nano: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = save_tiny(tmp_path / "base", nano)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.odd.weight"] = tensors.pop("model.norm.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for shared in (None, tmp_path / "shared", tmp_path / "shared"):
        found = load_base(folder, shared=shared, incomplete=True)
        assert found.new_layers == ("model.norm.weight",) and found.unread == ("model.odd.weight",)


def test_writing_to_a_mapped_weight_leaves_the_file_alone(nano: Path, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "base", nano)
    before = (folder / "model.safetensors").read_bytes()
    base = load_base(folder, shared=tmp_path / "shared")
    with torch.no_grad():
        for value in base.model.parameters():
            value.zero_()
    del base
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_full_disk_is_one_sentence(nano: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shutil import _ntuple_diskusage

    from capibara_assets.errors import InputError

    folder = save_tiny(tmp_path / "base", nano, torch.bfloat16)
    monkeypatch.setattr(mapped.shutil, "disk_usage", lambda path: _ntuple_diskusage(1, 1, 0))
    with pytest.raises(InputError, match="has no room for"):
        load_base(folder, shared=tmp_path / "shared")
    assert not list((tmp_path / "shared").glob("*.safetensors"))


def all_mapped(weights: list[torch.nn.Parameter]) -> bool:
    """Whether all weights lie in files that are mapped into this process, and none in memory of its own."""
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(".safetensors"):
            low, high = line.split()[0].split("-")
            ranges.append((int(low, 16), int(high, 16)))
    return all(any(low <= value.data_ptr() < high for low, high in ranges) for value in weights)


@pytest.mark.skipif(not Path("/proc/self/maps").is_file(), reason="asks Linux what is mapped")
def test_all_weights_lie_in_mapped_files(nano: Path, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "base", nano, torch.bfloat16)
    assert all_mapped(list(load_base(folder, shared=tmp_path / "shared").model.parameters()))
    assert not all_mapped(list(load_base(folder).model.parameters()))


def hold(folder: Path, shared: Path, connection: Connection) -> None:
    """A process that holds a base: tells KiB of its mapped files in memory, and whether all weights lie there."""
    torch.set_num_threads(1)
    weights = list(load_base(folder, shared=shared).model.parameters())
    for value in weights:
        value.detach().sum()  # every page is read
    connection.send("ready")
    connection.recv()
    figures, inside = {"Rss": 0, "Pss": 0}, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.endswith(".safetensors")
        elif inside and line.startswith(("Rss:", "Pss:")):
            figures[line[:3]] += int(line.split()[1])
    connection.send((figures["Rss"], figures["Pss"], all_mapped(weights)))
    connection.recv()


@pytest.mark.extended
@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="asks Linux for shares of memory")
def test_two_processes_hold_the_base_once(nano: Path, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "base", nano)
    config = LlamaConfig(vocab_size=8_000, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
                         num_attention_heads=4, num_key_value_heads=4)  # fmt: skip
    model = LlamaForCausalLM(config).to(torch.bfloat16)  # as most are stored; in memory it is float32
    model.save_pretrained(folder)
    size = sum(value.numel() * 4 for value in model.parameters()) // 1024
    context = get_context("forkserver")
    ends, processes = [], []
    for _ in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=hold, args=(folder, tmp_path / "shared", theirs), daemon=True)
        process.start()
        theirs.close()
        ends.append(ours)
        processes.append(process)
    assert [end.recv() for end in ends] == ["ready", "ready"]
    found = []
    for end in ends:
        end.send("measure")
        found.append(end.recv())
    for end in ends:
        end.send("leave")
    for process in processes:
        process.join()
    print(f"base {size} KiB; resident and proportional: {found}")
    assert all(mapped for _, _, mapped in found)  # no weight lies anywhere else
    assert all(rss >= size for rss, _, _ in found)  # each has all of it,
    assert sum(pss for _, pss, _ in found) < 1.05 * size  # and together they have it once
