"""Files of torch.save: read without unpickling any class, written as the nested state that was read.

`torch.load(weights_only=True)` has its own unpickler, which creates tensors, numbers, strings and containers only;
CPython's pickle, which runs any code a file names, is never used.
"""

import os
import pickle
import re
import struct
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import psutil
import torch

from capibara_assets.checkpoints.content import Content, live, nbytes, to_torch
from capibara_assets.checkpoints.formats.beside import read_files, write_files
from capibara_assets.checkpoints.formats.limits import listed, refuse, refuse_metadata
from capibara_assets.checkpoints.formats.pickled import require_plain_pickle, stored_sizes
from capibara_assets.checkpoints.formats.publish import new_file, new_folder
from capibara_assets.checkpoints.tree import flatten, unflatten
from capibara_assets.errors import InputError, named

SUFFIXES = (".pt", ".pth", ".bin")
_STORAGE = re.compile(r"/data/[^/]+\Z")  # members that hold the bytes of tensors
_PIECE = 1 << 20
_OLD_PARTS = 5  # pickles at the head of a file from before torch 1.6
_LENGTHS = 26  # bytes of a member's header before them
_MODEL, _ADAPTER = "pytorch_model.bin", "adapter_model.bin"
_MOST_REPEATED, _ALWAYS_FITS = 64, 1 << 26
_DAMAGE = (RuntimeError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError, zipfile.BadZipFile)


def detect(path: Path) -> bool:
    """Whether this is a file of torch.save, or a folder whose only weights are one."""
    if path.is_file():
        return path.suffix in SUFFIXES
    return _folder_file(path) is not None and not any(
        (path / name).is_file() for name in ("config.json", "adapter_config.json")
    )


def read(path: Path) -> Content:
    """Read the state in a file, or in a folder's `pytorch_model.bin` or `adapter_model.bin` with its other files.

    The file is mapped into memory: a tensor's pages are read when it is read. (A file in the format from before torch
    1.6 cannot be mapped; it is read whole.)

    Raises:
        InputError: the file is missing or damaged, or holds an object that only unpickling could restore; it names the
            classes and says how to save the file without them.
    """
    if path.is_dir():
        file = _folder_file(path)
        if file is None:
            raise InputError(f"{path} has no {_MODEL} and no {_ADAPTER}: give the file itself")
        content = read(file)
        kind: Any = "adapter" if file.name == _ADAPTER else content.kind
        return Content(content.tensors, kind, content.tree, content.ties, read_files(path, [file.name]), content.origin)
    state = load(path)
    tensors, tree, ties = flatten(state)
    _require_backed(path, tensors)
    return Content(
        {name: live(tensor, name) for name, tensor in tensors.items()},
        "state",
        tree,
        ties,
        origin={"format": "pytorch"},
    )


def write(content: Content, path: Path) -> None:
    """Write a file if `path` ends in .pt, .pth or .bin, else a folder with the checkpoint's files beside the state.

    All tensors are in memory at the same time: torch.save takes no pieces. Tied names share one storage in the file;
    the same content gives the same bytes.

    Raises:
        InputError: `path` exists; files beside a single file, or text in a safetensors header: it names them; or more
            bytes than this machine has memory.
    """
    refuse_metadata(content, "a file of torch.save")
    _require_room(content)
    if path.suffix in SUFFIXES:
        refuse(f"the single file {path.name}", sorted(content.files), "files", "give a folder's name")
        with new_file(path) as file:
            torch.save(state_of(content), file)
        return
    with new_folder(path) as folder:
        name = _ADAPTER if content.kind == "adapter" else _MODEL
        with (folder / name).open("xb") as file:
            torch.save(state_of(content), file)
        write_files(content.files, folder)


def _require_room(content: Content) -> None:
    """Raise for tensors that no memory here holds together: an allocation that may succeed is paid for when written."""
    size = sum(nbytes(source.dtype, source.shape) for source in content.tensors.values())
    room = psutil.virtual_memory().total + psutil.swap_memory().total
    if size > room:
        raise InputError(
            f"torch.save takes all tensors at once: these have {size:,} bytes, this machine {room:,} of memory; write "
            "huggingface or dcp, which take them in pieces"
        )


def _require_backed(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise for tensors of terabytes that a few stored bytes are repeated to."""
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided:  # refused later, with its place
            continue
        size, stored = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
        if size > max(_MOST_REPEATED * stored, _ALWAYS_FITS):
            raise InputError(f"{path}: {name} is {size:,} bytes made of {stored:,} stored ones: it is not unpacked")


def _require_whole(sizes: Mapping[str, int], state: bytes, what: str) -> None:
    """Raise where a tensor's bytes are not those of its member: torch maps what stands behind it, too."""
    for key, size in stored_sizes(state):
        if size != sizes.get(key):
            there = f"has {sizes[key]:,}" if key in sizes else "is missing"
            raise InputError(
                f"{what} is damaged: a tensor has {size:,} bytes, its member {named(key)} {there}: copy it again"
            )


def state_of(content: Content) -> Any:
    """The nested state with every tensor in memory; a flat dictionary if the content has no tree."""
    if content.tree is not None:
        return unflatten(content.tree, lambda name: to_torch(content.tensors[name]), content.ties)
    state = OrderedDict((name, to_torch(source)) for name, source in content.tensors.items())
    for name, kept in content.ties.items():
        state[name] = state[kept]
    return state


def load(path: Path) -> Any:
    """Load a file of torch.save, with tensors on the CPU and, where the format allows it, mapped into memory.

    Raises:
        InputError: as `read`.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist: give a file of torch.save")
    mapped = zipfile.is_zipfile(path)  # the format since torch 1.6
    with path.open("rb") as file:
        if not mapped and file.read(4) == b"PK\3\4":
            raise InputError(f"{path} is damaged or no file of torch.save (its end is missing): copy it again")
        return load_stream(path if mapped else file, str(path), mapped=mapped)


def _require_stored(source: Path | IO[bytes], what: str) -> None:
    """Raise unless each zip member occurs once, uncompressed and with the checksum that stands beside it.

    Compressed bytes would be mapped as weights, and torch compares no checksums.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            _require_single(members, what)
            sizes = {one.filename.rpartition("/")[2]: one.file_size for one in members if _STORAGE.search(one.filename)}
            for member in members:
                if member.filename.endswith("data.pkl"):
                    state = _content(archive, member)
                    require_plain_pickle(state, what)
                    _require_whole(sizes, state, what)
                if member.CRC:  # 0: written with torch's `compute_crc32` switched off
                    with archive.open(member) as file:
                        while file.read(_PIECE):
                            pass
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, RuntimeError) as error:
        raise InputError(f"{what} is damaged or no file of torch.save ({_first_line(error)}): copy it again") from error


def _require_single(members: Sequence[zipfile.ZipInfo], what: str) -> None:
    names = {found[0] if (found := _STORAGE.search(each.filename)) else each.filename for each in members}
    if len(names) < len(members) or any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise InputError(
            f"{what} has compressed or doubled members, which torch.save never writes: unpack it and save it with "
            "torch.save again"
        )


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The bytes of a member that is stored as it is; without a checksum the library would call it damaged."""
    if member.CRC or archive.fp is None:
        return archive.read(member)
    archive.fp.seek(member.header_offset + _LENGTHS)
    archive.fp.seek(sum(struct.unpack("<HH", archive.fp.read(4))), os.SEEK_CUR)  # of its name, of what else there is
    return archive.fp.read(member.file_size)


def load_stream(source: Path | IO[bytes], what: str, *, mapped: bool = False) -> Any:
    """`load` from an open file; errors name it `what`. Raises InputError: as `read`."""
    if mapped or zipfile.is_zipfile(source):
        _require_stored(source, what)
    elif not isinstance(source, Path):
        source.seek(0)
        require_plain_pickle(source, what, _OLD_PARTS)
    if not isinstance(source, Path):
        source.seek(0)
    try:
        with warnings.catch_warnings():  # of a pickle that is then refused
            warnings.simplefilter("ignore")
            return torch.load(source, map_location="cpu", mmap=mapped, weights_only=True)
    except pickle.UnpicklingError as error:
        raise _unpicklable(what, error) from error
    except _DAMAGE as error:
        raise InputError(f"{what} is damaged or no file of torch.save ({_first_line(error)}): copy it again") from error


def _folder_file(path: Path) -> Path | None:
    return next((path / name for name in (_MODEL, _ADAPTER) if (path / name).is_file()), None)


def _unpicklable(what: str, error: Exception) -> InputError:
    classes = sorted(set(re.findall(r"(?:GLOBAL|Unsupported class|unrecognized function) (\S+)", str(error))))
    if not classes:
        # torch's own message advises to load it with weights_only=False
        return InputError(f"{what} is damaged or no file of torch.save: copy it again")
    return InputError(
        f"{what} holds objects of {listed(classes)}: nothing is unpickled here, since that runs code of the "
        "file's choice. Where you trust it, load it with the program that wrote it and save tensors and plain values "
        "only, as in torch.save(model.state_dict(), ...)"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]
