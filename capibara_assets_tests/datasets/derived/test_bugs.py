"""Bugs that are injected: each kind is found where it can be, changes little, and stays inside the solution."""

import pytest

from capibara_assets.datasets.derived import javascript_bugs, python_bugs, sql_bugs
from capibara_assets.datasets.derived.edits import RepairEdit, drawn
from capibara_assets.datasets.derived.literals import changes, recorded_calls
from capibara_assets.datasets.derived.solved import solution_spans

PYTHON = '''import math
def area(radii, unit=1):
    """Largest area."""
    if not radii:
        return None
    best = 0
    for radius in radii:
        size = round(math.pi * radius ** 2, 2)
        if size > best and radius != 0:
            best = size
    return best * unit
assert area([1, 2], 1) == 12.57
'''

JAVASCRIPT = """function longest(words, least) {
  let best = '';
  if (words.length === 0) { return null; }
  for (let i = 0; i < words.length; i++) {
    if (words[i].length > best.length && words[i].length >= least) best = words[i].trim();
  }
  return best;
}
console.assert(longest(['a', 'bcd'], 2) === 'bcd');
"""

SQL = (
    "SELECT b.genre, COUNT(*) AS n FROM books AS b LEFT JOIN sales AS s ON s.book_id = b.id "
    "WHERE b.pages > 100 AND b.genre <> 'x' GROUP BY b.genre ORDER BY n DESC LIMIT 3;"
)


def applied(edits: list[RepairEdit], code: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for edit in edits:
        found.setdefault(edit.kind, set()).add(edit.applied(code))
    return found


def test_python() -> None:
    spans, asserts = solution_spans(PYTHON, "python")
    found = applied(python_bugs.bugs(PYTHON, spans), PYTHON)
    assert asserts
    for kind, expected in (
        ("comparison", PYTHON.replace("size > best", "size >= best")),
        ("boolean", PYTHON.replace("and", "or")),
        ("missing_return", PYTHON.replace("return best * unit", "best * unit")),
        ("wrong_indent", PYTHON.replace("    return best", "        return best")),
        ("missing_guard", PYTHON.replace("    if not radii:\n        return None\n", "")),
        ("missing_argument", PYTHON.replace("** 2, 2)", "** 2)")),
        ("missing_statement", PYTHON.replace("    best = 0\n", "")),
        ("wrong_variable", PYTHON.replace("best = size", "best = radius")),
    ):
        assert expected in found[kind], kind
    assert all("assert area([1, 2], 1) == 12.57" in text for texts in found.values() for text in texts)


def test_an_import_that_the_error_names_is_no_bug_worth_mending() -> None:
    code = "import math\nfrom collections import Counter\n\n\ndef f(x):\n    return Counter([math.floor(x)])\n"
    found = applied(python_bugs.bugs(code, [(0, len(code))]), code)["missing_import"]
    assert found == {code.replace("from collections import Counter\n", "")}


def test_an_import_of_more_than_is_used_is_not_left_out() -> None:
    code = "from collections import Counter, deque\n\nmost = Counter('abca').most_common(1)\nmost"
    kinds = {edit.kind for edit in python_bugs.bugs(code, [(0, len(code))])}
    assert "missing_import" not in kinds
    used = {edit.kind for edit in python_bugs.bugs(code.replace(", deque", ""), [(0, len(code) - 7)])}
    assert "missing_import" in used


def test_a_changed_constant_leaves_a_case_its_choice() -> None:
    code = "SELECT SUM(CASE WHEN open THEN 1 ELSE 0 END) FROM doors WHERE width BETWEEN 3 AND 4"
    changed = {edit.applied(code) for edit in sql_bugs.inputs(code)}
    assert code.replace("THEN 1", "THEN 2") in changed and code.replace("AND 4", "AND 5") in changed
    assert code.replace("ELSE 0", "ELSE 1") not in changed and code.replace("AND 4", "AND 2") not in changed


def test_javascript() -> None:
    spans, asserts = solution_spans(JAVASCRIPT, "javascript")
    found = applied(javascript_bugs.bugs(JAVASCRIPT, spans), JAVASCRIPT)
    assert asserts
    for kind, expected in (
        ("comparison", JAVASCRIPT.replace(">= least", "> least")),
        ("missing_return", JAVASCRIPT.replace("return best;", "best;")),
        ("missing_guard", JAVASCRIPT.replace("  if (words.length === 0) { return null; }\n", "")),
        ("missing_call", JAVASCRIPT.replace(".trim()", "")),
        ("off_by_one", JAVASCRIPT.replace("i < words.length;", "i < words.length - 1;")),
    ):
        assert expected in found[kind], kind
    assert all("'bcd'], 2) === 'bcd')" in text for texts in found.values() for text in texts)


def test_what_a_demonstration_is_given_gets_no_bug() -> None:
    twice = "const twice = (f) => (x) => f(f(x));"
    shown = "const add = twice((x) => x + 2);\nconsole.log(add(1));"
    spans, _ = solution_spans(f"{twice}\n{shown}", "javascript")
    assert spans == ((0, len(twice)),)
    alone, _ = solution_spans(shown, "javascript")
    assert len(alone) == 2, "without definitions, all of it is the solution"


def test_what_is_printed_gets_no_bug() -> None:
    code = "def f(x):\n    y = g(x, 2)\n    print(y, x)\n    return y"
    assert all("print(y, x)" in edit.applied(code) for edit in python_bugs.bugs(code, [(0, len(code))]))
    script = "function f(x) {\n  const y = g(x, 2);\n  console.log(y, x + 1);\n  return y;\n}"
    edits = javascript_bugs.bugs(script, [(0, len(script))])
    assert edits and all("console.log(y, x + 1)" in edit.applied(script) for edit in edits)


def test_no_module_or_name_is_left_of_a_call() -> None:
    code = "import graphs\ng = graphs.club()\nxs.reset()\nt = g.trim()\nt.describe()"
    found = applied(python_bugs.bugs(code, [(0, len(code))]), code)["missing_call"]
    assert found == {code.replace("g.trim()", "g"), code.replace("t.describe()", "t")}


@pytest.mark.parametrize("value", ["(a +\n        b)", "(a)", "[a,\n        b]"])
def test_a_forgotten_return_leaves_the_brackets_of_its_value(value: str) -> None:
    for blank in ("", " "):
        code = f"def f(a, b):\n    return{blank}{value}\n"
        (found,) = applied(python_bugs.bugs(code, [(0, len(code))]), code)["missing_return"]
        assert found == f"def f(a, b):\n    {value}\n"


def test_data_that_a_cell_writes_down_gets_no_bug() -> None:
    data = "import numpy as np\nrows = [1, 2]\ngrid = np.array([[3, 4], [5, 6]])\n"
    code = f"{data}size = 7\ngrid[8] = 0\npart = rows[9:]\n"
    found = applied(python_bugs.bugs(code, [(0, len(code))]), code)["constant"]
    assert all(one.startswith(data) for one in found) and any("size = 8" in one for one in found)
    assert {one for one in found if "part = rows[10:]" in one or "grid[9]" in one}
    data = "const rows = [{ n: 1 }, { n: 2 }];\n4 - '3';\n"
    code = f"{data}let size = rows.length + 7;\n"
    found = applied(javascript_bugs.bugs(code, [(0, len(code))]), code)["constant"]
    assert found == {code.replace("7", "8"), code.replace("7", "6")}


def test_what_a_test_expects_gets_no_bug() -> None:
    cell = "def test_sum():\n    {} = {{'sum': 3}}\n    assert added(1, 2) == {}"
    kept, changed = (
        [edit for edit in python_bugs.bugs(cell.format(name, name), [(0, 999)]) if edit.start < cell.index("assert")]
        for name in ("expected_sum", "first_sum")
    )
    assert not kept and {edit.kind for edit in changed} == {"constant"}


def test_a_long_argument_is_not_forgotten() -> None:
    def left_out(argument: str) -> bool:
        code = f"client.post('/items', json={argument})"
        return any(edit.kind == "missing_argument" for edit in python_bugs.bugs(code, [(0, len(code))]))

    assert left_out("{'name': 'Foo'}") and not left_out(
        "{'name': 'Foo', 'description': 'a very fine thing', 'tax': 3.2}"
    )


def test_the_fields_of_a_record_stay_in_their_order() -> None:
    def reordered(code: str, language: str) -> bool:
        return any(edit.kind == "order" for edit in changes(code, language, (0, len(code))))

    for language in ("python", "javascript"):
        assert not reordered("rows = ['shirt', 'L', 12]", language)
        assert reordered("rows = ['shirt', 'coat', 'hat']", language) and reordered("rows = [3, 1, 2]", language)


def test_sql_keeps_its_layout() -> None:
    found = applied(sql_bugs.bugs(SQL), SQL)
    assert SQL.replace("LEFT JOIN", "INNER JOIN") in found["join"]
    assert SQL.replace(" AND b.genre <> 'x'", "").replace("100 GROUP", "100  GROUP") in found["missing_condition"]
    assert SQL.replace(" DESC", " ") in found["order"]
    assert SQL.replace("ON s.book_id", "ON book_id") in found["missing_qualifier"]
    assert all(text.endswith(";") for texts in found.values() for text in texts)


def test_a_query_lacks_its_clause_and_nothing_else_is_written_otherwise() -> None:
    code = "SELECT a.n FROM t AS a\n  ,t AS b\nWHERE a.n = b.n - 1\nORDER BY a.n;"
    found = applied(sql_bugs.bugs(code), code)
    assert not any("CROSS" in text for kind in ("missing_where", "missing_order") for text in found.get(kind, ()))
    assert not any("JOINt" in text for texts in found.values() for text in texts)
    assert found["missing_where"] == {code.replace("WHERE a.n = b.n - 1", "")}


def test_a_text_in_double_quotes_is_no_column_to_misspell() -> None:
    code = 'SELECT name FROM singer WHERE country = "France"'
    spelt = {code[edit.start : edit.end] for edit in sql_bugs.bugs(code) if edit.kind.endswith("_column")}
    assert spelt == {"name", "country"}


def test_no_code_no_bugs() -> None:
    assert (
        python_bugs.bugs("def f(:", [(0, 7)])
        == javascript_bugs.bugs("function (", [(0, 9)])
        == sql_bugs.bugs("SELEC (")
        == []
    )


def test_positions_behind_other_alphabets() -> None:
    code = "def f(x):\n    note = 'größer, größte'; return x + 1\n"
    assert code.replace("x + 1", "x - 1") in applied(python_bugs.bugs(code, [(0, len(code))]), code)["operator"]


def test_drawn_by_weight_and_seed() -> None:
    edits = [RepairEdit("often", n, n, "x") for n in range(50)] + [RepairEdit("seldom", n, n, "x") for n in range(50)]
    chosen = [edit.kind for n in range(200) for edit in drawn(edits, {"often": 9, "seldom": 1}, str(n), 1)]
    assert 150 < chosen.count("often") < 199
    assert drawn(edits, {"often": 1}, "a", 60) == drawn(reversed(edits), {"often": 1}, "a", 60)
    assert {edit.kind for edit in drawn(edits, {"often": 1}, "a", 60)} == {"often"}


@pytest.mark.parametrize(
    ("code", "language", "expected"),
    [
        ("def check(c):\n    assert c(2, [1]) == 3\n    assert c(n) == 4\ncheck(f)", "python", ["f(2, [1])"]),
        ("assert f('a', key=2) == f('b')", "python", ["f('a', key=2)", "f('b')"]),
        ("assert(f([1, 'a'], {k: -1}) === g(2)); f(x);", "javascript", ["f([1, 'a'], {k: -1})"]),
    ],
)
def test_recorded_calls(code: str, language: str, expected: list[str]) -> None:
    assert recorded_calls(code, language, {"f"}) == expected


def test_changed_inputs_keep_keys_and_types() -> None:
    code = "print(f(5, 'item 9', [1, 2, 3], {'k': 2.5}))"
    texts = {edit.applied(code) for edit in changes(code, "python", (0, len(code)))}
    assert code.replace("f(5", "f(6") in texts
    assert code.replace("item 9", "item 10") in texts
    assert code.replace("[1, 2, 3]", "[3, 1, 2]") in texts
    assert all("'k'" in text for text in texts)
    code = "send('POST', 'body')"
    texts = {edit.applied(code) for edit in changes(code, "python", (0, len(code)))}
    assert texts == {"send('POST', 'odyb')", "send('POST', 'bod')"}, "what a protocol calls its own is no input"


def test_changed_inputs_leave_formulas_and_the_names_of_columns() -> None:
    code = "print(f(1), 1 - f(3) * 1)\nframe.columns = ['color']\ng(columns=['size'], rows=['left'])"
    texts = {edit.applied(code) for edit in changes(code, "python", (0, len(code)))}
    assert code.replace("f(1)", "f(0)") in texts and code.replace("left", "eftl") in texts
    assert not any("0 -" in text or "* 0" in text for text in texts)
    assert all("'color'" in text and "'size'" in text for text in texts)
    assert not any("* 0" in edit.applied("f(2) * 1;") for edit in changes("f(2) * 1;", "javascript", (0, 9)))


def test_a_wrong_column_that_is_selected_already_is_none() -> None:
    """Shown as a table, a result with two columns of one name lacks one of them."""
    edits = [
        one for one in sql_bugs.bugs("SELECT name, length FROM river ORDER BY length") if one.kind == "wrong_column"
    ]
    assert {one.applied("SELECT name, length FROM river ORDER BY length") for one in edits} == {
        "SELECT name, length FROM river ORDER BY name"
    }


def test_another_verb_of_http_is_no_bug_to_learn_from() -> None:
    """Its error, `Method Not Allowed`, tells the whole repair."""
    code = 'def told(client):\n    return client.post("/a").json()\nassert told(client) == {}\n'
    assert not {"get", "put"} & {edit.text for edit in python_bugs.bugs(code, [(0, 60)])}
