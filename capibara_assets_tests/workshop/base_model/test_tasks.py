"""The small tasks' solutions do what is said: both languages give the stated results when they are executed."""

import json
import shutil
import subprocess
from random import Random
from typing import Any

import pytest

from workshop.base_model.skills import _test
from workshop.base_model.tasks import Task, camel, small_task
from workshop.base_model.worlds import draw_world


def drawn(number: int, seed: int) -> list[Task]:
    rng = Random(seed)
    return [small_task(rng, draw_world(rng)) for _ in range(number)]


def test_python_solutions_give_the_stated_results() -> None:
    for task in drawn(400, seed=1):
        namespace: dict[str, Any] = {}
        exec(task.python, namespace)
        for arguments, result in task.calls:
            assert namespace[task.name](*json.loads(json.dumps(arguments))) == result, task


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_javascript_solutions_pass_their_tests_in_node() -> None:
    tasks = [task for task in drawn(300, seed=2) if task.javascript]
    programs = []
    for task in tasks:
        calls = [f"{camel(task.name)}({', '.join(map(json.dumps, given))})" for given, _ in task.calls]
        tests = [_test(call, result, "javascript") for call, (_, result) in zip(calls, task.calls, strict=True)]
        programs.append("\n".join([task.javascript, *tests]))
    script = "const assert = require('node:assert');\n" + "\n".join(f"{{\n{program}\n}}" for program in programs)
    ended = subprocess.run(["node", "-"], input=script, capture_output=True, text=True, check=False)
    assert len(tasks) > 100 and ended.returncode == 0, ended.stderr[-2000:]


def test_tasks_differ() -> None:
    tasks = drawn(300, seed=3)
    assert len({task.said for task in tasks}) > 150 and len({task.python for task in tasks}) > 290
