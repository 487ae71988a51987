"""The append-only log of certificates: a chain of lines, each with the digest of the one before it.

A written line never changes: whoever changes, removes or moves one breaks the chain, or makes another head
than those who saw an earlier one remember. Which certificate is an election's only one is told by the whole log.
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.foreign import read_document, read_stored
from capibara_assets.storage.jsonfiles import naming, strict_json, sync_folder
from capibara_assets.storage.locks import locked

_DIGEST = r"^[0-9a-f]{64}$"
_LARGEST_LOG = 1 << 30  # some three million certificates


class CertificateLogLine(BaseModel):
    """Log entry of one published certificate."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    sequence: int = Field(ge=1)
    previous: str | None = Field(pattern=_DIGEST, description="SHA-256 of the line before; null: the first")
    election: str = Field(pattern=_DIGEST)
    certificate: str = Field(pattern=_DIGEST, description="Its `digest`: of what was agreed, without keys, signatures")
    time: str = Field(description="RFC 3339, UTC")

    @property
    def text(self) -> bytes:
        """The line in its written form, without its newline."""
        return canonical_json(self.model_dump(mode="json")).rstrip(b"\n")

    @property
    def digest(self) -> str:
        """Digest of this line, which the next line refers to."""
        return sha256_bytes(self.text)


@dataclass(frozen=True)
class CertificateLog:
    """The parsed lines of a log, and problems in it.

    Attributes:
        problem: where the chain is broken; empty: it is whole. Lines behind the break are not read.
        whole: bytes up to the end of the last line; behind them is what a crash left of another.
    """

    lines: tuple[CertificateLogLine, ...] = ()
    problem: str = ""
    whole: int = 0

    @property
    def head(self) -> str | None:
        """Digest of the last line; an earlier copy of it reveals later whether lines were changed or removed."""
        return self.lines[-1].digest if self.lines else None

    def of(self, election: str) -> tuple[str, ...]:
        """Distinct certificates of an election; more than one is an equivocation."""
        return tuple(dict.fromkeys(line.certificate for line in self.lines if line.election == election))


def read_log(file: Path) -> CertificateLog:
    """Read and parse a log file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return parsed_log(read_document(file, _LARGEST_LOG))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error


def parsed_log(data: bytes) -> CertificateLog:
    """Parse a log. A last line without its newline counts if it is complete; otherwise it is torn and ignored.

    So is a last line with a NUL in it: after a loss of power a file may have its size, and zeros for what the disk had
    not written. Whoever was told of that line knows another head.
    """
    lines: list[CertificateLogLine] = []
    texts = data.split(b"\n")
    whole = 0
    for number, text in enumerate(texts, start=1):
        last = number == len(texts)
        if last and not text:
            break
        line = _line(text)
        if line is None and (last or (b"\0" in text and not any(texts[number:]))):
            break
        before = lines[-1].digest if lines else None
        if line is None or (line.sequence, line.previous) != (number, before):
            what = "is no line of a log" if line is None else "does not follow from the line before it"
            return CertificateLog(tuple(lines), f"line {number} {what}: the log was changed", whole)
        lines.append(line)
        whole += len(text) + (not last)
    return CertificateLog(tuple(lines), "", whole)


def append_certificate(file: Path, election: str, certificate: str) -> CertificateLogLine:
    """Append a certificate to a log, creating the log if needed; return the existing line if it is already there.

    Processes append one after the other. What a crash left of a line, which nobody was told is there, is cut off. An
    election that was held again with another outcome (a voter absent, another processor) has two certificates in it.

    Raises:
        IntegrityError: the chain is broken: nothing is appended to what was changed.
        OSError: it cannot be written in full; it is then as before.
    """
    with locked(file):
        data = read_stored(file, _LARGEST_LOG)
        log = parsed_log(data)
        if log.problem:
            raise IntegrityError(f"{file}: {log.problem}; restore it from a copy")
        known = (line for line in log.lines if (line.election, line.certificate) == (election, certificate))
        if existing := next(known, None):
            return existing
        line = CertificateLogLine(
            sequence=len(log.lines) + 1,
            previous=log.head,
            election=election,
            certificate=certificate,
            time=datetime.now(UTC).isoformat(),
        )
        ended = data[: log.whole].endswith(b"\n") or not log.whole
        with naming(file):
            _write(file, log.whole, (b"" if ended else b"\n") + line.text + b"\n")
    sync_folder(file.parent)
    return line


def _line(text: bytes) -> CertificateLogLine | None:
    """The line of this text in the one spelling it has; None: it is none."""
    try:
        document: Any = strict_json(text)
        line = CertificateLogLine.model_validate(document)
    except (ValueError, RecursionError, ValidationError):
        return None
    return line if line.text == text else None


def _write(file: Path, at: int, data: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, at)
        try:
            if os.pwrite(descriptor, data, at) != len(data):
                raise OSError("a line was written in part only: is the disk full?")
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, at)
            raise
    finally:
        os.close(descriptor)
