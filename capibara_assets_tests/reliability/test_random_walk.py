"""Sensor runs, backfills, forgets, prunes, promotions and rollbacks in any order, with kills between and inside them.

Whatever came before: each record is there once, nothing names what is not there, and what was forgotten is gone.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

pytestmark = pytest.mark.slow

KILL = st.one_of(st.none(), st.integers(0, 60))
"""Number of the change of a file before which the step's process is killed."""


class Walker:
    """The process that forks the steps' processes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "capibara_assets_tests.reliability.walked"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, step: str, folder: Path, arguments: dict[str, Any], kill: int | None) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([step, str(folder), arguments, kill]), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


class Walk(RuleBasedStateMachine):
    """What a deployment may be asked to do, and what is known of it."""

    walker: Walker

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="walk-"))
        self.arrived = 0
        self.forgotten: list[int] = []
        self.begun: set[int] = set()
        """Forgets that were killed, and have to be done again."""
        self.read = 0
        """How many had arrived when the logs were read last, by a run that ended."""

    def do(self, step: str, kill: int | None = None, **arguments: Any) -> bool:
        """Whether the step ended."""
        return bool(self.walker.do(step, self.folder, arguments, kill) != "killed")

    @rule(number=st.integers(1, 3), file=st.sampled_from(["a.jsonl", "b.jsonl"]))
    def arrive(self, number: int, file: str) -> None:
        self.do("arrive", first=self.arrived, number=number, file=file)
        self.arrived += number

    @precondition(lambda self: self.arrived)
    @rule(kill=KILL)
    def materialize(self, kill: int | None) -> None:
        if self.do("materialize", kill):
            self.read = self.arrived

    @precondition(lambda self: self.read)
    @rule(kill=KILL)
    def train(self, kill: int | None) -> None:
        self.do("train", kill)

    @precondition(lambda self: self.read)
    @rule(kill=KILL)
    def promote(self, kill: int | None) -> None:
        self.do("promote", kill)

    @precondition(lambda self: self.read)
    @rule(kill=KILL)
    def take_back(self, kill: int | None) -> None:
        self.do("take_back", kill)

    @precondition(lambda self: self.read)
    @rule(kill=KILL)
    def prune(self, kill: int | None) -> None:
        self.do("prune", kill)

    @precondition(lambda self: self.read > len(self.forgotten))
    @rule(data=st.data(), kill=KILL)
    def forget(self, data: Any, kill: int | None) -> None:
        number = data.draw(st.sampled_from([n for n in range(self.read) if n not in self.forgotten]))
        self._forget(number, kill)

    def _forget(self, number: int, kill: int | None) -> None:
        self.begun.add(number)
        if self.do("forget", kill, name=f"walked-{number:05d}"):
            self.begun.discard(number)
            self.forgotten.append(number)
            self.read = self.arrived

    @invariant()
    def nothing_is_lost_dangles_or_comes_back(self) -> None:
        if self.arrived:
            self.check(all_read=False)

    def check(self, all_read: bool) -> None:
        found = self.walker.do(
            "faults", self.folder, {"arrived": self.arrived, "forgotten": self.forgotten, "all_read": all_read}, None
        )
        assert found == []

    def teardown(self) -> None:
        try:
            if self.arrived:
                for number in sorted(self.begun):
                    self._forget(number, None)
                self.materialize(None)
                self.check(all_read=True)
        finally:
            shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def walk() -> Iterator[type[Walk]]:
    Walk.walker = Walker()
    yield Walk
    Walk.walker.close()


def test_a_walk_through_everything_with_a_kill_in_each_step(walk: type[Walk]) -> None:
    """Two trainings, the first of which serves, is pruned around, and whose record is forgotten."""
    walked = walk()
    walked.arrive(3, "a.jsonl")
    for kill in (9, None):
        walked.materialize(kill)
        walked.train(kill)
        walked.promote(kill)
    walked.arrive(2, "b.jsonl")
    walked.materialize(None)
    walked.train(None)
    walked.prune(3)
    walked.prune(None)
    walked.nothing_is_lost_dangles_or_comes_back()
    walked._forget(1, 25)
    walked.nothing_is_lost_dangles_or_comes_back()
    walked.teardown()


@pytest.mark.extended
@pytest.mark.parametrize(("walks", "steps"), [pytest.param(1, 6, id="short"), pytest.param(60, 30, id="long")])
def test_a_random_walk_loses_nothing_and_brings_nothing_back(walk: type[Walk], walks: int, steps: int) -> None:
    quiet = settings(
        max_examples=walks,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        phases=(Phase.generate,),  # to shrink a walk of processes takes longer than to read it
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(walk, settings=quiet)
