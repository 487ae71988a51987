"""The ledger of looks at test items: each candidate is tested once, and more candidates mean a stricter test.

A *look* is the judgement of one candidate on test items under one rule. What a look may not do is choose: once the
test result of a candidate is known, another candidate made from the same voters is refused on these items, because it
was, or could have been, picked for its test result; the choice among voters belongs to validation. A candidate of new
voters (a retraining) is no such choice, but every further candidate is another chance to be lucky: the i-th look at
the same items is tested at the level 6α/(π²i²). All looks at them together, however many, err with probability α at
most (alpha spending; Σ 1/i² = π²/6). An earlier look at other items counts by the share of today's items that it saw.
The same candidate on the same items under the same rule is the same look, however often it is computed.

The ledger is only added to: one document a look, created under a name that must not exist, so that of two runs at
once the later one counts the earlier one. See docs/decisions/0008-one-look-at-the-test.md.
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
from capibara_assets.storage.jsonfiles import read_versioned, sync_folder, write_durable

LOOKS = "looks"  # the ledger's folder under the root of the artifact store
_VERSION = 1
_ITEM_DIGITS = 16  # of an item's digest: 64 bits tell a few thousand items apart


@dataclass(frozen=True)
class Look:
    """One look.

    Attributes:
        number: how many looks at some of these items there were with this one.
        level: of significance, for its two-sided tests.
        refused: why this candidate may not be judged on these items; None: it may.
    """

    number: int
    level: float
    refused: str | None = None


def spent_level(alpha: float, position: float) -> float:
    """Level of the look at `position` (1: the first), so that all of them together stay below `alpha`."""
    return alpha * 6 / (math.pi * position) ** 2


@dataclass(frozen=True)
class Trial:
    """A candidate that is judged on test items.

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


def take_look(
    ledger: Path | UPath,
    scope: str,
    trial: Trial,
    alpha: float,
) -> Look:
    """Enter a look into the ledger before the candidate is judged, or find it there.

    Args:
        ledger: folder, local or on an object store.
        scope: whose looks are counted together, such as the domain.
        trial: what is judged on what.
        alpha: level of all looks together.

    Raises:
        ValueError: no item.
        IntegrityError: the ledger is damaged.
    """
    candidate, contest = trial.candidate, trial.contest
    if not trial.items:
        raise ValueError("a look needs test items")
    digests = sorted({sha256_bytes(item.encode())[:_ITEM_DIGITS] for item in trial.items})
    wanted = {
        "candidate": candidate,
        "contest": contest,
        "items": digests,
        "settings": sha256_bytes(canonical_json(dict(trial.settings))),
    }
    folder = UPath(ledger) / scope
    while True:
        entries = looks(ledger, scope)
        shares = [_share(entry, digests) for entry in entries]
        for entry in entries:
            if all(entry[key] == value for key, value in wanted.items()):
                return Look(entry["number"], entry["level"])
        for entry, share in zip(entries, shares, strict=True):
            if share and entry["contest"] == contest and entry["candidate"] != candidate:
                return Look(entry["number"], entry["level"], _refusal(entry, candidate))
        number = 1 + sum(share > 0 for share in shares)
        level = spent_level(alpha, 1 + sum(shares))
        document = {**wanted, "number": number, "level": level, "schema_version": _VERSION}
        document["created"] = datetime.now(UTC).isoformat()
        if _create(folder / f"{len(entries) + 1:06}.json", canonical_json(document)):
            return Look(number, level)


def looks(ledger: Path | UPath, scope: str) -> list[dict[str, Any]]:
    """Every look of a scope, in the order they were taken.

    Raises:
        IntegrityError: one is missing, damaged, or of a newer format: none may be read as if it were not there.
    """
    folder = UPath(ledger) / scope
    found = []
    names = sorted(path.name for path in folder.glob("*.json")) if folder.exists() else []
    names = [name for name in names if not name.startswith(".")]
    for position, name in enumerate(names, 1):
        if name != f"{position:06}.json":
            raise IntegrityError(f"{folder}: look {position} is missing: restore it, looks are counted")
        found.append(read_versioned(folder / name, _VERSION, "restore it, looks are counted"))
    return found


def _share(entry: Mapping[str, Any], digests: Collection[str]) -> float:
    """Share of today's items that an earlier look saw."""
    return len(set(entry["items"]) & set(digests)) / len(digests)


def _refusal(entry: Mapping[str, Any], candidate: str) -> str:
    return (
        f"these test items have judged another candidate of the same voters ({entry['candidate'][:12]}, "
        f"{entry['created'][:10]}); choosing {candidate[:12]} after that would choose by the test set. Choose on "
        "validation; train new voters, or add test items, for another look"
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
    target.parent.mkdir(parents=True, exist_ok=True)
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
