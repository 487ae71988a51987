"""Attestation: which voters' adapters may be computed with at all. Runs before any rule and before any vote.

Readable, the digest its trainer stated, the same base model, the right modules and shapes, finite numbers, and a norm
that is not outlandish beside the others' (robust rules bound a liar's influence, they do not survive a NaN).
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from capibara_assets.checkpoints.verify import Attested, Shapes, adapter_digest
from capibara_assets.checkpoints.verify import attest as attest_one
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter
from capibara_assets.modeling.base import ADAPTER_WEIGHTS
from capibara_assets.storage.digests import sha256_file


@dataclass(frozen=True)
class Limits:
    """Largest delta norm, relative to the median norm of the other finite voters."""

    norm_ratio: float = 5.0


@dataclass(frozen=True)
class Verdict:
    """What attestation says of one voter; `reason` is empty for an accepted one and carries the figure otherwise."""

    name: str
    accepted: bool
    reason: str = ""
    norm: float | None = None
    norm_ratio: float | None = None


@dataclass(frozen=True)
class Submission:
    """A voter's folder as it was found: the adapter, or why there is none to look at."""

    name: str
    digest: str | None
    adapter: LoraAdapter | None
    problem: str = ""


def read_submission(name: str, folder: Path, base_digest: str) -> Submission:
    """Read a voter's adapter and compare it with what its manifest states; nothing here raises for a bad voter."""
    try:
        digest = adapter_digest(folder)
        manifest = _manifest(folder / "manifest.json")
        adapter = read_adapter(folder)
    except InputError as error:
        return Submission(name, None, None, f"unreadable: {error}")
    return Submission(
        name, digest, adapter, _contradiction(manifest, sha256_file(folder / ADAPTER_WEIGHTS), base_digest)
    )


def attest(
    adapters: Mapping[str, LoraAdapter], shapes: Shapes | None, limits: Limits | None = None
) -> dict[str, Verdict]:
    """Judge adapters one by one, then their norms against each other.

    Args:
        adapters: voter's name -> adapter.
        shapes: module -> (out, in) that every voter must change; None: what most of the voters agree on.
        limits: of the comparison of norms.
    """
    expected = shapes if shapes is not None else majority_shapes(adapters)
    limit = (limits or Limits()).norm_ratio
    found = {name: attest_one(adapter, expected) for name, adapter in sorted(adapters.items())}
    return {name: _verdict(name, found, limit) for name in found}


def majority_shapes(adapters: Mapping[str, LoraAdapter]) -> dict[str, tuple[int, int]]:
    """Modules and their (out, in) as most voters have them; ties go to the first in alphabetical order."""
    if not adapters:
        return {}
    counted: Counter[tuple[tuple[str, tuple[int, int]], ...]] = Counter()
    for _, adapter in sorted(adapters.items()):
        sizes = ((m, (int(adapter.b(m).shape[0]), int(adapter.a(m).shape[-1]))) for m in adapter.modules)
        counted[tuple(sizes)] += 1
    return dict(counted.most_common(1)[0][0])


def _verdict(name: str, found: Mapping[str, Attested], limit: float) -> Verdict:
    own = found[name]
    if own.norm is None:
        return Verdict(name, False, "; ".join(own.problems))
    others = [other.norm for other_name, other in found.items() if other_name != name and other.norm is not None]
    middle = median(others) if others else 0.0
    if middle == 0.0:
        return Verdict(name, True, norm=own.norm)
    ratio = own.norm / middle
    if ratio <= limit:
        return Verdict(name, True, norm=own.norm, norm_ratio=ratio)
    reason = f"norm {own.norm:.4g} is {ratio:.3g} times the median of the others ({middle:.4g}); the limit is {limit:g}"
    return Verdict(name, False, reason, own.norm, ratio)


def _manifest(file: Path) -> dict[str, Any]:
    """What the trainer states of the adapter; empty where it states nothing."""
    if not file.is_file():
        return {}
    try:
        stated = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from error
    if not isinstance(stated, dict):
        raise InputError(f"{file}: expected a JSON object, found {type(stated).__name__}")
    return stated


def _contradiction(manifest: Mapping[str, Any], weights: str, base_digest: str) -> str:
    """What the manifest states and the files do not bear out; empty when nothing."""
    stated = manifest.get("digest")
    if stated is not None and stated != weights:
        return f"weights are {weights[:12]}, its manifest states {str(stated)[:12]}: they changed after training"
    base = manifest.get("base_digest")
    if base is not None and base != base_digest:
        return f"trained on base model {str(base)[:12]}, not on {base_digest[:12]}"
    return ""
