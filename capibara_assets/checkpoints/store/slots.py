"""Key slots: the data key of an encrypted store, wrapped by each key that may open it, in `keys/<n>.json`.

A store with a slot is encrypted. Rotation adds a slot for the new key and deletes the old ones: the data key stays, so
no payload is written again.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets.checkpoints.encryption.keys import HOW_TO_GIVE, WrappingKey
from capibara_assets.checkpoints.encryption.vault import KEY_BYTES, Vault
from capibara_assets.checkpoints.store.kind import says_encrypted
from capibara_assets.checkpoints.store.places import StorePlace
from capibara_assets.errors import InputError, IntegrityError, in_words
from capibara_assets.storage.digests import canonical_json

FOLDER = "keys"
_FILE = re.compile(r"([1-9][0-9]*)\.json")


class Slot(BaseModel):
    """One wrapped data key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    vault: str = Field(description="Name of the data key, the same in every slot of a store")
    kind: Literal["key", "google-kms"]
    key_id: str = Field(description="Name of the wrapping key; says nothing about it")
    resource: str | None = Field(default=None, description="Address of a wrapping key that never leaves its service")
    wrapped: str = Field(description="The data key, wrapped, in base64", repr=False)
    created: str = Field(description="ISO 8601 UTC")
    check: str = Field(default="", description="SHA-256 of the other fields, to tell damage from a wrong key")

    def to_json(self) -> bytes:
        """The slot's file: canonical JSON with `check` filled in."""
        rest = self.model_dump(mode="json", exclude={"check"})
        return canonical_json({**rest, "check": sha256(canonical_json(rest)).hexdigest()})


def read_slots(place: StorePlace) -> tuple[dict[str, Slot], dict[str, str]]:
    """(file -> intact slot, file -> problem of a damaged slot); both empty in a plain store."""
    whole: dict[str, Slot] = {}
    damaged: dict[str, str] = {}
    for number in _numbers(place):
        file = _file(number)
        try:
            data = place.read(file)
            slot = Slot.model_validate_json(data)
        except FileNotFoundError:
            continue  # a rotation deleted it
        except IntegrityError as error:
            damaged[file] = str(error)
            continue
        except ValidationError as error:
            damaged[file] = f"no key slot: {in_words(error)}"
            continue
        if not hmac.compare_digest(data, slot.to_json()):
            damaged[file] = "not as it was written: its checksum differs"
        else:
            whole[file] = slot
    return whole, damaged


def is_encrypted(place: StorePlace) -> bool:
    """Whether a store has key slots.

    Raises:
        IntegrityError: it has none, though its own file says that it is encrypted.
    """
    if _numbers(place):
        return True
    if says_encrypted(place):
        raise IntegrityError(
            f"{place.root}/{FOLDER} is missing: the store is encrypted, and nothing opens it without its key slots; "
            "restore that folder from a copy of the store"
        )
    return False


def create_vault(place: StorePlace, key: WrappingKey) -> Vault:
    """Make a store encrypted, with a new data key; or open its vault where it already is."""
    vault = Vault.new()
    if place.create(_file(1), _slot(vault, key).to_json()):
        return vault
    return open_vault(place, key)


def open_vault(place: StorePlace, key: WrappingKey | None) -> Vault:
    """The vault of an encrypted store.

    Raises:
        InputError: no key, or another than the one that opens it.
        IntegrityError: the slot is damaged, or belongs to another store.
    """
    whole, damaged = read_slots(place)
    if not whole and not damaged:
        raise InputError(f"the checkpoint store {place.root} is not encrypted: it has no key slot in {FOLDER}/")
    if key is None:
        raise InputError(
            f"the checkpoint store {place.root} is encrypted, it opens with {_names(whole)}: {HOW_TO_GIVE}"
        )
    if len({slot.vault for slot in whole.values()}) > 1:
        raise IntegrityError(
            f"{place.root}: {', '.join(whole)} wrap different data keys: one was put there from another store"
        )
    for file, slot in whole.items():
        if hmac.compare_digest(slot.key_id, key.key_id) and slot.kind == key.kind:
            return _unwrap(f"{place.root}/{file}", slot, key)
    if damaged:
        file, problem = next(iter(damaged.items()))
        raise IntegrityError(f"{place.root}/{file} is damaged ({problem}): restore this file from a copy of the store")
    raise InputError(
        f"wrong key for the checkpoint store {place.root}: it opens with {_names(whole)}, "
        f"and {key.origin} gave key {key.key_id}"
    )


def rotate(place: StorePlace, key: WrappingKey, new_key: WrappingKey) -> None:
    """Make `new_key` the only key that opens a store; its payload is not changed.

    The new slot is on disk, and was opened with the new key, before an old one is deleted: after a crash at any point
    one of the two keys opens the store, and rotating again finishes the rotation.

    Raises:
        InputError: neither `key` nor `new_key` opens the store.
        IntegrityError: a slot is damaged.
    """
    before, damaged = read_slots(place)
    done = [file for file, slot in before.items() if slot.key_id == new_key.key_id and slot.kind == new_key.kind]
    vault = open_vault(place, new_key if done else key)
    if done:
        kept = done[0]
    else:
        kept = _add(place, _slot(vault, new_key))
        open_vault(place, new_key)
    for file in {*before, *damaged} - {kept}:
        place.delete(file, durable=True)  # a power cut must not restore a revoked key


def damaged_slots(place: StorePlace, vault: Vault) -> dict[str, str]:
    """File -> problem, of every slot that is damaged or wraps another data key than `vault`'s."""
    whole, damaged = read_slots(place)
    strange = {file: "of another store" for file, slot in whole.items() if slot.vault != vault.key_id}
    return {**damaged, **strange}


def _slot(vault: Vault, key: WrappingKey) -> Slot:
    return Slot(
        vault=vault.key_id,
        kind=key.kind,
        key_id=key.key_id,
        resource=key.resource,
        wrapped=base64.b64encode(key.wrap(vault.data_key, _binding(vault.key_id))).decode(),
        created=datetime.now(UTC).isoformat(),
    )


def _add(place: StorePlace, slot: Slot) -> str:
    """Write a slot under the next free number, and return its file."""
    data = slot.to_json()
    number = max(_numbers(place)) + 1
    while not place.create(_file(number), data):
        number += 1
    return _file(number)


def _unwrap(where: str, slot: Slot, key: WrappingKey) -> Vault:
    try:
        data_key = key.unwrap(base64.b64decode(slot.wrapped, validate=True), _binding(slot.vault))
    except (IntegrityError, binascii.Error) as error:
        raise IntegrityError(f"{where} is damaged: key {key.key_id} should open it and does not ({error})") from None
    if len(data_key) != KEY_BYTES or not hmac.compare_digest((vault := Vault(data_key)).key_id, slot.vault):
        raise IntegrityError(f"{where} is damaged: what it wraps is not the data key {slot.vault}")
    return vault


def _binding(vault: str) -> bytes:
    """Associated data that a key service binds a wrapped key to."""
    return f"capibara checkpoint data key {vault}".encode()


def _names(slots: Mapping[str, Slot]) -> str:
    """The keys that open a store, for messages."""
    return " or ".join(f"key {slot.key_id}" + (f" ({slot.resource})" if slot.resource else "")
                       for slot in slots.values()) or "a key whose slot is damaged"  # fmt: skip


def _file(number: int) -> str:
    return f"{FOLDER}/{number}.json"


def _numbers(place: StorePlace) -> list[int]:
    """Numbers of the existing slots, the oldest first."""
    return sorted(int(match[1]) for name in place.list(FOLDER) if (match := _FILE.fullmatch(name)))
