"""Sessions run again under the tracers: real workers, one batch for all tests."""

from pathlib import Path
from typing import Any

import pytest

from capibara_assets.executions.replay.javascript_tracing import traced_cell
from capibara_assets.executions.replay.traces import FILE, trace_sessions
from capibara_assets.executions.replay.workers import Session

PYTHON = '''\
import random

def weigh(n, seen=None):
    """Say "\\\\n" of a number."""
    half = n // 2
    if half > 1:
        return half + weigh(half)
    for item in seen or []:
        if item > 2:
            seen.remove(item)
    return half

def check(candidate):
    assert candidate(9) == 7

def numbers():
    yield random.random()

check(weigh)
pets = {"cat", "dog", "eel", "fox"}
'''
BAD = "def at(xs, i):\n    return xs[i] + 1\nassert at([1, 5], 1) == 7"
RAISING = "at([1], len('abc'))"
JAVASCRIPT = """\
const kept = (xs, most) => {
  let sum = 0;
  for (const x of xs) if (x < most) sum += x;
  xs.push(sum);
  return sum > 3 ? { sum } : null;
};
class Pot { }
const left = require("left-pad");
var first = kept([1, 2, 9], 5);
kept([4, 2], 7);
if (first) { left.pad(first); }
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    folder = tmp_path_factory.mktemp("traces")
    sessions = [
        Session("python", (PYTHON, "weigh(1, seen := [1, 3])\nlist(pets)", "random.random()", "print(len(pets))")),
        Session("python", (BAD, RAISING, "while True: pass", "at([1], 0)")),
        Session("javascript", (JAVASCRIPT,)),
    ]
    found = trace_sessions(sessions, cache=folder)
    assert trace_sessions(sessions, cache=folder) == found
    assert (folder / FILE).exists()
    return found


def by_text(counts: dict[str, Any]) -> list[Any]:
    return [value for _, value in sorted(counts.items(), key=lambda item: int(item[0].split(":")[0]))]


def test_calls_with_their_tests_loops_steps_and_depth(traces: list[list[Any]]) -> None:
    first, second = traces[0][0], traces[0][1]
    (call,) = first["calls"]  # of `weigh`: `check` asserts, and is passed over; a generator is no call
    assert (call["function"], call["arguments"], call["result"]) == ("weigh", [["n", "9"]], "7")
    assert (call["inner"], call["depth"], by_text(call["tests"])) == (2, 2, [[2, 1]])
    (other,) = second["calls"]
    assert other["changed"] == {"seen": "[1]"} and other["result"] == "0"
    assert by_text(other["tests"]) == [[0, 1], [2, 0], [1, 1]]
    assert [1, "0"] in other["steps"].values()


def test_a_value_that_differs_between_runs_is_not_noted(traces: list[list[Any]]) -> None:
    assert traces[0][2] is not None and traces[0][2]["result"] is None  # a random number
    assert traces[0][1] is not None and traces[0][1]["result"] is None  # a list in the order of a set
    assert traces[0][3]["stdout"] == "4\n"


def test_a_failure_has_the_values_of_its_line(traces: list[list[Any]]) -> None:
    failed, raised, endless, after = traces[1]
    assert failed["compared"] | {"at": ""} == {"at": "", "operation": "Eq", "left": "6", "right": "7"}
    assert failed["error"]["name"] == "AssertionError"
    assert raised["error"]["names"] == {"xs": "[1]", "i": "3"} and raised["error"]["line"] == 2
    assert raised["calls"][0]["raised"] == ["IndexError", "list index out of range"]
    assert endless["error"]["name"] == "Timeout"
    assert after["calls"][0]["result"] == "2"  # the session goes on


def test_javascript_goes_on_without_a_package(traces: list[list[Any]]) -> None:
    (cell,) = traces[2]
    assert [call["result"] for call in cell["calls"]] == ["null", "{ sum: 6 }"]
    first = cell["calls"][0]
    assert first["arguments"] == [["xs", "[1, 2, 9]"], ["most", "5"]] and first["changed"] == {"xs": "[1, 2, 9, 3]"}
    assert sorted(first["tests"].values()) == [[0, 1], [2, 1], [3, 0]]
    assert [error[1:] for error in cell["errors"]] == [["Error", "Cannot find module 'left-pad'"]]


def test_code_that_does_not_parse_is_not_traced() -> None:
    assert traced_cell("function (", 0, 0) is None


def test_nothing_runs_twice_for_the_cache(tmp_path: Path) -> None:
    assert trace_sessions([Session("sql", ("SELECT 1",))], cache=tmp_path) == [[None]]
    assert not (tmp_path / FILE).exists()
