"""The cryptography of a store: published vectors, nonces that cannot repeat, keys that do not show."""

import hashlib
import hmac
import os
import pickle
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.checkpoints.encryption.vault import TAG_BYTES, Cipher, Vault, derive
from capibara_assets.errors import IntegrityError

DATA_KEY = bytes(range(32))


@pytest.mark.parametrize(
    ("key", "nonce", "plain", "aad", "sealed"),
    [
        # D. McGrew, J. Viega, The Galois/Counter Mode of Operation, test cases 13, 14 and 16 (NIST's AES-256 vectors)
        ("00" * 32, "00" * 12, "", "", "530f8afbc74536b9a963b4f1c4cb738b"),
        ("00" * 32, "00" * 12, "00" * 16, "", "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"),
        (
            "feffe9928665731c6d6a8f9467308308" * 2,
            "cafebabefacedbaddecaf888",
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
            "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
            "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ],
)
def test_gcm_vectors(key: str, nonce: str, plain: str, aad: str, sealed: str) -> None:
    cipher, number = Cipher(bytes.fromhex(key), seals=True), int(nonce, 16)
    assert cipher.seal(number, bytes.fromhex(plain), bytes.fromhex(aad)).hex() == sealed
    assert cipher.open(number, bytes.fromhex(sealed), bytes.fromhex(aad)).hex() == plain


@pytest.mark.parametrize(
    ("key", "salt", "info", "okm"),
    [  # RFC 5869, test cases 1 and 3
        (
            "0b" * 22,
            bytes(range(13)).hex(),
            bytes(range(0xF0, 0xFA)).hex(),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        ("0b" * 22, "", "", "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"),
    ],
)
def test_hkdf_vectors(key: str, salt: str, info: str, okm: str) -> None:
    assert derive(bytes.fromhex(key), bytes.fromhex(salt), bytes.fromhex(info), 42).hex() == okm


def test_keys_are_derived_as_the_module_says() -> None:
    """With the standard library alone: HKDF of the data key; digests, messages and the name do not share a key."""

    def hkdf(salt: bytes, info: bytes) -> bytes:
        extracted = hmac.digest(salt or bytes(32), DATA_KEY, "sha256")
        return hmac.digest(extracted, info + b"\x01", "sha256")

    vault, salt = Vault(DATA_KEY), b"s" * 32
    expected = hmac.new(hkdf(b"", b"capibara checkpoint digests 1"), b"piece", hashlib.sha256).hexdigest()
    assert vault.digest(b"piece") == vault.digest(memoryview(b"piece")) == expected
    assert vault.key_id == hkdf(b"", b"capibara checkpoint key name 1")[:8].hex()
    sealed = Cipher(hkdf(salt, b"capibara checkpoint messages 1"), seals=True).seal(7, b"text", b"aad")
    assert vault.cipher(salt).open(7, sealed, b"aad") == b"text"


@given(st.binary(max_size=300), st.binary(max_size=40), st.integers(0, 2**96 - 1), st.data())
def test_what_was_changed_does_not_open(plain: bytes, aad: bytes, number: int, data: st.DataObject) -> None:
    vault = Vault(DATA_KEY)
    salt = vault.new_salt()
    sealed = vault.cipher(salt).seal(number, memoryview(plain), aad)
    opener = vault.cipher(salt)
    assert len(sealed) == len(plain) + TAG_BYTES and opener.open(number, memoryview(sealed), aad) == plain
    flipped = bytearray(sealed)
    flipped[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    other_salt, other_vault = vault.cipher(b"o" * 32), Vault(b"k" * 32).cipher(salt)
    for attempt in (
        lambda: opener.open(number, bytes(flipped), aad),
        lambda: opener.open(number ^ 1, sealed, aad),
        lambda: opener.open(number, sealed, aad + b"x"),
        lambda: opener.open(number, sealed[: data.draw(st.integers(0, len(sealed) - 1))], aad),
        lambda: other_salt.open(number, sealed, aad),
        lambda: other_vault.open(number, sealed, aad),
    ):
        with pytest.raises(IntegrityError, match=r"message \d+ does not open"):
            attempt()


def test_a_number_is_sealed_once() -> None:
    vault = Vault.new()
    cipher = vault.cipher(vault.new_salt())
    cipher.seal(3, b"a", b"")
    with pytest.raises(RuntimeError, match="message 3 was sealed already"):
        cipher.seal(3, b"a", b"")
    cipher.seal(4, b"b", b"")


def test_of_many_threads_that_seal_one_number_one_does() -> None:
    vault = Vault.new()
    cipher, barrier, done = vault.cipher(vault.new_salt()), threading.Barrier(8), []

    def work() -> None:
        barrier.wait()
        for number in range(200):
            try:
                done.append((number, cipher.seal(number, os.urandom(8), b"")))
            except RuntimeError:
                continue

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, _ in done) == list(range(200))


def test_a_salt_seals_once_and_only_one_s_own() -> None:
    """A second cipher of the salt, or the salt of a pack on disk, opens and does not seal."""
    vault = Vault(DATA_KEY)
    salt = vault.new_salt()
    sealed = vault.cipher(salt).seal(0, b"x", b"")
    for cipher in (vault.cipher(salt), Vault(DATA_KEY).cipher(salt), vault.cipher(os.urandom(32))):
        with pytest.raises(RuntimeError, match="only opens"):
            cipher.seal(1, b"y", b"")
    assert Vault(DATA_KEY).cipher(salt).open(0, sealed, b"") == b"x"


def test_a_forked_process_seals_with_nothing_of_its_parent_s() -> None:
    vault = Vault.new()
    begun, waiting = vault.cipher(vault.new_salt()), vault.new_salt()
    begun.seal(0, b"parent", b"")

    def child() -> bytes:
        for cipher in (begun, vault.cipher(waiting)):
            try:
                cipher.seal(1, b"child", b"")
            except RuntimeError:
                continue
            return b"sealed with the parent's nonce"
        salt = vault.new_salt()  # its own are as good as ever
        vault.cipher(salt).seal(0, b"child", b"")
        return salt

    of_child = in_fork(child)
    assert len(of_child) == 32, of_child
    assert of_child not in {vault.new_salt() for _ in range(50)}
    begun.seal(1, b"parent", b"")
    vault.cipher(waiting).seal(0, b"parent", b"")


def test_forks_of_one_moment_make_different_salts() -> None:
    vault = Vault.new()
    assert len({in_fork(vault.new_salt) for _ in range(8)}) == 8


def test_stores_of_one_content_share_no_ciphertext() -> None:
    texts = set()
    for vault in (Vault.new(), Vault.new()):
        for _ in range(2):
            texts.add(vault.cipher(vault.new_salt()).seal(0, b"the same piece", b""))
        texts.add(vault.digest(b"the same piece").encode())
    assert len(texts) == 6


def test_keys_do_not_show() -> None:
    vault = Vault(DATA_KEY)
    cipher = vault.cipher(vault.new_salt())
    for thing in (vault, cipher):
        shown = repr(thing) + str(thing) + f"{thing}"
        assert DATA_KEY.hex() not in shown and repr(DATA_KEY) not in shown
        assert not hasattr(thing, "__dict__")
        with pytest.raises(TypeError, match="not written anywhere"):
            pickle.dumps(thing)
    assert repr(vault) == f"Vault({vault.key_id})" and len(vault.key_id) == 16
    with pytest.raises(ValueError, match="32 bytes") as error:
        Vault(b"secret secret")
    assert "secret" not in str(error.value)


def in_fork(work: Callable[[], bytes]) -> bytes:
    """What `work` returns in a forked process."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.write(writing, work())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        answer = file.read()
    os.waitpid(process, 0)
    return answer
