"""Ballots, and the signatures that bind them: to a voter's key, an election, a candidate's bytes and a round.

Signatures are Ed25519 (RFC 8032) over canonical JSON. A key is drawn by the voter's own process from the kernel's
generator, so that a process forked from another never shares one, and it never leaves that process; or it is the
voter's registered one (`keys`), which that process reads.
"""

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import ConfigDict, Field

from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.records import Record

_PRIME = 2**255 - 19
_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7  # y of the points of order 8, or minus it
_SMALL_ORDER = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})
_MOST = 2**53 - 1  # of whole numbers: beyond, other readers of JSON see another one, and arithmetic ends
_PURPOSE = "capibara-assets ballot"  # no signature over anything else can pass for a ballot's


class Ballot(Record):
    """One voter's judgement of one candidate on one part of its own shard; what only a signed one has may be null."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_name: ClassVar[str] = "ballots"
    schema_version: ClassVar[int] = 2
    key: ClassVar[tuple[str, ...]] = ("voter", "candidate", "round")

    voter: str = Field(description="Who judges, on its own validation shard")
    candidate: str = Field(description="Whose adapter is judged")
    round: int = Field(default=0, description="Part of the shard, from 0", ge=0, le=_MOST)
    tokens: int = Field(default=0, description="Supervised tokens the losses are means over", ge=0, le=_MOST)
    loss: float | None = Field(default=None, description="Candidate's loss, nats per token; null when not finite")
    base_loss: float | None = Field(default=None, description="The base model's loss there; null in a plain ballot")
    best_loss: float | None = Field(
        default=None, description="Least loss there that more than f of the judged candidates reach"
    )
    quality: float = Field(description="clip(1 - (loss - best) / (base - best), 0, 1)", ge=0, le=1)
    candidate_digest: str | None = Field(default=None, description="SHA-256 of the adapter that the voter read")
    examples: str | None = Field(default=None, description="SHA-256 of the tokenised examples that it was judged on")
    election: str | None = Field(default=None, description="SHA-256 of what the vote is about and goes by")
    signature: str | None = Field(default=None, description="The voter's, Ed25519, base64")


class Tokenised(Protocol):
    """An example as a vote reads it."""

    @property
    def input_ids(self) -> Sequence[int]: ...

    @property
    def labels(self) -> Sequence[int]: ...


def new_key() -> Ed25519PrivateKey:
    """A key of one's own, from the kernel: a generator in memory would be shared with whoever was forked too."""
    return Ed25519PrivateKey.from_private_bytes(os.urandom(32))


def public_key(key: Ed25519PrivateKey) -> str:
    """The public half, base64."""
    return base64.b64encode(key.public_key().public_bytes_raw()).decode("ascii")


def is_public_key(text: str) -> bool:
    """Whether a text is a public key as `public_key` writes it."""
    try:
        point = _bytes(text)
        Ed25519PublicKey.from_public_bytes(point)
    except ValueError:
        return False
    return not _of_small_order(point)


def _of_small_order(point: bytes) -> bool:
    """Whether it is a point of order 1, 2, 4 or 8, under which anybody can sign anything, or an odd spelling of one.

    The five y-coordinates of such points (RFC 7748's curve, Edwards form) and what they are with the prime added;
    whatever the sign of x. Every y at or beyond the prime is refused: no library writes such a key.
    """
    y = int.from_bytes(point, "little") & ((1 << 255) - 1)
    return y >= _PRIME or y in _SMALL_ORDER


def signed(ballot: Ballot, key: Ed25519PrivateKey) -> Ballot:
    """The ballot with the voter's signature over everything else in it and over the public key."""
    return ballot.model_copy(update={"signature": signature_of(message(ballot, public_key(key)), key)})


def is_signed_by(ballot: Ballot, public: str) -> bool:
    """Whether the ballot's signature is there and is that of the key (base64)."""
    return is_signature(ballot.signature, message(ballot, public), public)


def signature_of(text: bytes, key: Ed25519PrivateKey) -> str:
    """A key's signature over bytes, base64."""
    return base64.b64encode(key.sign(text)).decode("ascii")


def is_signature(signature: str | None, text: bytes, public: str) -> bool:
    """Whether this is the signature of a key (base64) over these bytes."""
    try:
        point = _bytes(public)
        Ed25519PublicKey.from_public_bytes(point).verify(_bytes(signature or ""), text)
    except (InvalidSignature, ValueError):
        return False
    return not _of_small_order(point)


def _bytes(text: str) -> bytes:
    """Base64 in its one spelling: bits that decoding drops may not differ, or one signature had several.

    Raises:
        ValueError: it is not.
    """
    decoded = base64.b64decode(text, validate=True)
    if base64.b64encode(decoded).decode("ascii") != text:
        raise ValueError("base64 with stray bits")
    return decoded


def message(ballot: Ballot, public: str) -> bytes:
    """The bytes that are signed: canonical JSON of the purpose, the key and all but the signature."""
    content = ballot.model_dump(mode="json", exclude={"signature"})
    return canonical_json({"purpose": _PURPOSE, "schema_version": 2, "public_key": public, "ballot": content})


def in_order(ballots: Iterable[Ballot]) -> tuple[Ballot, ...]:
    """By voter, part and candidate, each once: a voter may have added copies of another's.

    Different ballots on one candidate and part, of a voter who contradicts itself, go by what they say.
    """

    def place(ballot: Ballot) -> tuple[str, int, str, str]:
        return ballot.voter, ballot.round, ballot.candidate, ballot.model_dump_json()

    return tuple(sorted(dict.fromkeys(ballots), key=place))


def examples_digest(examples: Iterable[Tokenised]) -> str:
    """SHA-256 of tokens and labels, in their order."""
    return sha256_bytes(canonical_json([[list(map(int, e.input_ids)), list(map(int, e.labels))] for e in examples]))


def election_id(subject: Mapping[str, Any]) -> str:
    """The digest that a vote's ballots name: of the candidates' digests, the thresholds, the inputs, the rule."""
    return sha256_bytes(canonical_json({"purpose": "capibara-assets election", **subject}))
