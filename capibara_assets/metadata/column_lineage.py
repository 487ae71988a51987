"""Column lineage: the upstream columns of each column of an asset's table, for Dagster's UI.

It speaks of the table whose columns the asset's page lists: the first one that it publishes. A column that is not named
here is made anew (an id, a count, a figure of this stage). A test holds it against the record types and the graph.
"""

from collections.abc import Collection, Mapping

import dagster as dg

COLUMN_LINEAGE = "dagster/column_lineage"

_CODE = ("language", "code", "task")
_RESULT = ("outcome", "stdout", "stderr", "result_text", "error_name", "error_value", "traceback")


def _of(asset: str, *columns: str) -> tuple[tuple[str, str], ...]:
    return tuple((asset, column) for column in columns)


def _same(asset: str, *columns: str) -> dict[str, tuple[tuple[str, str], ...]]:
    return {column: _of(asset, column) for column in columns}


_EXECUTION = (
    *("execution_id", "sandbox_id", "context_id", "agent_id", "tenant", "timestamp", "template_id", *_CODE, *_RESULT),
    *("execution_count", "duration_ms", "timeout_s", "domains", "confidence", "evidence", "quality", "flags"),
    *("secrets", "licence", "source", "bullet_ids", "record_digest", "source_file", "source_line", "source_offset"),
)
_GROUPED = _of("e2b_patterns", "task", "code", "language", "sandbox_id")
_FROM_EXECUTIONS = _of("e2b_patterns", *_CODE, *_RESULT)

MADE_FROM: Mapping[str, Mapping[str, tuple[tuple[str, str], ...]]] = {
    "e2b_executions": _same("e2b_logs", *_EXECUTION),
    "e2b_patterns": _same("e2b_executions", *_EXECUTION),
    "consolidated_playbook": {
        **_same("ace_playbooks", "bullet_id", "section", "domains", "helpful", "harmful", "evidence"),
        "content": _of("ace_playbooks", "title", "content"),
        "score": _of("ace_playbooks", "helpful", "harmful"),
        "origins": _of("ace_playbooks", "bullet_id"),
        "agents": _of("ace_playbooks", "agent_id"),
        "rank": _of("ace_playbooks", "helpful", "harmful"),
        "compressed": _of("ace_playbooks", "content"),
    },
    "example_groups": {
        "unit_id": _of("e2b_patterns", "execution_id"),
        "group_id": _GROUPED,
        "split": _GROUPED,
        "reason_left_out": _GROUPED,
        "sandbox_id": _of("e2b_patterns", "sandbox_id"),
    },
    "moe_dataset": {
        "domain": _of("e2b_patterns", "domains"),
        "language": _of("e2b_patterns", "language"),
        "messages": (
            *_FROM_EXECUTIONS,
            *_of("consolidated_playbook", "content"),
            *_of("imported_examples", "messages"),
        ),
        "group_id": _of("example_groups", "group_id"),
        "split": _of("example_groups", "split"),
        "difficulty": _FROM_EXECUTIONS,
        "quality": _of("e2b_patterns", "quality"),
        "cluster_id": _FROM_EXECUTIONS,
        "proof": _of("e2b_patterns", "code", "stdout", "result_text"),
        "diff": _of("e2b_patterns", "code"),
        "test": _of("e2b_patterns", "code"),
        "execution_ids": _of("e2b_patterns", "execution_id"),
        "bullet_ids": (*_of("e2b_patterns", "bullet_ids"), *_of("consolidated_playbook", "bullet_id")),
        "sandbox_ids": _of("e2b_patterns", "sandbox_id"),
        "licence": _of("e2b_patterns", "licence"),
        "source": _of("e2b_patterns", "source"),
        "tenants": _of("e2b_patterns", "tenant"),
        "source_places": _of("e2b_patterns", "source_file", "source_line"),
    },
    "routing_dataset": {
        "route_id": _of("moe_dataset", "messages"),
        "prompt": _of("moe_dataset", "messages"),
        "domains": _of("moe_dataset", "domain"),
        "weights": _of("moe_dataset", "domain"),
        **_same("moe_dataset", "split", "group_id"),
        "hard_negative": _of("moe_dataset", "messages", "domain"),
        "negative_of": _of("moe_dataset", "messages", "domain"),
    },
    "evaluation": {
        **_same("moe_dataset", "example_id", "group_id"),
        "nll": _of("moe_dataset", "messages"),
        "tokens": _of("moe_dataset", "messages"),
    },
}
"""Asset -> column of its table -> (upstream asset, column)."""


def column_lineage(asset: str, columns: Collection[str]) -> dg.TableColumnLineage | None:
    """Column lineage of an asset's table; None if none is declared."""
    known = MADE_FROM.get(asset)
    if known is None:
        return None
    return dg.TableColumnLineage(
        {
            column: [dg.TableColumnDep(dg.AssetKey(upstream), name) for upstream, name in known[column]]
            for column in columns
            if column in known
        }
    )
