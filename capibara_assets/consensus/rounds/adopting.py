"""Import of a round's result: read from the folder that `close` or `vote` wrote, and verified again."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from capibara_assets.consensus.agree import CONSENSUS
from capibara_assets.consensus.certificates.certificate import read_certificate, verify_certificate
from capibara_assets.consensus.certificates.model import Certificate
from capibara_assets.consensus.certificates.public_record import PublicRecord
from capibara_assets.consensus.choose.choosing import BASE
from capibara_assets.consensus.rounds import adopted
from capibara_assets.consensus.rounds.closing import CERTIFICATE, ELECTION, SIGNED
from capibara_assets.consensus.rounds.messages import SUBMITTED, MessageFault, read_head
from capibara_assets.consensus.rounds.round import ROUND, Round
from capibara_assets.errors import InputError, in_words, named
from capibara_assets.modeling.files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from capibara_assets.storage.commit import copy_folder
from capibara_assets.storage.digests import canonical_json, sha256_bytes, sha256_file
from capibara_assets.storage.foreign import require_plain
from capibara_assets.storage.jsonfiles import read_object, strict_json

VOTERS, ADAPTER = "voters", "adapter"
_ADAPTER_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS)
_ALL = {"result", "published adapter", "published election"}


@dataclass(frozen=True)
class RoundResult:
    """Result of a round: its terms, certificate, agreed adapter, and what its voters signed.

    Attributes:
        voters: voter -> files of its adapter, and its manifest where its signature is there.
    """

    terms: Round
    certificate: Certificate
    adapter: Path
    voters: dict[str, tuple[Path, ...]]

    def losses(self) -> dict[str, float]:
        """Validation losses from the certificate, signed by the accepted voters."""
        result = self.certificate.result
        alone = {one.name: one.loss for one in self.certificate.tried if one.kind == "voter" and one.loss is not None}
        return {BASE: result.base_loss, **alone, CONSENSUS: result.loss}

    def documents(self) -> dict[str, Any]:
        """JSON documents to publish by name: those of the graph's agreements, and the round."""
        certificate = self.certificate.model_dump(mode="json")
        return {"certificate": certificate, "losses": self.losses(), adopted.ROUND: self.terms.model_dump(mode="json")}


@contextmanager
def taken_result(folder: Path, digest: str) -> Iterator[RoundResult]:
    """Read and verify a round's result in a private copy: what was verified is what is published.

    Whoever may write to the folder could put other weights there after the check.

    Raises:
        InputError: as of `read_result`.
    """
    require_plain(folder)
    with TemporaryDirectory(prefix="capibara-result-") as name:
        copy = Path(name) / "result"
        copy_folder(folder, copy)
        try:
            yield read_result(copy, digest)
        except InputError as error:  # also of what is done with it
            raise InputError(str(error).replace(str(copy), str(folder))) from error


def read_result(folder: Path, digest: str) -> RoundResult:
    """Read and verify the result of the round with a digest.

    Nothing in the folder is believed: the round is what the digest is of, and the certificate has to be of its election
    and of its registered keys, and to follow from the adapters beside it.

    Raises:
        InputError: there is none, of another round, or it does not hold.
    """
    require_plain(folder)
    file = folder / ROUND
    try:
        terms = Round.model_validate(strict_json(file.read_bytes()))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{folder} holds no result of a round: name the --out of `close` or `voter vote`") from error
    except ValidationError as error:
        raise InputError(f"{file} is no round that this software reads: {in_words(error)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    if terms.digest != digest:
        raise InputError(f"{folder} is of round {terms.digest}, not of {digest}")
    certificate = read_certificate(folder / CERTIFICATE)
    voters = {name: folder / VOTERS / name for name in terms.keys}
    record = PublicRecord.read(folder / ELECTION, None, None)
    verification = verify_certificate(certificate, voters, result=folder / ADAPTER, keys=terms.keys, record=record)
    if not verification.ok or not set(verification.recomputed) >= _ALL:
        unchecked = ", ".join(sorted(_ALL - set(verification.recomputed)))
        why = "; ".join(verification.problems[:5]) or f"{unchecked} cannot be checked"
        raise InputError(f"the result in {folder} does not hold, and is not taken over: {why}")
    if not terms.context().items() <= certificate.context.items() or certificate.base_digest != terms.base_digest:
        raise InputError(f"the certificate in {folder} is not of round {digest[:12]}")
    _require_only(folder / ADAPTER, _ADAPTER_FILES)
    signed = (
        read_object(folder / SIGNED, "voter -> its signed submission", strict=True)
        if (folder / SIGNED).is_file()
        else {}
    )
    there = {name: _signed_files(own, signed.get(name), name, terms) for name, own in voters.items() if own.is_dir()}
    return RoundResult(terms, certificate, folder / ADAPTER, there)


def _require_only(folder: Path, files: Collection[str]) -> None:
    """Refuse files that no signature covers."""
    if others := sorted({file.name for file in folder.iterdir()} - set(files)):
        raise InputError(
            f"{folder}: {', '.join(map(named, others[:5]))}: not of the signed adapter. Remove what was added to it"
        )


def _signed_files(folder: Path, head: Any, voter: str, terms: Round) -> tuple[Path, ...]:
    """A voter's files to publish; the certificate covers those of the adapter, and the voter's signature all.

    Results of earlier versions have no such signatures (`head` None): a manifest, which anybody may have put there,
    then stays where it is.
    """
    if head is None:
        _require_only(folder, SUBMITTED)
        return tuple(folder / name for name in _ADAPTER_FILES if (folder / name).is_file())
    line = canonical_json(head)
    try:
        content = read_head(sha256_bytes(line), line, None, terms).content
    except MessageFault as fault:
        raise InputError(
            f"{folder.parent.parent / SIGNED}: {voter}: {fault}; close or vote in the round again"
        ) from fault
    if (content.kind, content.sender) != ("submission", voter):
        raise InputError(f"{folder.parent.parent / SIGNED}: {voter} has a {content.kind} of {content.sender}")
    _require_only(folder, content.files)
    files = tuple(folder / name for name in sorted(content.files) if (folder / name).is_file())
    if off := [file for file in files if sha256_file(file) != content.files[file.name][1]]:
        raise InputError(f"{off[0]} is not what {voter} signed: close or vote in the round again")
    return files
