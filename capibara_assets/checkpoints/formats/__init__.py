"""Foreign formats of checkpoints, in and out; each one's module is imported when it is first used.

Imports `content` and `tree` of its siblings. A new format is a module here and a line in `FORMATS`.
"""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from capibara_assets.errors import InputError
from capibara_assets.storage.foreign import read_by_library, require_plain

if TYPE_CHECKING:
    from capibara_assets.checkpoints.content import Content

_UNPACKED = 1 << 30  # bytes that a checkpoint of constants may come to
_MOST_PACKED = 100  # times the bytes of its files: weights pack to two thirds, fresh optimizer states to a third


@dataclass(frozen=True)
class Format:
    """One checkpoint format.

    Attributes:
        name: as given to `--to` and `--from`.
        read: a file or folder -> its content; tensors are read in pieces on demand.
        write: content, target -> None; the target appears whole or not at all. None: the format can only be read.
        detect: whether a file or folder is in this format; reads names and first bytes only.
    """

    name: str
    read: "Callable[[Path], Content]"
    write: "Callable[[Content, Path], None] | None"
    detect: Callable[[Path], bool]


def _format(name: str, *, writes: bool = True, needs: str = "", libraries: tuple[str, ...] = ()) -> Format:
    """The format whose functions `read`, `write` and `detect` are in the module of its name.

    Args:
        needs: the extra of this package that installs `libraries`; `detect` works without them.
    """

    def call(function: str) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            missing = [library for library in libraries if importlib.util.find_spec(library) is None]
            if missing and function != "detect":
                raise InputError(
                    f"the format {name} needs {', '.join(missing)}: install this package with the extra "
                    f"`{needs}` (pip install 'capibara-assets[{needs}]')"
                )
            return getattr(importlib.import_module(f"{__name__}.{name}"), function)(*arguments)

        return called

    return Format(name, call("read"), call("write") if writes else None, call("detect"))


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        known.name: known
        for known in (
            _format("huggingface"),  # models and PEFT adapters as Transformers keeps them (safetensors)
            _format("pytorch"),  # one file of torch.save, or pytorch_model.bin in a folder
            _format("dcp"),  # torch.distributed.checkpoint
            _format("deepspeed", writes=False),  # ZeRO checkpoints of DeepSpeed, consolidated to float32
            # T5X's own checkpoints (msgpack index, zarr arrays)
            _format("t5x", needs="tpu", libraries=("msgpack", "tensorstore")),
            # as JAX programs save (OCDBT or zarr)
            _format("orbax", needs="tpu", libraries=("orbax", "tensorstore")),
        )
    }
)
"""Every format, by name."""


def detect_format(path: Path) -> str:
    """Detect the format of a file or folder.

    Raises:
        InputError: it does not exist, no format fits, or more than one does.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist: give the file or folder of a checkpoint")
    require_plain(path)
    fitting = [known.name for known in FORMATS.values() if known.detect(path)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InputError(f"{path} can be read as {' and as '.join(fitting)}: say which one is meant")
    raise InputError(f"{path} is in no format that is known here ({', '.join(FORMATS)})")


def format_named(name: str) -> Format:
    """Look up a format by name. Raises InputError if it is unknown."""
    if name not in FORMATS:
        raise InputError(f"no format {name!r}: there are {', '.join(FORMATS)}")
    return FORMATS[name]


def read(path: Path, from_: str | None = None) -> "Content":
    """Read a checkpoint; `from_` if its format cannot be detected from its files.

    Raises:
        InputError: it does not exist, its format is unknown, it is damaged, or it states more than it holds; as
            `require_plain`.
    """
    require_plain(path)
    name = from_ or detect_format(path)
    try:
        with read_by_library(f"{path} cannot be read as {name}"):  # whatever it states that our readers did not foresee
            content = format_named(name).read(path)
    except InputError as error:
        if str(path) in str(error):
            raise
        raise InputError(f"{path}: {error}") from error
    _require_stored(path, content)
    return content


def _require_stored(path: Path, content: "Content") -> None:
    """Refuse tensors that are far larger than the files: zeros that nothing stores, chunks that unpack for ever.

    Raises:
        InputError: they are.
    """
    from capibara_assets.checkpoints.content import nbytes

    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    stored = sum(file.stat().st_size for file in files)
    stated = sum(nbytes(source.dtype, source.shape) for source in content.tensors.values())
    if stated > _UNPACKED + _MOST_PACKED * stored:
        raise InputError(
            f"{path} states tensors of {stated:,} bytes and holds {stored:,}: no checkpoint packs that much, "
            "it is made to fill memory or disk"
        )


def convert(src: Path, dst: Path, to: str, from_: str | None = None) -> None:
    """Write a checkpoint in another format; `dst` appears whole or not at all.

    Tensors are converted one by one. Where the target's writer takes no pieces (`pytorch`), memory holds all of them.

    Raises:
        InputError: `dst` exists, the target can only be read, the source is damaged or in no known format, or it holds
            content that the target cannot; the message names it.
    """
    target = format_named(to)
    if target.write is None:
        raise InputError(f"{to} is only read: no checkpoint is written in it; choose one of {', '.join(_writable())}")
    if dst.exists():
        raise InputError(f"{dst} exists already: nothing is overwritten; remove it or give another name")
    target.write(read(src, from_), dst)


def _writable() -> list[str]:
    return [known.name for known in FORMATS.values() if known.write is not None]
