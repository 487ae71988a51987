"""The registry of formats: what is known, what is detected, what is refused, and the way through a real store."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from capibara_assets.checkpoints import formats
from capibara_assets.checkpoints.content import Content, of_torch
from capibara_assets.checkpoints.formats import FORMATS, convert, detect_format, pytorch, read
from capibara_assets.checkpoints.store.manifest import About
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.errors import InputError
from capibara_assets_tests.checkpoints.formats.kept import bytes_of, same
from capibara_assets_tests.checkpoints.limits import files_of_at_most


def test_names_are_known_without_loading_torch() -> None:
    code = (
        "import sys; from capibara_assets.checkpoints.formats import FORMATS; print('torch' in sys.modules, *FORMATS)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, *names = done.stdout.split()
    assert loaded == "False"
    assert names == list(FORMATS)
    assert {"huggingface", "pytorch", "dcp", "deepspeed"} <= set(names)


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    strange = formats._format("orbax", needs="tpu", libraries=("no_such_library", "torch"))
    for use in (strange.read, strange.write):
        assert use is not None
        with pytest.raises(InputError, match=r"the format orbax needs no_such_library: .*capibara-assets\[tpu\]"):
            use(tmp_path)  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.pt", "b", "gguf"), "no format 'gguf': there are huggingface, pytorch, dcp"),
        (("a.pt", "b", "pytorch", "gguf"), "no format 'gguf'"),
        (("a.pt", "b", "deepspeed"), "deepspeed is only read"),
        (("a.pt", "a.pt", "pytorch"), "a.pt exists already: nothing is overwritten"),
        (("missing", "b", "pytorch"), "missing does not exist"),
        (("folder", "b", "pytorch"), "is in no format that is known here"),
    ],
    ids=["unknown", "unknown source", "read only", "exists", "missing", "no format"],
)
def test_mistakes_get_one_sentence(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "a.pt")
    (tmp_path / "folder").mkdir()
    source, target, *names = arguments
    with pytest.raises(InputError, match=message):
        convert(tmp_path / source, tmp_path / target, *names)
    assert not (tmp_path / "b").exists()


def test_a_file_may_be_read_as_another_format_than_it_looks(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "state.ckpt")
    with pytest.raises(InputError, match="in no format"):
        detect_format(tmp_path / "state.ckpt")
    assert set(read(tmp_path / "state.ckpt", "pytorch").tensors) == {"w"}


def test_no_room_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    content = Content({"w": of_torch(torch.zeros(1 << 19))}, "model")
    said = f"no room to write to {tmp_path} (File too large): nothing was published; free space and run again"
    for name, target in (("huggingface", "a"), ("huggingface", "a.safetensors"), ("pytorch", "a.pt"), ("dcp", "b")):
        with files_of_at_most(1 << 20), pytest.raises(InputError, match=f"^{re.escape(said)}$"):
            FORMATS[name].write(content, tmp_path / target)
    assert list(tmp_path.iterdir()) == []


def test_a_model_and_its_adapter_come_out_of_a_store_byte_for_byte(nano: Path, tmp_path: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(nano)
    adapted: Any = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"]))
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)
        expected = adapted.eval()(torch.arange(8)[None]).logits
    adapted.save_pretrained(tmp_path / "adapter")
    store = CheckpointStore(tmp_path / "store")
    for name, source in (("base", nano), ("adapter", tmp_path / "adapter")):
        store.write(read(source), About(model=name, step=1))
        store.load(name, "huggingface", tmp_path / f"{name}-out")
        assert bytes_of(tmp_path / f"{name}-out") == bytes_of(source)
    fresh = AutoModelForCausalLM.from_pretrained(tmp_path / "base-out")
    with torch.no_grad():
        again = PeftModel.from_pretrained(fresh, tmp_path / "adapter-out").eval()
        assert torch.equal(again(torch.arange(8)[None]).logits, expected)


def test_a_state_comes_out_of_a_store_in_every_format_that_can_carry_it(tmp_path: Path) -> None:
    weight = torch.randn(5, 3).bfloat16()
    state = {"model": {"w": weight, "tied": weight}, "optimizer": {"state": {0: (torch.tensor(1.0), 2)}}, "step": 3}
    store = CheckpointStore(tmp_path / "store")
    store.save(state, 3, "run")
    store.load("run", "pytorch", tmp_path / "state.pt")
    store.load("run", "dcp", tmp_path / "dcp")
    assert same(torch.load(tmp_path / "state.pt"), state)
    assert same(pytorch.state_of(read(tmp_path / "dcp")), state)
    with pytest.raises(InputError, match=r"huggingface cannot carry 2 values that are no tensors: .*, step"):
        store.load("run", "huggingface", tmp_path / "folder")
