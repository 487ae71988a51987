"""The file that says what kind of store a place holds: its format, and whether it is encrypted, or where it went."""

import json
import re
from typing import NamedTuple

from capibara_assets.checkpoints.store.documents import unwrap, wrap
from capibara_assets.checkpoints.store.places import Place
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.digests import canonical_json

STORE = "store.json"
_FORMAT = "capibara-checkpoints/1"
_POINTER = "capibara-checkpoints-moved/1"
_GENERATION = re.compile(r"generation-([1-9][0-9]*)")


class Moved(NamedTuple):
    """Where the checkpoints of a place went when they were encrypted or decrypted (see `resealing`)."""

    at: str
    """Folder below the store's root."""
    left: str | None = None
    """Folder they left, `` for the root itself, as long as something may lie there; None afterwards."""


def check_kind(place: Place, encrypted: bool, *, create: bool) -> bool:
    """See that a place holds a store of this kind; where there is none yet, `create` makes one. Whether there is one.

    Raises:
        InputError: it is encrypted and was opened as if it were not, or the other way round, or it moved.
        IntegrityError: the file is damaged, missing though there are checkpoints, or of a newer format.
    """
    name = f"{place.root}/{STORE}"
    try:
        found = place.read(STORE)
    except NotADirectoryError:
        raise InputError(f"{place.root} is a file: a checkpoint store is a folder") from None
    except FileNotFoundError:
        if place.folders("models") or place.list("packs"):
            raise IntegrityError(f"{name} is missing: the store says nowhere of which format it is") from None
        if not create:
            return False
        place.create(STORE, _document(encrypted))
        found = place.read(STORE)
    if found == _document(encrypted):
        return True
    if found == _document(not encrypted):
        raise InputError(
            f"{name}: this store is {'not ' if encrypted else ''}encrypted; open_store opens either kind, with its keys"
        )
    if (there := _moved(place, found)) is not None:
        raise InputError(
            f"{place.root} was encrypted or decrypted, its checkpoints are in {there.at} now: open it anew, by "
            "open_store, with its key if it has one"
        )
    raise IntegrityError(f"{name} is damaged, or of a newer format: {found[:80]!r}")


def exists(place: Place) -> bool:
    """Whether there is a store, of whatever kind."""
    try:
        place.read(STORE)
    except FileNotFoundError:
        return bool(place.folders("models") or place.list("packs"))
    return True


def says_encrypted(place: Place) -> bool:
    """Whether there is a store that was made as an encrypted one."""
    try:
        return place.read(STORE) == _document(True)
    except FileNotFoundError:
        return False


def moved(place: Place) -> Moved | None:
    """Where the checkpoints of a place went; None if they are there, or there are none.

    Raises:
        InputError: the place is a file.
        IntegrityError: the file that says so is damaged.
    """
    try:
        return _moved(place, place.read(STORE))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise InputError(f"{place.root} is a file: a checkpoint store is a folder") from None


def point(place: Place, to: Moved) -> None:
    """Have who opens this place go on to another one, in one step."""
    body = canonical_json({"format": _POINTER, "at": to.at, "left": to.left})
    place.replace(STORE, wrap(body, STORE, None))


def generations(place: Place) -> dict[str, int]:
    """Folders to which checkpoints may have gone, or been going, and their numbers."""
    return {name: int(found[1]) for name in place.folders("") if (found := _GENERATION.fullmatch(name))}


def new_generation(place: Place) -> str:
    """Name of a folder that is not there."""
    return f"generation-{1 + max(generations(place).values(), default=0)}"


def _moved(place: Place, data: bytes) -> Moved | None:
    if data in (_document(True), _document(False)):
        return None
    body = json.loads(unwrap(data, STORE, None, place.root))
    if body.get("format") != _POINTER or _GENERATION.fullmatch(body["at"]) is None:
        raise IntegrityError(f"{place.root}/{STORE} is of a newer format")
    return Moved(body["at"], body["left"])


def _document(encrypted: bool) -> bytes:
    return canonical_json({"encrypted": encrypted, "format": _FORMAT})
