"""With E2B's key, recorded Python runs again and answers are graded in E2B, through its own SDK."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from capibara_assets.errors import InputError
from capibara_assets.evaluation.grading.grade import SandboxSettings, grade
from capibara_assets.executions.replay.e2b import sandbox_place
from capibara_assets.executions.replay.replay import Replay, replay_batch
from capibara_assets.executions.sandbox.isolation import IsolationError, best_isolation
from capibara_assets_tests.evaluation.grading.test_grade import ADD, Check, Said, made
from capibara_assets_tests.seams.e2b_server import KEY, E2BServer, e2b_server

pytestmark = pytest.mark.slow


def test_without_a_key_nothing_leaves_this_machine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    assert sandbox_place() == best_isolation()
    monkeypatch.setenv("CAPIBARA_SANDBOX", "e2b")
    with pytest.raises(InputError, match="CAPIBARA_SANDBOX=e2b: E2B_API_KEY is not set"):
        sandbox_place()
    monkeypatch.setenv("CAPIBARA_SANDBOX", "cloud")
    with pytest.raises(InputError, match="'cloud': local, e2b"):
        sandbox_place()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[E2BServer]:
    pytest.importorskip("e2b_code_interpreter", reason="E2B's SDK is not installed: pip install '.[e2b]'")
    with e2b_server() as state:
        for name, value in (("E2B_API_URL", state.url), ("E2B_SANDBOX_URL", state.url), ("E2B_API_KEY", KEY)):
            monkeypatch.setenv(name, value)
        yield state


def test_recorded_python_runs_again_in_sandboxes_of_its_own(server: E2BServer, tmp_path: Path):
    replays = [
        Replay("right", "python", ("x = 20", 'print(x + 1)\n"it\'s"'), stdout="21\n", result_text="it's"),
        Replay("other", "python", ("print(2)",), stdout="3\n"),
        Replay("gone", "python", ("import a_package_that_is_not_here",), stdout="1\n"),
        Replay("raises", "python", ("1 / 0",), outcome="error", error_name="ZeroDivisionError"),
        Replay("sql", "sql", ("SELECT 1 AS one",), result_text="   one\n0    1"),
    ]
    batch = replay_batch(replays, cache=tmp_path / "cache")
    found = {one.execution_id: (one.verified, one.reason) for one in batch.verdicts}
    assert found["right"] == found["raises"] == ("reexecuted", None)
    assert found["other"] == ("unverified", "another output than was recorded")
    assert found["gone"][0] == "recorded" and "a_package_that_is_not_here" in (found["gone"][1] or "")
    assert batch.summary["isolation"].startswith("e2b: each run of Python has a fresh E2B sandbox")
    assert len(server.created) == len(server.killed) == 8, "four sessions, twice each; SQL runs here"
    assert not any(body["allow_internet_access"] for body in server.created)
    assert server.cells.count("x = 20") == 2 and not any("SELECT" in cell for cell in server.cells)
    again = replay_batch(replays, cache=tmp_path / "cache")
    assert again.verdicts == batch.verdicts and len(server.created) == 8, "verdicts are kept"


def test_after_a_broken_connection_a_session_runs_again_in_a_new_sandbox(server: E2BServer):
    server.drops.add("print(x)")
    replays = [
        Replay(str(n), "python", (f"x = {n}", cell), stdout=f"{n}\n") for n, cell in ((1, "print(x)"), (2, "print(+x)"))
    ]
    batch = replay_batch(replays)
    assert {one.verified for one in batch.verdicts} == {"reexecuted"}
    assert len(server.created) == len(server.killed) == 5 and server.cells.count("x = 1") == 3


def test_answers_are_graded_there(server: E2BServer):
    item = made("add", ADD, Check("assertions", tests="assert add(2, 3) == 5"))
    answers = [Said("c", "add", 0, ADD), Said("c", "add", 1, "def add(a, b):\n    return a - b")]
    grades = grade([item], answers, SandboxSettings(2))
    assert [one.verdict for one in grades] == ["passed", "failed"]
    assert all(one.isolation.startswith("e2b") for one in grades) and server.created


def test_a_key_that_e2b_refuses_is_named_with_the_way_out(server: E2BServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("E2B_API_KEY", "e2b_" + "f" * 40)
    with pytest.raises(IsolationError, match=r"E2B gives no sandbox.*CAPIBARA_SANDBOX=local"):
        replay_batch([Replay("one", "python", ("print(1)",), stdout="1\n")])
    monkeypatch.setenv("CAPIBARA_SANDBOX", "local")
    (verdict,) = replay_batch([Replay("one", "python", ("print(1)",), stdout="1\n")]).verdicts
    assert verdict.verified == "reexecuted" and not server.created
