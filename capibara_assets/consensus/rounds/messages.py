"""Signed messages of one sender for one round, each named by the digest of its first line.

A message is one line of canonical JSON (what it is, who sends it, names, sizes and digests of its files, the signature)
and then the bytes of its files. So it has one spelling, appears as one object, and is judged by its first line before
anything of it is unpacked.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets.consensus.election.ballots import is_signature, public_key, signature_of
from capibara_assets.consensus.rounds.round import Round
from capibara_assets.errors import InputError
from capibara_assets.modeling.files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import strict_json
from capibara_assets.training.voter_manifest import MANIFEST

ORGANISER = "organiser"
Kind = Literal["submission", "ballots", "confirmation", "election", "proposal", "result"]
OF_ORGANISER = ("election", "proposal", "result")
LONGEST_HEAD = 256 << 10
_PURPOSE = "capibara-assets letter"  # signed with each message, so the word stays; no ballot can pass for one
SUBMITTED = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST)
"""Files of a voter: what it hands in, a result keeps of it, and is published of it. It may have no manifest."""
_DIGEST = "^[0-9a-f]{64}$"
_ADAPTER = r"adapter_(config\.json|model\.safetensors)"
_FILES = {
    "submission": "|".join(map(re.escape, SUBMITTED)),
    "ballots": r"answer\.json",
    "confirmation": r"confirmation\.json",
    "election": r"election\.json|after\.json",
    "proposal": rf"proposal\.json|averages/[0-9a-f]{{64}}/{_ADAPTER}",
    "result": rf"(result|certificate)\.json|adapter/{_ADAPTER}",
}
_COPIES = 16  # of a message of every voter's size that one of the organiser's may have: averages have the sum of ranks
FaultKind = Literal["oversized", "damaged", "replayed", "foreign", "forged", "late", "duplicate", "unfit"]


class MessageFault(InputError):
    """Raised for a message that does not count.

    Attributes:
        fault: what it is.
        sender: as it states, which may be a lie; None where that cannot be read.
    """

    def __init__(self, fault: FaultKind, why: str, sender: str | None = None) -> None:
        super().__init__(why)
        self.fault, self.sender = fault, sender


class Content(BaseModel):
    """The signed content of a message."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    round: str = Field(pattern=_DIGEST, description="Digest of the round")
    kind: Kind
    sender: str = Field(max_length=255)
    about: str = Field(
        pattern=f"^$|{_DIGEST}",
        description="Election and ballots: digest of the election; proposal and result: name of the election's "
        "message, empty where there is none; confirmation: name of the proposal",
    )
    files: dict[str, tuple[Annotated[int, Field(ge=0, lt=1 << 53)], str]] = Field(
        description="Name -> bytes, SHA-256; they follow by name"
    )


class Head(BaseModel):
    """The first line of a message."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    content: Content
    public_key: str
    signature: str

    @property
    def line(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))

    @property
    def name(self) -> str:
        return sha256_bytes(self.line)

    @property
    def size(self) -> int:
        """Expected size of the whole message in bytes."""
        return len(self.line) + sum(size for size, _ in self.content.files.values())


@dataclass(frozen=True)
class Message:
    """A verified and unpacked message.

    Attributes:
        received: by the clock of the place.
        folder: of its files.
    """

    head: Head
    received: float
    folder: Path

    @property
    def sender(self) -> str:
        return self.head.content.sender


def write_message(
    round_digest: str, kind: Kind, sender: str, files: Mapping[str, bytes], key: Ed25519PrivateKey, about: str = ""
) -> tuple[str, bytes]:
    """Serialise and sign a message; return its name and bytes."""
    listed = {name: (len(data), sha256_bytes(data)) for name, data in sorted(files.items())}
    content = Content(round=round_digest, kind=kind, sender=sender, about=about, files=listed)
    public = public_key(key)
    head = Head(content=content, public_key=public, signature=signature_of(_signed_bytes(content, public), key))
    return head.name, head.line + b"".join(files[name] for name in listed)


def read_head(name: str, start: bytes, size: int | None, terms: Round) -> Head:
    """Read and check the header of a message of this round, without its files.

    Args:
        name: under which it lies.
        start: its first `LONGEST_HEAD` bytes.
        size: of all of it; None: only the header was kept.

    Raises:
        MessageFault: it is too large, none, of another round, of somebody else than it says, or of nobody registered.
    """
    line, newline, _ = start.partition(b"\n")
    try:
        head = Head.model_validate_json(line) if newline else None
        spelt = head is not None and canonical_json(strict_json(line)) == line + newline
    except (ValidationError, ValueError, RecursionError):
        head, spelt = None, False
    if head is None or not spelt:
        raise MessageFault("damaged", f"no message: its first line of at most {LONGEST_HEAD:,} bytes is no signed head")
    content, sender = head.content, head.content.sender
    size = head.size if size is None else size
    if content.round != terms.digest:
        raise MessageFault("replayed", f"written for round {content.round[:12]}, this is {terms.digest[:12]}", sender)
    ours = content.kind in OF_ORGANISER
    registered = terms.organiser if ours and sender == ORGANISER else None if ours else terms.keys.get(sender)
    if registered is None:
        raise MessageFault("foreign", f"{sender[:80]!r} is not registered for a {content.kind} in this round", sender)
    signed = _signed_bytes(content, registered)
    if head.public_key != registered or not is_signature(head.signature, signed, registered):
        raise MessageFault("forged", f"not signed by the key that is registered for {sender}", sender)
    most = terms.max_bytes * (_COPIES * len(terms.keys) if ours else 1) + LONGEST_HEAD
    if max(size, head.size) > most:
        raise MessageFault("oversized", f"{max(size, head.size):,} bytes, the limit is {most:,}", sender)
    if head.name != name or size != head.size:
        raise MessageFault("damaged", "it has another name or length than its head makes", sender)
    if bad := [file for file in content.files if not re.fullmatch(_FILES[content.kind], file)]:
        raise MessageFault("unfit", f"a {content.kind} has no file {bad[0][:80]!r}", sender)
    return head


def verify_files(head: Head, message: Path, folder: Path | None = None) -> None:
    """Check the files of a message on disk, and unpack them into a folder if one is given.

    Raises:
        MessageFault: a file is not what the head says.
    """
    if message.stat().st_size != head.size:
        raise MessageFault("damaged", f"{message.stat().st_size:,} bytes of {head.size:,}", head.content.sender)
    with message.open("rb") as opened:
        opened.seek(len(head.line))
        for name, (size, digest) in sorted(head.content.files.items()):
            data = opened.read(size)
            if sha256_bytes(data) != digest:
                raise MessageFault("damaged", f"{name} is not what its head states", head.content.sender)
            if folder is not None:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)


def _signed_bytes(content: Content, public: str) -> bytes:
    return canonical_json(
        {"purpose": _PURPOSE, "schema_version": 1, "public_key": public, "letter": content.model_dump(mode="json")}
    )
