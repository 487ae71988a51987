"""Answers whose test passes with a part of them broken, each beside one whose test sees it."""

from dataclasses import replace

import pytest

from capibara_assets.datasets.agreement.mutants import unpinned
from capibara_assets.datasets.derived.trials import execute
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.executions.replay.workers import node

SIGN = "def sign(n):\n    if n < 0:\n        return -1\n    if n == 0:\n        return 0\n    return 1"
NODE_SIGN = (
    "function sign(n) {\n  if (n < 0) {\n    return -1;\n  }\n  if (n === 0) {\n    return 0;\n  }\n  return 1;\n}"
)
LODASH = 'const _ = require("lodash");'

needs_node = pytest.mark.skipif(node() is None, reason="Node.js is not installed")


def solution(answer: str, test: str, language: str = "python", session: str = "") -> ExampleCandidate:
    asked = prompts.solve(language, "Tell the sign of a number.", "", [], [session] if session else [])
    return ExampleCandidate("solve", language, asked, answer, ("e",), "", 0.0, 1.0, test=test)


@pytest.mark.parametrize(
    ("test", "loose"),
    [
        ("assert sign(4) == 1\nassert sign(-4) == -1\nassert sign(0) == 0", False),
        ("assert sign(4) == 1\nassert sign(9) == 1", True),  # two branches never matter
        ("print(sign(4), sign(-4), sign(0))", False),  # by what it shows
        ("print(sign(4), sign(9))", True),
        ("assert sign(4) == 2", False),  # it does not pass as it is, which tells nothing
    ],
)
def test_a_test_sees_every_part_of_an_answer(test: str, loose: bool) -> None:
    assert unpinned([solution(SIGN, test)], execute) == [loose]


def test_an_answer_is_run_in_the_session_of_its_prompt() -> None:
    scaled = solution("def area(r):\n    return scale * r * r", "assert area(3) == 18", session="scale = 2")
    assert unpinned([scaled, replace(scaled, prompt="Write Python code."), replace(scaled, test=None)], execute) == [
        False,
        False,
        False,
    ]
    slack = replace(scaled, test="assert area(1) == 2")  # `scale * r / r` gives that, too
    assert unpinned([slack], execute) == [True]


def test_only_solutions_are_judged() -> None:
    weak = solution(SIGN, "assert sign(4) == 1")
    assert unpinned([weak, replace(weak, kind="apply"), replace(weak, kind="repair")], execute) == [True, True, False]
    assert unpinned([replace(weak, language="sql", answer="SELECT 1")], execute) == [False]


@needs_node
@pytest.mark.parametrize(
    ("test", "loose"),
    [
        (LODASH + "if (!_.isEqual([4, -4, 0].map(sign), [1, -1, 0])) { throw 'no'; }", False),
        (LODASH + "if (!_.isEqual([sign(4)], [1])) { throw 'no'; }", True),
        ("console.assert(sign(4) === 1); console.assert(sign(-4) === -1); console.assert(sign(0) === 0);", False),
        ("console.assert(sign(4) === 1);", True),
        ("console.log(sign(4), sign(-4), sign(0))", False),
        ("console.log(sign(4))", True),
        ("for (let i = 0; i < 1e9; i++) { sign(i); }", False),  # it does not end
        ("for (let i = 0; i < 5000; i++) { console.log(`a line of some length: ${sign(4)}`); }", True),
        ("globalThis.console.log('[' + '['.repeat(1e5)); sign(4);", False),  # it prints what is not asked for
        ("JSON.stringify = () => '['; sign(4);", True),
        ("Promise.resolve(sign(4)).then((n) => { if (n !== 1) throw n; })", False),  # its failure comes later
    ],
)
def test_a_test_in_javascript_sees_every_part_of_an_answer(test: str, loose: bool) -> None:
    assert unpinned([solution(NODE_SIGN, test, "javascript")], execute) == [loose]


@needs_node
def test_an_answer_in_javascript_is_run_in_the_session_of_its_prompt() -> None:
    answer = "function area(r) {\n  if (r < 0) {\n    return 0;\n  }\n  return scale * r;\n}"
    tests = ["if (area(3) !== 6 || area(-1) !== 0) throw 'no';", "if (area(3) !== 6) throw 'no';"]
    found = [solution(answer, test, "javascript", "const scale = 2;") for test in tests]
    assert unpinned(found, execute) == [False, True]
