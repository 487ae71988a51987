"""Retention plan: which checkpoints a policy keeps, and why. Pure functions of manifests; nothing is deleted here."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from pydantic import Field, model_validator

from capibara_assets.checkpoints.content import PIECE, nbytes
from capibara_assets.checkpoints.store.manifest import CheckpointManifest
from capibara_assets.deployment.declarations import Declared
from capibara_assets.errors import InputError

PINS = ("promoted", "pinned")
"""Tags that keep a checkpoint under any policy: promotion writes the first, a user the second."""


class RetentionPolicy(Declared):
    """Rules for keeping each model's checkpoints: the union of all rules; without rules all are kept."""

    keep_last: int | None = Field(default=None, description="The newest so many versions", ge=1)
    keep_best: int | None = Field(default=None, description="The best so many by `metric`", ge=1)
    metric: str | None = Field(default=None, description="Name of the metric that `keep_best` goes by")
    mode: Literal["min", "max"] = Field(default="min", description="Whether the least or the greatest is best")
    keep_every: int | None = Field(default=None, description="Those whose step is a multiple of this", ge=1)

    @model_validator(mode="after")
    def _best_names_its_metric(self) -> Self:
        if (self.keep_best is None) != (self.metric is None):
            raise ValueError("keep_best and metric belong together: give both or neither")
        return self

    @property
    def rules(self) -> bool:
        """Whether there is any rule."""
        return not (self.keep_last is None and self.keep_best is None and self.keep_every is None)


class CheckpointVersion(Protocol):
    """One version of a checkpoint, as a retention plan sees it; `store.checkpoint.Checkpoint` is one."""

    @property
    def id(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def manifest(self) -> CheckpointManifest: ...


@dataclass(frozen=True)
class RetentionDecision:
    """Whether one version is kept, and every reason (for a removal: why each rule does not keep it)."""

    checkpoint: CheckpointVersion
    keep: bool
    reasons: tuple[str, ...]


def plan(
    checkpoints: Iterable[CheckpointVersion],
    policy: RetentionPolicy,
    needed: Mapping[str, Sequence[str]] | None = None,
    models: Collection[str] | None = None,
) -> list[RetentionDecision]:
    """Decide on every version, by model and version.

    Always kept, under any policy: the newest version of a model (training resumes from it, and version numbers
    continue from it); versions tagged `promoted` or `pinned`; those in `needed`; and those that any kept checkpoint
    names as its base or among its sources. A *parent* is no reason: every checkpoint is complete without it. Versions
    of one checkpoint (the same id) stay or go together.

    `keep_every` counts steps, not versions, and a model none of whose checkpoints states the metric keeps them all:
    both so that planning again after a removal removes nothing more.

    Args:
        checkpoints: all of the store: one that is left out cannot keep what it names.
        needed: id -> why it is needed by something outside, such as a certificate.
        models: those that the policy applies to; the others keep everything. None: all.
    """
    by_model: dict[str, list[CheckpointVersion]] = {}
    for checkpoint in checkpoints:
        by_model.setdefault(checkpoint.manifest.about.model, []).append(checkpoint)
    for versions in by_model.values():
        versions.sort(key=lambda one: one.version)
    everything = [one for _, versions in sorted(by_model.items()) for one in versions]
    why: dict[str, list[str]] = {}
    for model, versions in by_model.items():
        applies = models is None or model in models
        for name, reason in _by_rules(versions, policy if applies else RetentionPolicy()):
            why.setdefault(name, []).append(reason)
    for one in everything:
        why.setdefault(one.id, []).extend(f"tagged {tag}" for tag in PINS if tag in one.manifest.about.tags)
        why[one.id] += (needed or {}).get(one.id, ())
    _keep_what_is_named(everything, why)
    return [
        RetentionDecision(one, bool(why[one.id]), tuple(dict.fromkeys(why[one.id] or _against(one, policy))))
        for one in everything
    ]


def names(manifest: CheckpointManifest) -> dict[str, str]:
    """Digest of everything that a checkpoint was made from -> its role; the parent is not one of them."""
    base = {manifest.about.base_digest: "base"} if manifest.about.base_digest else {}
    return base | {digest: f"source {name}" for name, digest in manifest.about.sources.items()}


def by_any_id(checkpoints: Iterable[CheckpointVersion]) -> dict[str, CheckpointVersion]:
    """Checkpoints by their ids, and by the ids they had before their store was encrypted or decrypted."""
    return {name: one for one in checkpoints for name in (one.id, *one.manifest.aliases)}


def pieces_of(manifest: CheckpointManifest) -> dict[str, int]:
    """Digest -> plain bytes, of every distinct piece of a checkpoint's tensors and files."""
    lengths: dict[str, int] = {}
    for entry in (*manifest.tensors.values(), *manifest.files.values()):
        left = nbytes(entry.dtype, entry.shape)
        for digest in entry.pieces:
            lengths[digest] = min(PIECE, left)
            left -= PIECE
    return lengths


def freed(decisions: Iterable[RetentionDecision]) -> dict[str, int]:
    """Digest -> plain bytes, of the pieces that only removed checkpoints hold."""
    gone, stays = dict[str, int](), set[str]()
    for decision in decisions:
        if decision.keep:
            stays |= pieces_of(decision.checkpoint.manifest).keys()
        else:
            gone |= pieces_of(decision.checkpoint.manifest)
    return {digest: length for digest, length in gone.items() if digest not in stays}


def check_metric(checkpoints: Iterable[CheckpointVersion], policy: RetentionPolicy) -> None:
    """Raise InputError if no checkpoint has the policy's metric; the message names the known metrics."""
    every = [one.manifest.about.metrics for one in checkpoints]
    if policy.metric is not None and every and not any(policy.metric in metrics for metrics in every):
        known = sorted({name for metrics in every for name in metrics})
        raise InputError(
            f"no checkpoint states the metric {policy.metric!r}: they state {', '.join(known) or 'none at all'}"
        )


def _by_rules(versions: list[CheckpointVersion], policy: RetentionPolicy) -> Iterable[tuple[str, str]]:
    """(id, reason) of the versions of one model that the rules keep; `versions`: oldest first."""
    ids = list(dict.fromkeys(one.id for one in reversed(versions)))
    yield ids[0], "the newest version"
    if not policy.rules:
        yield from ((name, "no rule says what to remove") for name in ids)
    if policy.keep_last is not None:
        yield from ((name, f"among the last {policy.keep_last}") for name in ids[: policy.keep_last])
    if policy.keep_every is not None:
        for one in versions:
            if one.manifest.about.step % policy.keep_every == 0:
                yield one.id, f"step {one.manifest.about.step} is a multiple of {policy.keep_every}"
    if policy.keep_best is not None and policy.metric is not None:
        yield from _best(versions, policy.keep_best, policy.metric, policy.mode)


def _best(versions: list[CheckpointVersion], number: int, metric: str, mode: str) -> Iterable[tuple[str, str]]:
    """The best by a metric: of equals the newer one, and never NaN."""
    values = {one.id: _value(one, metric) for one in reversed(versions)}
    stated = {name: value for name, value in values.items() if value is not None}
    if not stated:
        yield from (
            (name, f"no checkpoint of the model states {metric}: which is best is not known") for name in values
        )
        return
    ranked = sorted(stated.items(), key=lambda item: item[1], reverse=mode == "max")
    for place, (name, value) in enumerate(ranked[:number], start=1):
        yield name, f"{metric} {value:g} is number {place} of the best {number}"


def _value(checkpoint: CheckpointVersion, metric: str) -> float | None:
    value = checkpoint.manifest.about.metrics.get(metric)
    return None if value is None or math.isnan(value) else value


def _keep_what_is_named(everything: list[CheckpointVersion], why: dict[str, list[str]]) -> None:
    """Add a reason for every checkpoint that a kept one names, transitively."""
    known, by_id = by_any_id(everything), {one.id: one for one in everything}
    frontier = [one for one in by_id.values() if why[one.id]]
    reached = {one.id for one in frontier}
    while frontier:
        following = []
        for one in frontier:
            for digest, what in names(one.manifest).items():
                source = known.get(digest)
                if source is None or source.id == one.id:
                    continue
                why[source.id].append(f"{what} of {one.manifest.about.model}@v{one.version}, which is kept")
                if source.id not in reached:
                    reached.add(source.id)
                    following.append(by_id[source.id])
        frontier = following


def _against(checkpoint: CheckpointVersion, policy: RetentionPolicy) -> list[str]:
    about, reasons = checkpoint.manifest.about, []
    if policy.keep_last is not None:
        reasons.append(f"not among the last {policy.keep_last}")
    if policy.keep_best is not None and policy.metric is not None:
        value = _value(checkpoint, policy.metric)
        stated = f"states no {policy.metric}" if value is None else f"{policy.metric} {value:g}"
        reasons.append(f"{stated}: not among the best {policy.keep_best}")
    if policy.keep_every is not None:
        reasons.append(f"step {about.step} is no multiple of {policy.keep_every}")
    return reasons
