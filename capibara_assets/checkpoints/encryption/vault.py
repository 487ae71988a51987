"""Keys and ciphers of an encrypted store, derived from one data key: for digests, and for each pack or document.

AES-256-GCM (NIST SP 800-38D) must never see a nonce twice under one key. Every pack and document has a key of its own,
HKDF-SHA-256 (RFC 5869) of the data key and a random salt of 32 bytes, and in it nonces count messages. So it is enough
that no salt seals twice: only a salt that this process made itself gives a cipher that seals, and only once.

The data key never leaves the store unwrapped: see `keys`.
"""

import hmac
import os
import threading
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from capibara_assets.errors import IntegrityError

KEY_BYTES = 32
SALT_BYTES = 32
TAG_BYTES = 16
"""Bytes by which a sealed message is longer than the plain one."""

_DIGESTS = b"capibara checkpoint digests 1"
_MESSAGES = b"capibara checkpoint messages 1"
_NAME = b"capibara checkpoint key name 1"


class Cipher:
    """Cipher for the numbered messages of one pack or document."""

    __slots__ = ("_gcm", "_lock", "_process", "_sealed")

    def __init__(self, key: bytes, *, seals: bool) -> None:
        self._gcm = AESGCM(key)
        self._lock = threading.Lock()
        self._sealed: set[int] = set()
        self._process = os.getpid() if seals else None

    def seal(self, number: int, data: bytes | memoryview, aad: bytes) -> bytes:
        """Encrypt and authenticate message `number` together with `aad`; the result is `TAG_BYTES` longer than `data`.

        Raises:
            RuntimeError: a second message of that number, or a salt that was not made here by `Vault.new_salt` (or
                before a fork): a nonce would be used twice.
        """
        if self._process != os.getpid():
            raise RuntimeError(
                "this cipher only opens: seal with a salt from Vault.new_salt, in the same process, once"
            )
        with self._lock:
            if number in self._sealed:
                raise RuntimeError(f"message {number} was sealed already: its nonce must not be used twice")
            self._sealed.add(number)
        return self._gcm.encrypt(_nonce(number), data, aad)

    def open(self, number: int, data: bytes | memoryview, aad: bytes) -> bytes:
        """Decrypt a message.

        Raises:
            IntegrityError: it is not message `number` of this pack or document, or was sealed with another `aad`.
        """
        try:
            return self._gcm.decrypt(_nonce(number), data, aad)
        except InvalidTag:
            raise IntegrityError(
                f"message {number} does not open: it was changed, cut off, or belongs to another place or store"
            ) from None

    def __repr__(self) -> str:
        return f"Cipher(seals={self._process == os.getpid()})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a cipher holds a key: it is not written anywhere")


class Vault:
    """The keys of one encrypted store.

    Attributes:
        key_id: name of the data key, 16 hex digits that reveal nothing about it; rotation does not change it.
    """

    __slots__ = ("_data_key", "_digest_key", "_lock", "_salts", "key_id")

    def __init__(self, data_key: bytes) -> None:
        if len(data_key) != KEY_BYTES:
            raise ValueError(f"a data key has {KEY_BYTES} bytes")
        self._data_key = data_key
        self._digest_key = derive(data_key, b"", _DIGESTS, 32)
        self._lock = threading.Lock()
        self._salts: set[tuple[int, bytes]] = set()
        self.key_id = derive(data_key, b"", _NAME, 8).hex()

    @classmethod
    def new(cls) -> "Vault":
        """A vault with a new data key from the operating system's random numbers."""
        return cls(os.urandom(KEY_BYTES))

    @property
    def data_key(self) -> bytes:
        """The key itself, for `keys` to wrap; nothing else needs it."""
        return self._data_key

    def digest(self, data: bytes | memoryview) -> str:
        """HMAC-SHA-256 (RFC 2104), 64 hex digits: without the key it does not reveal the content."""
        return hmac.digest(self._digest_key, data, "sha256").hex()

    def new_salt(self) -> bytes:
        """A salt for a new pack or document. `cipher` seals with it once, in this process."""
        salt = os.urandom(SALT_BYTES)
        with self._lock:
            self._salts.add((os.getpid(), salt))
        return salt

    def cipher(self, salt: bytes) -> Cipher:
        """The cipher of the pack or document with this salt; it seals if it is the first of a `new_salt`."""
        token = (os.getpid(), salt)
        with self._lock:
            seals = token in self._salts
            self._salts.discard(token)
        return Cipher(derive(self._data_key, salt, _MESSAGES, KEY_BYTES), seals=seals)

    def __repr__(self) -> str:
        return f"Vault({self.key_id})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a vault holds keys: it is not written anywhere")


def derive(key: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """HKDF-SHA-256 (RFC 5869): `length` bytes that depend on all of key, salt and info."""
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(key)


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")
