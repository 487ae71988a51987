"""Key slots: which key opens a store, what is said when none does, and rotation that survives a crash at any point."""

import json
from pathlib import Path

import pytest

from capibara_assets.checkpoints.encryption.keys import RawKey
from capibara_assets.checkpoints.store.places import StorePlace, open_place
from capibara_assets.checkpoints.store.slots import create_vault, damaged_slots, open_vault, read_slots, rotate
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets_tests.checkpoints.crashes import dies_after

OLD, NEW, OTHER = (RawKey(letter * 32, f"key {letter.decode()}") for letter in (b"o", b"n", b"x"))


@pytest.fixture
def place(tmp_path: Path) -> StorePlace:
    return open_place(tmp_path / "store", private=True)


def test_a_store_opens_with_its_key_and_keeps_its_data_key(place: StorePlace) -> None:
    vault = create_vault(place, OLD)
    again = open_vault(place, OLD)
    assert again.key_id == vault.key_id and again.digest(b"x") == vault.digest(b"x")
    assert create_vault(place, OLD).key_id == vault.key_id  # whoever comes second opens what is there


def test_a_slot_says_nothing_of_either_key(place: StorePlace, tmp_path: Path) -> None:
    vault = create_vault(place, OLD)
    file = tmp_path / "store/keys/1.json"
    data = file.read_bytes()
    for secret in (b"o" * 32, vault.data_key):
        assert secret not in data and secret.hex().encode() not in data
    assert file.stat().st_mode & 0o077 == 0
    slot = json.loads(data)
    assert slot["key_id"] == OLD.key_id and slot["vault"] == vault.key_id and slot["kind"] == "key"


def test_the_wrong_key_is_one_sentence_with_both_names(place: StorePlace) -> None:
    create_vault(place, OLD)
    with pytest.raises(InputError) as error:
        open_vault(place, OTHER)
    assert str(error.value) == (
        f"wrong key for the checkpoint store {place.root}: it opens with key {OLD.key_id}, "
        f"and key x gave key {OTHER.key_id}"
    )
    assert error.value.__cause__ is None and error.value.__context__ is None


def test_no_key_is_one_sentence_that_says_how_to_give_it(place: StorePlace) -> None:
    create_vault(place, OLD)
    with pytest.raises(InputError, match=f"is encrypted, it opens with key {OLD.key_id}: set CAPIBARA_CHECKPOINT_KEY "):
        open_vault(place, None)


def test_a_plain_store_has_no_vault(place: StorePlace) -> None:
    with pytest.raises(InputError, match="is not encrypted"):
        open_vault(place, OLD)


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.extended)])  # 7: each bit of a byte in turn
def test_every_flipped_bit_of_a_slot_is_damage_of_that_file(place: StorePlace, tmp_path: Path, every: int) -> None:
    vault = create_vault(place, OLD)
    file = tmp_path / "store/keys/1.json"
    whole = file.read_bytes()
    for position in range(0, 8 * len(whole), every):
        damaged = bytearray(whole)
        damaged[position // 8] ^= 1 << position % 8
        file.write_bytes(damaged)
        assert list(damaged_slots(place, vault)) == ["keys/1.json"], position
        if position % 29 == 0:
            with pytest.raises(IntegrityError, match=r"keys/1\.json is damaged"):
                open_vault(place, OLD)
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(IntegrityError, match=r"keys/1\.json is damaged"):
            open_vault(place, OLD)


def test_a_damaged_slot_beside_a_whole_one_keeps_nobody_out(place: StorePlace, tmp_path: Path) -> None:
    vault = create_vault(place, OLD)
    (tmp_path / "store/keys/2.json").write_bytes(b"{}")
    assert open_vault(place, OLD).key_id == vault.key_id
    assert list(damaged_slots(place, vault)) == ["keys/2.json"]


def test_a_slot_of_another_store_is_found(place: StorePlace, tmp_path: Path) -> None:
    """Beside the store's own at once; in its place, by whoever has read anything of the store."""
    vault = create_vault(place, OLD)
    create_vault(open_place(tmp_path / "other"), OLD)
    foreign = (tmp_path / "other/keys/1.json").read_bytes()
    (tmp_path / "store/keys/2.json").write_bytes(foreign)
    with pytest.raises(IntegrityError, match=r"keys/1\.json, keys/2\.json wrap different data keys"):
        open_vault(place, OLD)
    (tmp_path / "store/keys/2.json").unlink()
    (tmp_path / "store/keys/1.json").write_bytes(foreign)
    assert damaged_slots(place, vault) == {"keys/1.json": "of another store"}


def test_what_a_slot_claims_of_its_key_is_checked(place: StorePlace, tmp_path: Path) -> None:
    """A forger can make the checksum fit, but not wrap a data key."""
    create_vault(place, OLD)
    [(file, slot)] = read_slots(place)[0].items()
    for forged in (
        slot.model_copy(update={"wrapped": RawKey(b"f" * 32, "f").wrap(bytes(32), b"").hex()}),
        slot.model_copy(update={"wrapped": "not base64!"}),
        slot.model_copy(update={"vault": "0" * 16}),
    ):
        place.replace(file, forged.to_json())
        with pytest.raises(IntegrityError, match=r"keys/1\.json is damaged"):
            open_vault(place, OLD)


def test_rotation_keeps_the_data_key_and_shuts_out_the_old_key(place: StorePlace) -> None:
    vault = create_vault(place, OLD)
    rotate(place, OLD, NEW)
    assert open_vault(place, NEW).key_id == vault.key_id
    assert list(read_slots(place)[0]) == ["keys/2.json"]
    with pytest.raises(InputError, match="wrong key"):
        open_vault(place, OLD)
    rotate(place, NEW, NEW)  # nothing to do
    assert open_vault(place, NEW).key_id == vault.key_id


def test_a_key_that_wraps_and_does_not_unwrap_takes_no_other_s_place(place: StorePlace) -> None:
    """As an account that may encrypt with a KMS key, and may not decrypt."""

    class WrapOnly(RawKey):
        def unwrap(self, wrapped: bytes, binding: bytes) -> bytes:
            raise InputError("permission denied")

    vault = create_vault(place, OLD)
    with pytest.raises(InputError, match="permission denied"):
        rotate(place, OLD, WrapOnly(b"n" * 32, "half a key"))
    assert open_vault(place, OLD).key_id == vault.key_id
    rotate(place, OLD, NEW)  # permission was given meanwhile
    assert open_vault(place, NEW).key_id == vault.key_id and list(read_slots(place)[0]) == ["keys/2.json"]


def test_only_who_has_a_key_rotates(place: StorePlace) -> None:
    create_vault(place, OLD)
    with pytest.raises(InputError, match="wrong key"):
        rotate(place, OTHER, NEW)
    assert list(read_slots(place)[0]) == ["keys/1.json"]


def test_after_a_crash_anywhere_in_a_rotation_a_key_opens_and_rotating_again_finishes(tmp_path: Path) -> None:
    for changes in range(60):
        place = open_place(tmp_path / str(changes))
        vault = create_vault(place, OLD)
        died = dies_after(changes, lambda place=place: rotate(place, OLD, NEW))
        opened = []
        for key in (OLD, NEW):
            try:
                opened.append(open_vault(place, key).key_id)
            except InputError:
                continue
        assert opened and set(opened) == {vault.key_id}, changes
        rotate(place, OLD, NEW)
        assert open_vault(place, NEW).key_id == vault.key_id
        assert len(read_slots(place)[0]) == 1
        if not died:
            break
    assert not died and changes >= 6
