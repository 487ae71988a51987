"""Confirmations: in a vote's second round accepted voters sign the losses of the candidates and the one that is chosen.

A ballot is about one adapter; a confirmation is about the decided. Its voter measured every average of voters on its
own examples, the ones that its ballots name, and found what the coordinator states for them; it signs these losses,
those that are stated for all examples, the chosen digest, which follows from them, and a digest of all else that is
stated of candidates and base, so that nobody changes it afterwards. It is signed with the key of the voter's ballots
and names the election and all ballots of the first round, so that it is about this vote alone.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from capibara_assets.consensus.election.ballots import Ballot, is_signature, public_key, signature_of
from capibara_assets.storage.digests import canonical_json, sha256_bytes

CONFIRMED = "confirmed_within"
"""In an election's context: nats per token within which a voter's losses confirm stated ones. It has a second round."""
FLOAT32_TOLERANCE, SHORT_TOLERANCE = 2e-5, 5e-3
"""Nats per token by which losses of one adapter differ between processes and machines: in float32, in 16 bits or less.

Batches of other examples round differently, and so do other processors."""
_PURPOSE = "capibara-assets confirmation"  # no ballot can pass for one


class Confirmation(BaseModel):
    """One accepted voter's signature on the outcome of a vote."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    voter: str
    election: str = Field(description="SHA-256 of what the vote is about and goes by")
    round: Literal[2] = Field(default=2, description="Ballots are the first")
    ballots: str = Field(description="SHA-256 of all ballots of the first round, without their signatures")
    examples: tuple[str, ...] = Field(description="SHA-256 of the voter's examples, of each part: as in its ballots")
    tokens: int = Field(description="Supervised tokens of these examples", ge=0)
    measured: dict[str, float | None] = Field(
        description="Digest of each average -> its loss on these examples, nats per token; null where not finite"
    )
    all_tokens: int = Field(description="Supervised tokens of all voters' examples, as stated to the voter", ge=0)
    losses: dict[str, float | None] = Field(description="Digest of each candidate -> its loss on all, as stated")
    chosen: str = Field(description="Digest of the candidate that follows from these losses")
    stated: str | None = Field(
        default=None,
        description="SHA-256 of candidates and base loss as stated to the voter; null: not signed, as once",
    )
    signature: str | None = Field(default=None, description="The voter's, Ed25519, base64")

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a digest that was not signed: earlier confirmations keep their signatures."""
        document: dict[str, Any] = dump(self)
        return {name: value for name, value in document.items() if name != "stated" or value is not None}


@dataclass(frozen=True)
class Decided:
    """The decision that accepted voters are asked to confirm.

    Attributes:
        ballots: digest of the first round's ballots (`ballots_digest`).
        losses: digest of each candidate -> loss on all examples.
        averages: digests of the candidates that no ballot is about.
        all_tokens: supervised tokens of all examples.
        chosen: digest of the consensus.
        stated: digest of all that is stated of candidates and base (`stated_digest`).
    """

    election: str
    ballots: str
    losses: Mapping[str, float | None]
    averages: Collection[str]
    all_tokens: int
    chosen: str
    stated: str


def confirmed(confirmation: Confirmation, key: Ed25519PrivateKey) -> Confirmation:
    """The confirmation with the voter's signature over everything else in it and over the public key."""
    return confirmation.model_copy(update={"signature": signature_of(message(confirmation, public_key(key)), key)})


def message(confirmation: Confirmation, public: str) -> bytes:
    """The bytes that are signed: canonical JSON of the purpose, the key and all but the signature."""
    content = confirmation.model_dump(mode="json", exclude={"signature"})
    return canonical_json({"purpose": _PURPOSE, "schema_version": 1, "public_key": public, "confirmation": content})


def ballots_digest(ballots: Iterable[Ballot]) -> str:
    """SHA-256 of ballots in any order; signatures are left out, since keys differ from run to run."""
    contents = sorted(canonical_json(b.model_dump(mode="json", exclude={"signature"})).decode() for b in ballots)
    return sha256_bytes(canonical_json(contents))


def stated_digest(candidates: Iterable[Mapping[str, Any]], base_loss: float) -> str:
    """SHA-256 of candidates, as a certificate lists them, and the base's loss.

    What led the robust rule to its weights stands in a certificate's evidence, and is computed from the adapters again.
    """
    listed = [{**one, "figures": {}} if one["kind"] == "robust" else dict(one) for one in candidates]
    return sha256_bytes(canonical_json({"candidates": listed, "base_loss": base_loss}))


def required_confirmations(n: int, f: int, voteless: int) -> int:
    """2f + 1, so that f + 1 honest voters at least have confirmed.

    Args:
        n: registered voters; who is registered alone has nothing to confirm, since nobody voted.
        voteless: accepted voters whose adapter was handed in twice. They have no key, and so confirm nothing; each
            stands for one liar more that is known, and one confirmation less is needed.
    """
    return 0 if n == 1 else max(1, 2 * f + 1 - voteless)


def confirmation_fault(
    confirmation: Confirmation, public: str | None, decided: Decided, examples: Mapping[str, tuple[str, ...]]
) -> str | None:
    """Why a confirmation is invalid on its own; None if it is valid.

    Args:
        public: the key of the voter's ballots (base64).
        examples: voter -> digests of its examples, of each part.
    """
    if public is None or not is_signature(confirmation.signature, message(confirmation, public), public):
        return f"not signed by the key of {confirmation.voter}"
    if confirmation.election != decided.election:
        return f"made for election {confirmation.election[:12]}, this is {decided.election[:12]}"
    if confirmation.ballots != decided.ballots:
        return "made for other ballots of the first round"
    if confirmation.examples != examples.get(confirmation.voter):
        return "measured on other examples than its ballots name"
    if confirmation.measured.keys() != set(decided.averages):
        return "it did not measure every average once"
    if confirmation.losses != dict(decided.losses):
        signed, stated = confirmation.losses, decided.losses
        off = sorted(d for d in {*signed, *stated} if d not in signed or d not in stated or signed[d] != stated[d])
        return f"candidate {off[0][:12]}: it signed loss {signed.get(off[0])}, stated is {stated.get(off[0])}"
    if confirmation.all_tokens != decided.all_tokens:
        return f"it signed {confirmation.all_tokens} tokens of all examples, not {decided.all_tokens}"
    if confirmation.chosen != decided.chosen:
        return f"it signed {confirmation.chosen[:12]} as the chosen one, not {decided.chosen[:12]}"
    if confirmation.stated not in (None, decided.stated):
        return "other figures of the candidates, or another loss of the base, were stated to it when it signed"
    return None


def agrees(one: float | None, other: float | None, tolerance: float) -> bool:
    """Whether two losses agree within a tolerance (nats per token); non-finite values agree only with themselves."""
    return one is other is None or (one is not None and other is not None and abs(one - other) <= tolerance)
