"""What is published around a vote: its election before the first ballot, and its certificate's digest in the log.

A certificate is compared with both: the election that was published is the one it states, and whether it is that one's
only certificate is told.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from capibara_assets.checkpoints.store.places import open_place
from capibara_assets.consensus.certificates.certificate_log import (
    CertificateLog,
    append_certificate,
    read_log,
)
from capibara_assets.consensus.certificates.model import Certificate
from capibara_assets.consensus.certificates.published_election import PublishedElection, read_election
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.jsonfiles import readable_json

if TYPE_CHECKING:
    from capibara_assets.storage.store import ArtifactStore

_DIGEST = re.compile(r"[0-9a-f]{64}")
ELECTIONS, LOG = "elections", "certificates.jsonl"


@dataclass(frozen=True)
class PublicRecord:
    """What whoever verifies has of it.

    Attributes:
        election: as it was published before the vote.
        log: of all certificates.
        head: digest of a line that was seen in that log before.
    """

    election: PublishedElection | None = None
    log: CertificateLog | None = None
    head: str | None = None

    @classmethod
    def read(cls, election: Path | None, log: Path | None, head: str | None) -> "PublicRecord":
        """Raises InputError: a file that cannot be read or is none, or a head without its log."""
        if head is not None and log is None:
            raise InputError("a head belongs to a log: give that, too")
        head = None if head is None else head.strip().lower()
        if head is not None and not _DIGEST.fullmatch(head):
            raise InputError(f"--log-head {head[:80]!r} is no digest of a line: it has 64 hexadecimal digits")
        return cls(None if election is None else read_election(election), None if log is None else read_log(log), head)

    def problems(self, certificate: Certificate) -> list[str]:
        """What contradicts the certificate.

        Raises:
            InputError: it is of version 1, which names no election.
        """
        if (self.election or self.log) is not None and not certificate.election:
            raise InputError("a certificate of version 1 names no election: verify it without --election and --log")
        problems = [] if self.election is None else list(self.election.problems(certificate))
        return problems if self.log is None else problems + list(_log_problems(self.log, certificate, self.head))

    def reservations(self, certificate: Certificate) -> Iterator[str]:
        """What holds and proves less than usual."""
        if self.election is not None and (strays := self.election.strays(certificate)):
            yield f"that {', '.join(strays)} judged on the published examples: ballots name others"
        known = () if self.log is None else self.log.of(certificate.election)
        if others := [other[:12] for other in known if other != certificate.digest]:
            yield f"that it is its election's only certificate: the log has {', '.join(others)}, too: it was held again"

    @property
    def done(self) -> list[str]:
        """What was compared."""
        named = (("published election", self.election), ("log", self.log))
        return [name for name, given in named if given is not None]

    def unproven(self) -> Iterator[str]:
        """What a certificate does not prove without these, or with them."""
        if self.election is None:
            yield "that nothing was settled after the vote: give the election that was published before it (--election)"
        else:
            yield "when the election was published: whoever had the file before the vote knows"
        if self.log is None:
            yield "that it is the only certificate of its election: give the log (--log)"
        elif self.head is None:
            yield (
                f"that others see this log, or saw it before: compare its {len(self.log.lines)} lines' last digest, "
                f"{self.log.head}, with one that you kept (--log-head)"
            )


def _log_problems(log: CertificateLog, certificate: Certificate, head: str | None) -> Iterator[str]:
    if log.problem:
        yield f"the log: {log.problem}"
    if head is not None and head not in {line.digest for line in log.lines}:
        yield f"the log: the line {head[:12]} that was in it is not: lines were removed or replaced"
    if certificate.digest not in log.of(certificate.election):
        yield "the log: this certificate does not stand in it"


@dataclass(frozen=True)
class StoreRecord:
    """The public record of a deployment's store: `elections/`, and on a disk `certificates.jsonl`."""

    store: "ArtifactStore"

    def announce(self, election: PublishedElection) -> None:
        """Publish an election; one that is there stays.

        Raises:
            IntegrityError: another lies under its digest.
        """
        place = open_place(self.store.root / ELECTIONS, work=self.store.work / ELECTIONS)
        name, data = f"{election.digest}.json", readable_json(election.model_dump(mode="json"))
        if not place.create(name, data) and place.read(name) != data:
            raise IntegrityError(f"{place.root}/{name} is not the election of this digest: restore or remove it")

    def enter(self, certificate: Certificate) -> None:
        """Append a certificate to the log. Raises as `append_certificate`."""
        if self._log is not None:
            append_certificate(self._log, certificate.election, certificate.digest)

    @property
    def _log(self) -> Path | None:
        """None: an object store has no files that grow."""
        return Path(self.store.root.path) / LOG if self.store.is_local else None
