"""The files of a checkpoint's folder other than its weights: config, tokenizer, model card and so on."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from capibara_assets.checkpoints.content import PieceSource, of_file
from capibara_assets.checkpoints.formats.publish import write_source
from capibara_assets.errors import InputError

_MOST = 10_000  # tokenizers, cards and pictures; arrays in chunks are read by their own formats
_PASSED_OVER = re.compile(r"\.git|\.cache|\.capibara|\.lock|checkpoint-(?:epoch-)?\d+")
"""What is no part of a checkpoint at the top of its folder: of version control, of huggingface_hub, and of a training,
which keeps its examples and the points that it resumes from beside what it made."""


def read_files(path: Path, excluded: Iterable[str]) -> dict[str, PieceSource]:
    """Relative POSIX name -> content, of every file below a folder except `excluded`.

    Folders at the top that version control, huggingface_hub and trainings keep for themselves are not part of it.

    Raises:
        InputError: a link to a folder, which could lead anywhere, or more files than a checkpoint has.
    """
    files: dict[str, PieceSource] = {}
    excluded = set(excluded)
    for folder, folders, names in os.walk(path):
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        if linked:
            raise InputError(f"{Path(folder) / linked[0]} is a link to a folder: put the folder itself there")
        folders[:] = sorted(name for name in folders if Path(folder) != path or not _PASSED_OVER.fullmatch(name))
        for name in sorted(names):
            relative = (Path(folder) / name).relative_to(path).as_posix()
            if relative not in excluded and not _PASSED_OVER.fullmatch(relative):
                files[relative] = of_file(path / relative)
        if len(files) > _MOST:
            raise InputError(f"{path} holds more than {_MOST:,} files beside its weights: give the checkpoint's folder")
    return files


def write_files(files: Mapping[str, PieceSource], folder: Path) -> None:
    """Write a checkpoint's files below `folder`.

    Raises:
        InputError: a name that leads out of the folder, or that another file has.
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
