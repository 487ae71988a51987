"""The election document published before the first ballot, and its comparison with a certificate."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets.consensus.certificates.model import Certificate, Election, stated_election
from capibara_assets.consensus.certificates.verification import differences
from capibara_assets.consensus.election.ballots import election_id
from capibara_assets.consensus.election.keys import REGISTERED, registry_digest
from capibara_assets.errors import InputError, in_words
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import read_json

EXAMPLES = "examples"
"""In an election's context: digest of the examples that each elector judges on, in each round."""


class PublishedElection(BaseModel):
    """Election document that is published before the first ballot.

    `election` is what the digest in every ballot is over; its context has the digests of `keys` and `examples`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    schema_version: int = Field(default=1, ge=1, le=1)
    digest: str = Field(description="What the ballots name")
    n: int = Field(description="Registered voters")
    f: int = Field(description="Voters that may be arbitrary")
    election: dict[str, Any] = Field(description="Inputs, adapters, candidates, thresholds, rule, software")
    keys: dict[str, str] = Field(description="Voter -> public key, of voters that have a long-lived one")
    examples: dict[str, list[str]] = Field(description="Elector -> digest of its examples in each round")

    @classmethod
    def of(
        cls, election: Election, f: int, keys: Mapping[str, str], examples: Mapping[str, Sequence[str]]
    ) -> "PublishedElection":
        own = {name: keys[name] for name in election.voters if name in keys}
        listed = {name: list(parts) for name, parts in examples.items()}
        return cls(
            digest=election.digest, n=len(election.voters), f=f, election=election.subject, keys=own, examples=listed
        )

    def problems(self, certificate: Certificate) -> Iterator[str]:
        """Differences between the certificate and this election, and inconsistencies within the file."""
        if election_id(self.election) != self.digest:
            yield "the published election is not what its digest states: it was changed"
        if certificate.election != self.digest:
            yield f"the certificate is of election {certificate.election[:12]}, the published one is {self.digest[:12]}"
        stated = stated_election(certificate).subject
        yield from (f"not as in the published election: {what}" for what in differences(self.election, stated))
        if (certificate.n, certificate.f) != (self.n, self.f):
            yield f"n and f are {certificate.n} and {certificate.f}, published were {self.n} and {self.f}"
        context = self.election.get("context")
        context = context if isinstance(context, dict) else {}
        if context.get(EXAMPLES) != examples_digests(self.examples):
            yield "the published election's list of examples is not the one that its digest is over"
        if (self.keys or REGISTERED in context) and context.get(REGISTERED) != registry_digest(self.keys, self.keys):
            yield "the published election's keys are not those that its digest is over"
        for voter in certificate.voters:
            if voter.public_key is not None and self.keys.get(voter.name, voter.public_key) != voter.public_key:
                yield f"{voter.name}: its key is {voter.public_key}, registered before the vote is another"
        if len(strays := self.strays(certificate)) > self.f:
            yield f"{', '.join(strays)} judged on other examples than were published, {self.f} may lie"

    def strays(self, certificate: Certificate) -> list[str]:
        """Voters whose ballots name other examples than were published: either they lie or the examples changed."""
        off = set[str]()
        for ballot in certificate.ballots:
            parts = self.examples.get(ballot.voter, [])
            if not ballot.round < len(parts) or ballot.examples != parts[ballot.round]:
                off.add(ballot.voter)
        return sorted(off)


def examples_digests(examples: Mapping[str, Sequence[str]]) -> str:
    """Combine the example digests of every elector into one digest."""
    return sha256_bytes(canonical_json({name: list(parts) for name, parts in examples.items()}))


def read_election(file: Path) -> PublishedElection:
    """Read a published election from its file.

    Raises:
        InputError: it cannot be read, or is none.
    """
    try:
        return PublishedElection.model_validate(read_json(file, strict=True))
    except ValidationError as error:
        raise InputError(f"{file} is no published election: {in_words(error)}") from error
