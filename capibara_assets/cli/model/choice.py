"""Options that choose a model: a folder or a stored checkpoint, and the base model of an adapter."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.checkpoint.store import StoreLocation, on_store
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError
from capibara_assets.storage.jsonfiles import read_json

if TYPE_CHECKING:
    from capibara_assets.evaluation.contenders.model_folder import ModelFolder

_OPTIONS = (
    click.option(
        "--model",
        "reference",
        required=True,
        metavar="FOLDER|REF",
        help="A model or adapter: its folder, an artifact's, or a stored checkpoint: an id, MODEL, MODEL@v7.",
    ),
    click.option(
        "--base", metavar="FOLDER|NAME", help="Base model of an adapter; default: the one it names, checked by digest."
    ),
)


@dataclass(frozen=True)
class ModelChoice:
    """A model's folder or reference, its base model, and the checkpoint store that resolves references."""

    reference: str
    base: str | None
    where: StoreLocation

    @contextmanager
    def open(self) -> "Iterator[ModelFolder]":
        """The model as a folder; a stored checkpoint is restored to a temporary one while the block runs.

        Raises:
            InputError: there is no such model.
        """
        from capibara_assets.evaluation.contenders.model_folder import model_folder
        from capibara_assets.training.standalone.run import base_folder

        default = Deployment.from_environment().base_model
        base = base_folder(self.base) if self.base is not None else None
        folder = Path(self.reference).expanduser()
        reference = _kept(folder) if folder.is_dir() else self.reference
        if reference is None:
            yield model_folder(folder, base, default_base=default)
            return
        if folder.is_file():
            raise InputError(f"--model {folder} is a file: give the folder of a model or adapter")
        store = self.where.open()
        checkpoint = store.open(reference.removeprefix("checkpoint:"))  # as `evaluate` and `compare` name one
        with TemporaryDirectory(prefix="capibara-model-") as place:
            target = Path(place) / "model"
            store.load(checkpoint.id, "huggingface", target)
            digest = checkpoint.manifest.about.base_digest
            yield model_folder(target, base, default_base=default, digest=digest)


def on_model(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose a model; the command receives them as its argument `choice`."""

    @functools.wraps(command)
    def with_model(*, reference: str, base: str | None, where: StoreLocation, **rest: Any) -> None:
        command(choice=ModelChoice(reference, base, where), **rest)

    wrapped: Callable[..., None] = on_store(with_model)
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def _kept(folder: Path) -> str | None:
    """The id of the checkpoint with the weights of an artifact's folder; None for other folders.

    Raises:
        InputError: it has several.
    """
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        return None
    document = read_json(manifest)
    kept = document.get("checkpoints") if isinstance(document, dict) else None
    if not isinstance(kept, dict) or not kept:
        return None
    if len(kept) > 1:
        parts = ", ".join(f"{part} is {one['id'][:12]}" for part, one in sorted(kept.items()))
        raise InputError(f"{folder} has several checkpoints: give --model one of them ({parts})")
    return str(next(iter(kept.values()))["id"])
