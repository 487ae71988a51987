"""From executions to replays: what each needs of its session, and why some cannot run again."""

from typing import Any

import polars as pl
import pytest

from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets.datasets.recipe import Verification
from capibara_assets.datasets.verification import INCOMPLETE, NO_DATABASE, SECRETS, replays_of, verify
from capibara_assets.executions.schema import Execution
from capibara_assets.storage.records import table
from capibara_assets_tests.datasets.conftest import run


def evidence(*rows: Execution) -> Evidence:
    nothing = pl.DataFrame()
    return Evidence(table(Execution, list(rows)), nothing, nothing, nothing)


@pytest.fixture
def session() -> Evidence:
    def cell(name: str, code: str, minute: int, **values: Any) -> Execution:
        return run(name, code, minute=minute, **values)

    return evidence(
        cell("define", "def double(x):\n    return x * 2\nunused = 1", 0),
        cell("call", "y = double(21)", 1),
        cell("show", "print(y)\ny", 2, stdout="42\n", result_text="42"),
        cell("wrong", "print(y + 1)", 3, stdout="42\n"),
        cell("gone", "print(nowhere)", 4, stdout="1\n"),
        cell("secret", "key = '1'", 5, secrets=1),
        cell("uses the secret", "print(key)", 6, stdout="1\n"),
        cell("sql", "SELECT * FROM orders", 7, language="sql", sandbox="s2", result_text="x"),
    )


def test_a_replay_holds_what_the_execution_needs_and_no_more(session: Evidence) -> None:
    (one,) = replays_of(session, ["show"])
    assert one.cells == ("def double(x):\n    return x * 2", "y = double(21)", "print(y)\ny")
    assert (one.stdout, one.result_text, one.outcome, one.hindrance) == ("42\n", "42", "ok", None)


def test_what_cannot_run_again_says_why(session: Evidence) -> None:
    replays = replays_of(session, ["gone", "sql", "uses the secret", "show"])
    assert [one.hindrance for one in replays] == [INCOMPLETE, NO_DATABASE, SECRETS, None]
    with pytest.raises(KeyError):
        replays_of(session, ["unknown"])


def test_verdicts_come_in_the_order_asked_for_with_the_isolation(session: Evidence) -> None:
    batch = verify(session, ["wrong", "gone", "show"], Verification.model_validate({}), processes=2)
    assert [(verdict.execution_id, verdict.verified) for verdict in batch.verdicts] == [
        ("wrong", "unverified"),
        ("gone", "recorded"),
        ("show", "reexecuted"),
    ]
    assert "Not isolated" in batch.summary["isolation"]
    assert batch.summary["share_replayed"] == pytest.approx(0.6667, abs=1e-4)
