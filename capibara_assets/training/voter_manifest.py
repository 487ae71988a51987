"""Files of a finished voter, and the reader of `manifest.json`, for own voters and foreign ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from capibara_assets.errors import InputError
from capibara_assets.storage.jsonfiles import read_foreign_object

RESULT = "result"
"""Folder of a finished voter's result, in its folder of work."""
MANIFEST, CURVE, TIMINGS, CHECKPOINTS = "manifest.json", "curve.json", "timings.json", "checkpoints.json"
ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class VoterManifest:
    """A voter's own statements about its training, not trusted: a value of an unexpected type counts as not stated."""

    stated: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "VoterManifest":
        """Read the manifest in a voter's folder; empty if there is none.

        Raises:
            InputError: it is no file, or not a JSON object that can be written again (`foreign_json`).
        """
        file = folder / MANIFEST
        return cls(read_foreign_object(file) if file.exists() else {})

    @classmethod
    def readable(cls, folder: Path) -> "VoterManifest":
        """As `read`, but empty for a manifest that cannot be read: attestation reports that."""
        try:
            return cls.read(folder)
        except (InputError, OSError, RecursionError):
            return cls()

    def is_of(self, input_digest: str) -> bool:
        """Whether the voter finished from these inputs (`TrainingRequest.input_digest`)."""
        return self.stated.get("input_digest") == input_digest

    @property
    def shard(self) -> int | None:
        """The shard of the groups that the voter validates on."""
        return self._of_type("shard", int)

    @property
    def dataset(self) -> str | None:
        """Digest of the domain's dataset that it was trained on."""
        return self._of_type("dataset_digest", str)

    @property
    def strategy(self) -> str | None:
        """The kind of the voter's strategy."""
        return self._of_type("strategy", str)

    @property
    def privacy(self) -> dict[str, Any] | None:
        """The privacy document of a differentially private training; None without."""
        published = self._of_type("published", dict) or {}
        privacy = published.get("privacy")
        return privacy if isinstance(privacy, dict) else None

    @property
    def further_datasets(self) -> tuple[tuple[str, str], ...]:
        """(domain, digest) of other domains' datasets trained on, sorted."""
        return tuple(sorted((self._of_type("further_datasets", dict) or {}).items()))

    def contradiction(self, weights: str, base_digest: str) -> str:
        """The first statement that the files contradict; empty if there is none.

        Args:
            weights: digest of the adapter's actual weights.
            base_digest: digest of the base model that the vote is about.
        """
        stated = self.stated.get("digest")
        if stated is not None and stated != weights:
            return f"weights are {weights[:12]}, its manifest states {str(stated)[:12]}: they changed after training"
        base = self.stated.get("base_digest")
        if base is not None and base != base_digest:
            return f"trained on base model {str(base)[:12]}, not on {base_digest[:12]}"
        return ""

    def _of_type(self, name: str, kind: type[ValueT]) -> ValueT | None:
        value = self.stated.get(name)
        return value if isinstance(value, kind) else None
