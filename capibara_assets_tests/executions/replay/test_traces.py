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
MAPPED = """\
const double = (n) => 2 * n;
function most(...all) { return Math.max(...all); }
function count() { return arguments.length; }
[4].map(double); most(1, 5); count(7, 8);
"""
HOLES = "const made = (n) => Array(n); made(2); made(0); const full = (n) => [undefined, n]; full(1);"
NESTED = "const outer = (n) => { const inner = () => n + 1; function late() {} return inner(); }; outer(2);"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    folder = tmp_path_factory.mktemp("traces")
    sessions = [
        Session("python", (PYTHON, "weigh(1, seen := [1, 3])\nlist(pets)", "random.random()", "print(len(pets))")),
        Session("python", (BAD, RAISING, "while True: pass", "at([1], 0)")),
        Session("javascript", (JAVASCRIPT, NESTED, MAPPED, HOLES)),
    ]
    found = trace_sessions(sessions, cache=folder)
    assert trace_sessions(sessions, cache=folder) == found
    assert (folder / FILE).exists()
    return found


def told(call: dict[str, Any]) -> list[list[Any]]:
    """The events of a call without their places."""
    return [[event[0], *event[2 if event[0] not in ("called", "ended") else 1 :]] for event in call["events"]]


def test_a_call_has_its_steps_with_the_values_of_their_parts(traces: list[list[Any]]) -> None:
    (call,) = traces[0][0]["calls"]  # of `weigh`: `check` asserts, and is passed over; a generator is no call
    assert (call["function"], call["arguments"], call["result"]) == ("weigh", [["n", "9"]], "7")
    assert told(call)[:4] == [
        ["ran", {"5:11:5:12": "9"}, {"half": "4"}],
        ["tested", {"6:7:6:11": "4"}, True],
        ["called", "weigh", [["n", "4"], ["seen", "None"]]],
        ["ran", {"5:11:5:12": "4"}, {"half": "2"}],
    ]
    assert told(call)[-2:] == [
        ["ended", "3", None, {}],
        ["returned", {"7:15:7:19": "4", "7:28:7:32": "4", "7:22:7:33": "3"}, "7"],
    ]
    (other,) = traces[0][1]["calls"]
    assert other["changed"] == {"seen": "[1]"} and other["result"] == "0"
    assert ["ran", {"10:12:10:16": "[1, 3]", "10:24:10:28": "3", "10:12:10:29": "None"}, {"seen": "[1]"}] in told(other)


def test_a_value_that_differs_between_runs_is_not_noted(traces: list[list[Any]]) -> None:
    assert traces[0][2] is not None and traces[0][2]["result"] is None  # a random number
    assert traces[0][1] is not None and traces[0][1]["result"] is None  # a list in the order of a set
    assert traces[0][3]["stdout"] == "4\n"


def test_a_failure_has_the_values_of_the_step_that_raised(traces: list[list[Any]]) -> None:
    failed, raised, endless, after = traces[1]
    assert failed["error"]["name"] == "AssertionError" and raised["error"]["line"] == 2
    (call,) = raised["calls"]
    assert call["raised"] == ["IndexError", "list index out of range"]
    assert call["operands"] == {"2:11:2:13": "[1]", "2:14:2:15": "3"}
    assert endless["error"]["name"] == "Timeout"
    assert after["calls"][0]["result"] == "2"  # the session goes on


def test_javascript_goes_on_without_a_package(traces: list[list[Any]]) -> None:
    cell = traces[2][0]
    assert [call["result"] for call in cell["calls"]] == ["null", "{ sum: 6 }"]
    first = cell["calls"][0]
    assert first["arguments"] == [["xs", "[1, 2, 9]"], ["most", "5"]] and first["changed"] == {"xs": "[1, 2, 9, 3]"}
    assert told(first)[:4] == [
        ["ran", {}, {"sum": "0"}],
        ["looped", {"3:18:3:20": "[1, 2, 9]"}, "[1, 2, 9]"],
        ["turned", {"x": "1"}],
        ["tested", {"3:26:3:27": "1", "3:30:3:34": "5"}, True],
    ]
    assert [error[1:] for error in cell["errors"]] == [["Error", "Cannot find module 'left-pad'"]]


def test_javascript_functions_are_noted_with_the_arguments_that_they_take(traces: list[list[Any]]) -> None:
    given = [[value for _, value in call["arguments"]] for call in traces[2][2]["calls"]]
    assert given == [["4"], ["1", "5"], ["7", "8"]]


def test_lists_with_holes_have_no_text(traces: list[list[Any]]) -> None:
    assert [call["result"] for call in traces[2][3]["calls"]] == [None, "[]", "[undefined, 1]"]


def test_what_runs_in_an_inner_function_is_not_followed(traces: list[list[Any]]) -> None:
    (call,) = traces[2][1]["calls"]
    assert (call["result"], call["events"], call["cut"]) == ("3", [], True)


def test_code_that_does_not_parse_is_not_traced() -> None:
    assert traced_cell("function (", 0, 0) is None


def test_nothing_runs_twice_for_the_cache(tmp_path: Path) -> None:
    assert trace_sessions([Session("sql", ("SELECT 1",))], cache=tmp_path) == [[None]]
    assert not (tmp_path / FILE).exists()
