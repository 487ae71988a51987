"""The serving pointer: per domain the promoted adapter, kept where the gate does not pass."""

from collections.abc import Mapping
from typing import Any

from capibara_assets.domains import Domain


def promote(
    decisions: Mapping[Domain, Mapping[str, Any]],
    checkpoints: Mapping[Domain, str],
    *,
    merged: str,
    router: str | None,
    previous: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The new pointer document.

    Args:
        decisions: `Decision` of each evaluated domain.
        checkpoints: digest of each domain's consensus checkpoint.
        merged, router: digests; the merged model serves as soon as every domain is promoted.
        previous: the pointer document that serves now; None at the first time.

    Returns:
        `serving` (domain → checkpoint digest, None = base model; merged and router digests) and per domain the
        verdict and why. Whether the pointer moved is no part of it: the same decisions twice are the same document.
    """
    before: Mapping[str, Any] = previous["serving"] if previous else {"experts": {}, "merged": None, "router": None}
    experts: dict[str, str | None] = dict(before["experts"])
    domains: dict[str, dict[str, Any]] = {}
    for domain, decision in sorted(decisions.items()):
        kept = before["experts"].get(domain.value)
        wins = decision["verdict"] == "promote"
        experts[domain.value] = checkpoints[domain] if wins else kept
        domains[domain.value] = {"verdict": decision["verdict"], "reason": decision["reason"]}
    all_promoted = bool(decisions) and all(entry["verdict"] == "promote" for entry in domains.values())
    return {
        "schema_version": 1,
        "serving": {
            "experts": experts,
            "merged": merged if all_promoted else before["merged"],
            "router": router if any(experts.values()) else before["router"],
        },
        "domains": domains,
    }


def moves(promotion: Mapping[str, Any], previous: Mapping[str, Any] | None) -> list[str]:
    """Domains whose serving expert is another one than before, sorted."""
    before = previous["serving"]["experts"] if previous else {}
    now = promotion["serving"]["experts"]
    return sorted(domain for domain, expert in now.items() if expert != before.get(domain))
