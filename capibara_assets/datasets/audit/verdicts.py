"""Readers' verdicts on examples: the file that `capibara dataset audit` writes, and the exclusions it causes.

One JSON line per example: `example_id`, `domain`, `kind`, `digest` (of its messages), `verdict` (keep, drop or null)
and `reason`. A dataset that is made anew may give the same example another id: it is then known by its digest.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.foreign import read_document
from capibara_assets.storage.jsonfiles import user_json, write_bytes_atomic

DROPPED = "dropped by audit"
_VERDICTS = ("keep", "drop", None)

Pair = tuple[str, str]  # id and messages of an example


@dataclass(frozen=True)
class AuditVerdict:
    """One line of a verdict file."""

    example_id: str
    domain: str
    kind: str
    digest: str
    verdict: str | None
    reason: str | None
    place: str  # <file>:<line>

    def document(self) -> dict[str, Any]:
        """The line as a JSON object."""
        fields = asdict(self)
        del fields["place"]
        return fields

    @property
    def why(self) -> str:
        """The reason as a dataset states it for an excluded example."""
        return f"{DROPPED}: {self.reason or 'no reason stated'}"


@dataclass(frozen=True)
class Audited:
    """Exclusions of a domain (example id -> reason), and figures for its statistics."""

    dropped: Mapping[str, str]
    figures: Mapping[str, Any]


def text_digest(messages: str) -> str:
    """Digest of an example's turns, which is the same under every id."""
    turns = [[turn["role"], turn["content"]] for turn in json.loads(messages)]
    return sha256_bytes(canonical_json(turns))[:32]


def read_verdicts(paths: Sequence[str | Path]) -> list[AuditVerdict]:
    """Read the decided lines of verdict files, in order.

    Raises:
        InputError: no such file, a line that is no verdict, or an example that is to be kept and to be dropped; the
            message names file and line.
    """
    decided: dict[str, AuditVerdict] = {}
    for path in paths:
        for line in _lines(Path(path)):
            if line.verdict is None:
                continue
            before = decided.setdefault(line.example_id, line)
            if before.verdict != line.verdict:
                raise InputError(
                    f"example {line.example_id} is {before.verdict!r} at {before.place} and {line.verdict!r} at "
                    f"{line.place}: remove one of the lines"
                )
    return list(decided.values())


def verdicts_digest(paths: Sequence[str]) -> str:
    """Digest of the decisions in verdict files, independent of their location and of undecided lines.

    Raises:
        InputError: as `read_verdicts`.
    """
    return sha256_bytes(canonical_json(sorted(_decision(verdict) for verdict in read_verdicts(paths))))


def audited(clusters: Iterable[Sequence[Pair]], domain: Domain, paths: Sequence[str]) -> Audited:
    """Apply verdict files to a domain: the examples to exclude.

    A verdict is about all that is nearly equal: else what was dropped would come back as its near-duplicate. Only a
    verdict on the representative itself says otherwise. An id decides before a text does.

    Args:
        clusters: the candidates, each cluster's representative first.
    """
    verdicts = read_verdicts(paths)
    if not verdicts:
        return Audited({}, {"dropped": 0, "by_reason": {}, "without_example": 0})
    by_id = {verdict.example_id: verdict for verdict in verdicts}
    by_text: dict[str, AuditVerdict] = {}
    for verdict in verdicts:
        if verdict.verdict == "drop" or verdict.digest not in by_text:
            by_text[verdict.digest] = verdict
    dropped: dict[str, str] = {}
    seen: set[str] = set()
    for members in clusters:
        of_members = [by_id.get(name) or by_text.get(text_digest(messages)) for name, messages in members]
        stated = [verdict for verdict in of_members if verdict is not None]
        seen |= {verdict.example_id for verdict in stated}
        said = of_members[0] or next((verdict for verdict in stated if verdict.verdict == "drop"), None)
        if said is not None and said.verdict == "drop":
            dropped[members[0][0]] = said.why
    gone = [v for v in verdicts if v.verdict == "drop" and v.domain == domain and v.example_id not in seen]
    by_reason = dict(sorted(Counter(dropped.values()).items()))
    return Audited(dropped, {"dropped": len(dropped), "by_reason": by_reason, "without_example": len(gone)})


def keep_verdicts(path: Path, sampled: Sequence[Mapping[str, Any]]) -> list[AuditVerdict]:
    """Write the file of a sample (rows of Example) with the verdicts that it has already; returns its lines.

    A line that is decided stays, whether or not its example is sampled again; what is new comes behind.

    Raises:
        InputError: the file that is there has a line that is no verdict.
    """
    decided = [line for line in _lines(path) if line.verdict is not None] if path.is_file() else []
    ids, texts = {line.example_id for line in decided}, {(line.domain, line.digest) for line in decided}
    lines = list(decided)
    for row in sampled:
        digest = text_digest(row["messages"])
        if row["example_id"] not in ids and (row["domain"], digest) not in texts:
            lines.append(AuditVerdict(row["example_id"], row["domain"], row["kind"], digest, None, None, ""))
    written = "".join(json.dumps(line.document(), ensure_ascii=False) + "\n" for line in lines)
    write_bytes_atomic(path, written.encode("utf-8"))
    return lines


def _decision(verdict: AuditVerdict) -> list[str]:
    return [verdict.example_id, verdict.digest, verdict.verdict or "", verdict.reason or ""]


def _lines(path: Path) -> list[AuditVerdict]:
    try:
        text = read_document(path.expanduser()).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"no verdict file at {path}: correct --audit, or exclusions in the dataset recipe") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"verdict file {path} cannot be read: {error}") from error
    return [_line(line, f"{path}:{number}") for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _line(line: str, place: str) -> AuditVerdict:
    value = user_json(line, place)
    if not isinstance(value, dict):
        raise InputError(f"{place} is no object: expected a line as `capibara dataset audit` writes it")
    for name in ("example_id", "domain", "kind", "digest"):
        if not isinstance(value.get(name), str) or not value[name]:
            raise InputError(f"{place}: {name} is missing or no text: leave it as `capibara dataset audit` wrote it")
    if value["domain"] not in DOMAINS:
        raise InputError(f"{place}: domain is {value['domain']!r}: one of {', '.join(DOMAINS)}")
    verdict, reason = value.get("verdict"), value.get("reason")
    if verdict not in _VERDICTS:
        raise InputError(f'{place}: verdict is {json.dumps(verdict)}: "keep", "drop" or null')
    if reason is not None and not isinstance(reason, str):
        raise InputError(f"{place}: reason is {json.dumps(reason)}: a text or null")
    known = {name: value[name] for name in ("example_id", "domain", "kind", "digest")}
    return AuditVerdict(**known, verdict=verdict, reason=" ".join(reason.split()) if reason else None, place=place)
