"""Keys in Google Cloud KMS, against a local service that speaks its documented API."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from capibara_assets.checkpoints.encryption.keys import RawKey
from capibara_assets.checkpoints.encryption.kms import KmsKey
from capibara_assets.checkpoints.store.places import open_place
from capibara_assets.checkpoints.store.slots import create_vault, open_vault, read_slots, rotate
from capibara_assets.errors import InputError, IntegrityError

pytest.importorskip("google.cloud", reason="needs the gcp extra")
if find_spec("google.cloud.kms_v1") is None:  # it takes a second to import, in the workers that run none of this, too
    pytest.skip("needs the gcp extra", allow_module_level=True)

from capibara_assets_tests.checkpoints.fake_kms import FakeKms, serving

NAME = "projects/p/locations/europe-west4/keyRings/ring/cryptoKeys/checkpoints"
DATA_KEY = bytes(range(32))


@pytest.fixture
def kms() -> Iterator[FakeKms]:
    with serving(NAME) as service:
        yield service


def test_what_it_wraps_it_gives_back(kms: FakeKms) -> None:
    wrapped = kms.key(NAME).wrap(DATA_KEY, b"store 1")
    assert DATA_KEY not in wrapped and kms.key(NAME).unwrap(wrapped, b"store 1") == DATA_KEY
    assert [method for method, _ in kms.asked] == ["encrypt", "decrypt"]
    encrypt, decrypt = (request for _, request in kms.asked)
    assert {"plaintextCrc32c", "additionalAuthenticatedDataCrc32c"} <= encrypt.keys()
    assert {"ciphertextCrc32c", "additionalAuthenticatedDataCrc32c"} <= decrypt.keys()


def test_what_was_wrapped_for_another_store_or_changed_is_damage(kms: FakeKms) -> None:
    wrapped = kms.key(NAME).wrap(DATA_KEY, b"store 1")
    for content, binding in ((wrapped, b"store 2"), (wrapped[:-1] + bytes([wrapped[-1] ^ 1]), b"store 1")):
        with pytest.raises(IntegrityError, match=f"gcp-kms://{NAME} did not encrypt this: .*invalid"):
            kms.key(NAME).unwrap(content, binding)


@pytest.mark.parametrize("fault", ["wrong checksum", "unverified"])
def test_what_was_damaged_on_its_way_is_not_taken(kms: FakeKms, fault: str) -> None:
    wrapped = kms.key(NAME).wrap(DATA_KEY, b"")
    kms.fault = fault
    with pytest.raises(IntegrityError, match="damaged on its way"):
        kms.key(NAME).wrap(DATA_KEY, b"")
    if fault == "wrong checksum":
        with pytest.raises(IntegrityError, match="damaged on its way"):
            kms.key(NAME).unwrap(wrapped, b"")


@pytest.mark.parametrize("fault", ["403 PERMISSION_DENIED", "404 NOT_FOUND", "400 FAILED_PRECONDITION"])
def test_a_refusal_says_what_to_look_at(kms: FakeKms, fault: str) -> None:
    wrapped = kms.key(NAME).wrap(DATA_KEY, b"")
    kms.fault = fault
    for attempt in (lambda: kms.key(NAME).wrap(DATA_KEY, b""), lambda: kms.key(NAME).unwrap(wrapped, b"")):
        with pytest.raises(InputError, match=f"gcp-kms://{NAME} does not .*as the test asked.*cryptoKeyEncrypter"):
            attempt()


def test_a_service_that_is_not_there_is_an_error_within_the_time() -> None:
    with serving(NAME) as service:
        gone = service.key(NAME)
    with pytest.raises(InputError, match=f"gcp-kms://{NAME} does not encrypt"):
        gone.wrap(DATA_KEY, b"")


@pytest.mark.parametrize(
    "address",
    ["", "k", "gcp-kms://k", f"{NAME}/cryptoKeyVersions/1", f"aws-kms://{NAME}", f"{NAME}\n", f"https://{NAME}"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="no address of a KMS key"):
        KmsKey(address)


def test_its_name_shows_and_nothing_else() -> None:
    key = KmsKey(NAME)
    assert repr(key) == f"KmsKey({NAME})" and key.resource == NAME and key.origin == f"gcp-kms://{NAME}"
    assert key.key_id == KmsKey(f"gcp-kms://{NAME}").key_id != KmsKey(NAME + "2").key_id


def test_without_credentials_the_error_says_how_to_get_some() -> None:
    code = (
        "from capibara_assets.checkpoints.encryption.kms import KmsKey; from capibara_assets.errors import InputError\n"
        f"try: KmsKey({NAME!r}).wrap(bytes(32), b'')\n"
        "except InputError as error: print(error)"
    )
    environment = {**os.environ, "HOME": "/nonexistent", "CLOUDSDK_CONFIG": "/nonexistent", "NO_GCE_CHECK": "true"}
    environment.pop("GOOGLE_APPLICATION_CREDENTIALS", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600)
    assert "no Google credentials" in done.stdout and "gcloud auth application-default login" in done.stdout, done


def test_a_store_s_data_key_is_wrapped_by_the_service_and_rotated_to_it(kms: FakeKms, tmp_path: Path) -> None:
    place = open_place(tmp_path)
    raw = RawKey(bytes(32), "a key of one's own")
    vault = create_vault(place, raw)
    rotate(place, raw, kms.key(NAME))
    assert open_vault(place, kms.key(NAME)).key_id == vault.key_id
    [slot] = read_slots(place)[0].values()
    assert slot.kind == "google-kms" and slot.resource == NAME
    with pytest.raises(InputError, match=rf"it opens with key {kms.key(NAME).key_id} \({NAME}\), and a key of one's"):
        open_vault(place, raw)
    with serving(NAME) as other, pytest.raises(IntegrityError, match=r"keys/2\.json is damaged.*did not encrypt this"):
        open_vault(place, other.key(NAME))
    kms.fault = "403 PERMISSION_DENIED"
    with pytest.raises(InputError, match="does not decrypt: 403"):
        open_vault(place, kms.key(NAME))
