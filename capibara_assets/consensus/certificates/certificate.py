"""The certificate of an agreement: everything needed to check later who was accepted, why, and the result."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from capibara_assets.checkpoints.inspect.verify import adapter_digest
from capibara_assets.consensus.certificates.averages import average_problems
from capibara_assets.consensus.certificates.confirmations import confirmation_problems, confirmation_reservations
from capibara_assets.consensus.certificates.model import (
    READABLE,
    SCHEMA_VERSION,
    Certificate,
    ResultEntry,
    TallyEntry,
    Thresholds,
    VoterEntry,
    content_digest,
    sealed,
    whole_digest,
)
from capibara_assets.consensus.certificates.public_record import PublicRecord
from capibara_assets.consensus.certificates.reservations import (
    SINGLE_OPERATOR,
    independence,
    key_reservations,
    loss_findings,
    threshold_reservations,
    unsigned_words,
)
from capibara_assets.consensus.certificates.verification import (
    absent_voters,
    attestation_problems,
    digest_problems,
    key_problems,
    privacy_problems,
    read_submissions,
    result_problems,
    shape_problems,
    unreadable_voters,
    vote_problems,
)
from capibara_assets.consensus.election.options import option_problem
from capibara_assets.errors import InputError, in_words
from capibara_assets.modeling.adapters import read_adapter, write_adapter
from capibara_assets.modeling.files import ADAPTER_WEIGHTS
from capibara_assets.storage.foreign import read_document
from capibara_assets.storage.jsonfiles import delete_durable, strict_json, why_not_json, write_json_atomic

if TYPE_CHECKING:
    from capibara_assets.consensus.agree import Agreement

__all__ = [
    "Certificate", "ResultEntry", "TallyEntry", "Thresholds", "Verification", "VoterEntry", "certify", "json_schema",
    "read_certificate", "sealed", "verify_certificate", "write_certificate",
]  # fmt: skip

_LONGEST_NAME = 255  # bytes of a folder's name
Remeasure = Callable[[Certificate, Mapping[str, Path]], list[str]]


@dataclass(frozen=True)
class Verification:
    """Result of checking a certificate.

    Attributes:
        problems: every statement that does not hold.
        recomputed: the steps that were done again.
        forgotten: inputs it names that were removed since, because a record in them was forgotten: they cannot be
            checked again.
        unchecked: what could not be verified here, and why.
        reservations: what was verified and still proves less than a vote under the shipped thresholds would.
        unproven: what no certificate of this trust model proves.
    """

    problems: tuple[str, ...]
    recomputed: tuple[str, ...]
    forgotten: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()
    unproven: tuple[str, ...] = (SINGLE_OPERATOR,)

    @property
    def ok(self) -> bool:
        """Whether nothing contradicts the certificate. This proves no more than what was checked."""
        return not self.problems

    @property
    def proven(self) -> bool:
        """Whether the certificate holds with everything checked and no reservation."""
        return not (self.problems or self.unchecked or self.reservations)


def certify(agreement: "Agreement", folder: Path) -> Path:
    """Write `certificate.json` and the agreed adapter in `adapter/` beside it.

    The certificate is removed first and written last: whatever is interrupted, none lies beside another's adapter.

    Returns:
        The certificate's file: `verify_certificate` finds the adapter beside it, and the voters' adapters too where
        they lie in `voters/`.
    """
    delete_durable(folder / "certificate.json")
    write_adapter(agreement.adapter, folder / "adapter")
    write_certificate(agreement.certificate, folder / "certificate.json")
    return folder / "certificate.json"


def write_certificate(certificate: Certificate, path: Path) -> None:
    """Write as readable JSON, atomically; the same certificate gives the same bytes."""
    write_json_atomic(path, certificate.model_dump(mode="json", exclude_unset=certificate.schema_version == 1))


def read_certificate(path: Path) -> Certificate:
    """Read a certificate.

    Raises:
        InputError: missing, not JSON, or not a certificate of a known schema version.
    """
    try:
        return parse_certificate(strict_json(read_document(path)))
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist: give the certificate.json of a consensus") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; give a certificate.json") from error
    except InputError as error:
        raise InputError(f"{path} is not a certificate: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a certificate: it is {why_not_json(error)}") from error


def parse_certificate(document: Any) -> Certificate:
    """A certificate from its JSON document.

    Raises:
        InputError: not a certificate of a known schema version.
    """
    stated = document.get("schema_version") if isinstance(document, dict) else None
    if stated is not None and (stated not in READABLE or isinstance(stated, bool)):
        raise InputError(f"schema version {stated}, this software reads {', '.join(map(str, READABLE))}")
    try:
        Certificate.model_validate(document)  # refuses endless parts at once, which the parser of JSON reads first
        # strict: '4' and true are no numbers, as for readers in other languages; from JSON, whose lists may be tuples
        certificate = Certificate.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        raise InputError(in_words(error)) from error
    for voter in certificate.voters:  # before any of them is looked for on the disk
        if not _is_file_name(voter.name):
            raise InputError(f"a voter is named {voter.name[:80]!r}, which is no name of a folder of its own")
    if certificate.schema_version > 1 and not certificate.election:
        raise InputError(
            f"schema version {certificate.schema_version} names the election that its ballots are signed for, this one "
            "names none"
        )
    return certificate


def _is_file_name(name: str) -> bool:
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        return False
    return len(name.encode()) <= _LONGEST_NAME


def json_schema() -> dict[str, Any]:
    """The certificate as JSON Schema."""
    return {**Certificate.model_json_schema(), "x-schema-version": SCHEMA_VERSION}


def verify_certificate(
    source: Path | str | Certificate,
    voters: Mapping[str, Path] | None = None,
    *,
    result: Path | None = None,
    forgotten: Collection[str] = (),
    keys: Mapping[str, str] | None = None,
    remeasure: "Remeasure | None" = None,
    record: PublicRecord | None = None,
) -> Verification:
    """Verify a certificate: its digests, and every step that the given inputs allow to be repeated.

    Without inputs the signatures, qualities, the count, quorum, who was accepted, the gate's verdicts and the choice
    are recomputed from what it states. With the voters' adapters also digests, attestation, and every candidate that
    was tried, the consensus among them; with the published adapter that, too. What is needed beyond (losses: the base
    model and the examples) or is not there is named in `unchecked`.

    Args:
        source: the certificate, or its file: the adapter and the voters are then read beside it, from `adapter/`
            and `voters/` or where an artifact store has them.
        voters: name -> adapter folder.
        result: folder of the published adapter.
        forgotten: digests of artifacts that were removed because a record was forgotten: those that it was made from
            are named, and are no problem of the certificate.
        keys: voter -> public key (base64) known from elsewhere: those in the certificate have to be these.
        remeasure: makes the choice again from base model and examples, and returns what differs
            (`remeasured_problems`).
        record: the election that was published before the vote, and the log of certificates.

    Raises:
        InputError: `source` is no certificate, or of version 1 and `record` is given; keys that cannot be compared.
    """
    if isinstance(source, Certificate):
        certificate = source
    else:
        certificate = read_certificate(Path(source))
        voters = voters if voters is not None else voters_beside(Path(source), certificate)
        beside = Path(source).parent / "adapter"
        result = beside if result is None and (beside / ADAPTER_WEIGHTS).is_file() else result
    if keys is not None:
        _require_usable(keys, certificate)
    problems: list[str] = []
    if certificate.digest != content_digest(certificate):
        problems.append("the certificate's content is not what its digest states: it was changed")
    elif certificate.schema_version > 1 and certificate.seal != whole_digest(certificate):
        problems.append("the certificate's keys or signatures are not what its seal states: they were changed")
    recomputed = ["content digest", "qualities", "count", "quorum"]
    unchecked = [*key_reservations(certificate, keys)]
    problems += shape_problems(certificate)
    if certificate.schema_version > 1:
        recomputed += ["signatures", "gate", "choice"]
        problems += key_problems(certificate, keys or {}) + average_problems(certificate)
    if certificate.schema_version > 2:
        recomputed.append("confirmations")
    problems += confirmation_problems(certificate)
    problems += vote_problems(certificate)
    contradicted, left_open = loss_findings(certificate)
    problems += contradicted
    if certificate.privacy is not None:
        problems += privacy_problems(certificate.privacy)
        recomputed.append("epsilon")
    absent = absent_voters(certificate, voters or {})
    if voters is None or absent:
        problems += digest_problems(certificate, voters or {})
        whose = "the voters' adapters" if voters is None else f"adapters of {', '.join(absent)}"
        unchecked.append(f"attestation and the candidates: {whose} are not here")
    else:
        read = read_submissions(certificate, voters)
        problems += attestation_problems(certificate, read) + result_problems(certificate, read)
        if not (unreadable := unreadable_voters(certificate, read)):
            recomputed += ["voters' digests", "attestation", "result"]
        else:
            unchecked.append(f"attestation and the candidates: adapters of {', '.join(unreadable)} cannot be read")
    if remeasure is not None and voters is not None and not absent:
        problems += remeasure(certificate, voters)
        recomputed.append("losses")
    else:
        unchecked += left_open
    if result is not None:
        problems += (wrong := _published_problems(certificate, result))
        recomputed += [] if wrong else ["published adapter"]
    else:
        unchecked.append("the published adapter: it is not here")
    record = record or PublicRecord()
    problems += record.problems(certificate)
    recomputed += record.done
    gone = tuple(sorted(name for name, digest in certificate.context.items() if digest in set(forgotten)))
    weak = (*threshold_reservations(certificate), *confirmation_reservations(certificate))
    weak += (*record.reservations(certificate),)
    unproven = (independence(certificate), *unsigned_words(certificate), *record.unproven())
    return Verification(tuple(problems), tuple(recomputed), gone, tuple(unchecked), weak, unproven)


def _require_usable(keys: Mapping[str, str], certificate: Certificate) -> None:
    """Raise unless known keys can be compared with the certificate's: none given, or none there, compares nothing."""
    if not keys:
        raise InputError("no public key was given: name at least one voter's, or verify without keys")
    if certificate.schema_version == 1:
        raise InputError(
            "a certificate of version 1 has no keys to compare with those given: its vote is not signed. Ask for one "
            "of version 2 or later, or verify without keys"
        )


def voters_beside(file: Path, certificate: Certificate) -> dict[str, Path] | None:
    """Find the voters' folders beside the certificate or in its artifact store; None if there are none."""
    folders = [file.parent / "voters"]
    trained, domain = certificate.context.get("trained_adapters"), certificate.context.get("domain")
    artifacts = file.absolute().parents[min(3, len(file.absolute().parents) - 1)]
    if trained and domain:
        folders.append(artifacts / "trained_adapters" / domain / trained / "voters")
    for folder in folders:
        if folder.is_dir():
            return {voter.name: folder / voter.name for voter in certificate.voters}
    return None


def _published_problems(certificate: Certificate, folder: Path) -> list[str]:
    try:
        digest = adapter_digest(folder)
    except InputError as error:
        return [f"the published adapter cannot be read: {error}"]
    if digest == certificate.result.digest:
        problem = option_problem(read_adapter(folder))
        return [f"the published adapter: {problem}"] if problem else []
    return [f"the published adapter is {digest[:12]}, not {certificate.result.digest[:12]}"]
