"""A folder with a whole model or an adapter: what it holds, the base it belongs to, and loading both."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from capibara_assets.checkpoints.formats.safetensors_file import read_file
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import applied, read_adapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    CONFIG,
    base_digest,
    read_json_object,
    require_one_model,
    require_token_ids,
)
from capibara_assets.modeling.lora.adapter_configs import loading_problem
from capibara_assets.storage.foreign import read_by_library, read_document, require_plain
from capibara_assets.storage.jsonfiles import read_json
from capibara_assets.training.standalone.run import base_folder

_FACTOR = re.compile(r"\.lora_(embedding_)?A\b")
_ON_CARD = re.compile(r"^`[^`]+`, digest `([0-9a-f]{64})`", re.MULTILINE)  # as lineage/card.py writes it


@dataclass(frozen=True)
class ModelFolder:
    """A folder that holds a model or an adapter, and its base.

    Attributes:
        folder: of the model or adapter.
        base: folder of the base of an adapter, or of the model that a whole model is compared with; None: unknown.
        is_adapter: whether it is a LoRA adapter in PEFT's format, else a model in Transformers'.
        base_digest: digest of the base it was made from, as recorded beside it; None: not recorded.
        digest_from: the file that records it.
    """

    folder: Path
    base: Path | None
    is_adapter: bool
    base_digest: str | None = None
    digest_from: str = ""

    @property
    def whole(self) -> Path:
        """The folder that holds a whole model: its own, or the adapter's base.

        Raises:
            InputError: an adapter whose base was not found.
        """
        if not self.is_adapter:
            return self.folder
        if self.base is None:
            named = _named_base(self.folder)
            called = f" ({str(named)[:200]!r} in its config)" if named else ""
            raise InputError(f"the base of {self.folder}{called} was not found: give it with --base")
        return self.base


def model_folder(
    folder: Path, base: Path | None = None, *, default_base: str | None = None, digest: str | None = None
) -> ModelFolder:
    """Find out what a folder holds, and its base.

    An adapter's base is the one given, else the one that its config names if it is on this machine, else
    `default_base`; of the latter two the one with the digest that is recorded beside the adapter.

    Args:
        folder: a model in Transformers' format, or an adapter in PEFT's.
        base: folder of the base.
        default_base: folder, or name of one that ships.
        digest: of the adapter's base, where the caller knows it.

    Raises:
        InputError: the folder holds neither a model nor an adapter; names those below it. The tokens that the configs
            of the model or base name are none of its vocabulary, or its folder holds two models.
    """
    model = _found(folder, base, default_base, digest)
    if model.base is not None or not model.is_adapter:
        _require_sound(model.whole)
    return model


def _require_sound(whole: Path) -> None:
    """Check what a library would misread of a model; whoever loads the folder says what else is amiss with it."""
    if (whole / CONFIG).is_file():
        require_plain(whole)
        require_token_ids(whole)
        require_one_model(whole)


def _found(folder: Path, base: Path | None, default_base: str | None, digest: str | None) -> ModelFolder:
    if (folder / ADAPTER_CONFIG).is_file() or (folder / ADAPTER_WEIGHTS).is_file():
        require_plain(folder)  # before any of its notes is read
        known, source = (digest, "the checkpoint store") if digest else _written_digest(folder)
        model = ModelFolder(folder, base, True, known, source)
        return model if base is not None else replace(model, base=_base_of(model, default_base))
    if (folder / CONFIG).is_file():
        return ModelFolder(folder, base, False, digest, "the checkpoint store" if digest else "")
    raise InputError(f"{folder} holds neither {CONFIG} nor {ADAPTER_CONFIG}{_instead(folder)}")


def require_its_base(model: ModelFolder) -> None:
    """Check that an adapter's base is the one it was trained on. Raises InputError: it is another, or missing."""
    if not model.is_adapter:
        return
    there = base_digest(model.whole)
    if model.base_digest not in (None, there):
        raise InputError(
            f"{model.folder} was trained on the base {model.base_digest[:12]} ({model.digest_from}), but {model.base} "
            f"is {there[:12]}: give the folder of its own base with --base"
        )


@contextmanager
def opened(model: ModelFolder, *, incomplete: bool = False) -> Iterator[Base]:
    """Load the model; an adapter is applied to its base.

    Args:
        incomplete: a model of which weights are missing, too.

    Raises:
        InputError: it cannot be loaded, or the adapter does not fit its base.
    """
    base = load_base(model.whole, incomplete=incomplete)
    if not model.is_adapter:
        yield base
    elif more_than_pairs(model.folder):
        yield replace(base, model=_with_peft(base, model.folder))
    else:
        with applied(base.model, read_adapter(model.folder)):
            yield base


def more_than_pairs(folder: Path) -> bool:
    """Whether an adapter is more than scale * B @ A (DoRA, biases, saved modules), so that PEFT has to load it."""
    config = adapter_config(folder)
    return bool(config.get("use_dora") or config.get("modules_to_save") or config.get("bias", "none") != "none")


def adapter_config(folder: Path) -> dict[str, Any]:
    """Read PEFT's `adapter_config.json`.

    Raises:
        InputError: it is missing or not a JSON object.
    """
    return read_json_object(folder / ADAPTER_CONFIG, "a LoRA adapter in PEFT's format")


def _with_peft(base: Base, folder: Path) -> Any:
    from peft import PeftModel

    weights = folder / ADAPTER_WEIGHTS
    if not weights.is_file():
        raise InputError(f"{weights} is missing: save the adapter as safetensors")
    shapes = {name: tensor.shape for name, tensor in read_file(weights).tensors.items()}
    rank = max((shape[0] for name, shape in shapes.items() if _FACTOR.search(name) and shape), default=0)
    if problem := loading_problem(adapter_config(folder), rank):
        raise InputError(f"{folder / ADAPTER_CONFIG}: {problem}")
    with (
        read_by_library(f"adapter {folder} cannot be loaded onto {base.path}"),
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        model = PeftModel.from_pretrained(base.model, str(folder), local_files_only=True)
    if lacks := next((str(one.message) for one in told if "missing adapter keys" in str(one.message)), ""):
        raise InputError(f"{weights} lacks tensors that {ADAPTER_CONFIG} asks for: {lacks.partition(': ')[2][:300]}")
    model.eval()
    return model.get_base_model()  # with the adapter's layers in it, under the base's own interface


def _base_of(model: ModelFolder, default: str | None) -> Path | None:
    named = _named_base(model.folder)
    candidates = {}
    for location in (named, _trained_on(model.folder), default):
        if not location:
            continue
        try:
            candidates[location] = base_folder(str(location))
        except InputError:  # not on this machine, or incomplete: it cannot be loaded, so it is no candidate
            continue
    if model.base_digest is None and named and named not in candidates and default in candidates:
        # nothing but its name tells which base it is for, and this is not its folder
        return candidates[default] if Path(str(named)).name == candidates[default].name else None
    for candidate in candidates.values():
        if model.base_digest in (None, base_digest(candidate)):
            return candidate
    return next(iter(candidates.values()), None)


def _named_base(folder: Path) -> Any:
    """The base that an adapter's config names; None where it names none."""
    return adapter_config(folder).get("base_model_name_or_path") if _has_config(folder) else None


def _trained_on(folder: Path) -> Any:
    """The base's place, as an adapter's training wrote it; None where none did."""
    return next((document.get("base_model") for document, _ in _written(folder, ".capibara/request.json")), None)


def _written(folder: Path, *names: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The JSON objects that a training wrote beside an adapter or above its epochs, each with its file's name."""
    for place in (folder, folder.parent):
        for name in names:
            if (place / name).is_file() and isinstance(document := read_json(place / name), dict):
                yield document, name


def _has_config(folder: Path) -> bool:
    return (folder / ADAPTER_CONFIG).is_file()


def _written_digest(folder: Path) -> tuple[str | None, str]:
    """The base's digest that an adapter's training wrote, and the file that says so."""
    for document, name in _written(folder, "training_info.json", "manifest.json"):
        if isinstance(document.get("base_digest"), str):
            return document["base_digest"], name
    card = folder / "README.md"
    if card.is_file() and (match := _ON_CARD.search(read_document(card).decode("utf-8", "replace"))):
        return match[1], card.name
    return None, ""


def _instead(folder: Path) -> str:
    if not folder.is_dir():
        return ": there is no such folder"
    there = sorted(
        {path.parent for name in (CONFIG, ADAPTER_CONFIG) for path in folder.glob(f"*/{name}")}
        | {path.parent for path in folder.glob(f"voters/*/{ADAPTER_CONFIG}")}
    )
    return f": give one of {', '.join(map(str, there[:6]))}" if there else ": give a model or an adapter"
