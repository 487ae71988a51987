"""Cache of XLA's verdicts: one JSON file per case, named by the case's digest and written atomically."""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from capibara_assets.storage.jsonfiles import write_json_atomic


@dataclass(frozen=True)
class XlaVerdictCache:
    """A folder of verdicts. `find` reports a damaged entry, and the next `keep` replaces it."""

    folder: Path

    def find(self, digest: str) -> tuple[dict[str, Any] | None, str | None]:
        """The verdict with this digest or None, and a note if its entry is damaged."""
        file = self._file(digest)
        try:
            document = json.loads(file.read_bytes())
            if document["sha256"] != _checksum(document["verdict"]) or document["digest"] != digest:
                raise ValueError("its content is not what was written")
            return dict(document["verdict"]), None
        except FileNotFoundError:
            return None, None
        except (ValueError, KeyError, TypeError) as damaged:
            return None, f"the cached verdict {file.name} was damaged ({damaged}); compiled again"

    def keep(self, digest: str, case: dict[str, Any], verdict: dict[str, Any]) -> None:
        """Store a verdict, together with its case for human readers."""
        document = {"digest": digest, "case": case, "verdict": verdict, "sha256": _checksum(verdict)}
        write_json_atomic(self._file(digest), document)

    def _file(self, digest: str) -> Path:
        return self.folder / f"{digest}.json"


def _checksum(verdict: Any) -> str:
    return sha256(json.dumps(verdict, sort_keys=True).encode()).hexdigest()
