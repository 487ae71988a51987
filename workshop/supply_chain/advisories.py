"""Known vulnerabilities of the pinned versions, by pip-audit."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Attributes:
        known: distributions of which the index said whether there are advisories.
        vulnerable: distribution and version → ids of its advisories, with the versions that mend them.
        unknown: distributions of which it said nothing, and its reason for each.
    """

    known: Sequence[str]
    vulnerable: Mapping[str, Sequence[str]]
    unknown: Mapping[str, str]

    def lines(self) -> list[str]:
        """What to print: the vulnerable ones first, and never that all is well where nothing is known."""
        told = [f"{name}: {'; '.join(ids)}" for name, ids in self.vulnerable.items()]
        total = len(self.known) + len(self.unknown)
        told.append(f"{len(self.known)} of {total} pinned versions audited, {len(self.vulnerable)} vulnerable")
        if self.unknown:
            reason = next(iter(self.unknown.values()))
            told.append(
                f"not audited: {len(self.unknown)}, of which this index publishes no advisories ({reason}): run it"
                " again where PyPI itself can be reached"
            )
        return told


def audited(tool: str, pins: Path) -> Audit:
    """Audit a file of pins, without installing anything.

    Raises:
        InputError: the tool failed, or the index cannot be reached; says why.
    """
    command = [tool, "-r", str(pins), "--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        document = json.loads(done.stdout)
    except ValueError as error:
        raise InputError(f"pip-audit ended with {done.returncode}: {done.stderr.strip()[-1000:]}") from error
    return audit_of(document)


def audit_of(document: Mapping[str, Any]) -> Audit:
    """The audit that a document of pip-audit tells."""
    known, vulnerable, unknown = list[str](), dict[str, list[str]](), dict[str, str]()
    for one in document["dependencies"]:
        if "skip_reason" in one:
            unknown[one["name"]] = one["skip_reason"]
            continue
        known.append(one["name"])
        if one["vulns"]:
            vulnerable[f"{one['name']} {one['version']}"] = [_said(advisory) for advisory in one["vulns"]]
    return Audit(known, vulnerable, unknown)


def _said(advisory: Mapping[str, Any]) -> str:
    mended = ", ".join(advisory["fix_versions"]) or "no version yet"
    return f"{advisory['id']} (mended in {mended})"
