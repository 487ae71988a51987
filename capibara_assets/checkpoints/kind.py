"""The file that says what kind of store a place holds: its format, and whether it is encrypted."""

from capibara_assets.checkpoints.places import Place
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.digests import canonical_json

STORE = "store.json"
_FORMAT = "capibara-checkpoints/1"


def check_kind(place: Place, encrypted: bool, *, create: bool) -> bool:
    """See that a place holds a store of this kind; where there is none yet, `create` makes one. Whether there is one.

    Raises:
        InputError: it is encrypted and was opened as if it were not, or the other way round.
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
    if found == _document(not encrypted):
        raise InputError(
            f"{name}: this store is {'not ' if encrypted else ''}encrypted; open_store opens either kind, with its keys"
        )
    if found != _document(encrypted):
        raise IntegrityError(f"{name} is damaged, or of a newer format: {found[:80]!r}")
    return True


def _document(encrypted: bool) -> bytes:
    return canonical_json({"encrypted": encrypted, "format": _FORMAT})
