"""Transformers' and PEFT's files: the same bytes back, and what we write they load bit for bit."""

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, load_model, save, save_file, save_model
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, T5Config, T5Model

from capibara_assets.checkpoints.content import Content, InMemory, of_bytes, of_torch, to_torch
from capibara_assets.checkpoints.formats import convert, detect_format, huggingface, pytorch
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.modeling.files import weight_files
from capibara_assets_tests.checkpoints.formats.kept import bytes_of, kept, same
from capibara_assets_tests.checkpoints.formats.states import DTYPES, flat
from capibara_assets_tests.modeling.tiny import save_tiny

IDS = torch.arange(24).reshape(2, 12)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer_of=nano)


def state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.state_dict())


def load(folder: Path) -> torch.nn.Module:
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", local_files_only=True)
    return model.eval()


# --- models


def test_the_shipped_model_comes_back_byte_for_byte(nano: Path, tmp_path: Path) -> None:
    assert detect_format(nano) == "huggingface"
    content = huggingface.read(nano)
    assert content.kind == "model"
    assert "lm_head.weight" not in {*content.tensors, *content.ties}  # left out by tie_word_embeddings
    huggingface.write(kept(content), tmp_path / "out")
    assert bytes_of(tmp_path / "out") == bytes_of(nano)


def test_shards_and_their_index_come_back_byte_for_byte(tiny: Path, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(tiny).save_pretrained(tmp_path / "sharded", max_shard_size="30KB")
    index = tmp_path / "sharded" / "model.safetensors.index.json"
    index.write_bytes(index.read_bytes().replace(b"\n", b"\r\n"))
    before = bytes_of(tmp_path / "sharded")
    assert sum(name.endswith(".safetensors") for name in before) > 2
    huggingface.write(kept(huggingface.read(tmp_path / "sharded")), tmp_path / "out")
    assert bytes_of(tmp_path / "out") == before


def test_an_index_may_name_its_shards_from_here(tiny: Path, tmp_path: Path) -> None:
    """`./model-….safetensors` is the file that it is without `./`, also for Transformers."""
    shutil.copytree(tiny, tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    names = dict.fromkeys(load_file(weights), "./part.safetensors")
    weights.rename(weights.with_name("part.safetensors"))
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    convert(tmp_path / "model", tmp_path / "out", "huggingface")
    assert {path.name for path in (tmp_path / "out").glob("*.safetensors*")} == {
        "part.safetensors",
        "model.safetensors.index.json",
    }
    convert(tmp_path / "model", tmp_path / "torch", "pytorch")
    assert not list((tmp_path / "torch").glob("*.safetensors*"))


def test_what_a_training_keeps_for_itself_is_no_part_of_a_checkpoint(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "model")
    for name in (".capibara/examples.parquet", "checkpoint-8/optimizer.pt", "checkpoint-epoch-1/x.txt", ".lock"):
        (tmp_path / "model" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "model" / name).write_bytes(b"canary")
    (tmp_path / "model" / "deep" / "checkpoint-8").mkdir(parents=True)
    (tmp_path / "model" / "deep" / "checkpoint-8" / "x.txt").write_bytes(b"its own")
    convert(tmp_path / "model", tmp_path / "out", "huggingface")
    found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == {path.name for path in tiny.iterdir()} | {"deep/checkpoint-8/x.txt"}


def test_changed_values_keep_the_headers_and_shards(tiny: Path, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(tiny).save_pretrained(tmp_path / "sharded", max_shard_size="30KB")
    content = huggingface.read(tmp_path / "sharded")
    name = "model.layers.0.mlp.up_proj.weight"
    new = torch.randn(content.tensors[name].shape)
    huggingface.write(replace(content, tensors={**content.tensors, name: of_torch(new)}), tmp_path / "out")
    assert bytes_of(tmp_path / "out").keys() == bytes_of(tmp_path / "sharded").keys()
    assert torch.equal(state(load(tmp_path / "out"))[name], new)


def test_resharding_gives_transformers_the_same_tensors(tiny: Path, tmp_path: Path) -> None:
    content = huggingface.read(tiny)
    huggingface.write(replace(content, origin={}), tmp_path / "out", max_shard_size="40KB")
    shards = sorted(path.name for path in (tmp_path / "out").glob("model-*.safetensors"))
    assert shards[0] == f"model-00001-of-{len(shards):05d}.safetensors"
    assert max((tmp_path / "out" / name).stat().st_size for name in shards[1:]) < 40_000 + 4096
    assert same(state(load(tmp_path / "out")), state(load(tiny)))


def test_a_foreign_state_gets_the_bytes_that_the_library_writes(tmp_path: Path) -> None:
    tensors = {f"{dtype}".replace("torch.", "ünï."): torch.ones(3, dtype=dtype) for dtype in DTYPES}
    torch.save(tensors | {"empty": torch.empty(0, 2), "scalar": torch.tensor(3)}, tmp_path / "a.pt")
    huggingface.write(pytorch.read(tmp_path / "a.pt"), tmp_path / "a.safetensors")
    tensors = load_file(tmp_path / "a.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == save(tensors, metadata={"format": "pt"})


@given(tensors=flat(DTYPES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flat_state_goes_to_safetensors_and_back_to_torch(tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    for name in ("a.pt", "a.safetensors", "b.pt"):
        (tmp_path / name).unlink(missing_ok=True)
    torch.save(tensors, tmp_path / "a.pt")
    convert(tmp_path / "a.pt", tmp_path / "a.safetensors", "huggingface")
    convert(tmp_path / "a.safetensors", tmp_path / "b.pt", "pytorch")
    back = torch.load(tmp_path / "b.pt")
    assert same(dict(sorted(back.items())), dict(sorted(tensors.items())))


# --- ties


def test_a_tie_that_the_model_makes_itself_is_stored_once(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_bytes((tiny / "config.json").read_bytes())
    torch.save(state(load(tiny)), tmp_path / "old" / "pytorch_model.bin")
    content = huggingface.read(tmp_path / "old")
    assert content.ties == {"lm_head.weight": "model.embed_tokens.weight"}
    huggingface.write(kept(content), tmp_path / "new")
    assert "lm_head.weight" not in load_file(tmp_path / "new" / "model.safetensors")
    loaded = load(tmp_path / "new")
    assert same(state(loaded), state(load(tiny)))
    assert loaded.get_parameter("lm_head.weight") is loaded.get_parameter("model.embed_tokens.weight")
    again = huggingface.read(tmp_path / "new")
    assert again.ties == content.ties
    huggingface.write(kept(again), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(tmp_path / "new")


def test_a_tie_that_the_model_does_not_make_is_stored_under_both_names(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    config = json.loads((tiny / "config.json").read_text()) | {"tie_word_embeddings": False}
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    torch.save(state(load(tiny)), tmp_path / "old" / "pytorch_model.bin")
    huggingface.write(kept(huggingface.read(tmp_path / "old")), tmp_path / "new")
    assert same(state(load(tmp_path / "new")), state(load(tiny)))
    assert huggingface.read(tmp_path / "new").ties == {"lm_head.weight": "model.embed_tokens.weight"}


def test_ties_of_an_adapter_are_stored_under_both_names_since_peft_would_miss_one_in_silence(tmp_path: Path) -> None:
    weight = of_torch(torch.randn(3))
    config = {"adapter_config.json": of_bytes(b"{}")}
    huggingface.write(Content({"a": weight}, "adapter", ties={"b": "a"}, files=config), tmp_path / "out")
    assert set(load_file(tmp_path / "out" / "adapter_model.safetensors")) == {"a", "b"}
    assert huggingface.read(tmp_path / "out").ties == {"b": "a"}


def test_a_noted_tie_whose_tensors_went_apart_is_none(tmp_path: Path) -> None:
    weight = torch.randn(3)
    save_file({"a": weight, "b": weight + 1}, tmp_path / "x.safetensors", metadata={"b": "a"})
    content = huggingface.read(tmp_path / "x.safetensors")
    assert content.ties == {}
    assert torch.equal(to_torch(content.tensors["b"]), weight + 1)


def test_models_of_other_families_load_with_their_ties(tmp_path: Path) -> None:
    torch.manual_seed(0)
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16))
    t5 = T5Model(
        T5Config(vocab_size=50, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu")
    )
    for name, model in (("gpt2", gpt2), ("t5", t5)):
        (tmp_path / name).mkdir()
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(tmp_path / name)
        torch.save(model.state_dict(), tmp_path / name / "pytorch_model.bin")
        convert(tmp_path / name, tmp_path / f"{name}-new", "huggingface")
        loaded = type(model).from_pretrained(tmp_path / f"{name}-new")
        assert same(dict(loaded.state_dict()), dict(model.state_dict()))
        stored = load_file(tmp_path / f"{name}-new" / "model.safetensors")
        storages = {tensor.data_ptr() for tensor in model.state_dict().values()}
        assert len(stored) == len(storages)


def test_what_the_library_notes_of_shared_tensors_is_read_as_ties_and_loads_as_before(tmp_path: Path) -> None:
    def tied() -> torch.nn.ModuleDict:
        one, other = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)
        other.weight = one.weight
        return torch.nn.ModuleDict({"one": one, "other": other})

    model = tied()
    save_model(model, tmp_path / "a.safetensors")
    content = huggingface.read(tmp_path / "a.safetensors")
    assert content.ties == {"other.weight": "one.weight"}
    huggingface.write(kept(content), tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()
    convert(tmp_path / "a.safetensors", tmp_path / "c.pt", "pytorch")
    back = torch.load(tmp_path / "c.pt")
    assert back["other.weight"].data_ptr() == back["one.weight"].data_ptr()
    convert(tmp_path / "c.pt", tmp_path / "d.safetensors", "huggingface")
    fresh = tied()
    load_model(fresh, tmp_path / "d.safetensors")
    assert torch.equal(fresh["other"].weight, model["one"].weight)


# --- adapters


def resized(folder: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(4103)
    return model


LORA = {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "v_proj"]}
ADAPTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "patterns": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 5}},
    "modules_to_save": {"modules_to_save": ["lm_head"]},
    "embeddings adapted": {"target_modules": ["q_proj", "embed_tokens"]},
}


@pytest.mark.parametrize("options", ADAPTERS.values(), ids=ADAPTERS)
@pytest.mark.parametrize("added", [False, True], ids=["", "added tokens"])
def test_adapters_come_back_byte_for_byte_and_peft_computes_the_same(
    tiny: Path, tmp_path: Path, options: dict[str, Any], added: bool
) -> None:
    base: Callable[[Path], Any] = resized if added else AutoModelForCausalLM.from_pretrained
    torch.manual_seed(3)
    adapted = get_peft_model(base(tiny), LoraConfig(**LORA | options)).eval()
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)
        ids = IDS.clone()
        if added:
            ids[0, :3] = torch.arange(4100, 4103)
        expected = adapted(ids).logits
    source = tmp_path / "peft"
    adapted.save_pretrained(source)
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    tokenizer.add_tokens([f"<extra{i}>" for i in range(7)])
    tokenizer.save_pretrained(source)
    content = huggingface.read(source)
    assert content.kind == "adapter"
    assert {"README.md", "adapter_config.json", "tokenizer.json"} <= content.files.keys()
    if added:
        assert any("embed_tokens" in name for name in content.tensors)
    huggingface.write(kept(content), tmp_path / "out")
    assert bytes_of(tmp_path / "out") == bytes_of(source)
    # and under a header of our own, through a file of torch.save
    convert(source, tmp_path / "torch", "pytorch")
    assert (tmp_path / "torch" / "adapter_model.bin").is_file()
    convert(tmp_path / "torch", tmp_path / "fresh", "huggingface")
    for folder in ("out", "fresh"):
        again = PeftModel.from_pretrained(base(tiny), tmp_path / folder).eval()
        with torch.no_grad():
            assert torch.equal(again(ids).logits, expected)
        assert len(AutoTokenizer.from_pretrained(tmp_path / folder)) == len(tokenizer)


# --- what is refused


def raw(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(*offsets: int, shape: Any = (2,), dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "no safetensors header"),
    "header too long": (struct.pack("<Q", 1 << 40) + b"{}", "no safetensors header"),
    "no JSON": (raw(b"{]", b""), "not JSON"),
    "no object": (raw([1], b""), "no JSON object"),
    "not unicode": (raw(b'{"\xff":1}', b""), "not JSON"),
    "twice": (raw(b'{"w":%b,"w":%b}' % ((json.dumps(entry(0, 2)).encode(),) * 2), b"12"), "the entry 'w' twice"),
    "overlap": (raw({"a": entry(0, 2), "w": entry(1, 3)}, b"123"), "w overlaps a"),
    "gap": (raw({"a": entry(0, 2), "w": entry(3, 5)}, b"12345"), "w leaves a gap of 1 bytes behind a"),
    "gap at the start": (raw({"w": entry(1, 3)}, b"123"), "w leaves a gap of 1 bytes behind the header"),
    "out of range": (raw({"w": entry(0, 2)}, b"1"), "w ends 1 bytes behind the end"),
    "trailing": (raw({"w": entry(0, 2)}, b"123"), "bytes where its header says"),
    "wrong size": (raw({"w": entry(0, 3)}, b"123"), r"w has 3 bytes, U8 of shape \[2\] has 2"),
    "backwards": (raw({"w": entry(2, 0)}, b"12"), "w ends before it begins"),
    "negative": (raw({"w": entry(-2, 0)}, b"12"), r"w has the shape .* and the data_offsets \[-2, 0\], expected whole"),
    "no number": (raw({"w": entry(0, 2, shape=["2"])}, b"12"), r"w has the shape \['2'\] and the data_offsets"),
    "three offsets": (
        raw({"w": entry(0, 2) | {"data_offsets": [0, 2, 2]}}, b"12"),
        r"data_offsets \[0, 2, 2\], expected",
    ),
    "text for a shape": (raw({"w": entry(0, 2, shape="2" * 9000)}, b"12"), r"w has the shape '2{159} … and"),
    "beyond every disk": (raw({"w": entry(0, 2, shape=[10**4000] * 3)}, b"12"), r"w has the shape \[10{158} … and"),
    "digits": (raw(b'{"w": 1' + b"0" * 5000 + b"}", b""), "header is not JSON: a number has more than 4,300 digits"),
    "a name of two lines": (raw({"w\nw": entry(0, 4)}, b"12"), r"damaged: w\\nw has 4 bytes"),
    "a long name": (raw({"n" * 90_000: entry(0, 4)}, b"12"), r"damaged: n{160} … has 4 bytes"),
    "unknown type": (raw({"w": entry(0, 2, dtype="F4")}, b"12"), "w has the element type 'F4'"),
    "no entry": (raw({"w": 3}, b""), "'w' is not dtype, shape and data_offsets"),
    "metadata": (raw({"__metadata__": {"a": 1}}, b""), "is not a dictionary of text"),
}


@pytest.mark.parametrize(("data", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_by_its_name_and_the_tensors(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(InputError, match=rf"model.safetensors.*{message}"):
        huggingface.read(tmp_path)


def sharded(folder: Path, weight_map: dict[str, str]) -> None:
    folder.mkdir()
    for shard, names in (("1.safetensors", "ab"), ("2.safetensors", "c")):
        save_file({name: torch.zeros(2) for name in names}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


GOOD = {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"}


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        (GOOD | {"c": "1.safetensors"}, "2.safetensors|c is in"),
        (GOOD | {"d": "2.safetensors"}, "disagree on 1 tensors: d; d is in no shard"),
        (GOOD | {"c": "3.safetensors"}, "3.safetensors is missing"),
        (GOOD | {"c": "../2.safetensors"}, "outside of the folder"),
        (GOOD | {"c": "x" * 5000}, r"names the shard 'x{255}', which is no file's name$"),
        (GOOD | {"c": "x/" * 5000}, r"names the shard '(x/){127}x', which is no file's name$"),
        (GOOD | {"c": "a\n\x1b[2J.safetensors"}, r"bad/a\\n\\x1b\[2J\.safetensors is missing"),
        (GOOD | {"c": "\ud800"}, "half of a character"),
    ],
    ids=["other shard", "missing tensor", "missing shard", "outside", "long", "deep", "lines", "half a character"],
)
def test_an_index_that_does_not_fit_its_shards_is_refused(
    tmp_path: Path, weight_map: dict[str, str], message: str
) -> None:
    sharded(tmp_path / "good", GOOD)
    assert set(huggingface.read(tmp_path / "good").tensors) == set("abc")
    sharded(tmp_path / "bad", weight_map)
    with pytest.raises(InputError, match=message):
        huggingface.read(tmp_path / "bad")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}}', "ambiguous: 'a' is there twice"),
        (b'{"weight_map": {}, "weight_map": {}}', "ambiguous: 'weight_map' is there twice"),
        (json.dumps({"weight_map": GOOD}).encode("utf-16"), "byte 0, 0xff, is not utf-8"),
        (b"\xef\xbb\xbf" + json.dumps({"weight_map": GOOD}).encode(), "byte order mark"),
        (b'{"metadata": {"total_size": 1' + b"0" * 6000 + b"}}", "a number has more than 4,300 digits"),
        (b"[]", "expected a JSON object"),
    ],
)
def test_an_index_that_is_read_in_two_ways_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    sharded(tmp_path / "bad", GOOD)
    index = tmp_path / "bad" / "model.safetensors.index.json"
    index.write_bytes(content)
    for read in (huggingface.read, lambda folder: list(weight_files(folder))):
        with pytest.raises(InputError) as caught:
            read(tmp_path / "bad")
        assert str(index) in str(caught.value) and message in str(caught.value)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    for name in ("1.safetensors", "2.safetensors"):
        save_file({"w": torch.zeros(1)}, tmp_path / name)
    with pytest.raises(InputError, match=r"w is in .*1.safetensors and in .*2.safetensors"):
        huggingface.read(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="no weights in"):
        huggingface.read(tmp_path)


def test_what_safetensors_cannot_carry_is_named(tmp_path: Path) -> None:
    weight = torch.ones(2)
    refused = {
        r"cannot carry 2 values that are no tensors: step, groups/0;": {"w": weight, "step": 3, "groups": [0.1]},
        r"cannot carry 1 entries that are nested.*: model;": {"model": {"w": weight}, "x": weight},
        r"cannot carry 1 entries.* key is not text: 3;": {3: weight},
        r"cannot carry 1 tensors of a type that it lacks: z \(C128\);": {"z": weight.to(torch.complex128)},
        r"this state is a list": [weight],
    }
    for number, (message, value) in enumerate(refused.items()):
        torch.save(value, tmp_path / f"{number}.pt")
        with pytest.raises(InputError, match=message):
            convert(tmp_path / f"{number}.pt", tmp_path / "out", "huggingface")
    assert not (tmp_path / "out").exists()


def test_text_in_the_header_is_kept_or_named(tmp_path: Path) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "a.safetensors", metadata={"format": "pt", "author": "me"})
    with pytest.raises(InputError, match="cannot carry 1 entries of the safetensors header's __metadata__: author"):
        convert(tmp_path / "a.safetensors", tmp_path / "a.pt", "pytorch")
    content = huggingface.read(tmp_path / "a.safetensors")
    more = replace(content, tensors={**content.tensors, "v": of_torch(torch.zeros(1))})
    huggingface.write(more, tmp_path / "b.safetensors")
    assert huggingface.read(tmp_path / "b.safetensors").origin["metadata"] == {"format": "pt", "author": "me"}


def test_files_cannot_leave_the_folder_nor_hide_in_a_single_file(tiny: Path, tmp_path: Path) -> None:
    content = huggingface.read(tiny)
    with pytest.raises(InputError, match=r"single file a.safetensors cannot carry \d+ files"):
        huggingface.write(content, tmp_path / "a.safetensors")
    escape = replace(content, files={"../escaped": content.files["config.json"]})
    with pytest.raises(InputError, match=r"'../escaped' would lie outside"):
        huggingface.write(escape, tmp_path / "out")
    taken = replace(content, files={"model.safetensors": content.files["config.json"]})
    with pytest.raises(InputError, match=r"two files of the checkpoint are called 'model.safetensors'"):
        huggingface.write(taken, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_gives_too_little_is_noticed(tmp_path: Path) -> None:
    content = Content({"w": InMemory("F32", (3,), memoryview(b"12345678"))}, "model")
    with pytest.raises(IntegrityError, match="w: 8 bytes were read where its type and shape make 12"):
        huggingface.write(content, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# --- memory

COPY = r"""
import re, sys
from pathlib import Path
from capibara_assets.checkpoints.formats import convert
convert(Path(sys.argv[1]), Path(sys.argv[2]), "huggingface")  # imports, buffers
def peak():  # not getrusage, which starts with what the parent process had
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
convert(Path(sys.argv[3]), Path(sys.argv[4]), "huggingface")
print(peak() - before)
"""


@pytest.mark.extended
def test_converting_takes_memory_for_a_piece_not_for_the_model(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(3)}, tmp_path / "small.safetensors")
    save_file({"w": torch.arange(40 << 20, dtype=torch.float32)}, tmp_path / "big.safetensors")  # 160 MiB
    names = ("small.safetensors", "s", "big.safetensors", "b")
    done = subprocess.run(
        [sys.executable, "-c", COPY, *(str(tmp_path / name) for name in names)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 48 << 10  # KiB: two pieces of 8 MiB and room to breathe, of 160 MiB
    assert (tmp_path / "b" / "big.safetensors").read_bytes() == (tmp_path / "big.safetensors").read_bytes()
