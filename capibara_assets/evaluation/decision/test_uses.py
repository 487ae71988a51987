"""The ledger of uses of a test split: each candidate is judged once, and further candidates face a stricter test.

A *use* is the judgement of one candidate on test items under one rule. A use may not serve to choose: once the test
result of a candidate is known, another candidate made from the same voters is refused on these items, because it was,
or could have been, picked for its test result; the choice among voters belongs to validation. A candidate of new voters
(a retraining) is no such choice, but every further candidate is another chance to be lucky: the i-th use of the same
items is tested at the level 6α/(π²i²), so that all uses together, however many, err with probability α at most (alpha
spending; Σ 1/i² = π²/6). An earlier use of other items counts by the share of today's items that it included. The same
candidate on the same items under the same rule is one use, however often it is computed.

The ledger is append-only: one JSON document per use, created under a name that must not exist, so that of two
concurrent runs the later one counts the earlier one. See docs/decisions/0008-one-look-at-the-test.md.
"""

import math
import os
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from upath import UPath

from capibara_assets.errors import IntegrityError
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import make_folders, read_versioned, sync_folder, write_durable

LEDGER = "looks"  # the ledger's folder under the root of the artifact store
_VERSION = 1
_ITEM_DIGITS = 16  # of an item's digest: 64 bits tell a few thousand items apart


@dataclass(frozen=True)
class TestUse:
    """One use of test items: its number, and the significance level at which its candidate is judged.

    Attributes:
        number: uses of some of these items so far, this one included.
        level: significance level of its two-sided tests.
        refused: why this candidate may not be judged on these items; None: it may.
    """

    number: int
    level: float
    refused: str | None = None


def spent_level(alpha: float, position: float) -> float:
    """Significance level of the use at `position` (1: the first); all levels together stay below `alpha`."""
    return alpha * 6 / (math.pi * position) ** 2


@dataclass(frozen=True)
class Trial:
    """A candidate to be judged on test items.

    Attributes:
        items: ids of the test items.
        candidate: digest of the candidate.
        contest: digest of what the candidate was chosen or merged from: the trained voters.
        settings: digests of what else the judgement depends on: rule, base model, playbook.
    """

    items: Collection[str]
    candidate: str
    contest: str
    settings: Mapping[str, str]


def record_test_use(
    ledger: Path | UPath,
    scope: str,
    trial: Trial,
    alpha: float,
) -> TestUse:
    """Record the use of test items by a candidate before it is judged; a use that is recorded already is returned.

    Args:
        ledger: folder, local or on an object store.
        scope: whose uses are counted together, such as the domain.
        trial: what is judged on what.
        alpha: significance level of all uses together.

    Raises:
        ValueError: the trial has no items.
        IntegrityError: the ledger is damaged.
    """
    candidate, contest = trial.candidate, trial.contest
    if not trial.items:
        raise ValueError("a use of the test split needs test items")
    digests = sorted({sha256_bytes(item.encode())[:_ITEM_DIGITS] for item in trial.items})
    wanted = {
        "candidate": candidate,
        "contest": contest,
        "items": digests,
        "settings": sha256_bytes(canonical_json(dict(trial.settings))),
    }
    folder = UPath(ledger) / scope
    while True:
        entries = recorded_uses(ledger, scope)
        shares = [_share(entry, digests) for entry in entries]
        for entry in entries:
            if all(entry[key] == value for key, value in wanted.items()):
                return TestUse(entry["number"], entry["level"])
        for entry, share in zip(entries, shares, strict=True):
            if share and entry["contest"] == contest and entry["candidate"] != candidate:
                return TestUse(entry["number"], entry["level"], _refusal(entry, candidate))
        number = 1 + sum(share > 0 for share in shares)
        level = spent_level(alpha, 1 + sum(shares))
        document = {**wanted, "number": number, "level": level, "schema_version": _VERSION}
        document["created"] = datetime.now(UTC).isoformat()
        if _create(folder / f"{len(entries) + 1:06}.json", canonical_json(document)):
            return TestUse(number, level)


def recorded_uses(ledger: Path | UPath, scope: str) -> list[dict[str, Any]]:
    """The documents of all uses of a scope, in the order they were recorded.

    Raises:
        IntegrityError: a document is missing, damaged, or of a newer format; none is skipped.
    """
    folder = UPath(ledger) / scope
    documents = []
    names = sorted(path.name for path in folder.glob("*.json")) if folder.exists() else []
    names = [name for name in names if not name.startswith(".")]
    for position, name in enumerate(names, 1):
        if name != f"{position:06}.json":
            raise IntegrityError(f"{folder}: test use {position} is missing: restore it, uses are counted")
        documents.append(read_versioned(folder / name, _VERSION, "restore it, uses are counted"))
    return documents


def _share(entry: Mapping[str, Any], digests: Collection[str]) -> float:
    """Share of today's items that an earlier use included."""
    return len(set(entry["items"]) & set(digests)) / len(digests)


def _refusal(entry: Mapping[str, Any], candidate: str) -> str:
    return (
        f"these test items have judged another candidate of the same voters ({entry['candidate'][:12]}, "
        f"{entry['created'][:10]}); choosing {candidate[:12]} after that would choose by the test set. Choose on "
        "validation; train new voters, or add test items, for another use"
    )


def _create(path: UPath, data: bytes) -> bool:
    """Write a new document, whole or not at all; False if there is one of that name."""
    if path.protocol not in ("", "file", "local"):
        try:
            path.fs.pipe_file(path.path, data, mode="create")
        except FileExistsError:
            return False
        return True
    target = Path(path.path)
    make_folders(target.parent)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        write_durable(beside, data)
        os.link(beside, target)
    except FileExistsError:
        return False
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(target.parent)
    return True
