"""What the experience teaches, as metadata of its materializations."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.metadata.tables import counts, preview

if TYPE_CHECKING:
    from capibara_assets.executions.patterns.extract import ExtractedKnowledge
    from capibara_assets.playbooks.consolidate import Consolidation


def consolidated_entries(consolidation: "Consolidation") -> dict[str, Any]:
    """`consolidated_playbook`: who graduated and what the others missed, and the best bullets."""
    agents, bullets = consolidation.agents, consolidation.bullets
    shown = ["agent_id", "graduated", "missed", "graduation_score", "interactions", "success_rate"]
    return {
        "bullets": bullets.height,
        "graduated_agents": agents.filter(agents["graduated"]).height,
        "agents": preview(agents, shown),
        "statistics": dg.MetadataValue.json(consolidation.statistics),
        "preview": preview(bullets, ["rank", "content", "helpful", "harmful", "score", "compressed"]),
    }


def patterns_entries(extracted: "ExtractedKnowledge") -> dict[str, Any]:
    """`e2b_patterns`: patterns by kind and by how often their code ran, and repair pairs."""
    from capibara_assets.executions.patterns.extract import success_by_language

    patterns, repairs = extracted.patterns, extracted.repairs
    return {
        "executions": extracted.read,
        "patterns": patterns.height,
        "repair_pairs": repairs.height,
        "kinds": counts(dict(patterns["kind"].value_counts().iter_rows())),
        "success_by_language": preview(success_by_language(patterns)),
        "preview": preview(patterns, ["kind", "name", "language", "frequency", "success_rate", "explanation"]),
        "repairs": preview(repairs, ["language", "error_name", "distance", "diff"]),
    }
