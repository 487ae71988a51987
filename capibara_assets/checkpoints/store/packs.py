"""Packs: immutable files of many pieces. The layout, the writer, the reader, and the index of the pieces.

A pack is a safetensors file of two U8 entries, `payload` (the stored pieces, one behind the other) and `index`; the
header takes a fixed 512 bytes, is written last, and follows from the two lengths and the salt, so every byte of the
file is covered by the index or by itself, and the index by the file's name. In an encrypted store pieces and index are
sealed under a key of this pack alone; only the salt and the lengths of the two entries are not encrypted.
"""

import base64
import hashlib
import json
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import zstandard

from capibara_assets.checkpoints.encryption.vault import SALT_BYTES, Cipher, Vault
from capibara_assets.checkpoints.store import files
from capibara_assets.checkpoints.store.codec import decode
from capibara_assets.checkpoints.store.documents import unpacked
from capibara_assets.checkpoints.store.files import Data
from capibara_assets.checkpoints.store.places import StorePlace, room
from capibara_assets.errors import IntegrityError
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.foreign import LARGEST_STORED
from capibara_assets.storage.jsonfiles import parse_json

FOLDER = "packs"
SUFFIX = ".safetensors"
HEADER_BYTES = 512
FORMAT = "capibara-pack/1"
_INDEX_NUMBER = 2**64 - 1  # of the index among what one pack seals; pieces count from 0
_INDEX_PAD = 4096  # a sealed index is padded, so that its length tells little of how many pieces there are
_END = b"\n"  # of the file, see documents
_LENGTH = struct.Struct("<Q")


class Stored(NamedTuple):
    """Location and encoding of a stored piece."""

    pack: str
    number: int
    offset: int
    """Position of its first byte in the file."""
    stored: int
    """Bytes in the file."""
    plain: int
    """Bytes of the piece itself."""
    encoding: str
    sha256: str | None
    """Of the stored bytes; None where the piece's own digest, or the cipher's tag, covers them."""


@dataclass(frozen=True)
class PackIndex:
    """The index of one pack.

    Attributes:
        id: digest of the stored index, and name of the file.
        lease: the lease under which it was written.
        salt: of its key; empty in a plain store.
        pieces: digest -> where it is stored.
        size: bytes of the file.
    """

    id: str
    lease: str
    salt: bytes = field(repr=False)
    pieces: dict[str, Stored] = field(repr=False)
    size: int

    @property
    def name(self) -> str:
        """Name of its file in the store."""
        return pack_name(self.id)

    @property
    def payload(self) -> int:
        """Bytes of all its stored pieces."""
        return sum(stored.stored for stored in self.pieces.values())


def pack_name(pack: str) -> str:
    """Name of a pack's file in the store."""
    return f"{FOLDER}/{pack}{SUFFIX}"


def associated(salt: bytes, digest: str, plain: int, encoding: str) -> bytes:
    """Associated data of a sealed piece: its pack, content, length and encoding."""
    return salt + bytes.fromhex(digest) + _LENGTH.pack(plain) + encoding.encode()


def header(payload: int, index: int, salt: bytes) -> bytes:
    """The header of a pack with entries of these lengths."""
    text = json.dumps(
        {
            "__metadata__": {"format": FORMAT, "salt": salt.hex()},
            "payload": {"dtype": "U8", "shape": [payload], "data_offsets": [0, payload]},
            "index": {"dtype": "U8", "shape": [index], "data_offsets": [payload, payload + index]},
        },
        separators=(",", ":"),
    )
    room = HEADER_BYTES - _LENGTH.size
    assert len(text) <= room, f"{len(text)} bytes of header do not fit"
    return _LENGTH.pack(room) + text.encode().ljust(room)


class PackWriter:
    """Writer of one pack: pieces in the order of `add`, then `finish`. Used by one thread."""

    def __init__(self, place: StorePlace, lease: str, vault: Vault | None) -> None:
        """Create the file. Raises InputError: the disk is full."""
        self._place, self._lease, self._vault = place, lease, vault
        self.salt = vault.new_salt() if vault is not None else b""
        self.cipher: Cipher | None = vault.cipher(self.salt) if vault is not None else None
        self._path: Path = place.parts / f"{lease}.{uuid.uuid4().hex}.pack"
        self._pieces: dict[str, Stored] = {}
        self._end = HEADER_BYTES
        self._fd = -1
        with room(place):
            self._fd = files.create(self._path, place.file_mode)

    def add(self, digest: str, plain: int, encoding: str, stored: Data, sha256: str | None) -> None:
        """Append a piece, encoded and sealed. Raises InputError: the disk is full."""
        length = memoryview(stored).nbytes
        with room(self._place):
            files.pwrite(self._fd, stored, self._end)
            files.write_back(self._fd, self._end, length)
        self._pieces[digest] = Stored("", len(self._pieces), self._end, length, plain, encoding, sha256)
        self._end += length

    def copy(self, digest: str, stored: Stored, encoded: memoryview) -> None:
        """Append a piece from another pack, as `PackReader.encoded` returns it. Raises InputError: the disk is full."""
        if self.cipher is not None:
            bound = associated(self.salt, digest, stored.plain, stored.encoding)
            encoded = memoryview(self.cipher.seal(len(self._pieces), encoded, bound))
        self.add(digest, stored.plain, stored.encoding, encoded, stored.sha256)

    def finish(self) -> PackIndex | None:
        """Publish the pack durably; None, and no file, if nothing was added. Raises InputError: the disk is full."""
        if not self._pieces:
            self.abandon()
            return None
        index = _write_index(self._pieces, self._lease, self.cipher, self.salt)
        name = sha256_bytes(index) if self._vault is None else self._vault.digest(index)
        with room(self._place):
            files.pwrite(self._fd, index, self._end)
            files.pwrite(self._fd, header(self._end - HEADER_BYTES, len(index), self.salt), 0)
            files.sync(self._fd)
            self._close()
            self._place.publish(self._path, pack_name(name))
        pieces = {digest: stored._replace(pack=name) for digest, stored in self._pieces.items()}
        return PackIndex(name, self._lease, self.salt, pieces, self._end + len(index))

    def abandon(self) -> None:
        """Delete the unfinished file; no effect after `finish`."""
        self._close()
        files.unlink(self._path)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            files.close(fd)


class PackReader:
    """Reader of one pack's pieces, which verifies them. Safe to use from several threads."""

    def __init__(self, place: StorePlace, index: PackIndex, vault: Vault | None) -> None:
        """Open the file. Raises FileNotFoundError: it was deleted."""
        self._reading = place.open(index.name)
        self._salt = index.salt
        self._cipher = vault.cipher(index.salt) if vault is not None else None

    def read(self, digest: str, stored: Stored, out: memoryview, verify: bool = True) -> None:
        """Fill `out` with a piece. Sealed pieces are verified in any case.

        Raises:
            IntegrityError: the file does not hold what was written.
            FileNotFoundError: it was deleted.
        """
        if self._cipher is None and stored.encoding == "raw":
            self._reading.read_into(out, stored.offset)
            if verify and hashlib.sha256(out).hexdigest() != digest:
                raise IntegrityError("its bytes have another digest")
            return
        decode(stored.encoding, self.encoded(digest, stored, verify), out)

    def encoded(self, digest: str, stored: Stored, verify: bool = True) -> memoryview:
        """A piece in its encoding, decrypted. Raises as `read`."""
        kept = memoryview(bytearray(stored.stored))
        self._reading.read_into(kept, stored.offset)
        if self._cipher is not None:
            bound = associated(self._salt, digest, stored.plain, stored.encoding)
            return memoryview(self._cipher.open(stored.number, kept, bound))
        if verify and hashlib.sha256(kept).hexdigest() != (stored.sha256 or digest):
            raise IntegrityError("its stored bytes have another digest")
        return kept

    def will_read(self, stored: Stored) -> None:
        """Hint that this piece is read next."""
        self._reading.will_read(stored.offset, stored.stored)


def read_index(place: StorePlace, pack: str, vault: Vault | None) -> PackIndex:
    """Read the index of a pack, with checks of header, index and length of the file.

    Raises:
        IntegrityError: it is damaged; the message names the file.
        FileNotFoundError: there is no such pack.
    """
    name = pack_name(pack)
    reading = place.open(name)
    size = place.size(name)

    def damaged(what: str) -> IntegrityError:
        return IntegrityError(f"{place.root}/{name} is damaged: {what}")

    if size < HEADER_BYTES:
        raise damaged(f"it has {size} bytes, fewer than a header")
    head = memoryview(bytearray(HEADER_BYTES))
    reading.read_into(head, 0)
    try:
        fields = json.loads(bytes(head[_LENGTH.size :]))
        start, end = fields["index"]["data_offsets"]
        salt = bytes.fromhex(fields["__metadata__"]["salt"])
        sound = bytes(head) == header(start, end - start, salt) and size == HEADER_BYTES + end
    except (ValueError, KeyError, TypeError, AssertionError, struct.error) as error:
        raise damaged("its header cannot be read") from error
    if not sound or len(salt) != (SALT_BYTES if vault is not None else 0):
        raise damaged("its header does not fit its content")
    if end - start > LARGEST_STORED:
        raise damaged(f"its index has {end - start:,} bytes, indexes have up to {LARGEST_STORED:,}")
    index = memoryview(bytearray(end - start))
    reading.read_into(index, HEADER_BYTES + start)
    data = bytes(index)
    if (sha256_bytes(data) if vault is None else vault.digest(data)) != pack:
        raise damaged("its index has another digest than its name says")
    try:
        lease, rows = _read_index(data, vault.cipher(salt) if vault is not None else None, salt)
    except (IntegrityError, ValueError, KeyError, zstandard.ZstdError) as error:
        raise damaged(str(error)) from error
    pieces: dict[str, Stored] = {}
    offset = HEADER_BYTES
    for number, (digest, plain, stored, encoding, sha256) in enumerate(rows):
        pieces[digest] = Stored(pack, number, offset, stored, plain, encoding, sha256)
        offset += stored
    if offset != HEADER_BYTES + start:
        raise damaged("its pieces do not fill it")
    return PackIndex(pack, lease, salt, pieces, size)


def _write_index(pieces: dict[str, Stored], lease: str, cipher: Cipher | None, salt: bytes) -> bytes:
    rows = [
        [_short(digest), piece.plain, piece.stored, piece.encoding, piece.sha256 and _short(piece.sha256)]
        for digest, piece in pieces.items()
    ]
    # the nonce makes every pack a new one: a name that was deleted never comes back
    document = canonical_json({"lease": lease, "nonce": uuid.uuid4().hex, "pieces": rows})
    data = zstandard.ZstdCompressor(3, write_content_size=True).compress(document)
    if cipher is None:
        return data + _END
    framed = _LENGTH.pack(len(data)) + data
    padded = framed.ljust(-(-len(framed) // _INDEX_PAD) * _INDEX_PAD, b"\0")
    return bytes(cipher.seal(_INDEX_NUMBER, padded, salt)) + _END


def _read_index(
    data: bytes, cipher: Cipher | None, salt: bytes
) -> tuple[str, Iterator[tuple[str, int, int, str, str | None]]]:
    data = data.removesuffix(_END)
    if cipher is not None:
        framed = bytes(cipher.open(_INDEX_NUMBER, data, salt))
        (length,) = _LENGTH.unpack_from(framed)
        data = framed[_LENGTH.size : _LENGTH.size + length]
    document = parse_json(unpacked(data))
    rows = (
        (_long(digest), plain, stored, encoding, sha256 and _long(sha256))
        for digest, plain, stored, encoding, sha256 in document["pieces"]
    )
    return document["lease"], rows


def _short(digest: str) -> str:
    return base64.b64encode(bytes.fromhex(digest)).decode()


def _long(digest: str) -> str:
    return base64.b64decode(digest).hex()
