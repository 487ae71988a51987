"""Repairs that change more than their failure needs, each beside one that does not."""

from dataclasses import replace

import pytest

from capibara_assets.datasets.agreement.needless import needless
from capibara_assets.datasets.derived.trials import execute
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.executions.replay.workers import node

JOIN = '", ".join(names + [3])'
ERROR = "TypeError: sequence item 2: expected str instance, int found"


def repaired(failing: str, fixed: str, task: str = "", test: str = "", language: str = "python") -> ExampleCandidate:
    session = 'names = ["Ann", "Bo"]' if language == "python" else 'const names = ["Ann", "Bo"];'
    asked = prompts.repair(language, task, failing, ERROR, [session], prompts.Shown(test=test))
    return ExampleCandidate("repair", language, asked, fixed, ("f", "e"), "", 0.0, 1.0, failing=failing)


@pytest.mark.parametrize(
    ("fixed", "more"),
    [
        ('", ".join(names + ["3"])', False),  # one change
        ('", ".join(map(str, names + [3]))', False),  # two, which the failure needs
        ('", ".join(map(str, names + [3]))[:4]', True),
        ('", ".join(map(str, names + [5]))', True),
        ('", ".join(map(str, names+[3]))', False),  # it shows the same
        ('", ".join(map(str, missing + [3]))', False),  # it does not run
    ],
)
def test_a_repair_changes_what_its_failure_speaks_of(fixed: str, more: bool) -> None:
    assert needless([repaired(JOIN, fixed)], execute) == [more]


def test_what_a_task_or_a_test_may_ask_for_stays() -> None:
    fixed = '", ".join(map(str, names + [3]))[:4]'
    asked, tested = repaired(JOIN, fixed, task="The first four letters."), repaired(JOIN, fixed, test="assert True")
    hidden, derived = (replace(repaired(JOIN, fixed), **each) for each in ({"test": "pass"}, {"derived": "bug:x"}))
    assert needless([asked, tested, hidden, derived], execute) == [False] * 4


@pytest.mark.skipif(node() is None, reason="Node.js is not installed")
@pytest.mark.parametrize(("last", "more"), [("20n", False), ("25n", True)])
def test_a_repair_in_javascript(last: str, more: bool) -> None:
    code = "const product = (n) => n <= 1n ? 1n : n * product(n - {});\nproduct({})"
    one = repaired(code.format("1", "20n"), code.format("1n", last), language="javascript")
    assert needless([one], execute) == [more]
