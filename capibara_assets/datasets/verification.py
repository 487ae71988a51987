"""Verification of examples by replaying the executions behind them in the local sandbox, with their context."""

from collections.abc import Collection, Sequence
from pathlib import Path

from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets.datasets.recipe import Verification
from capibara_assets.executions.replay.replay import Batch, Replay, replay_batch

INCOMPLETE = "its session's state is not complete"
NO_DATABASE = "its database is gone: no earlier cell creates its tables"
SECRETS = "secrets in its record were replaced"


def replays_of(evidence: Evidence, execution_ids: Sequence[str]) -> list[Replay]:
    """The replay of each execution, in their order: the earlier code that it needs, then its code as recorded.

    An execution whose context is not complete has a `hindrance` and will not run.

    Raises:
        KeyError: an execution that is not in the evidence.
    """
    return [_replay(evidence, execution_id) for execution_id in execution_ids]


def _replay(evidence: Evidence, execution_id: str) -> Replay:
    row = evidence.rows[execution_id]
    context = evidence.context(execution_id)
    rows = [row, *(piece.row for piece in context.pieces)]
    hindrance = None
    if not context.complete:
        hindrance = NO_DATABASE if row["language"] == "sql" else INCOMPLETE
    elif any(each["secrets"] for each in rows):
        hindrance = SECRETS
    return Replay(
        execution_id,
        row["language"],
        (*(piece.text for piece in context.pieces), row["code"]),
        row["stdout"],
        row["result_text"],
        row["outcome"],
        row["error_name"],
        hindrance,
    )


def verify(
    evidence: Evidence,
    execution_ids: Sequence[str],
    recipe: Verification,
    *,
    cache: Path | None = None,
    processes: int | None = None,
    demand: Collection[str] = (),
) -> Batch:
    """Replay executions under the recipe's limits and return verdicts, in their order.

    Raises:
        KeyError: an execution that is not in the evidence.
        InputError: as `replay_batch`.
    """
    return replay_batch(
        replays_of(evidence, execution_ids),
        cache=cache,
        timeout_s=recipe.timeout_s,
        memory_mib=recipe.memory_mib,
        processes=processes,
        demand=demand,
    )
