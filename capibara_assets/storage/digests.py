"""SHA-256 digests of JSON, bytes, files and folders: the identity of everything the store holds."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BLOCK = 1 << 20


def canonical_json(value: Any) -> bytes:
    """JSON bytes that depend on the value alone: sorted keys, no spaces, ASCII, one newline at the end.

    ASCII because lone surrogates, which occur in real logs, have no UTF-8 form.

    Raises:
        ValueError: a float is NaN or infinite (JSON has neither).
        TypeError: the value is not JSON.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of `data`, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, read in blocks of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def combine(digests: Mapping[str, str]) -> str:
    """One digest of named digests; the order of the mapping does not matter."""
    return sha256_bytes(canonical_json(dict(digests)))


def tree_files(folder: Path) -> dict[str, Path]:
    """Relative POSIX path -> file, for every regular file below `folder`, sorted; links to files are followed.

    Raises:
        FileNotFoundError: `folder` is no directory, or a link in it leads nowhere.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not path.exists():
            raise FileNotFoundError(f"{path} is a link that leads nowhere")
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path
    return files


def tree_digest(folder: Path) -> str:
    """Digest of a folder's files by name and bytes; empty folders, times and permissions do not count."""
    return combine({relative: sha256_file(path) for relative, path in tree_files(folder).items()})
