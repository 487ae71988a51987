"""What a person does to the serving pointer, from the command line or the UI: promote against the gate, go back."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.assets.inputs import latest_digest
from capibara_assets.assets.promotion import Event, by_hand
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError
from capibara_assets.resources import Store

if TYPE_CHECKING:
    from capibara_assets.evaluation.serving.promotion_log import Move
    from capibara_assets.storage.artifact import Artifact
    from capibara_assets.storage.store import ArtifactStore

SLOTS = (*(domain.value for domain in DOMAINS), "merged", "router")
"""Where something serves: a domain's expert, the merged model, the router."""
_ASSETS = {"merged": "merged_checkpoint", "router": "expert_router"}


class Override(dg.Config):
    """A promotion by hand."""

    slot: str = ""
    checkpoint: str = ""
    reason: str
    by: str = "the Dagster UI"


class Back(dg.Config):
    """A way back; as it is, one step."""

    to: int = -1  # number of a move in the history; 0: the base alone; -1: what served before
    slot: str = ""  # a domain, merged or router; empty: everything
    reason: str = "no reason given"
    by: str = "the Dagster UI"


def override(instance: dg.DagsterInstance, store: "ArtifactStore", wanted: Override, event: Event) -> "Move | None":
    """Have a checkpoint serve whatever the gate said; None where it serves already.

    `slot` empty: of every domain that has a consensus checkpoint, or the one whose checkpoint is named. `checkpoint`
    is the beginning of an artifact's digest or of its checkpoint's id; empty: the latest materialization's.

    Raises:
        InputError: no reason, no such slot, no such checkpoint or several.
    """
    from capibara_assets.evaluation.serving.promotion import promote_manually, served

    if not wanted.reason.strip():
        raise InputError("a promotion by hand is noted with its reason: give one (--reason)")
    chosen = _chosen(instance, store, wanted)
    why = f"by {wanted.by} against or beside the gate: {wanted.reason}"
    router = _latest(instance, store, "router")

    def change(now: dict[str, Any] | None, _: "list[Move]") -> tuple[dict[str, Any], str]:
        for slot, digest in chosen.items():
            now = promote_manually(now, slot, digest, f"Promoted {why}")
        if served(now)["router"] is None and router is not None:  # experts without a router would never be asked
            now = promote_manually(now, "router", router, f"Promoted {why}")
        return now or {}, wanted.reason

    return by_hand(instance, store, "promote", change, wanted.by, event)


def go_back(instance: dg.DagsterInstance, store: "ArtifactStore", wanted: Back, event: Event) -> "Move | None":
    """Have serve again what served before, one step back or at the move `to`; what is left is held against the gate.

    Raises:
        InputError: nothing to go back to, no such move or slot, or it serves already.
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

    return by_hand(instance, store, "rollback", change, wanted.by, event)


@dg.op
def promote_against_the_gate(context: dg.OpExecutionContext, config: Override, store: Store) -> None:
    """Has a checkpoint serve for a reason that a person gives; noted as such."""
    context.log.info(said(override(context.instance, store.open(), config, context.log_event)))


@dg.op
def take_back(context: dg.OpExecutionContext, config: Back, store: Store) -> None:
    """Has serve again what served before."""
    context.log.info(said(go_back(context.instance, store.open(), config, context.log_event)))


def said(move: "Move | None") -> str:
    """One line about a move."""
    if move is None:
        return "nothing moved: that serves already"
    parts = [f"{slot} {_short(before)} -> {_short(after)}" for slot, (before, after) in sorted(move.moved.items())]
    return f"promotion {move.number} ({move.action} by {move.by}): {', '.join(parts) or 'nothing serves otherwise'}"


def _short(digest: str | None) -> str:
    return "base" if digest is None else digest[:12]


def _chosen(instance: dg.DagsterInstance, store: "ArtifactStore", wanted: Override) -> dict[str, str]:
    if wanted.checkpoint:
        return _named(store, wanted.checkpoint, [_known(wanted.slot)] if wanted.slot else list(SLOTS))
    slots = [_known(wanted.slot)] if wanted.slot else [slot for slot in SLOTS if slot not in _ASSETS]
    found = {slot: digest for slot in slots if (digest := _latest(instance, store, slot)) is not None}
    if not found:
        raise InputError(f"nothing to promote for {', '.join(slots)}: no checkpoint is materialized yet")
    return found


def _named(store: "ArtifactStore", wanted: str, slots: list[str]) -> dict[str, str]:
    """The one artifact whose digest, or whose checkpoint's id, begins so."""
    found = {
        (slot, artifact.digest)
        for slot in slots
        for artifact in _artifacts(store, slot)
        if any(name.startswith(wanted) for name in (artifact.digest, *artifact.checkpoints.values()))
    }
    if len(found) != 1:
        known = ", ".join(f"{slot} {digest[:12]}" for slot, digest in sorted(found))
        raise InputError(
            f"{wanted!r} names {len(found) or 'no'} checkpoints of {', '.join(slots)}"
            + (f": {known}" if found else ": see `capibara checkpoint list`")
        )
    return dict(found)


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
    """Not a router that was never trained."""
    return artifact.name != "expert_router" or bool(artifact.document("report").get("trained", True))


def _known(slot: str) -> str:
    if slot not in SLOTS:
        raise InputError(f"{slot!r} is nothing that serves: one of {', '.join(SLOTS)}")
    return slot
