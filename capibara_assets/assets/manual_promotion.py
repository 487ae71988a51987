"""Manual promotion and rollback of served checkpoints, from the command line or Dagster's UI."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.assets.inputs import latest_digest
from capibara_assets.assets.promotion import Event, change_manually
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError
from capibara_assets.resources import Store

if TYPE_CHECKING:
    from capibara_assets.evaluation.serving.promotion_log import Move
    from capibara_assets.storage.artifact import Artifact
    from capibara_assets.storage.store import ArtifactStore

SLOTS = (*(domain.value for domain in DOMAINS), "merged", "router")
"""Slots of the served model: one expert per domain, the merged model, the router."""
_ASSETS = {"merged": "merged_checkpoint", "router": "expert_router"}


class ManualPromotion(dg.Config):
    """A manual promotion: slot (empty: see `promote_manually`), checkpoint (empty: the latest), reason and person."""

    slot: str = ""
    checkpoint: str = ""
    reason: str
    by: str = "the Dagster UI"


class Rollback(dg.Config):
    """A rollback; with the defaults, of everything by one step."""

    to: int = -1  # number of a change in the history; 0: the base model alone; -1: the state before the last change
    slot: str = ""  # a domain, merged or router; empty: everything
    reason: str = "no reason given"
    by: str = "the Dagster UI"


def promote_manually(
    instance: dg.DagsterInstance, store: "ArtifactStore", wanted: ManualPromotion, event: Event
) -> "Move | None":
    """Promote checkpoints regardless of the gate's decision.

    An empty `slot` means every domain that has a consensus checkpoint, or the slot of the named checkpoint.
    `checkpoint` is a prefix of an artifact's digest or of its checkpoint's id; empty means the latest materialization.

    Returns:
        The recorded change, or None if the checkpoints are already served.

    Raises:
        InputError: no reason is given, the slot is unknown, or no or several checkpoints match.
    """
    from capibara_assets.evaluation.serving.promotion import promote_manually, served

    if not wanted.reason.strip():
        raise InputError("a manual promotion is recorded with its reason: give one (--reason)")
    chosen = _chosen(instance, store, wanted)
    why = f"by {wanted.by} against or beside the gate: {wanted.reason}"
    router = _latest(instance, store, "router")

    def change(now: dict[str, Any] | None, _: "list[Move]") -> tuple[dict[str, Any], str]:
        for slot, digest in chosen.items():
            now = promote_manually(now, slot, digest, f"Promoted {why}")
        if served(now)["router"] is None and router is not None:  # experts without a router would never be asked
            now = promote_manually(now, "router", router, f"Promoted {why}")
        return now or {}, wanted.reason

    return change_manually(instance, store, "promote", change, wanted.by, event)


def roll_back(instance: dg.DagsterInstance, store: "ArtifactStore", wanted: Rollback, event: Event) -> "Move | None":
    """Roll back to previously served checkpoints; the gate will not promote the replaced ones again.

    Raises:
        InputError: nothing to roll back to, an unknown change or slot, or that state is already served.
    """
    from capibara_assets.evaluation.serving.promotion import NOTHING, roll_back
    from capibara_assets.evaluation.serving.promotion_log import state_before

    slots = [_known(wanted.slot)] if wanted.slot else None

    def change(now: dict[str, Any] | None, history: "list[Move]") -> tuple[dict[str, Any], str]:
        numbered = {0: NOTHING, **{move.number: move.promotion for move in history}}
        to = wanted.to if wanted.to >= 0 else state_before(history, slots)[0]
        if to not in numbered:
            raise InputError(f"no promotion has number {to}: there are 0 to {len(history)}, see the history")
        why = f"by {wanted.by}: {wanted.reason}"
        return roll_back(now or NOTHING, numbered[to], slots, why), f"Back to number {to}. {wanted.reason}"

    return change_manually(instance, store, "rollback", change, wanted.by, event)


@dg.op
def promote_against_the_gate(context: dg.OpExecutionContext, config: ManualPromotion, store: Store) -> None:
    """Promote a checkpoint manually; the person and the reason are recorded."""
    context.log.info(describe_move(promote_manually(context.instance, store.open(), config, context.log_event)))


@dg.op
def take_back(context: dg.OpExecutionContext, config: Rollback, store: Store) -> None:
    """Roll back to the previously served checkpoints."""
    context.log.info(describe_move(roll_back(context.instance, store.open(), config, context.log_event)))


def describe_move(move: "Move | None") -> str:
    """One line describing a change of the served checkpoints."""
    if move is None:
        return "nothing moved: that serves already"
    parts = [f"{slot} {_short(before)} -> {_short(after)}" for slot, (before, after) in sorted(move.moved.items())]
    return f"promotion {move.number} ({move.action} by {move.by}): {', '.join(parts) or 'nothing serves otherwise'}"


def _short(digest: str | None) -> str:
    return "base" if digest is None else digest[:12]


def _chosen(instance: dg.DagsterInstance, store: "ArtifactStore", wanted: ManualPromotion) -> dict[str, str]:
    if wanted.checkpoint:
        return _named(store, wanted.checkpoint, [_known(wanted.slot)] if wanted.slot else list(SLOTS))
    slots = [_known(wanted.slot)] if wanted.slot else [slot for slot in SLOTS if slot not in _ASSETS]
    latest = {slot: digest for slot in slots if (digest := _latest(instance, store, slot)) is not None}
    if not latest:
        raise InputError(f"nothing to promote for {', '.join(slots)}: no checkpoint is materialized yet")
    return latest


def _named(store: "ArtifactStore", wanted: str, slots: list[str]) -> dict[str, str]:
    """Slot and digest of the one artifact whose digest, or whose checkpoint's id, starts with `wanted`."""
    matches = {
        (slot, artifact.digest)
        for slot in slots
        for artifact in _artifacts(store, slot)
        if any(name.startswith(wanted) for name in (artifact.digest, *artifact.checkpoints.values()))
    }
    if len(matches) != 1:
        known = ", ".join(f"{slot} {digest[:12]}" for slot, digest in sorted(matches))
        raise InputError(
            f"{wanted!r} names {len(matches) or 'no'} checkpoints of {', '.join(slots)}"
            + (f": {known}" if matches else ": see `capibara checkpoint ls`")
        )
    return dict(matches)


def _artifacts(store: "ArtifactStore", slot: str) -> "list[Artifact]":
    if slot in _ASSETS:
        return [artifact for artifact in store.list(_ASSETS[slot]) if _usable(artifact)]
    return [artifact for artifact in store.list("consensus_checkpoint") if artifact.partition == slot]


def _latest(instance: dg.DagsterInstance, store: "ArtifactStore", slot: str) -> str | None:
    asset = _ASSETS.get(slot, "consensus_checkpoint")
    partition = None if slot in _ASSETS else Domain(slot)
    digest = latest_digest(instance, asset, partition)
    return digest if digest and _usable(store.open(asset, partition, digest)) else None


def _usable(artifact: "Artifact") -> bool:
    """Whether an artifact can be served: any but a router that was never trained."""
    return artifact.name != "expert_router" or bool(artifact.document("report").get("trained", True))


def _known(slot: str) -> str:
    if slot not in SLOTS:
        raise InputError(f"{slot!r} is not served: choose one of {', '.join(SLOTS)}")
    return slot
