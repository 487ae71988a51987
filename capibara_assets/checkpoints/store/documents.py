"""Envelope of a store's small files (manifests, versions, leases, marks): a checksum over every byte and the name.

Plain: a line `capibara-document/1 <SHA-256 of name, NUL and body>`, then the body. Sealed, in an encrypted store: a
line `capibara-sealed/1 <salt>`, then the body under AES-256-GCM with the name as associated data. Either way a flipped
bit, and a file under another file's name, is detected on reading. A line feed ends the file: some ways of uploading
small objects (multipart, as parsed by e-mail libraries) lose a carriage return that happens to be last.
"""

import hashlib
import re
from typing import Any

import zstandard

from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.errors import IntegrityError
from capibara_assets.storage.foreign import LARGEST_STORED
from capibara_assets.storage.jsonfiles import parse_json

_PLAIN, _SEALED = b"capibara-document/1 ", b"capibara-sealed/1 "
_END = b"\n"
_HEADER = re.compile(rb"(?:%s|%s)([0-9a-f]{64})\n" % (_PLAIN, _SEALED))


def wrap(body: bytes, name: str, vault: Vault | None) -> bytes:
    """The bytes of the file `name` with this body."""
    if vault is None:
        return _PLAIN + _digest(name, body) + b"\n" + body + _END
    salt = vault.new_salt()
    return _SEALED + salt.hex().encode() + b"\n" + vault.cipher(salt).seal(0, body, name.encode()) + _END


def unwrap(data: bytes, name: str, vault: Vault | None, place: str) -> bytes:
    """The body of a file.

    Raises:
        IntegrityError: these are not the bytes that were written under this name; it names the file.
    """
    header = _HEADER.match(data)
    if header is None or data.startswith(_SEALED) != (vault is not None):
        raise IntegrityError(f"{place}/{name} is damaged: its first line is not that of a document of this store")
    body = data[header.end() :]
    if not body.endswith(_END):
        raise IntegrityError(f"{place}/{name} is damaged: its end is missing")
    body = body.removesuffix(_END)
    if vault is None:
        if _digest(name, body) != header[1]:
            raise IntegrityError(f"{place}/{name} is damaged: its digest does not fit")
        return body
    try:
        return bytes(vault.cipher(bytes.fromhex(header[1].decode())).open(0, body, name.encode()))
    except IntegrityError as error:
        raise IntegrityError(f"{place}/{name} is damaged: {error}") from error


def unwrapped_json(data: bytes, name: str, vault: Vault | None, place: str) -> Any:
    """The JSON in the body of a file. Raises IntegrityError: as `unwrap`, or it holds none that can be read."""
    try:
        return parse_json(unwrap(data, name, vault, place))
    except ValueError as error:
        raise IntegrityError(f"{place}/{name} is damaged: {error}") from error


def unpacked(frame: bytes) -> bytes:
    """The content of one Zstandard frame. Raises ValueError, ZstdError: larger than a document is, or damaged."""
    if (size := zstandard.frame_content_size(frame)) > LARGEST_STORED:
        raise ValueError(f"it unpacks to {size:,} bytes, documents have up to {LARGEST_STORED:,}")
    return zstandard.ZstdDecompressor().decompress(frame)


def _digest(name: str, body: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + body).hexdigest().encode()
