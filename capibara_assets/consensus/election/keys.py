"""Voters' long-lived keys: private key files, the registry of public keys, and the deployment's folder of both.

A private key is a PEM file that its owner alone may read. Only the voter's own process reads it: the coordinator
knows the registry and the file's place. The registry is the JSON object, voter to public key, that verification takes.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from capibara_assets.consensus.election.ballots import is_public_key, new_key, public_key
from capibara_assets.errors import InputError, named
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import read_json, sync_folder, write_json_atomic
from capibara_assets.storage.locks import locked
from capibara_assets.storage.manifest import check_name

VARIABLE = "CAPIBARA_VOTER_KEYS"
REGISTRY = "registry.json"
REGISTERED = "registry"
"""In an election's context: digest of the keys that were registered for its voters before the vote."""
_OTHERS = 0o077
_OTHERS_WRITE = 0o022
_LONGEST_NAME = 128  # characters of a voter's name, which becomes a part of names of files
_MOST_BYTES = 4096  # of a key file; one of Ed25519 has 119


@dataclass(frozen=True)
class VoterKeys:
    """Folder with `registry.json` and the private keys available here, `VOTER.key` each.

    Attributes:
        registry: voter -> public key (base64).
    """

    folder: Path
    registry: Mapping[str, str]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "VoterKeys | None":
        """The folder named by CAPIBARA_VOTER_KEYS; None: each vote draws new keys. Raises InputError: as `of`."""
        if not (named := environment.get(VARIABLE)):
            return None
        folder = Path(named).expanduser()
        if not (folder / REGISTRY).exists():
            raise InputError(
                f"{VARIABLE} is {named}, and there is no {folder / REGISTRY}: register keys there (capibara consensus"
                " keys register), or unset it"
            )
        return cls.of(folder)

    @classmethod
    def of(cls, folder: Path) -> "VoterKeys":
        """Open a key folder. Raises InputError: no registry, or a private key without a registered public key."""
        registry = read_registry(folder / REGISTRY)
        if strangers := sorted({file.stem for file in folder.glob("*.key")} - registry.keys()):
            raise InputError(
                f"{folder / REGISTRY} has no public key of {', '.join(strangers)}, whose private key is there: "
                "register it (capibara consensus keys register)"
            )
        return cls(folder.absolute(), registry)

    def file(self, voter: str) -> Path | None:
        """Path of a registered voter's private key; None: the voter is unregistered and draws a key."""
        return self.folder / f"{voter}.key" if voter in self.registry else None


def registry_digest(registry: Mapping[str, str], voters: Iterable[str]) -> str:
    """SHA-256 of the keys registered for these voters, independent of other registrations."""
    return sha256_bytes(canonical_json({name: registry[name] for name in voters if name in registry}))


def write_new_key(voter: str, file: Path) -> str:
    """Draw a key for a voter into a new file that only its owner can read; return the public key.

    Raises:
        InputError: there is such a file, or others may write to its folder; or the voter's name is none.
    """
    require_name(voter)
    folder = file.absolute().parent
    try:
        status = folder.stat()
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; make it with `mkdir -m 700`") from error
    if status.st_mode & _OTHERS_WRITE or status.st_uid not in (0, os.geteuid()):
        raise InputError(f"others may write to {folder}, and put another key in this one's place: chmod 700 it")
    key = new_key()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # Whole under its name or not there: half a key is none, and would be in the way of another
    part = folder / f".{file.name}.part"
    try:
        with locked(folder / ".keys.lock"):
            if os.path.lexists(file):
                raise InputError(f"{file} exists, and a key is never overwritten: choose another name")
            part.unlink(missing_ok=True)  # of a process that was killed
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(descriptor)
            part.rename(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"cannot write {file}: {error.strerror}") from error
    sync_folder(folder)
    return public_key(key)


def read_private_key(file: Path) -> Ed25519PrivateKey:
    """Read a voter's private key. Error messages never include the file's content.

    Raises:
        InputError: it is not there, may be read or written by others, or holds no Ed25519 key.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
        with os.fdopen(descriptor, "rb") as opened:
            status = os.fstat(descriptor)
            data = opened.read(_MOST_BYTES + 1) if stat.S_ISREG(status.st_mode) else b""
    except OSError as error:
        raise InputError(f"the private key {file.name} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"the private key {file.name} is no regular file")
    if status.st_mode & _OTHERS or status.st_uid not in (0, os.geteuid()):
        raise InputError(
            f"the private key {file.name} may be used by others (mode {stat.S_IMODE(status.st_mode):04o}): it may be "
            "known to them; make a new one, register it, and keep it at mode 600"
        )
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(
            f"{file.name} is no private key of Ed25519 in PEM: make one with `capibara consensus keys new`"
        )
    return key


def read_registry(file: Path) -> dict[str, str]:
    """Voters and their public keys.

    Raises:
        InputError: it cannot be read, is no registry, has a voter twice, one key for two voters, or what is no key, or
            no name, of a voter.
    """
    document = read_json(file, strict=True)
    if not isinstance(document, dict):
        raise InputError(f"{file}: expected a JSON object of voters and their public keys")
    registry: dict[str, str] = {}
    for voter, key in document.items():
        require_name(voter)  # it becomes a folder's
        _require_new(file, registry, voter, key)
        registry[voter] = key
    return registry


def register(file: Path, voter: str, key: str) -> dict[str, str]:
    """Add a voter's public key to a registry, creating it if needed; return the whole registry.

    Raises:
        InputError: the voter is registered, the key is somebody's, or is none.
    """
    require_name(voter)
    with locked(file.with_name(f".{file.name}.lock")):
        registry = read_registry(file) if file.exists() else {}
        _require_new(file, registry, voter, key)
        registry[voter] = key
        write_json_atomic(file, registry)
    return registry


def _require_new(file: Path, registry: Mapping[str, str], voter: str, key: object) -> None:
    if voter in registry:
        raise InputError(f"{file}: {voter} is registered already; who loses a key takes another name")
    if not isinstance(key, str) or not is_public_key(key):
        raise InputError(f"{file}: that of {voter} is no public key: 32 bytes of Ed25519 in base64 are one")
    if owner := next((name for name, known in registry.items() if known == key), None):
        raise InputError(f"{file}: the key of {voter} is registered for {owner}: one key is one voter's")


def require_name(voter: str) -> None:
    """Raise InputError unless a voter's name can be that of a folder and of a key's file."""
    try:
        check_name(voter)
    except ValueError as error:
        raise InputError(f"{named(voter)!r} is no name of a voter: {error}") from error
    if len(voter) > _LONGEST_NAME:
        raise InputError(
            f"{named(voter)!r} is no name of a voter: it has {len(voter):,} characters, {_LONGEST_NAME} at most"
        )
