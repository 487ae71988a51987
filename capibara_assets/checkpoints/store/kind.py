"""`store.json`: a store's format, and whether it is encrypted, or to which folder it moved."""

import re
from typing import NamedTuple

from capibara_assets.checkpoints.store.documents import unwrapped_json, wrap
from capibara_assets.checkpoints.store.places import StorePlace
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.digests import canonical_json

STORE = "store.json"
_FORMAT = "capibara-checkpoints/1"
_POINTER = "capibara-checkpoints-moved/1"
_GENERATION = re.compile(r"generation-([1-9][0-9]*)")


class Moved(NamedTuple):
    """The folder that a store moved to when it was encrypted or decrypted (see `resealing`)."""

    at: str
    """Folder below the store's root."""
    left: str | None = None
    """Folder it left, "" for the root itself, while files may remain there; None afterwards."""


def check_kind(place: StorePlace, encrypted: bool, *, create: bool) -> bool:
    """Whether there is a store; raises if it is of another kind. `create` creates a missing one.

    Raises:
        InputError: it is encrypted and was opened as plain, or the other way round, or it moved.
        IntegrityError: the file is damaged, missing though there are checkpoints, or of a newer format.
    """
    name = f"{place.root}/{STORE}"
    try:
        document = place.read(STORE)
    except NotADirectoryError:
        raise InputError(f"{place.root} is a file: a checkpoint store is a folder") from None
    except FileNotFoundError:
        if place.folders("models") or place.list("packs"):
            raise IntegrityError(f"{name} is missing: the store says nowhere of which format it is") from None
        if not create:
            return False
        place.create(STORE, _document(encrypted))
        document = place.read(STORE)
    if document == _document(encrypted):
        return True
    if document == _document(not encrypted):
        raise InputError(
            f"{name}: this store is {'not ' if encrypted else ''}encrypted; open_store opens either kind, with its keys"
        )
    if (there := _moved(place, document)) is not None:
        raise InputError(
            f"{place.root} was encrypted or decrypted, its checkpoints are in {there.at} now: open it anew, by "
            "open_store, with its key if it has one"
        )
    raise IntegrityError(f"{name} is damaged, or of a newer format: {document[:80]!r}")


def exists(place: StorePlace) -> bool:
    """Whether there is a store of any kind."""
    try:
        place.read(STORE)
    except FileNotFoundError:
        return bool(place.folders("models") or place.list("packs"))
    return True


def says_encrypted(place: StorePlace) -> bool:
    """Whether the store's own file says that it is encrypted."""
    try:
        return place.read(STORE) == _document(True)
    except FileNotFoundError:
        return False


def moved(place: StorePlace) -> Moved | None:
    """The folder that a store moved to; None if it did not move or does not exist.

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


def point(place: StorePlace, to: Moved) -> None:
    """Redirect whoever opens this place to another folder, atomically."""
    place.replace(STORE, _pointer(to))


def switch(place: StorePlace, former: Moved | None, to: Moved) -> None:
    """Redirect whoever opens this place to another folder, from `former` alone, as `moved` gave it.

    Raises:
        InputError: another process has moved the store meanwhile; nothing was changed.
    """
    data = place.read(STORE)
    if _moved(place, data) != former or not place.swap(STORE, data, _pointer(to)):
        raise InputError(
            f"{place.root} was encrypted or decrypted by another process meanwhile; nothing was changed: see that it"
            " has ended, and try again"
        )


def generations(place: StorePlace) -> dict[str, int]:
    """Folders that the store may have moved to, or begun to, and their numbers."""
    return {name: int(match[1]) for name in place.folders("") if (match := _GENERATION.fullmatch(name))}


def new_generation(place: StorePlace) -> str:
    """Name of a new folder for the store to move to."""
    return f"generation-{1 + max(generations(place).values(), default=0)}"


def _pointer(to: Moved) -> bytes:
    return wrap(canonical_json({"format": _POINTER, "at": to.at, "left": to.left}), STORE, None)


def _moved(place: StorePlace, data: bytes) -> Moved | None:
    if data in (_document(True), _document(False)):
        return None
    body = unwrapped_json(data, STORE, None, place.root)
    if body.get("format") != _POINTER or _GENERATION.fullmatch(body["at"]) is None:
        raise IntegrityError(f"{place.root}/{STORE} is of a newer format")
    return Moved(body["at"], body["left"])


def _document(encrypted: bool) -> bytes:
    return canonical_json({"encrypted": encrypted, "format": _FORMAT})
