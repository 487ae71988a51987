"""The backward slice of a session: what a cell needs, no more and no less."""

import pytest

from capibara_assets.datasets.code.sessions import (
    carried,
    cell_names,
    defined_name,
    needed,
    sessions,
)
from capibara_assets.executions.schema import Execution
from capibara_assets_tests.datasets.conftest import frame, run


def slice_of(*cells: str, language: str = "python", outcomes: tuple[str, ...] = ()) -> tuple[list[str], bool]:
    """Texts of the pieces that the last cell needs, and whether they are all."""
    rows = [
        run(f"e{i}", code, minute=i, language=language, outcome=outcomes[i] if i < len(outcomes) else "ok")
        for i, code in enumerate(cells)
    ]
    [session] = sessions(frame(rows)).values()
    found = needed(session, len(cells) - 1)
    return [piece.text for piece in found.pieces], found.complete


def test_only_the_statements_needed_are_quoted() -> None:
    pieces, complete = slice_of("import math\na = 1\nb = math.pi", "c = 5", "print(b)")
    assert (pieces, complete) == (["import math\nb = math.pi"], True)


def test_transitive_and_in_order() -> None:
    assert slice_of("a = 1", "b = a + 1", "a = 7", "c = b * 2", "c")[0] == ["a = 1", "b = a + 1", "c = b * 2"]


def test_changes_in_place_count() -> None:
    assert slice_of("xs = []", "xs.append(3)", "ys = 1", "len(xs)")[0] == ["xs = []", "xs.append(3)"]
    assert slice_of("d = {}", "d['k'] = 1", "d")[0] == ["d = {}", "d['k'] = 1"]
    assert slice_of("s = [1]", "last = s.pop()", "s")[0] == ["s = [1]", "last = s.pop()"]


def test_an_object_that_a_thread_runs_is_changed() -> None:
    server, start = "server = list()", "import threading\nthreading.Thread(target=server.serve, daemon=True).start()"
    pieces, _ = slice_of(server, start, "print(server)")
    assert pieces == [server, start]
    shown = slice_of("import plots\nt = [1]", "plots.draw(x=t.a).show()", "t")[0]
    assert shown == ["t = [1]"], "a picture of a value does not change it"


def test_a_decorator_registers_at_its_object() -> None:
    pieces, complete = slice_of("app = App()", "@app.get('/x')\ndef read():\n    return 1", "app.routes")
    assert pieces[1] == "@app.get('/x')\ndef read():\n    return 1"
    assert not complete  # nobody defines App


def test_checks_and_prints_are_not_quoted() -> None:
    cell = "def f(x):\n    return x\ndef check(g):\n    assert g(1) == 1\ncheck(f)\nprint(f)"
    assert slice_of(cell, "f(2)")[0] == ["def f(x):\n    return x"]


def test_names_from_nowhere_make_it_incomplete() -> None:
    assert slice_of("a = 1", "a + unknown")[1] is False


def test_a_needed_cell_that_failed_makes_it_incomplete() -> None:
    assert slice_of("a = 1\n1 / 0", "a", outcomes=("error",))[1] is False


BROKE = "import math\nxs = [1]\ntotal = sum(xs) / 0\nys = [2]"


def broke(line: int, text: str, code: str = BROKE) -> Execution:
    """A cell that failed at this line."""
    traceback = f"Cell In[1], line {line}\n----> {line} {text}\nZeroDivisionError: division by zero"
    return run("e0", code, outcome="error", traceback=traceback)


def after_failure(failed: Execution, code: str) -> tuple[list[str], bool]:
    [session] = sessions(frame([failed, run("e1", code, minute=1)])).values()
    found = needed(session, 1)
    return [piece.text for piece in found.pieces], found.complete


def test_what_a_failed_cell_did_before_its_failing_line_is_there() -> None:
    failed = broke(3, "total = sum(xs) / 0")
    assert after_failure(failed, "math.pi + xs[0]") == (["import math\nxs = [1]"], True)
    assert after_failure(failed, "ys") == ([], False), "it was not reached"
    assert after_failure(failed, "total") == ([], False), "it failed"


def test_a_failing_statement_may_have_done_a_part() -> None:
    code = "xs = [1]\nfor x in (1, 0):\n    xs.append(1 / x)"
    assert after_failure(broke(3, "xs.append(1 / x)", code), "xs") == (["xs = [1]"], False)


def test_a_line_that_is_not_the_failing_cells_tells_nothing() -> None:
    assert after_failure(broke(3, "another = 1"), "xs") == ([], False)


def test_what_later_code_needs_of_a_failed_cell() -> None:
    [[row]] = sessions(frame([broke(3, "total = sum(xs) / 0")])).values()
    assert carried(row, frozenset({"math", "ys"})) == "import math"
    assert carried(row, frozenset({"total"})) == ""


def test_what_a_function_changes_when_it_is_called_its_definition_does_not() -> None:
    hook = "@app.post('/x')\ndef hook(x):\n    events.append(x)"
    assert slice_of("events = []", f"app = list()\n{hook}", "app = list()\nprint(events)")[0] == ["events = []"]
    assert slice_of("app = list()", hook, "app")[0] == ["app = list()", hook], "it registers"


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("@cache\nasync def f(x):\n    return x", "f"),
        ("class Pot(Base):\n    pass", "Pot"),
        ("const f = async (x) => x;", "f"),
        ("function* turns() { }", "turns"),
        ("const f = g(1);", None),
        ("x = 1", None),
    ],
)
def test_the_name_that_a_statement_defines(statement: str, name: str | None) -> None:
    assert defined_name(statement) == name


def test_a_function_may_use_what_is_defined_after_it() -> None:
    assert slice_of("def f():\n    return helper()", "def helper():\n    return 1", "f()")[1] is True


def test_docstrings_are_not_quoted() -> None:
    assert slice_of('def f(x):\n    """f(2) is 4"""\n    return 2 * x', "f(2)")[0] == ["def f(x):\n    return 2 * x"]


def test_javascript() -> None:
    pieces, complete = slice_of(
        "// helper\nconst k = 2; function f(x) { return k * x }\nvar v0 = 4; console.assert(f(2) === v0)",
        "console.log(f(2))",
        language="javascript",
    )
    assert (pieces, complete) == (["const k = 2;\nfunction f(x) { return k * x }"], True)


def test_sql_tables() -> None:
    pieces, complete = slice_of(
        "CREATE TABLE a (x INT); CREATE TABLE b (y INT); INSERT INTO a VALUES (1);",
        "WITH big AS (SELECT x FROM a) SELECT x FROM big;",
        language="sql",
    )
    assert (pieces, complete) == (["CREATE TABLE a (x INT);\nINSERT INTO a VALUES (1);"], True)


def test_contexts_of_a_sandbox_do_not_share_variables() -> None:
    rows = [run("a", "x = 1", context_id="one"), run("b", "x", context_id="two", minute=1)]
    assert len(sessions(frame(rows))) == 2


@pytest.mark.parametrize(
    ("code", "needs"),
    [
        ("total = total + 1", {"total"}),
        ("for i in range(n):\n    total = total + i", {"n", "total"}),
        ("with open(p) as f:\n    f.read()", {"p"}),
        ("ys = [x * k for x in xs]", {"xs", "k"}),
        ("lambda a: a + b", {"b"}),
        ("class A(Base):\n    size = width\n    def f(self): return self.g(other)", {"Base", "width", "other"}),
        ("try:\n    f()\nexcept Fault as e:\n    print(e)", {"f", "Fault"}),
        ("import numpy as np\nnp.array(v)", {"v"}),
    ],
)
def test_needed_names(code: str, needs: set[str]) -> None:
    names = cell_names(code, "python")
    assert names is not None
    assert names.needed == needs
