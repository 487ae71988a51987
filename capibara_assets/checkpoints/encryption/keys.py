"""Wrapping keys of an encrypted store: from the environment, a file, or Google Cloud KMS.

A wrapping key wraps the store's data key and encrypts nothing else (see `slots`). Its value appears in no message and
no repr; `key_id` names it without revealing anything about it.
"""

import base64
import binascii
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NoReturn, Protocol

from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from capibara_assets.checkpoints.encryption.kms import KmsKey
from capibara_assets.checkpoints.encryption.vault import KEY_BYTES, derive
from capibara_assets.errors import InputError, IntegrityError

KEY = "CAPIBARA_CHECKPOINT_KEY"
KEY_FILE = "CAPIBARA_CHECKPOINT_KEY_FILE"
KMS_KEY = "CAPIBARA_CHECKPOINT_KMS_KEY"
HOW_TO_GIVE = (
    f"set {KEY} (32 bytes in base64 or hex), {KEY_FILE} (or --key-file) or {KMS_KEY} (or --kms) "
    "(gcp-kms://projects/.../locations/.../keyRings/.../cryptoKeys/...)"
)

_NAME = b"capibara checkpoint wrapping key name 1"
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_LONGEST_FILE = 1024


class WrappingKey(Protocol):
    """A key that wraps data keys."""

    @property
    def kind(self) -> Literal["key", "google-kms"]:
        """Kind of key, as slots record it."""
        ...

    @property
    def key_id(self) -> str:
        """Its name: 16 hex digits that reveal nothing about it."""
        ...

    @property
    def origin(self) -> str:
        """Source of the key, for messages."""
        ...

    @property
    def resource(self) -> str | None:
        """Address of a key that never leaves its service."""
        ...

    def wrap(self, data_key: bytes, binding: bytes) -> bytes:
        """Wrap a data key. Raises InputError: the service refuses."""
        ...

    def unwrap(self, wrapped: bytes, binding: bytes) -> bytes:
        """Unwrap a data key. Raises IntegrityError: it was wrapped by another key; InputError: the service refuses."""
        ...


class RawKey:
    """A wrapping key in memory, by AES key wrap (RFC 3394)."""

    __slots__ = ("_key", "key_id", "origin")
    kind: Literal["key"] = "key"
    resource = None

    def __init__(self, key: bytes, origin: str) -> None:
        if len(key) != KEY_BYTES:
            raise InputError(
                f"{origin} has {len(key)} bytes: a checkpoint key has {KEY_BYTES} (openssl rand -base64 32)"
            )
        self._key = key
        self.key_id = derive(key, b"", _NAME, 8).hex()
        self.origin = origin

    def wrap(self, data_key: bytes, binding: bytes) -> bytes:
        return aes_key_wrap(self._key, data_key)

    def unwrap(self, wrapped: bytes, binding: bytes) -> bytes:
        try:
            return aes_key_unwrap(self._key, wrapped)
        except (InvalidUnwrap, ValueError):
            raise IntegrityError(f"key {self.key_id} ({self.origin}) did not wrap this") from None

    def __repr__(self) -> str:
        return f"RawKey({self.key_id}, from {self.origin})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not written anywhere")


def given_key(
    environment: Mapping[str, str] = os.environ, *, key_file: Path | None = None, kms_key: str | None = None
) -> WrappingKey | None:
    """The wrapping key of the arguments, else of the environment; None without one. Empty variables count as unset.

    Raises:
        InputError: two keys, a key that is not 32 bytes, a file that others may read, or no address of a KMS key.
    """
    given: dict[str, WrappingKey] = {}
    if key_file is not None:
        given["--key-file"] = _of_file(key_file, f"the key file {key_file}")
    if kms_key is not None:
        given["--kms"] = KmsKey(kms_key)
    if not given:
        if text := environment.get(KEY):
            given[KEY] = RawKey(_parse(text, KEY), KEY)
        if path := environment.get(KEY_FILE):
            given[KEY_FILE] = _of_file(Path(path).expanduser(), f"the key file {path} ({KEY_FILE})")
        if name := environment.get(KMS_KEY):
            given[KMS_KEY] = KmsKey(name)
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} each give a checkpoint key: give one")
    return next(iter(given.values()), None)


def _of_file(path: Path, origin: str) -> RawKey:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # or opening a pipe would wait for its writer
        with os.fdopen(fd, "rb") as file:
            mode = os.fstat(fd).st_mode
            text = file.read(_LONGEST_FILE + 1) if stat.S_ISREG(mode) else b""
    except OSError as error:
        raise InputError(f"{origin} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise InputError(f"{origin} is no regular file")
    if mode & 0o077:
        raise InputError(f"{origin} may be used by others (mode {stat.S_IMODE(mode):04o}): chmod 600 it")
    try:
        return RawKey(_parse(text.decode("ascii"), origin), origin)
    except UnicodeDecodeError:
        raise InputError(f"{origin} is not text: write the key's 32 bytes in base64 or hex") from None


def _parse(text: str, origin: str) -> bytes:
    """32 bytes in hex or base64 (of either alphabet, with its padding or without). No message repeats the text."""
    text = text.strip()
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        key = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"{origin} is neither base64 nor hex: make a key with `openssl rand -base64 32`") from None
    if len(key) != KEY_BYTES:
        raise InputError(
            f"{origin} has {len(key)} bytes in base64, a key has {KEY_BYTES}: make one with `openssl rand -base64 32`"
        )
    return key
