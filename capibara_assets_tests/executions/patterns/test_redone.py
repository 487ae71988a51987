"""Repairs that the failed statement tells: a later cell holds it again, does it otherwise, or asks a query anew."""

from pathlib import Path

import pytest

from capibara_assets.executions.patterns.statements import stopped_at, top_level
from capibara_assets_tests.executions.patterns.test_repairs import pairs

Step = tuple[str, tuple[str, str, str] | str | None]


def failed(code: str, line: int, value: str = "", name: str = "ValueError") -> Step:
    """A Python cell that fails at a line."""
    text = code.split("\n")[line - 1]
    trace = (
        f"{name}    Traceback (most recent call last)\nCell In[1], line {line}\n----> {line} {text}\n{name}: {value}"
    )
    return code, (name, value, trace)


def thrown(code: str, line: int, value: str = "no") -> Step:
    """A cell of JavaScript that fails at a line."""
    return code, ("Error", value, f"Error: {value}\n    at evalmachine.<anonymous>:{line}:7")


def refused(code: str) -> Step:
    return code, ("OperationalError", "no such function: median", "sqlite3.OperationalError")


DOCUMENTED = (
    '"""' + "Count the pairs of equal neighbours of a list of numbers, of which there may be none. " * 12 + '"""'
)
RETRIES = (
    'http = Pool(retries=Retry(total=3, backoff=0.01))\nr = http.get(URL + "/flaky")\nassert r.status == 200, r.status'
)
ANSWER = 'r = client.get("/items")\nassert r.status == 200\nassert r.body == {"items": [1, 2]}'


@pytest.mark.parametrize(
    ("later", "found"),
    [
        (RETRIES.replace("0.01", "0.01, codes=[503]"), True),
        ("Flaky.fails = 0\n" + RETRIES.partition("\n")[2], True),  # set before the same request
        (RETRIES.replace("/flaky", "/fine").partition("\n")[2], False),  # another request
    ],
)
def test_a_check_that_passes_below_what_is_made_anew(tmp_path: Path, later: str, found: bool) -> None:
    assert pairs(tmp_path, failed(RETRIES, 3, "503", "AssertionError"), (later, None)) == [(0, 1)] * found


def test_a_check_that_another_function_passes(tmp_path: Path) -> None:
    first = (
        f"def pairs(a):\n    {DOCUMENTED}\n    return len(a)\n\nbad = [c for c in CASES if pairs(c)]\nassert bad == []"
    )
    check = "bad = [c for c in CASES if pairs(c)]\nassert bad == []"
    mended = f"def pairs(a):\n    return sum(x == y for x, y in zip(a, a[1:]))\n\n{check}"
    assert pairs(tmp_path, failed(first, 6, name="AssertionError"), (mended, None)) == [(0, 1)]


def test_the_check_of_another_request_is_no_repair(tmp_path: Path) -> None:
    other = 'r = client.get("/items", params={"q": "a"})\nassert r.status == 200\nassert r.body == {"items": [1]}'
    assert pairs(tmp_path, failed(ANSWER, 2, name="AssertionError"), (other, None)) == []
    assert pairs(tmp_path, failed(ANSWER, 2, name="AssertionError"), (f"client = make(app)\n{ANSWER}", None)) == [
        (0, 1)
    ]


def test_a_folder_that_is_made_before_the_same_statement(tmp_path: Path) -> None:
    write = 'frame.to_csv("results/units.csv", index=False)'
    assert pairs(tmp_path, failed(write, 1), (f'import os\nos.makedirs("results")\n{write}', None)) == [(0, 1)]
    assert pairs(tmp_path, failed(write, 1), ("other = 1", None), (f"{write}\nframe.head()", None)) == []


YEARLY = "y = prices.resample('Y').last()\nr = y.pct_change()"
MENDED = YEARLY.replace("'Y'", "'YE'") + "\nr.index = r.index.year\nr.head()"
PAID = "paid = [read(Payment, r) for r in rows]"


@pytest.mark.parametrize(
    ("first", "value", "later", "found"),
    [
        (PAID, "", "options = cast(S)\n" + PAID.replace("r)", "r, options)") + "\npaid", True),
        (YEARLY, "'Y' is gone: 'YE'", MENDED, True),
        (YEARLY, "no", MENDED.replace("'YE'", "'M'"), False),
        ("r = client.get('/users')", "", "r = client.get('/orders')\nprint(r.json())", False),
        ("items.append('f')", "use items.add(value) instead", "items.add('f')\nitems.update('xy')\nprint(items)", True),
        ("old = load(path, 'x', strict=True)", "", "new = load(path, 'x', strict=True)\nprint(new)", False),
    ],
)  # fmt: skip
def test_a_statement_that_takes_the_place(tmp_path: Path, first: str, value: str, later: str, found: bool) -> None:
    assert pairs(tmp_path, failed(first, 1, value), (later, None)) == [(0, 1)] * found


MATCHES = "assert match('a', {'a': True})\nassert not match('a', {'a': False})\nassert match('!a', {})"


def test_a_test_that_is_told_again_with_more_was_mended_before_it(tmp_path: Path) -> None:
    one, other = (f"def match(key, row):\n    return {value}" for value in ("key in row", "bool(row.get(key))"))
    steps = (one, None), failed(MATCHES, 2, name="AssertionError"), (other, None)
    assert pairs(tmp_path, *steps, (f"{MATCHES}\nassert match('b', {{'b': 2}})", None)) == [(1, 2)]
    fewer = MATCHES.replace("match('!a', {})", "not match('!a', {})")
    assert pairs(tmp_path, *steps, (fewer, None)) == [], "a check of it does not hold any more"


def test_in_javascript(tmp_path: Path) -> None:
    make, check = "function keep(list) {{ return list.{}; }}", "if (keep([9, 2]).join() !== '2') throw new Error('no')"
    first = (make.format("slice(0)"), None), thrown(f"const many = [9, 9];\n{check}", 2)
    assert pairs(
        tmp_path, *first, (f"{make.format('filter(x => x < 4)')}\n{check}\nmany", None), language="javascript"
    ) == [(1, 2)]


MIDDLE = "SELECT round(lat_n, 4) AS median FROM station ORDER BY lat_n LIMIT 1 OFFSET (SELECT 4 / 2 FROM station)"
QUERY = "SELECT round(median(lat_n), 4) FROM station WHERE lat_n > 0"


@pytest.mark.parametrize(
    ("later", "found"),
    [
        (f"-- no median here\n{MIDDLE}", True),
        ("SELECT city FROM places WHERE people > 100", False),
        ("SELECT 'open", False),
    ],
)  # fmt: skip
def test_a_query_that_is_asked_otherwise(tmp_path: Path, later: str, found: bool) -> None:
    assert pairs(tmp_path, refused(QUERY), (later, None), language="sql") == [(0, 1)] * found
    assert pairs(tmp_path, refused(QUERY), ("PRAGMA table_list", None), (later, None), language="sql") == []


TOTAL = "def total(a):\n    return {}\n\nprint('total', total([1, 2]), 'want 3')"


@pytest.mark.parametrize(
    ("asked", "later", "found"),
    [
        ("stock[stock.left > 3 and stock.price < 20]", "stock[(stock.left > 3) & (stock.price < 20)]", True),
        ('days.tz_convert("Asia/Tokyo")', 'days.tz_localize("UTC").tz_convert("Asia/Tokyo")', True),
        ('days.tz_convert("Asia/Tokyo")', 'days.tz_localize("UTC").tz_convert("Asia/Tokyo").index[0]', False),
        ('days.add({"rain": 2}, wet=True)', 'join([days, Frame([{"rain": 2}])], wet=True)', True),
        ('days.add({"rain": 2}, wet=True)', 'join([days, Frame([{"rain": 2}])], wet=True).tail(2)', False),
        ("form.check(strict=True)", "other.check(strict=True, deep=True)", False),
        ('print(url_for("page", name="a"))', 'with app.context():\n    print(url_for("page", name="a"))', True),
        ("stock[stock.left > 3 and stock.price < 20]", "stock[stock.left > 8]", False),  # another request
        ('client.get("/pens/1").json()["name"]', 'client.get("/pots/2").json()', False),
        ('Pen(colour="red", width=3)', 'try:\n    Pen(colour="red")\nexcept ValueError as e:\n    print(e)', False),
    ],
)
def test_an_expression_that_the_next_cell_writes_otherwise(tmp_path: Path, asked: str, later: str, found: bool) -> None:
    assert pairs(tmp_path, failed(asked, 1), (later, None)) == [(0, 1)] * found
    assert pairs(tmp_path, failed(asked, 1), ("other = 1", None), (later, None)) == []


def test_a_short_call_of_what_the_cell_defines(tmp_path: Path) -> None:
    checks = "\n".join(f"    assert tail([{n}, 8, 9]) == [9], {n}" for n in range(8))
    first = f"def tail(a):\n    return a[1:]\n\ndef check():\n{checks}\n\ncheck()"
    mended = "def tail(a):\n    return a[-1:]\n\ncheck()"
    line = first.count("\n") + 1
    assert pairs(tmp_path, failed(first, line, name="AssertionError"), (mended, None)) == [(0, 1)]
    called = failed("run()", 1)
    assert pairs(tmp_path, called, ("def tail(a):\n    return a[-1:]\n\nrun()", None)) == []


def test_a_failure_that_the_defining_cell_shows(tmp_path: Path) -> None:
    wrong, right = (TOTAL.format(value) for value in ("a[0]", "sum(a)"))
    assert pairs(tmp_path, (wrong, "total 1 want 3"), (right, "total 3 want 3")) == [(0, 1)]
    assert pairs(tmp_path, (right, "total 3 want 3"), (wrong, "total 3 want 3")) == [], "neither fails"
    assert pairs(tmp_path, (wrong, "total 1 want 3"), (right, "total 2 want 3")) == [], "both do"


def test_statements() -> None:
    code = "# note\ndf['a'] = 1\nassert f(x) == 2, why\n@cached\ndef f(a):\n    return a\nfor i, j in z:\n    t = i"
    listed = top_level("python", code)
    assert [one.lines for one in listed] == [range(2, 3), range(3, 4), range(4, 7), range(7, 9)]
    assert [set(one.targets) for one in listed] == [{"df"}, set(), {"f"}, {"i", "j", "t"}]
    assert listed[0].places == {"df['a']"} and " ".join(listed[1].tokens) == "assert f ( x ) = = 2"
    script = "let a = 1, { b } = c;\nif (a > 1) {\n  throw new Error('no')\n}\nx.y = 3"
    listed = top_level("javascript", script)
    assert [set(one.targets) for one in listed] == [{"a", "b"}, set(), {"x"}]
    assert " ".join(listed[1].tokens) == "( a > 1 )"
    assert top_level("python", "a = 1\n" * 61) == top_level("javascript", "a = 1\n" * 61) == (), "no cell has so many"
    assert top_level("python", "def f(:") == top_level("sql", "SELECT 1") == ()


def test_the_statement_at_which_a_cell_stopped() -> None:
    _, (_, _, trace) = failed("a = 1\nb = (\n  c\n)", 3)
    assert stopped_at("python", "a = 1\nb = (\n  c\n)", trace) == 1
    compiled = trace.replace("Cell In[1]", "File pandas/_libs/offsets.pyx:7998, in to_offset()\nCell In[1]")
    assert stopped_at("python", "a = 1\nb = (\n  c\n)", compiled) == 1, "what is compiled is not the user's"
    cut = trace.replace("line 3", "line 3, in f(x)")
    assert stopped_at("python", "a = 1\nb = (\n  c\n)", cut) is None, "its outermost frame is a function's"
    assert stopped_at("python", "a = 1\nb = (\n  d\n)", trace) is None, "it is of another cell"
    assert stopped_at("python", "a = 1", trace) is None and stopped_at("python", "a = 1", None) is None
