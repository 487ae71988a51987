"""The files that lie beside a checkpoint's tensors: config, tokenizer, model card, whatever else is in its folder."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from capibara_assets.checkpoints.content import Source, of_file
from capibara_assets.checkpoints.formats.publish import write_source
from capibara_assets.errors import InputError

_PASSED_OVER = (".git", ".cache")  # version control's and huggingface_hub's own notes on the copy, not the checkpoint


def read_files(path: Path, taken: Iterable[str]) -> dict[str, Source]:
    """Every file of a folder, at any depth, but those in `taken`: relative POSIX name -> its bytes.

    The folders `.git` and `.cache` at the top are no part of a checkpoint.

    Raises:
        InputError: a link to a folder, which could lead anywhere.
    """
    found: dict[str, Source] = {}
    taken = set(taken)
    for folder, folders, names in os.walk(path):
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        if linked:
            raise InputError(f"{Path(folder) / linked[0]} is a link to a folder: put the folder itself there")
        folders[:] = sorted(set(folders) - set(_PASSED_OVER)) if Path(folder) == path else sorted(folders)
        for name in sorted(names):
            relative = (Path(folder) / name).relative_to(path).as_posix()
            if relative not in taken:
                found[relative] = of_file(path / relative)
    return found


def write_files(files: Mapping[str, Source], folder: Path) -> None:
    """Write a checkpoint's files below `folder`.

    Raises:
        InputError: a name that leads out of the folder, or that is taken by another file.
    """
    for name, source in files.items():
        target = folder / name
        if not name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise InputError(f"the checkpoint's file {name!r} would lie outside of its folder: it is not written")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with target.open("xb") as file:
                write_source(source, name, file)
        except FileExistsError:
            raise InputError(f"two files of the checkpoint are called {name!r}: rename one of them") from None
