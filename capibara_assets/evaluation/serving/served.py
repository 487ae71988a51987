"""Verification of what a promotion serves: loadable, and consistent with the history."""

from collections.abc import Iterable, Mapping
from typing import Any

from capibara_assets.errors import IntegrityError
from capibara_assets.evaluation.serving.promotion import MERGED, NOTHING, ROUTER, moved, served
from capibara_assets.evaluation.serving.promotion_log import PromotionLog
from capibara_assets.storage.store import ArtifactStore, MissingArtifact


def promotion_problems(store: ArtifactStore, document: Mapping[str, Any]) -> list[str]:
    """Problems of a pointer document as text; reads every served byte."""
    problems = list(_missing(store, document))
    try:
        moves = PromotionLog(store).moves()
    except IntegrityError as error:
        return [*problems, f"the history is damaged: {error}"]
    last = moves[-1].promotion if moves else NOTHING
    if moved(document, last) or moved(last, document):
        problems.append("it is not what the last move of the history says (capibara promote --history)")
    return problems


def owner_of(slot: str) -> tuple[str, str | None]:
    """Asset and partition of the results in a slot."""
    owners: dict[str, tuple[str, str | None]] = {MERGED: ("merged_checkpoint", None), ROUTER: ("expert_router", None)}
    return owners.get(slot, ("consensus_checkpoint", slot))


def _missing(store: ArtifactStore, document: Mapping[str, Any]) -> Iterable[str]:
    for slot, digest in served(document).items():
        if digest is None:
            continue
        try:
            store.open(*owner_of(slot), digest).verify()
        except (MissingArtifact, IntegrityError) as error:
            yield f"{slot} cannot be served: {error}"
