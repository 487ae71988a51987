"""Grading in real sandboxes: right and wrong answers, what cannot be graded, resuming, and programs that cheat."""

import threading
import time
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from capibara_assets.errors import InputError
from capibara_assets.evaluation.grading.grade import Grade, SandboxSettings, counts, extract_code, grade, plain_text
from capibara_assets.evaluation.grading.journal import GradeJournal
from capibara_assets.evaluation.items.items import Check, Item
from capibara_assets.evaluation.items.public_benchmarks import read_benchmark
from capibara_assets.executions.replay.workers import node
from capibara_assets.executions.sandbox.isolation import Isolation
from capibara_assets.storage.records import table
from capibara_assets_tests.commands import command_of
from capibara_assets_tests.evaluation.items.test_public_benchmarks import HUMAN_EVAL, MBPP, written
from capibara_assets_tests.forked import Forked

ADD = "def add(a, b):\n    return a + b"
VECTOR = """class V:
    def __init__(self, x):
        self.x = x
    def __eq__(self, other):
        return self.x == other.x"""
TWO_CROPS = "   name  acres\n0  oats      7\n1   rye     12"
CROPS = "CREATE TABLE crops (name, acres); INSERT INTO crops VALUES ('oats', 7), ('rye', 12), ('flax', 3);"


@dataclass(frozen=True)
class Said:
    contender: str
    item_id: str
    sample: int
    text: str


def made(item_id: str, reference: str, check: Check, language: str = "python", kind: str = "solve") -> Item:
    prompt = ({"role": "user", "content": "Write it."},)
    return Item(item_id, item_id, language, kind, language, prompt, reference, replace(check, timeout_s=3.0), ())


ITEMS = [
    made("add", ADD, Check("assertions", tests="assert add(2, 3) == 5\nassert add(-1, 1) == 0")),
    made("shown", "print(2 ** 10)", Check("output", expected="1024")),
    made("both", ADD, Check("output", tests="assert add(1, 1) == 2\nadd(2, 3)", expected="5")),
    made("joined", "x = [3, 1]\nprint(sorted(x))", Check("output", tests="assert len(x) == 2", expected="[1, 3]")),
    made("displayed", "x = [3, 1]\nx", Check("output", tests="n = 1\nassert sorted(x) == [n, 3]", expected="[3, 1]")),
    made("context", "data[0] + 1", Check("output", before="data = [41]", expected="42")),
    made("vector", VECTOR, Check("assertions", tests="assert V(1) == V(1)\nassert V(1) != V(2)\nassert V(7).x == 7")),
    made("rows", "SELECT name, acres FROM crops WHERE acres > 5", Check("output", CROPS, expected=TWO_CROPS), "sql"),
    made("sorted rows", "SELECT name FROM crops ORDER BY acres", Check("output", CROPS), "sql"),
    made("predicted", "4", Check("exact", expected="4"), kind="predict"),
    made("explained", "It adds.", Check("text"), kind="explain"),
    made("missing", "import a_package_that_is_not_here", Check("output", expected="1")),
    made("random", "import os\nprint(os.urandom(8))", Check("output", expected="b'abc'")),
    made("claims", ADD, Check("assertions", tests="assert add(1, 2)")),
    made("nothing", ADD, Check("assertions", tests="def check(f):\n    assert f(1, 2) == 3")),
    made("no reference", "", Check("assertions", tests="assert add(1, 2) == 3\nassert add(5, 5) == 10")),
    made("no output", "", Check("output", tests="assert add(1, 2) == 3", expected="3")),
    made("entangled", ADD, Check("assertions", tests="while True:\n    assert add(1, 2) == 3\n    break")),
]  # fmt: skip
PASSES = [
    ("add", f"Here:\n```python\n{ADD}\n```\nIt adds."),
    ("add", "add = lambda a, b: sum((a, b))\nprint('noise')"),
    ("shown", "print(1 << 10)"),
    ("both", ADD),
    ("joined", "x = [1, 3]\nprint(x)"),
    ("displayed", "x = [1, 3]"),
    ("context", "42"),
    ("vector", VECTOR),
    ("rows", "```sql\nSELECT name AS crop, acres FROM crops WHERE acres >= 7 ORDER BY name DESC\n```"),
    ("sorted rows", "SELECT name FROM crops ORDER BY acres ASC;"),
    ("predicted", "```\n4\n```"),
    ("no reference", ADD),
]
FAILS = [
    ("add", "def add(a, b):\n    return a - b", "failed"),
    ("add", "def add(a, b):\n    return 5", "failed"),
    ("add", "def add(a, b):\n    return 1 / 0", "error"),
    ("add", "I do not know.", "error"),
    ("add", "```python\ndef add(a, b:\n```", "error"),
    ("shown", "print(2 ** 9)", "failed"),
    ("both", "def add(a, b):\n    return 5", "failed"),
    ("joined", "x = [1, 2, 3]\nprint([1, 3])", "failed"),
    ("displayed", "x = [1]\nprint([3, 1])", "failed"),
    ("rows", "SELECT name, acres FROM crops", "failed"),
    ("rows", "SELECT name, acres, 1 FROM crops WHERE acres > 5", "failed"),
    ("rows", "SELECT nothing FROM crops", "error"),
    ("sorted rows", "SELECT name FROM crops ORDER BY acres DESC", "failed"),
    ("predicted", "5", "failed"),
    ("explained", "It subtracts.", "ungraded"),
    ("missing", "print(1)", "ungraded"),
    ("random", "print(1)", "ungraded"),
    ("claims", ADD, "ungraded"),
    ("entangled", ADD, "ungraded"),
    ("nothing", ADD, "ungraded"),
    ("no reference", "add = max", "failed"),
    ("no output", "def add(a, b):\n    return 3", "failed"),
]


def graded(items: Sequence[Item], said: Sequence[tuple[str, str]], journal: Path | None = None) -> list[Grade]:
    answers = [Said("c", item_id, number, text) for number, (item_id, text) in enumerate(said)]
    return grade(items, answers, SandboxSettings(2), journal)


def test_right_answers_pass_wrong_ones_fail_and_the_rest_is_said(isolated: Isolation, kept: Context) -> None:
    grades = kept.run(graded, ITEMS, [*PASSES, *[(item_id, text) for item_id, text, _ in FAILS]])
    assert [each.verdict for each in grades] == ["passed"] * len(PASSES) + [verdict for _, _, verdict in FAILS]
    said = {each.item_id: each for each in grades}
    assert "a_package_that_is_not_here" in said["missing"].detail
    assert "another output" in said["random"].detail
    assert "says yes to all" in said["claims"].detail
    assert said["add"].isolation.startswith(f"{isolated.kind}: network, files, processes, number of processes isolated")
    assert said["predicted"].isolation == "nothing ran"
    assert "the first python block" in grades[0].detail
    assert counts(grades)["passed"] == len(PASSES)
    table(Grade, grades)


def test_programs_that_cheat_do_not_pass_and_what_follows_is_right(isolated: Isolation) -> None:
    from capibara_assets_tests.evaluation.drills.hostile import run_hostile

    only = {
        "python: leaves before the tests", "python: leaves when it is called", "python: prints success",
        "python: an object equal to everything", "python: takes the assertions out of what is compiled",
        "python: reports what it likes", "python: looks for the tests in frames and in memory",
        "python: answers in the name of its process", "python: ends the process that forked it",
        "python: takes all memory in files without names", "python: writes outside", "python: network",
        "python: secret of the environment through /proc", "python: leaves a daemon behind",
        "sql: writes a database outside", "sql: changes the data",
        "javascript: answers in the name of its process", "javascript: file of the user",
        "python: a user namespace of its own", "python: a ring of input and output", "python: a new key",
        "python: tracing its own child", "python: a mount by the newer calls", "python: a call of 32 bits",
        "python: the kernel's own network of messages", "python: taking the filter off",
        "python: a service of the machine by an abstract name", "python: memory of the machine's processes as files",
        "python: file of the user by a race of links", "python: more than its limits",
        "python: a folder that it left, which cannot be opened",
        "python: a folder that another left, which cannot be opened",
        "python: traces what reports", "python: changes the equality of numbers", "python: output that is no text",
        "python: folders deeper than a stack", "sql: rewrites the schema", "sql: reads a file as a database",
        "javascript: file of the user by a module of Node",
    }  # fmt: skip
    found = run_hostile(only=only)
    assert found["hostile_programs"] >= 26
    assert (found["passed"], found["harmed"], found["honest_failed"]) == ([], [], 0)
    assert found["honest_answers"] >= 4


@pytest.mark.extended
def test_no_hostile_program_passes_or_harms(isolated: Isolation) -> None:
    from capibara_assets_tests.evaluation.drills.hostile import run_hostile

    found = run_hostile()
    assert found["hostile_programs"] >= 200
    assert (found["passed"], found["harmed"], found["honest_failed"]) == ([], [], 0)


@pytest.mark.extended
def test_no_hostile_program_reaches_out_when_it_is_executed_again(isolated: Isolation) -> None:
    from capibara_assets_tests.evaluation.drills.hostile import replayed_hostile

    found = replayed_hostile()
    assert found["replayed"] >= 60
    assert (found["reached"], found["harmed"]) == ([], [])


@pytest.mark.skipif(node() is None, reason="no Node.js")
def test_javascript(kept: Context) -> None:
    tests = (
        "const assert = require('assert');\nassert.deepStrictEqual(f(2), [2, { a: 1 }]);\nassert.throws(() => f(-1));"
    )
    reference = "function f(n) { if (n < 0) throw new RangeError('below zero'); return [n, { a: 1 }]; }"
    items = [
        made("js", reference, Check("assertions", tests=tests), "javascript"),
        made("shown", "console.log([1, 2].map((n) => n * 2));", Check("output", expected="[ 2, 4 ]"), "javascript"),
    ]
    said = [
        ("js", reference),
        ("js", reference.replace("{ a: 1 }]", "{ a: 2 }]")),
        ("js", reference.replace("if (n < 0) throw new RangeError('below zero');", "")),
        ("shown", "for (const line of ['[ 2, 4 ]']) console.log(line);"),
        ("shown", "console.log([1, 2]);"),
    ]
    assert [each.verdict for each in kept.run(graded, items, said)] == [
        "passed",
        "failed",
        "failed",
        "passed",
        "failed",
    ]


def test_benchmarks(kept: Context, tmp_path: Path) -> None:
    human, mbpp = (read_benchmark(written(tmp_path / f"{n}.jsonl", row)) for n, row in (("h", HUMAN_EVAL), ("m", MBPP)))
    body = HUMAN_EVAL["canonical_solution"]
    said = [
        (human.items[0].item_id, human.items[0].reference),
        (human.items[0].item_id, body),  # a base model goes on with the head
        (
            human.items[0].item_id,
            "```python\ndef doubled(numbers: List[int]):\n    return [n + n for n in numbers]\n```",
        ),
        (human.items[0].item_id, body.replace("2", "3")),
        (mbpp.items[0].item_id, MBPP["code"]),
        (mbpp.items[0].item_id, "def add(a, b):\n    return a"),
    ]
    grades = kept.run(graded, [*human.items, *mbpp.items], said)
    assert [each.verdict for each in grades] == ["passed", "passed", "passed", "failed", "passed", "failed"]
    assert "as its body" in grades[1].detail


def weak() -> Isolation:
    return Isolation("processes", ("time is limited",), ("the network can be reached",), frozenset(), "limits")


def test_nothing_runs_where_it_cannot_be_isolated(tmp_path: Path) -> None:
    answers = [Said("c", "add", 0, f"open({str(tmp_path / 'ran')!r}, 'w')"), Said("c", "predicted", 0, "4")]
    grades = grade(ITEMS, answers, SandboxSettings(1, isolation=weak()))
    assert [each.verdict for each in grades] == ["refused", "passed"]
    assert "cannot isolate network, files, processes, number of processes" in grades[0].detail
    assert not (tmp_path / "ran").exists()


def test_weak_isolation_is_allowed_by_name_and_stands_in_every_verdict() -> None:
    (found,) = grade(
        ITEMS,
        [Said("c", "add", 0, ADD)],
        SandboxSettings(1, isolation=weak(), allow_weak_isolation=True),
    )
    assert found.verdict == "passed"
    assert "weak, allowed by name: network, files, processes, number of processes not isolated" in found.isolation


def test_a_grading_goes_on_where_it_was_killed(kept: Context, tmp_path: Path) -> None:
    journal = tmp_path / "grades.jsonl"
    said = [("add", f"def add(a, b):\n    return a + b + {number} * 0") for number in range(14)]
    never = ("add", "import time\ntime.sleep(600)")
    child = Forked(lambda _: graded(ITEMS, [*said, never], journal))
    until = time.monotonic() + 120
    while time.monotonic() < until and (not journal.exists() or journal.read_bytes().count(b"\n") < 6):
        time.sleep(0.02)
    child.kill()
    child.wait()
    with journal.open("ab") as file:
        file.write(b'{"key": "torn')
    before = journal.read_bytes()
    told = before.count(b"\n") - 1
    assert told >= 5, "verdicts were written as they were found"
    assert {each.verdict for each in kept.run(graded, ITEMS, said, journal)} == {"passed"}
    after = journal.read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") - before.count(b"\n") == len(said) - told + 1, (
        "the torn line ended, and only what was missing ran"
    )
    assert GradeJournal(journal).damaged == 1
    assert [each.verdict for each in kept.run(graded, ITEMS, said, journal)] == ["passed"] * len(said)
    assert journal.read_bytes() == after, "nothing ran again"


def test_equal_answers_run_once(kept: Context, tmp_path: Path) -> None:
    journal = tmp_path / "grades.jsonl"
    same = [replace(ITEMS[0], item_id=name) for name in ("a", "b")]
    grades = kept.run(graded, same, [("a", ADD), ("b", ADD), ("b", f"```python\n{ADD}\n```")], journal)
    assert [each.verdict for each in grades] == ["passed"] * 3
    assert journal.read_bytes().count(b"\n") == 2, "one line for the item, one for the answer"


def test_answers_run_side_by_side(isolated: Isolation) -> None:
    """Two answers that wait for each other cannot, but two workers are there at once."""
    seen = 0
    over, before = threading.Event(), set(psutil.Process().children())

    def watch() -> None:
        nonlocal seen
        while not over.wait(0.02):
            workers = [
                p for p in {*psutil.Process().children()} - before if "sandbox/launch.py" in " ".join(command_of(p))
            ]
            seen = max(seen, len(workers))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        graded(ITEMS[:1], [("add", f"{ADD}  # {number}") for number in range(6)])
    finally:
        over.set()
        thread.join()
    assert seen == 2


def test_what_makes_no_sense_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not given: other"):
        graded(ITEMS, [("other", "x")])
    with pytest.raises(InputError, match="same item_id"):
        graded([ITEMS[0], ITEMS[0]], [])
    with pytest.raises(InputError, match="above zero"):
        grade(ITEMS, [], SandboxSettings(0))
    with pytest.raises(InputError, match="jsonl"):
        GradeJournal(tmp_path / "grades.txt")
    assert graded(ITEMS, []) == []


@pytest.mark.parametrize(
    ("answer", "language", "code", "how"),
    [
        ("Sure:\n```python\nx = 1\n```\nand\n```python\nx = 2\n```", "python", "x = 1", "the first python block"),
        ("```sql\nSELECT 1\n```\n```py\nx = 2\n```", "python", "x = 2", "the first python block"),
        ("```\nx = 3\n```", "python", "x = 3", "the first block (of no language)"),
        ("```js\nx = 3\n```", "python", "x = 3", "the first block (js)"),
        ("~~~~javascript\nlet a = `\n```\n`;\n~~~~", "javascript", "let a = `\n```\n`;", "the first javascript block"),
        ("cut off:\n```python\ndef f():\n    return 1", "python", "def f():\n    return 1", "the first python block"),
        ("def f():\n    return 1\n", "python", "def f():\n    return 1\n", "the whole answer"),
        ("-- all\nSELECT 1;", "sql", "-- all\nSELECT 1;", "the whole answer"),
        ("const f = () => 1;", "javascript", "const f = () => 1;", "the whole answer"),
    ],
)
def test_code_is_found(answer: str, language: str, code: str, how: str) -> None:
    assert (extract_code(answer, language).code, extract_code(answer, language).how) == (code, how)


@pytest.mark.parametrize("language", ["python", "javascript", "sql"])
@pytest.mark.parametrize(
    "answer", ["", "   \n", "I am sorry, but I cannot write this code.", "Here you are: 1) first ..."]
)
def test_talk_is_no_code(answer: str, language: str) -> None:
    assert extract_code(answer, language).code is None


def test_texts_are_compared_without_fences_and_line_feeds() -> None:
    assert plain_text("```\n  a  b\n0 1 2\n```") == plain_text("\n  a  b\n0 1 2\n") == "  a  b\n0 1 2"
