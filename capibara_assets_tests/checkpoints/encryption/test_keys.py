"""Where keys come from: the environment and files; what is wrong with one is said without showing it."""

import base64
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.checkpoints.encryption.keys import KEY, KEY_FILE, KMS_KEY, RawKey, given_key
from capibara_assets.errors import InputError, IntegrityError

SECRET = bytes(range(100, 132))
ADDRESS = "gcp-kms://projects/p/locations/global/keyRings/r/cryptoKeys/k"


def private(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


def test_key_wrap_vector() -> None:
    """RFC 3394, 4.6: 256 bits of key data with a 256-bit key."""
    data = bytes.fromhex("00112233445566778899AABBCCDDEEFF000102030405060708090A0B0C0D0E0F")
    wrapped = "28C9F404C4B810F4CBCCB35CFB87F8263F5786E2D80ED326CBC7F0E71A99F43BFB988B9B7A02DD21"
    key = RawKey(bytes(range(32)), "the test")
    assert key.wrap(data, b"").hex().upper() == wrapped
    assert key.unwrap(bytes.fromhex(wrapped), b"") == data


@given(st.binary(min_size=32, max_size=32), st.sampled_from(["hex", "HEX", "base64", "urlsafe", "unpadded"]))
def test_every_spelling_is_the_same_key(secret: bytes, spelling: str) -> None:
    text = {
        "hex": secret.hex(),
        "HEX": secret.hex().upper(),
        "base64": base64.b64encode(secret).decode(),
        "urlsafe": base64.urlsafe_b64encode(secret).decode(),
        "unpadded": base64.b64encode(secret).decode().rstrip("="),
    }[spelling]
    key = given_key({KEY: f" {text}\n"})
    assert key is not None and key.key_id == RawKey(secret, "x").key_id and key.origin == KEY


def test_no_key_is_none_and_empty_is_absent() -> None:
    assert given_key({}) is None and given_key({KEY: "", KEY_FILE: "", KMS_KEY: ""}) is None


def test_a_file_of_one_s_own(tmp_path: Path) -> None:
    file = private(tmp_path / "key", base64.b64encode(SECRET).decode() + "\n")
    for key in (given_key({KEY_FILE: str(file)}), given_key({}, key_file=file), given_key({KEY: "aa"}, key_file=file)):
        assert isinstance(key, RawKey) and key.key_id == RawKey(SECRET, "x").key_id
        assert str(file) in key.origin


def test_the_environment_is_the_process_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET.hex())
    key = given_key()
    assert key is not None and key.key_id == RawKey(SECRET, "x").key_id


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o666, 0o601])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    file = private(tmp_path / "key", SECRET.hex(), mode)
    with pytest.raises(InputError, match=rf"{file}.*may be used by others \(mode 0{mode:o}\): chmod 600"):
        given_key({KEY_FILE: str(file)})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SECRET.hex()[:-2], "46 bytes in base64"),  # 62 hex digits are base64 of 46 bytes
        (base64.b64encode(SECRET[:31]).decode(), "31 bytes in base64"),
        (base64.b64encode(SECRET + b"x").decode(), "33 bytes in base64"),
        ("correct horse battery staple", "neither base64 nor hex"),
        ("päßwörter", "neither base64 nor hex"),
        (SECRET.hex() + "0", "neither base64 nor hex"),
    ],
)
def test_no_key_at_all_is_said_without_repeating_it(tmp_path: Path, text: str, problem: str) -> None:
    for environment, origin in (
        ({KEY: text}, KEY),
        ({KEY_FILE: str(private(tmp_path / "key", text.encode("latin-1")))}, "the key file"),
    ):
        with pytest.raises(InputError) as error:
            given_key(environment)
        message = str(error.value)
        assert message.startswith(origin) and "\n" not in message and text not in message
        assert problem in message or "is not text" in message
        assert error.value.__cause__ is None


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}/none.*No such file"):
        given_key({KEY_FILE: str(tmp_path / "none")})
    with pytest.raises(InputError, match="Is a directory"):
        given_key({KEY_FILE: str(tmp_path)})
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InputError, match="no regular file"):
        given_key({KEY_FILE: str(tmp_path / "pipe")})  # and it does not wait for a writer
    with pytest.raises(InputError, match="neither base64 nor hex"):
        given_key({KEY_FILE: str(private(tmp_path / "long", SECRET.hex() * 1000))})


def test_two_keys_are_one_too_many(tmp_path: Path) -> None:
    file = private(tmp_path / "key", SECRET.hex())
    with pytest.raises(InputError, match=f"{KEY} and {KEY_FILE} each give"):
        given_key({KEY: SECRET.hex(), KEY_FILE: str(file)})
    with pytest.raises(InputError, match="--key-file and --kms each give"):
        given_key({}, key_file=file, kms_key=ADDRESS)


def test_an_address_of_google_s_is_taken_without_asking_google() -> None:
    for key in (given_key({KMS_KEY: ADDRESS}), given_key({KEY: SECRET.hex()}, kms_key=ADDRESS)):
        assert key is not None and key.kind == "google-kms" and key.origin == ADDRESS


def test_keys_do_not_show() -> None:
    key = RawKey(SECRET, KEY)
    assert repr(key) == f"RawKey({key.key_id}, from {KEY})" and SECRET.hex() not in key.key_id
    with pytest.raises(TypeError, match="not written anywhere"):
        __import__("pickle").dumps(key)
    with pytest.raises(IntegrityError) as error:
        key.unwrap(RawKey(bytes(32), "x").wrap(SECRET, b""), b"")
    assert str(error.value) == f"key {key.key_id} ({KEY}) did not wrap this" and error.value.__cause__ is None
