# ruff: noqa: E501
"""Answers whose values do not earn a pass, by class, beside fair ones; graded in real sandboxes."""

from collections.abc import Collection
from contextvars import Context

import pytest

from capibara_assets.evaluation.items.items import Check
from capibara_assets.executions.replay.workers import node
from capibara_assets_tests.evaluation.grading.test_grade import CROPS, graded, made

needs_node = pytest.mark.skipif(node() is None, reason="no Node.js")
A = "const assert = require('assert');\n"
TOTAL = "function total(xs) { let s = 0; for (const x of xs) s += x; return s; }"
MEAN = "function mean(xs) { return xs.reduce((a, b) => a + b, 0) / xs.length; }"
RANGE = "function range(n) { return Array.from({ length: n }, (_, i) => i); }"
WORDS = "function words(t) { const c = {}; for (const w of t.split(' ')) c[w] = (c[w] || 0) + 1; return c; }"
WHEN = "function when(t) { return new Date(t * 1000); }"
COUNT = "function count(t) { const m = new Map(); for (const c of t) m.set(c, (m.get(c) || 0) + 1); return m; }"
MONEY = "class Money { constructor(c) { this.c = c; } toString() { return `$${this.c / 100}`; } }"
STACK = "function makeStack() { const i = []; return { push(x) { i.push(x); }, size: () => i.length }; }"

#: item -> (reference, tests, recorded output)
JAVASCRIPT = {
    "difference": (TOTAL, A + "assert.strictEqual(total([1, 2, 3]) - total([1]), 5);\nassert.ok(total([4]) < 5);", ""),
    "near": (MEAN, A + "assert.ok(Math.abs(mean([1, 2]) - 1.5) < 1e-9);\nassert.ok(!(Math.abs(mean([3])) > 4));", ""),
    "text": (TOTAL, A + "assert.strictEqual(`${total([1, 2, 3])}`, '6');\nassert.strictEqual('=' + total([2]), '=2');", ""),
    "json": (WORDS, A + "assert.strictEqual(JSON.stringify(words('a b a')), '{\"a\":2,\"b\":1}');", ""),
    "members": (RANGE, A + "assert.ok(range(3).includes(2));\nassert.ok(!range(3).includes(3));", ""),
    "list": (RANGE, A + "assert.deepStrictEqual(range(3), [0, 1, 2]);\nassert.strictEqual(range(3).map((x) => x).length, 3);", ""),
    "date": (WHEN, A + "assert.ok(when(1) instanceof Date);\nassert.strictEqual(when(1).getTime(), 1000);", ""),
    "map": (COUNT, A + "assert.strictEqual(count('aab').get('a'), 2);\nassert.strictEqual(count('aab').size, 2);", ""),
    "same": ("const one = { n: 1 };\nfunction getOne() { return one; }", A + "assert.strictEqual(getOne(), getOne());\nassert.deepStrictEqual(getOne(), { n: 1 });", ""),
    "copy": ("function copy(x) { return [...x]; }", A + "const a = [1];\nassert.notStrictEqual(copy(a), a);\n"
             "assert.deepStrictEqual(copy(a), [1]);", ""),
    "zero": ("function neg(x) { return x === 0 ? 0 : -x; }", A + "assert.strictEqual(neg(0), 0);\nassert.strictEqual(neg(2), -2);", ""),
    "no number": ("function area(a, b) { return a * b; }", A + "assert.ok(area(2, 3) === area(3, 2));\nassert.ok(!(area(1, 2) === area(2, 2)));", ""),
    "before": (TOTAL, A + "const ok = total([1, 2]) == 3;\nassert.ok(ok);\nconst bad = total([1]) == 3;\nassert.ok(!bad);", ""),
    "printed": (TOTAL, "console.log(total([1, 2, 3]) == 6, `${total([4])}`);", "true 4"),
    "printed whole": (WORDS, "console.log(words('a b a'));", "{ a: 2, b: 1 }"),
    "printed members": (RANGE, "console.log(range(3).includes(2), range(3).includes(3));", "true false"),
    "asked": (MONEY, A + "assert.strictEqual(`${new Money(150)}`, '$1.5');", ""),
    "stack": (STACK, A + "const s = makeStack();\ns.push(1);\nassert.strictEqual(s.size(), 1);", ""),
    "chained": ("function get(o) { return o.a; }", A + "assert.strictEqual(get({})?.b.c, undefined);\n"
                "const { x, ...rest } = get({ a: { x: 1, y: 2 } });\nassert.strictEqual(x + rest['y'], 3);", ""),
}  # fmt: skip
JAVASCRIPT_ANSWERS = [
    ("difference", "let k = 0; function total() { return { valueOf() { return [5, 0, 4][k++]; } }; }", False),
    ("near", "function mean() { return { [Symbol.toPrimitive]: () => 1.5 }; }", False),
    ("near", "Math.abs = () => 0;\nfunction mean() { return 7; }", False),
    ("near", "const Math = { abs: () => 0 };\nfunction mean() { return 7; }", False),
    ("text", "function total(xs) { return { toString: () => String(xs.length * 2) }; }", False),
    ("text", "class T { constructor(n) { this.n = n; } toString() { return this.n; } }\nfunction total(xs) { return new T(xs.length * 2); }", False),
    ("json", "function words() { return { toJSON: () => ({ a: 2, b: 1 }) }; }", False),
    ("json", "Object.prototype.toJSON = () => ({ a: 2, b: 1 });\nfunction words() { return { c: 1 }; }", False),
    ("members", "class L extends Array { includes(x) { return x === 2; } }\nfunction range() { return new L(); }", False),
    ("members", "function range() { const a = []; a.includes = (x) => x === 2; return a; }", False),
    ("members", "Array.prototype.includes = (x) => x === 2;\nfunction range() { return []; }", False),
    ("list", "function range() { const a = [5, 5, 5]; a[Symbol.iterator] = function* () { yield* [0, 1, 2].keys(); }; return a; }", False),
    ("date", "function when(t) { return { __proto__: Date.prototype, getTime: () => t * 1000 }; }", False),
    ("date", "class D extends Date { getTime() { return 1000; } }\nfunction when() { return new D(5); }", False),
    ("map", "class M extends Map { get() { return 2; } get size() { return 2; } }\nfunction count() { return new M(); }", False),
    ("same", "function getOne() { return { n: 1 }; }", False),
    ("copy", "function copy(x) { return x; }", False),
    ("zero", "function neg(x) { return -x; }", False),
    ("no number", "function area(a, b) { return a === 1 ? 1 : a === 2 && b === 2 ? 2 : NaN; }", False),
    ("before", "let n = 0; function total() { return { valueOf: () => [3, 1][n++] }; }", False),
    ("printed", "let n = 0; function total() { return { toString: () => [6, 4][n++] }; }", False),
    ("printed", "const log = console.log; console.log = () => log('true 4');\nfunction total() { return 1; }", False),
    ("printed whole", "function words() { return { [Symbol.for('nodejs.util.inspect.custom')]: () => '{ a: 2, b: 1 }' }; }", False),
    ("printed members", "class L extends Array { includes(x) { return x === 2; } }\nfunction range() { return new L(); }", False),
    ("difference", "const total = (xs) => xs.reduce((a, b) => a + b, 0);", True),
    ("near", "Array.prototype.total = function () { return this.reduce((a, b) => a + b, 0); };\nconst mean = (xs) => xs.total() / xs.length;", True),
    ("text", "const total = (xs) => { let s = 0; xs.forEach((x) => { s += x; }); return s; };", True),
    ("json", "const words = (t) => { const c = Object.create(null); t.split(' ').forEach((w) => { c[w] = (c[w] ?? 0) + 1; }); return c; };", True),
    ("members", "class L extends Array { total() { return 1; } }\nconst range = (n) => L.from({ length: n }, (_, i) => i);", True),
    ("list", "const range = (n) => [...Array(n).keys()];", True),
    ("date", "const when = (t) => { const d = new Date(0); d.setSeconds(t); return d; };", True),
    ("map", "const count = (t) => new Map([...new Set(t)].map((c) => [c, t.split(c).length - 1]));", True),
    ("same", "let one; const getOne = () => (one ??= { n: 1 });", True),
    ("copy", "const copy = (x) => x.slice();", True),
    ("zero", "const neg = (x) => (x ? -x : 0);", True),
    ("no number", "const area = (a, b) => b * a;", True),
    ("before", "const total = (xs) => xs.reduce((a, b) => a + b);", True),
    ("printed", "const total = (xs) => eval(xs.join('+'));", True),
    ("printed whole", "const words = (t) => { const c = {}; t.split(' ').forEach((w) => { c[w] = (c[w] ?? 0) + 1; }); return c; };", True),
    ("printed members", RANGE, True),
    ("asked", "class Money { constructor(c) { this.cents = c; } toString() { return '$' + this.cents / 100; } }", True),
    ("stack", "class S { i = []; push(x) { this.i.push(x); } size() { return this.i.length; } toString() { return 'S'; } }\nconst makeStack = () => new S();", True),
    ("stack", "class S extends Array { size() { return this.length; } }\nconst makeStack = () => new S();", True),
    ("chained", "const get = ({ a }) => a;", True),
]  # fmt: skip


def javascript_verdicts(kept: Context, names: Collection[str]) -> None:
    items = [
        made(name, reference, Check("output" if shown else "assertions", tests=tests, expected=shown), "javascript")
        for name, (reference, tests, shown) in JAVASCRIPT.items()
        if name in names
    ]
    said = [each for each in JAVASCRIPT_ANSWERS if each[0] in names]
    grades = kept.run(graded, items, [(name, answer) for name, answer, _ in said])
    for found, (_, answer, fair) in zip(grades, said, strict=True):
        assert found.verdict in (("passed",) if fair else ("failed", "error")), (answer, found)


FIRST = {"difference", "members", "same", "printed", "asked"}


@needs_node
def test_no_javascript_passes_by_what_its_values_say_of_themselves(kept: Context) -> None:
    javascript_verdicts(kept, FIRST)


@needs_node
@pytest.mark.extended
def test_no_javascript_passes_by_any_of_the_ways_that_are_known(kept: Context) -> None:
    javascript_verdicts(kept, JAVASCRIPT.keys() - FIRST)


SQL = {
    "rows": ("SELECT name, acres FROM crops WHERE acres > 5", CROPS, "", "   name  acres\n0  oats      7\n1   rye     12"),
    "none": ("SELECT name FROM crops WHERE acres > 100", CROPS, "", "Empty result\nColumns: [name]"),
    "null": ("SELECT name, NULLIF(acres, 3) AS n FROM crops", CROPS, "", ""),
    "number": ("SELECT SUM(acres) * 561166.5 AS s FROM crops", CROPS, "", ""),
    "update": (
        "UPDATE crops SET acres = acres + 1 WHERE name = 'rye';",
        CROPS,
        "SELECT name, acres FROM crops ORDER BY name;",
        "",
    ),
    "view": ("CREATE VIEW rich AS SELECT name FROM crops WHERE acres > 5;", CROPS, "SELECT name FROM rich;", ""),
    "trigger": (
        "CREATE TRIGGER logged AFTER INSERT ON crops BEGIN UPDATE crops SET acres = 1; END;",
        f"{CROPS}; CREATE TRIGGER kept BEFORE DELETE ON crops BEGIN SELECT 1; END; CREATE INDEX found ON crops (name)",
        "INSERT INTO crops VALUES ('flax', 2);\nSELECT name, acres FROM crops;",
        "",
    ),
    "many": ("SELECT a.name, b.name FROM n AS a, n AS b", "CREATE TABLE n (name); INSERT INTO n VALUES (1), (1.5), ('x');", "", ""),
}  # fmt: skip
SQL_ANSWERS = [
    ("rows", "SELECT 'oats      7' AS \"name  acres\" UNION ALL SELECT ' rye     12';", "another output"),
    ("rows", "SELECT 'oats' AS name, '     7\n1   rye     12' AS acres;", "another output"),
    ("rows", "DELETE FROM crops WHERE acres <= 5; SELECT name, acres FROM crops;", "not asked to change: crops"),
    ("rows", "ALTER TABLE crops RENAME TO c; SELECT name, acres FROM c WHERE acres > 5;", "not asked to change: c, crops"),
    ("rows", "CREATE TEMP VIEW Crops AS SELECT 'oats' AS name, 7 AS acres UNION SELECT 'rye', 12; SELECT * FROM crops;",
     "not asked to change: temp.crops"),
    ("none", "SELECT name, acres FROM crops WHERE acres > 100;", "another output"),
    ("null", "SELECT name, CASE WHEN acres = 3 THEN 'None' ELSE acres END AS n FROM crops", "another output"),
    ("number", "SELECT 12345654.0 AS s FROM crops LIMIT 1", "another output"),
    ("update", "CREATE TEMP TABLE crops AS SELECT name, acres + (name = 'rye') AS acres FROM main.crops;",
     "not asked to change: temp.crops"),
    ("rows", "CREATE TRIGGER gone AFTER INSERT ON crops BEGIN DELETE FROM crops; END; SELECT name, acres FROM crops WHERE acres > 5;",
     "not asked to change: trigger gone"),
    ("rows", "SELECT name, acres FROM crops WHERE acres > 5; CREATE TEMP TRIGGER gone BEFORE UPDATE ON main.crops BEGIN SELECT RAISE(IGNORE); END;",
     "not asked to change: trigger temp.gone"),
    ("rows", "CREATE VIEW v AS SELECT 1; SELECT name, acres FROM crops WHERE acres > 5;", "not asked to change: v"),
    ("rows", "CREATE TABLE more (a); SELECT name, acres FROM crops WHERE acres > 5;", "not asked to change: more"),
    ("rows", "CREATE UNIQUE INDEX one ON crops (name); SELECT name, acres FROM crops WHERE acres > 5;", "not asked to change: index one"),
    ("rows", "PRAGMA writable_schema = 1; INSERT INTO sqlite_master VALUES ('view', CAST(x'ff' AS TEXT), 'v', 0, 'x'); SELECT name, acres FROM crops WHERE acres > 5;",
     "not asked to change: \ufffd"),
    ("rows", "PRAGMA writable_schema = 1; INSERT INTO sqlite_master VALUES ('view', 'v', 'v', 0, 'x'); SELECT name, acres FROM crops WHERE acres > 5; PRAGMA schema_version = 99;",
     "not asked to change: "),
    ("trigger", "DROP TRIGGER kept; CREATE TRIGGER logged AFTER INSERT ON crops BEGIN UPDATE crops SET acres = 1; END;",
     "not asked to change: trigger kept"),
    ("trigger", "DROP INDEX found; CREATE TRIGGER logged AFTER INSERT ON crops BEGIN UPDATE crops SET acres = 1; END;",
     "not asked to change: index found"),
    ("trigger", "CREATE TRIGGER Logged AFTER INSERT ON crops FOR EACH ROW BEGIN UPDATE crops SET acres = 1; END;", ""),
    ("view", "CREATE VIEW Rich AS SELECT name FROM crops WHERE acres >= 6;", ""),
    ("view", "CREATE VIEW rich AS SELECT name FROM crops WHERE acres > 5; CREATE VIEW poor AS SELECT 1;", "not asked to change: poor"),
    ("rows", "CREATE VIEW v AS SELECT * FROM crops WHERE acres > 5; DROP VIEW v; SELECT name, acres FROM crops WHERE acres > 5;", ""),
    ("rows", "CREATE TEMP TABLE t AS SELECT * FROM crops WHERE acres > 5; SELECT * FROM t;", ""),
    ("rows", "SELECT name, acres AS name FROM crops WHERE acres > 5 ORDER BY acres DESC;", ""),
    ("none", "SELECT name AS n FROM crops WHERE acres < 0", ""),
    ("null", "SELECT name, CASE WHEN acres <> 3 THEN acres END FROM crops ORDER BY acres", ""),
    ("number", "SELECT 561166.5 * TOTAL(acres) FROM crops", ""),
    ("update", "DELETE FROM crops WHERE name = 'rye'; INSERT INTO crops VALUES ('rye', 13);", ""),
    ("many", "SELECT a.name, b.name FROM n AS b CROSS JOIN n AS a", ""),
]  # fmt: skip


def test_no_query_passes_by_how_its_rows_are_drawn_or_by_changing_the_data(kept: Context) -> None:
    items = [
        made(name, query, Check("output", before, tests, shown), "sql")
        for name, (query, before, tests, shown) in SQL.items()
    ]
    grades = kept.run(graded, items, [(name, answer) for name, answer, _ in SQL_ANSWERS])
    for found, (_, answer, why) in zip(grades, SQL_ANSWERS, strict=True):
        assert found.verdict == ("failed" if why else "passed"), (answer, found)
        assert why in found.detail


PY_TOTAL, PY_MEAN = "def total(xs):\n    return sum(xs)", "def mean(xs):\n    return sum(xs) / len(xs)"
PY_SORT, PY_TOP = "def sort_it(xs):\n    xs.sort()\n    return len(xs)", "def top(xs):\n    return sorted(xs)[-1]"
PY_EVENS, PY_ADD = (
    "def evens(n):\n    return list(range(0, n, 2))",
    "def add(d, k):\n    d.setdefault('n', []).append(k)\n    return k",
)
Z = "class Z(float):\n    n = 0\n    def __eq__(s, o):\n        Z.n += 1\n        return Z.n == 1\n    def __sub__(s, o): return 0.0\n    def __format__(s, f): return '1.50'\n    def __repr__(s): return '6'\n    __hash__ = None\n    __str__ = __repr__\n"
PYTHON = {
    "before": (PY_TOTAL, "ok = total([1, 2]) == 3\nassert ok\nbad = total([1]) == 3\nassert not bad", ""),
    "loop": (PY_TOTAL, "got = []\nfor x in (1, 2):\n    got.append(total([x]) - x)\nassert got == [0, 0]\nassert total([]) != 1", ""),
    "printed": (PY_TOTAL, "print(total([1, 2, 3]) == 6)\nprint(total([4]) == 5)", "True\nFalse"),
    "printed number": (PY_TOTAL, "print(total([1, 2, 3]))", "6"),
    "printed near": (PY_MEAN, "print(abs(mean([1, 2]) - 1.5) < 1e-9)", "True"),
    "formatted": (PY_MEAN, "m = mean([1, 2])\nprint(f'{m:.2f}')", "1.50"),
    "shown": (PY_TOTAL, "total([1, 2, 3]) == 6", "True"),
    "length": (PY_EVENS, "assert len(evens(5)) == 3\nassert len(evens(0)) == 0", ""),
    "printed length": (PY_EVENS, "print(len(evens(5)), sorted(evens(3)))", "3 [0, 2]"),
    "place": (PY_SORT, "data = [3, 1]\nout = sort_it(data)\nassert out == 2\nassert data == [1, 3]", ""),
    "place alone": (PY_SORT, "data = [3, 1]\nout = sort_it(data)\nassert data == [1, 3]", ""),
    "nested": (PY_ADD, "d = {}\nadd(d, 1)\nk = add(d=d, k=2)\nassert k == 2\nassert d['n'] == [1, 2] and len(d) == 1", ""),
    "kept": (PY_TOP, "data = [3, 1]\nassert top(data) == 3\nassert data == [3, 1]", ""),
    "both": (PY_TOP, "data = [3, 1]\nout = top(data)\nassert out == max(data)\nassert out == 3", ""),
    "class": ("class P:\n    def __repr__(self): return 'P!'", "p = P()\nprint(p, [p], f'{p}', p is p)\nprint(str(p))", "P! [P!] P! True\nP!"),
    "future": (PY_TOTAL, "from __future__ import annotations\nprint(total([1]))", "1"),
    "many": (PY_TOTAL, "import math\nclass T(list): pass\nt = T()\nfor i in range(3):\n    t.append(total([i]))\n"
             "t[0] += 1\nmatch t[1]:\n    case int(v):\n        print(v, -t[2], *t, len(t), math.isclose(t[0], 1), t[:2])", "1 -2 1 1 2 3 True [1, 1]"),
}  # fmt: skip
PYTHON_ANSWERS = [
    ("before", Z + "def total(xs): return Z(1)", False),
    ("loop", Z + "def total(xs): return Z(1)", False),
    ("printed", Z + "def total(xs): return Z(1)", False),
    ("printed", "from unittest.mock import MagicMock\nm = MagicMock(); m.__eq__.side_effect = [True, False]\ndef total(xs): return m", False),
    ("printed number", Z + "def total(xs): return Z(1)", False),
    ("printed near", Z + "def mean(xs): return Z(1)", False),
    ("formatted", Z + "def mean(xs): return Z(1)", False),
    ("shown", Z + "def total(xs): return Z(1)", False),
    ("length", "len = lambda x: x\ndef evens(n): return 3 if n else 0", False),
    ("printed length", "len = lambda x: 3\nsorted = lambda x: [0, 2]\ndef evens(n): return []", False),
    ("place", "def sort_it(xs): return 2", False),
    ("place alone", "def sort_it(xs): return 2", False),
    ("nested", "def add(d, k):\n    d.setdefault('n', k)\n    return k", False),
    ("kept", "def top(xs):\n    xs.sort()\n    return xs[-1]", False),
    ("both", "def top(xs):\n    xs[:] = [9]\n    return 9", False),
    *[(name, reference, True) for name, (reference, _, _) in PYTHON.items()],
    ("length", "def sum(x): return 3\ndef evens(n): return [0] * (sum(n) if n else 0)", True),
    ("place", "def sort_it(xs):\n    xs[:] = sorted(xs)\n    return len(xs)", True),
    ("nested", "def add(d, k):\n    d['n'] = d.get('n', []) + [k]\n    return k", True),
    ("kept", "top = max", True),
    ("printed", "class N(int): pass\ndef total(xs): return N(sum(xs))", True),
]  # fmt: skip


def test_no_python_passes_by_what_stands_between_assertions_or_is_printed(kept: Context) -> None:
    items = [
        made(name, reference, Check("output" if shown else "assertions", tests=tests, expected=shown))
        for name, (reference, tests, shown) in PYTHON.items()
    ]
    grades = kept.run(graded, items, [(name, answer) for name, answer, _ in PYTHON_ANSWERS])
    for found, (_, answer, fair) in zip(grades, PYTHON_ANSWERS, strict=True):
        assert found.verdict in (("passed",) if fair else ("failed", "error")), (answer, found)
