"""What a voter's process does not import; bases in few bits get PEFT's layers for them all the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from capibara_assets.modeling.light_imports import LoraConfig, get_peft_model
from capibara_assets.processes.hidden_libraries import without_bitsandbytes
from capibara_assets_tests.modeling.tiny import save_tiny


@pytest.mark.extended  # in `make test` it is looked at in the processes of `training/in_ranks.py`
def test_training_and_merging_import_no_library_that_they_do_not_use(tmp_path: Path, nano: Path) -> None:
    base, merged = save_tiny(tmp_path / "base", nano), tmp_path / "merged"
    code = (
        "import pathlib, sys, types, capibara_assets.training.loop.train\n"
        "from capibara_assets.consensus.merging.experts_merge import write_merged\n"
        "from capibara_assets.modeling.base import load_base\n"
        f"base, merged = load_base(pathlib.Path({str(base)!r})), pathlib.Path({str(merged)!r})\n"
        "write_merged(base, types.SimpleNamespace(deltas={}), merged)\n"
        "print(sorted({'bitsandbytes', 'deepspeed'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_was_hidden_is_found_again() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    torch = pytest.importorskip("torch")
    hidden = sys.modules.pop("bitsandbytes")
    try:
        with without_bitsandbytes():
            with pytest.raises(ModuleNotFoundError):
                import bitsandbytes as _  # noqa: F401
            from peft import import_utils

            assert not import_utils.is_bnb_available()
    finally:
        sys.modules["bitsandbytes"] = hidden
    assert import_utils.is_bnb_available() and import_utils.is_bnb_4bit_available()

    with without_bitsandbytes():  # imported before: seen inside, too
        model = torch.nn.Sequential()
        model.add_module("layer", bitsandbytes.nn.Linear4bit(64, 64, bias=False, quant_type="nf4"))
        model.is_loaded_in_4bit = True  # as Transformers marks what it loads so
        adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["layer"]))
    assert type(adapted.base_model.model.layer).__module__ == "peft.tuners.lora.bnb"
