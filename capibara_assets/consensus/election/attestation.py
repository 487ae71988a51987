"""Attestation: checks which voters' adapters are safe to compute with, before any rule or vote runs.

Readable, the digest its trainer stated, the same base model, the right modules and shapes, finite numbers, and a norm
that is not outlandish beside the others' (robust rules bound a liar's influence, they do not survive a NaN). Finite is
not enough: factors may overflow once multiplied, or be so large against their own product that float32 keeps nothing
of it, so both are judged on the factors. And no voter may count twice: copies of one adapter are one candidate.

A copy with a little noise is a copy, too: two voters that nearly agree capture the rules that aim at the middle of
the voters (mimic, Karimireddy et al. 2022, arXiv 2006.09365). What independent training makes is about equally far
apart, also from one initialisation, so that a pair much nearer than the usual distance is two names for one training.
The usual distance of a voter is that to its (f + 1)-th nearest: f liars can neither shrink it under that of some
honest voter nor stretch it beyond, and f of them around one voter do not hide in it. Where no liar is reckoned with
(f = 0) only equal adapters are copies.
"""

import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from safetensors import SafetensorError

from capibara_assets.checkpoints.inspect.verify import Attested, Shapes, adapter_digest
from capibara_assets.checkpoints.inspect.verify import attest as attest_one
from capibara_assets.consensus.election.options import option_problem
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter
from capibara_assets.modeling.files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from capibara_assets.modeling.lora.adapter_configs import LARGEST, config_problem
from capibara_assets.modeling.low_rank import inner_products
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import read_object
from capibara_assets.training.voter_manifest import VoterManifest

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_CANCELLATION = 1e5  # of factors' magnitude over their product's: beyond, float32 keeps less than two digits of it
_SAME = 1e-6  # distance of two deltas, relative to their norms: what rounding alone may make
_PATTERN = re.compile(r"[\w.\-^$\\]{1,256}")  # a module's name; without quantifiers a match takes no time


@dataclass(frozen=True)
class Limits:
    """Thresholds of attestation.

    Attributes:
        norm_ratio, least_norm_ratio: of a delta's norm, relative to the median norm of the other finite voters.
        copy_ratio: two deltas nearer to each other than this share both of the usual distance and of their norms are
            copies; 0: only equal ones.
    """

    norm_ratio: float = 5.0
    least_norm_ratio: float = 1e-3
    copy_ratio: float = 0.25


@dataclass(frozen=True)
class Verdict:
    """Attestation's verdict on one voter; `reason` is empty if accepted, otherwise it states the figure.

    `votes` is false where others submitted the same adapter: it stays a candidate, but nobody can tell whose it is.
    """

    name: str
    accepted: bool
    reason: str = ""
    norm: float | None = None
    norm_ratio: float | None = None
    votes: bool = True


@dataclass(frozen=True)
class Submission:
    """A voter's submitted folder: the adapter, or the reason why it cannot be read.

    Attributes:
        problem: without the folder's path: a certificate says the same wherever it lies.
        folder: absolute, to name it to whoever verifies.
    """

    name: str
    digest: str | None
    adapter: LoraAdapter | None
    problem: str
    folder: Path


def order_of_computing(digests: Mapping[str, str | None]) -> tuple[str, ...]:
    """Voters in the order in which sums are made of their adapters: by the digest of the submitted files, then name.

    Close, vote, verify and adopt all have these digests. The digest of an adapter as this code writes it is another one
    wherever the same config is spelt otherwise (by PEFT, or by a voter who wants the parties to disagree).

    Args:
        digests: voter -> digest of its submitted files (`Submission.digest`).
    """
    return tuple(sorted(digests, key=lambda name: (digests[name] or "", name)))


def read_submission(name: str, folder: Path, base_digest: str) -> Submission:
    """Read a voter's adapter and compare it with its manifest; never raises for a bad voter."""
    folder = Path(os.path.realpath(folder))  # one spelling: what is raised below names it, and is freed of its path
    try:
        digest = adapter_digest(folder)
        manifest = VoterManifest.read(folder)
        # Strictly: NaN in an option that decides nothing can be written into no candidate, and would end the vote
        if problem := config_problem(read_object(folder / ADAPTER_CONFIG, strict=True), _names_module):
            return Submission(name, digest, None, f"unusable: {ADAPTER_CONFIG}: {problem}", folder)
        adapter = read_adapter(folder)
    except (InputError, SafetensorError, OSError, ValueError, RecursionError) as error:
        said = str(error).replace(f"{folder}/", "").replace(str(folder), name)
        return Submission(name, None, None, f"unreadable: {said}", folder)
    weights = sha256_file(folder / ADAPTER_WEIGHTS)
    problem = _tensor_problem(adapter) or manifest.contradiction(weights, base_digest)
    return Submission(name, digest, adapter, problem, folder)


def attest(
    adapters: Mapping[str, LoraAdapter],
    shapes: Shapes | None,
    limits: Limits | None = None,
    digests: Mapping[str, str] | None = None,
    *,
    f: int = 0,
) -> dict[str, Verdict]:
    """Check each adapter, then compare their norms, then detect duplicates.

    Args:
        adapters: voter's name -> adapter.
        shapes: module -> (out, in) that every voter must change; None: what most of the voters agree on.
        limits: of the comparison of norms, and of what is a copy.
        digests: of the adapters: of copies that differ in bytes the one with the least digest stays.
        f: voters that may be bad; with 0 only equal deltas are copies.
    """
    expected = shapes if shapes is not None else majority_shapes(adapters)
    checked = {name: _attest_one(adapter, expected) for name, adapter in sorted(adapters.items())}
    limits = limits or Limits()
    verdicts = {name: _verdict(name, checked, limits) for name in checked}
    sound = {name: adapters[name] for name, verdict in verdicts.items() if verdict.accepted}
    return verdicts | _copies(sound, verdicts, digests or {}, limits.copy_ratio, f)


def majority_shapes(adapters: Mapping[str, LoraAdapter]) -> dict[str, tuple[int, int]]:
    """Modules and their (out, in) as most voters have them; ties go to the first in alphabetical order."""
    counted: Counter[tuple[tuple[str, tuple[int, int]], ...]] = Counter()
    for _, adapter in sorted(adapters.items()):
        if _tensor_problem(adapter):
            continue
        sizes = ((m, (int(adapter.b(m).shape[0]), int(adapter.a(m).shape[-1]))) for m in adapter.modules)
        counted[tuple(sizes)] += 1
    return dict(counted.most_common(1)[0][0]) if counted else {}


def _attest_one(adapter: LoraAdapter, expected: Shapes) -> Attested:
    """`checkpoints.inspect.verify.attest`, and the faults that show only when the factors are multiplied."""
    if problem := config_problem(adapter.config, _names_module) or option_problem(adapter) or _tensor_problem(adapter):
        return Attested((problem,), norm=None)
    attested = attest_one(adapter, expected)
    if attested.norm is None:
        return attested
    problem = _rank_problem(adapter) or _product_problem(adapter, attested.norm)
    return Attested((problem,), norm=None) if problem else attested


def _rank_problem(adapter: LoraAdapter) -> str:
    """Whether the rank in the config, which the scale is computed from, is that of the tensors."""
    for module in adapter.modules:
        if adapter.rank(module) != adapter.a(module).shape[0]:
            return f"{module}: {ADAPTER_CONFIG} states rank {adapter.rank(module)}, A has {adapter.a(module).shape[0]}"
    return ""


def _product_problem(adapter: LoraAdapter, norm: float) -> str:
    """Factors whose product float32 cannot hold, or whose parts cancel so far that it is noise."""
    magnitude = 0.0
    for module in adapter.modules:
        columns = adapter.b(module).double().norm(dim=0)
        rows = adapter.a(module).double().norm(dim=1)
        largest = float((columns * rows).sum()) * abs(adapter.scale(module))
        factors = max(float(columns.max()), float(rows.max()), abs(adapter.scale(module)))
        if not max(largest, factors) < LARGEST:
            return (
                f"{module}: its factors' product may reach {max(largest, factors):.3g}, the limit is {LARGEST:.3g}: "
                "it overflows float32"
            )
        magnitude = math.hypot(magnitude, largest)
    times = magnitude / norm if norm > 0 else math.inf
    if magnitude > 0 and times > _CANCELLATION:
        return f"its factors cancel: their size is {times:.3g} times their product's, the limit is {_CANCELLATION:g}"
    return ""


def _verdict(name: str, checked: Mapping[str, Attested], limits: Limits) -> Verdict:
    own = checked[name]
    if own.norm is None:
        return Verdict(name, False, "; ".join(own.problems))
    if own.norm == 0.0:
        return Verdict(name, False, "norm 0: it changes nothing", 0.0)
    others = [other.norm for other_name, other in checked.items() if other_name != name and other.norm]
    if not others:
        return Verdict(name, True, norm=own.norm)
    middle = median(others)
    ratio = own.norm / middle
    if limits.least_norm_ratio <= ratio <= limits.norm_ratio:
        return Verdict(name, True, norm=own.norm, norm_ratio=ratio)
    if not math.isfinite(ratio):
        return Verdict(name, False, f"norm {own.norm:.4g} is outlandish beside the others' ({middle:.4g})", own.norm)
    limit = f"limit is {limits.norm_ratio:g}" if ratio > 1 else f"least is {limits.least_norm_ratio:g}"
    reason = f"norm {own.norm:.4g} is {ratio:.3g} times the median of the others ({middle:.4g}); the {limit}"
    return Verdict(name, False, reason, own.norm, ratio)


def _copies(
    sound: Mapping[str, LoraAdapter],
    verdicts: Mapping[str, Verdict],
    digests: Mapping[str, str],
    copy_ratio: float,
    f: int,
) -> dict[str, Verdict]:
    """New verdicts of voters with the same delta: one stays a candidate, the others are rejected, none has a vote."""
    names = order_of_computing({name: digests.get(name) for name in sound})
    if len(names) < 2:
        return {}
    gram = inner_products([sound[name] for name in names])
    squares = np.diag(gram)
    distances = np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2.0 * gram, 0.0))
    np.fill_diagonal(distances, 0.0)
    norms = np.sqrt(np.minimum(squares[:, None], squares[None, :]))
    usual = _usual(distances, f)
    same = distances <= _SAME * norms
    near = (distances <= copy_ratio * usual) & (distances <= copy_ratio * norms)
    changed: dict[str, Verdict] = {}
    for row, name in enumerate(names):
        twins = [column for column in np.flatnonzero(same[row] | near[row]) if column > row]
        if name in changed or not twins:
            continue
        changed[name] = replace(verdicts[name], votes=False)
        for column in twins:
            reason = f"its weight change is that of {name}: a copy, only one of which was trained"
            if not same[row, column]:
                share = distances[row, column] / usual[row, column]
                reason = (
                    f"its weight change is {share:.3g} of the usual distance between voters from that of {name}, the "
                    f"limit is {copy_ratio:g}: a near copy, only one of which was trained"
                )
            twin = names[column]
            changed[twin] = replace(verdicts[twin], accepted=False, reason=reason, votes=False)
    return changed


def _usual(distances: np.ndarray, f: int) -> np.ndarray:
    """(n, n): the lesser of two voters' distances to their (f + 1)-th nearest; 0 where f = 0 or there is none."""
    if f < 1 or len(distances) < f + 2:
        return np.zeros_like(distances)
    own = np.sort(distances, axis=1)[:, f + 1]  # the first of each row is its distance to itself
    lesser: np.ndarray = np.minimum(own[:, None], own[None, :])
    return lesser


def _tensor_problem(adapter: LoraAdapter) -> str:
    """The first tensor of a type or shape that cannot be computed with; empty where there is none."""
    for name, tensor in sorted(adapter.tensors.items()):
        if tensor.dtype not in _DTYPES:
            return f"{name} is {str(tensor.dtype).removeprefix('torch.')}, expected a float of 16, 32 or 64 bits"
        if tensor.ndim != 2 or not tensor.numel():
            return f"{name} has shape {tuple(tensor.shape)}, expected a matrix"
    return ""


def _names_module(key: str) -> bool:
    return _PATTERN.fullmatch(key) is not None and _compiles(key)


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True
