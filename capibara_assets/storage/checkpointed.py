"""Artifact folders kept in the checkpoint store, which stores equal tensors once.

Storage knows no checkpoint format: an artifact store is opened with a `Checkpoints`.
"""

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.manifest import WITH_CHECKPOINTS, KeptFolder, Manifest, is_file_of


class Checkpoints(Protocol):
    """The checkpoint store behind an artifact store."""

    def put(self, folder: Path, about: Mapping[str, Any]) -> str:
        """Stores a folder as a checkpoint and returns its id; the same folder and `about` give the same id.

        Args:
            about: fields of the checkpoint's description, such as `model`, `step` and `dataset_digest`.

        Raises:
            InputError: the folder is in no known format, or holds what its format cannot carry.
        """
        ...

    def mend(self, folder: Path, about: Mapping[str, Any]) -> str:
        """Stores a folder as `put` does, and replaces damaged parts of an existing checkpoint of it."""
        ...

    def restore(self, checkpoint: str, folder: Path) -> None:
        """Writes the files of a checkpoint into a folder that does not exist yet, byte for byte as they were kept.

        Raises:
            IntegrityError: it is missing or damaged.
        """
        ...


@dataclass(frozen=True)
class Checkpointed:
    """Marks a folder to publish as a checkpoint.

    Attributes:
        about: fields of its description; equal descriptions and bytes are one checkpoint.
        beside: fnmatch patterns of files in the folder that are no part of it (curves, events, timings): these stay
            in the artifact.
    """

    about: Mapping[str, Any]
    beside: Collection[str] = field(default=())


def checkpoint_of(relative: str, checkpoints: Mapping[str, Checkpointed]) -> str | None:
    """The folder whose checkpoint a file of an artifact belongs to; None: it lies in the artifact."""
    for folder, stated in checkpoints.items():
        if relative.startswith(f"{folder}/"):
            name = relative.removeprefix(f"{folder}/")
            return None if any(fnmatch.fnmatchcase(name, pattern) for pattern in stated.beside) else folder
    return None


def keep(
    manifest: Manifest,
    folders: Mapping[str, Mapping[str, Path]],
    stated: Mapping[str, Checkpointed],
    checkpoints: Checkpoints | None,
    work: Path,
) -> Manifest:
    """Stores folders as checkpoints, and restores each once to compare every byte before anything is published.

    Args:
        folders: folder of the artifact -> its files, by name in the folder.
        work: local folder for temporary files.

    Returns:
        The manifest, naming the checkpoints.

    Raises:
        InputError: the store has no checkpoint store, a folder is empty, or is no checkpoint.
        IntegrityError: a restored folder differs from what was stored.
    """
    kept: dict[str, KeptFolder] = {}
    for folder, files in folders.items():
        if checkpoints is None or not files:
            why = "holds no files" if checkpoints is not None else "has no checkpoint store to go to"
            raise InputError(f"{manifest.name}: the folder {folder}, to be kept as a checkpoint, {why}")
        with TemporaryDirectory(dir=work) as beside:
            whole, back = Path(beside) / "whole", Path(beside) / "back"
            for name, path in files.items():
                (whole / name).parent.mkdir(parents=True, exist_ok=True)
                (whole / name).symlink_to(path.absolute())
            identity = checkpoints.put(whole, stated[folder].about)
            try:
                checkpoints.restore(identity, back)
            except IntegrityError:  # some of it was there before, and is damaged
                checkpoints.restore(checkpoints.mend(whole, stated[folder].about), back)
            changed = [name for name in files if not is_file_of(back / name, manifest.files[f"{folder}/{name}"])]
        if changed:
            raise IntegrityError(
                f"{manifest.name}: checkpoint {identity[:12]} restores {folder}/{changed[0]} with other bytes: "
                "nothing was published"
            )
        kept[folder] = KeptFolder(id=identity, files=sorted(files))
    return manifest.model_copy(update={"checkpoints": kept, "schema_version": WITH_CHECKPOINTS}) if kept else manifest
