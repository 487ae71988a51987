"""The pointer document of what is served, and its changes: by the gate, by manual promotion, and by rollback.

A pointer document is plain JSON: `serving` (each domain's checkpoint digest, null for the base model; the merged
model's and the router's digests), per domain the verdict and its reason, and `held`: digests that were rolled back,
which the gate does not promote again.
"""

from collections.abc import Collection, Mapping
from typing import Any

from capibara_assets.domains import Domain
from capibara_assets.errors import InputError

SCHEMA_VERSION = 2
MERGED, ROUTER = "merged", "router"
Document = dict[str, Any]
Served = dict[str, str | None]
NOTHING: Document = {"serving": {"experts": {}, MERGED: None, ROUTER: None}, "domains": {}}
"""The state before the first promotion: only the base model is served."""


def promote(
    decisions: Mapping[Domain, Mapping[str, Any]],
    checkpoints: Mapping[Domain, str],
    *,
    merged: str | None,
    router: str | None,
    previous: Mapping[str, Any] | None,
) -> Document:
    """The pointer document after the gate has promoted what passed.

    Args:
        decisions: `Decision` of each evaluated domain.
        checkpoints: digest of each domain's consensus checkpoint, as it was judged.
        merged, router: digests; the merged model is served as soon as every domain is promoted, the router as soon as
            one is; None: there is none that was judged.
        previous: the current pointer document; None: there is none yet.

    The same decisions twice give the same document.
    """
    before = served(previous)
    held = _held(previous)
    after: Served = dict(before)
    domains: dict[str, dict[str, Any]] = {}
    passed = []
    for domain, decision in sorted(decisions.items()):
        name, reason = domain.value, str(decision["reason"])
        after.setdefault(name, None)
        wins = decision["verdict"] == "promote"
        if wins and (why := held.get(name, {}).get(checkpoints[domain])):
            wins, reason = False, f"{reason} Not promoted all the same: {why}."
        if wins:
            after[name] = checkpoints[domain]
        passed.append(wins)
        domains[name] = {"verdict": decision["verdict"], "reason": reason}
    if passed and all(passed) and merged is not None and merged not in held.get(MERGED, {}):
        after[MERGED] = merged
    if any(passed) and router is not None and router not in held.get(ROUTER, {}):
        after[ROUTER] = router
    return _document(after, domains, held)


def promote_manually(previous: Mapping[str, Any] | None, slot: str, digest: str, why: str) -> Document:
    """The document after a manual promotion of `digest`, which is then no longer held.

    Args:
        slot: a domain, `merged` or `router`.
        why: who promoted it and why, as one sentence.
    """
    held = _held(previous)
    held.get(slot, {}).pop(digest, None)
    domains = dict((previous or {}).get("domains", {}))
    if slot not in (MERGED, ROUTER):
        domains[slot] = {"verdict": "by hand", "reason": why}
    return _document({**served(previous), slot: digest}, domains, held)


def roll_back(
    previous: Mapping[str, Any], target: Mapping[str, Any], slots: Collection[str] | None, why: str
) -> Document:
    """The document after rolling back to what `target` served; the gate will not promote the replaced digests again.

    A replaced router is held only where it was named in `slots`, since a router goes with the experts served.

    Args:
        slots: only these (domains, `merged`, `router`); None: all. With a domain the merged model is rolled back, too,
            since it contains that domain's adapter.
        why: who rolled back and why, as one sentence.

    Raises:
        InputError: nothing would change.
    """
    before, wanted = served(previous), served(target)
    names = [*before, *(name for name in wanted if name not in before)]
    if slots is not None:
        names = [name for name in names if name in slots or (name == MERGED and set(slots) - {ROUTER})]
    held, domains, after = _held(previous), dict(previous.get("domains", {})), dict(before)
    changed = [name for name in names if before.get(name) != wanted.get(name)]
    if not changed:
        raise InputError(
            "nothing to roll back: " + ("that state" if slots is None else ", ".join(sorted(slots))) + " is served now"
        )
    for name in changed:
        left, after[name] = before.get(name), wanted.get(name)
        if left is not None and (name != ROUTER or slots is not None):  # experts that come later need one
            held.setdefault(name, {})[left] = f"taken back {why}; promote it by hand, or make another"
        held.get(name, {}).pop(after[name] or "", None)
        if name not in (MERGED, ROUTER):
            domains[name] = {"verdict": "by hand", "reason": f"Taken back {why}."}
    return _document(after, domains, held)


def served(document: Mapping[str, Any] | None) -> Served:
    """Slot (each domain, then `merged` and `router`) -> the digest served in it; None: the base model, or none."""
    serving = (document or NOTHING)["serving"]
    return {**dict(sorted(serving["experts"].items())), MERGED: serving[MERGED], ROUTER: serving[ROUTER]}


def moved(after: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, tuple[str | None, str | None]]:
    """Slot -> (digest before, digest now), of all slots that changed."""
    old, new = served(before), served(after)
    return {slot: (old.get(slot), digest) for slot, digest in new.items() if digest != old.get(slot)}


def moves(promotion: Mapping[str, Any], previous: Mapping[str, Any] | None) -> list[str]:
    """Domains whose served expert changed, sorted."""
    return sorted(slot for slot in moved(promotion, previous) if slot not in (MERGED, ROUTER))


def same_state(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two documents have the same served and held digests."""
    return served(one) == served(other) and _held(one) == _held(other)


def _held(document: Mapping[str, Any] | None) -> dict[str, dict[str, str]]:
    return {slot: dict(digests) for slot, digests in ((document or {}).get("held") or {}).items()}


def _document(slots: Served, domains: Mapping[str, Any], held: Mapping[str, Mapping[str, str]]) -> Document:
    return {
        "schema_version": SCHEMA_VERSION,
        "serving": {
            "experts": {name: digest for name, digest in sorted(slots.items()) if name not in (MERGED, ROUTER)},
            MERGED: slots[MERGED],
            ROUTER: slots[ROUTER],
        },
        "domains": dict(sorted(domains.items())),
        "held": {slot: dict(sorted(digests.items())) for slot, digests in sorted(held.items()) if digests},
    }
