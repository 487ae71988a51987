"""Which base an adapter is put on where it was trained elsewhere."""

import json
import shutil
from pathlib import Path

import pytest

from capibara_assets.errors import InputError
from capibara_assets.evaluation.contenders.model_folder import model_folder, opened
from capibara_assets.modeling.adapters import write_adapter
from capibara_assets.modeling.base import load_base
from capibara_assets.modeling.files import ADAPTER_CONFIG, base_digest
from capibara_assets_tests.modeling import random_adapter


@pytest.fixture
def adapter(folder: Path, tmp_path: Path) -> Path:
    write_adapter(random_adapter.adapter(load_base(folder).model, 0, 2, ("q_proj",)), tmp_path / "adapter")
    return tmp_path / "adapter"


def naming(adapter: Path, base: str | None) -> Path:
    config = json.loads((adapter / ADAPTER_CONFIG).read_text("utf-8"))
    (adapter / ADAPTER_CONFIG).write_text(json.dumps({**config, "base_model_name_or_path": base}), "utf-8")
    return adapter


@pytest.mark.parametrize("named", ["/nonexistent/other-model", "org/other-model", "other-model"])
def test_an_adapter_of_a_base_that_is_not_here_is_not_put_on_another_one(
    named: str, adapter: Path, folder: Path
) -> None:
    found = model_folder(naming(adapter, named), default_base=str(folder))
    with pytest.raises(InputError, match=f"{named}.*was not found: give it with --base"):
        _ = found.whole
    assert model_folder(adapter, folder, default_base=str(folder)).whole == folder


@pytest.mark.parametrize("named", [None, "", "org/BASE", "/elsewhere/BASE"])
def test_an_adapter_that_names_no_base_or_the_same_one_elsewhere_takes_the_default(
    named: str | None, adapter: Path, folder: Path
) -> None:
    naming(adapter, named and named.replace("BASE", folder.name))
    assert model_folder(adapter, default_base=str(folder)).whole == folder


def test_the_digest_beside_an_adapter_tells_its_base_whatever_it_is_called(
    adapter: Path, folder: Path, tmp_path: Path
) -> None:
    naming(adapter, "/nonexistent/other-model")
    (adapter / "manifest.json").write_text(json.dumps({"base_digest": base_digest(folder)}), "utf-8")
    moved = Path(shutil.copytree(folder, tmp_path / "renamed"))
    assert model_folder(adapter, default_base=str(moved)).whole == moved


def test_the_training_that_left_its_request_beside_an_adapter_tells_its_base(
    adapter: Path, folder: Path, tmp_path: Path
) -> None:
    """Its config names the base's folder alone: an adapter that is given away tells nothing of the machine."""
    own = Path(shutil.copytree(folder, tmp_path / "mine" / "base"))
    naming(adapter, "base")
    (adapter / "training_info.json").write_text(json.dumps({"base_digest": base_digest(own)}), "utf-8")
    (adapter / ".capibara").mkdir()
    (adapter / ".capibara" / "request.json").write_text(json.dumps({"base_model": str(own)}), "utf-8")
    assert model_folder(adapter, default_base="/nonexistent").whole == own
    epoch = adapter / "checkpoint-epoch-1"
    epoch.mkdir()
    for name in (ADAPTER_CONFIG, "adapter_model.safetensors"):
        shutil.copy(adapter / name, epoch / name)
    assert model_folder(epoch, default_base="/nonexistent").whole == own


def test_a_dora_without_its_magnitudes_is_not_answered_for(adapter: Path, folder: Path) -> None:
    config = json.loads((adapter / ADAPTER_CONFIG).read_text("utf-8"))
    (adapter / ADAPTER_CONFIG).write_text(json.dumps({**config, "use_dora": True}), "utf-8")
    with (
        pytest.raises(InputError, match=r"lacks tensors that adapter_config.json asks for: .*lora_magnitude_vector"),
        opened(model_folder(adapter, folder)),
    ):
        pass
