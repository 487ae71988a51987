"""Patterns: what is found, what counts as the same, and what is told about it."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from benchmarks.experience.study import merge_patterns
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.executions.ingest.ingest import Ingest
from capibara_assets.executions.patterns.extract import (
    extract_knowledge,
    extract_patterns,
    find_patterns,
    pattern_table,
    success_by_language,
)
from capibara_assets.executions.patterns.idioms import Idiom
from capibara_assets.executions.patterns.idioms_javascript import javascript_idioms
from capibara_assets.executions.patterns.idioms_python import python_idioms
from capibara_assets.executions.patterns.idioms_sql import sql_idioms
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.executions.schema import Execution, Pattern
from capibara_assets.executions.selection import of_domain, tables_of
from capibara_assets.storage.records import problems, table
from capibara_assets_tests.datasets.conftest import run
from capibara_assets_tests.executions.conftest import envelope, executed

RECIPE = ExperienceRecipe()
FUNCTION = '''def largest(values):
    """Find the largest value. Slowly."""
    best = values[0]
    for value in values:
        best = max(best, value)
    return best
'''
TRAINING = """for x, y in loader:
    optimizer.zero_grad()
    loss = f(x, y)
    loss.backward()
    optimizer.step()"""


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ("def f(x):\n    return x + 1", ["function"]),
        ("def check(f):\n    assert f(1) == 2", []),
        ("class A:\n    def f(self):\n        return 1", ["class"]),
        ("for i in range(3):\n    for j in range(3):\n        print(i)", ["loop"]),
        ("while x < 3:\n    x += 1", ["loop"]),
        ("a = [x for x in y if x]", ["comprehension"]),
        ("async def f():\n    async with s as t:\n        return t", ["async", "async"]),
        ("try:\n    f()\nexcept ValueError:\n    pass", ["error_handling"]),
        ("c.execute('SELECT a FROM b WHERE c > 1')", ["sql_query"]),
        ("r = client.get('/items/', params={'q': 1})", ["api_call"]),
        ("@app.get('/items/')\ndef items():\n    return []", ["function"]),
        ("top = df.groupby('a').agg('sum').sort_values('b')", ["dataframe"]),
        (TRAINING, ["training_loop"]),
        ("model = SVC().fit(X, y)", ["training"]),
        ("parts = train_test_split(X, y, test_size=0.2)", ["training"]),
        ("suitcase.fit()", []),
        ("big = df[df['a'] > 3]", ["dataframe"]),
        ("answer = client.chat.completions.create(model=m, messages=q)", ["api_call"]),
        ("reply = requests.get(url, timeout=3)", ["api_call"]),
        ("both = await asyncio.gather(f(), g())", ["async"]),
        ("c.execute(f'SELECT a FROM {table} WHERE b = {value}')", ["sql_query"]),
        ("%%sql\nSELECT a FROM b", ["sql_query"]),
        ("rows = %sql SELECT a FROM b", ["sql_query"]),
        ("name = 'please select one from these'", []),
        ("%matplotlib inline\nfor i in range(3):\n    print(i)", ["loop"]),
        ("not python at all", []),
    ],
)
def test_kinds_of_python_idioms(code: str, kinds: list[str]) -> None:
    assert [idiom.kind for idiom in python_idioms(code)] == kinds


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ("function f(x) { return x + 1 }", ["function"]),
        ("const f = (x) => x + 1", ["function"]),
        ("class A { f() { return 1 } }", ["class"]),
        ("for (let i = 0; i < 3; i++) { for (const x of y) { g(x) } }", ["loop"]),
        ("const a = b.map((x) => x * 2)", ["comprehension"]),
        ("async function f() { return 1 }", ["async"]),
        ("try { f() } catch (e) { g(e) }", ["error_handling"]),
        ("fetch('https://example.com')", ["api_call"]),
        ("app.get('/items', (req, res) => res.json([]))", ["api_call"]),
        ("cache.get('items')", []),
        ("const a = 1, f = (x) => x", ["function"]),
        ("function (", []),
    ],
)
def test_kinds_of_javascript_idioms(code: str, kinds: list[str]) -> None:
    assert [idiom.kind for idiom in javascript_idioms(code)] == kinds


def test_clauses_of_a_query_are_idioms() -> None:
    query = (
        "WITH big AS (SELECT a, sum(b) AS s FROM t GROUP BY a HAVING sum(b) > 3) SELECT big.a,"
        " row_number() OVER (ORDER BY s), CASE WHEN s > 9 THEN 'x' ELSE 'y' END FROM big JOIN u ON u.a = big.a"
    )
    found = [(idiom.kind, idiom.name) for idiom in sql_idioms(query)]
    clauses = ["common table expression", "group by", "having", "window function", "case", "join"]
    assert found[0][0] == "sql_query"
    assert sorted(found[1:]) == sorted(("sql_clause", clause) for clause in clauses)


CLASS = """class Account:
    def __init__(self, owner):
        self.owner = owner
        self.total = 0
    def pay(self, amount):
        self.total += amount
        return self.report()
    def report(self):
        return f"{self.owner}: {self.total}"
"""


@pytest.mark.parametrize(
    ("find", "one", "same", "other"),
    [
        (
            python_idioms,
            CLASS,
            CLASS.replace("total", "sum_").replace("pay", "add").replace("report", "show").replace("Account", "Purse"),
            CLASS.replace("self.report()", "self.pay(1)"),
        ),
        (
            python_idioms,
            "import numpy as np\na = [np.mean(x) for x in y]",
            "import numpy\nb = [numpy.mean(row) for row in rows]",
            "import torch\na = [torch.mean(x) for x in y]",
        ),
        (
            python_idioms,
            "def f(a, b=1):\n    return a - b",
            "def g(x, y=1):\n    return x - y",
            "def f(a, b=1):\n    return b - a",
        ),
        (python_idioms, "a = [x[:n] for x in y]", "b = [r[:k] for r in s]", "a = [x[n:] for x in y]"),
        (
            python_idioms,
            FUNCTION,
            FUNCTION.replace("best", "b").replace("largest", "top").replace(" Slowly.", ""),
            FUNCTION.replace("max", "min"),
        ),
        (
            python_idioms,
            "for i in range(3):\n    print(i)",
            "for k in range(9):\n    print(k)",
            "for i in range(3):\n    print(-i)",
        ),
        (python_idioms, "a = [x * 2 for x in xs]", "b = [(y * 3) for y in ys]", "a = [x + 2 for x in xs]"),
        (
            javascript_idioms,
            "function f(a, b) { return a - b }",
            "function g(x, y) { // minus\n return x - y }",
            "function f(a, b) { return b - a }",
        ),
        (
            sql_idioms,
            "SELECT a, b FROM t WHERE c > 3 ORDER BY b",
            "select x,y from u where z > 4.5 order by y",
            "SELECT a, b FROM t WHERE c > 3 ORDER BY a",
        ),
    ],
)
def test_names_do_not_matter_and_structure_does(
    find: Callable[[str], tuple[Idiom, ...]], one: str, same: str, other: str
) -> None:
    forms = [{(idiom.kind, idiom.canonical) for idiom in find(code)} for code in (one, same, other)]
    assert forms[0] == forms[1]
    assert forms[0] != forms[2]


def test_the_code_of_an_idiom_is_as_written_with_its_decorators() -> None:
    (idiom, _) = python_idioms(
        "if True:\n    @cache\n    def f(n):  # fast\n"
        "        for i in range(n):\n            n += i\n        return n\n"
    )
    assert idiom.code == "@cache\ndef f(n):  # fast\n    for i in range(n):\n        n += i\n    return n"


def test_text_beyond_ascii_is_cut_where_it_should_be() -> None:
    (python, _) = python_idioms('é = "ü"; größe = [ß for ß in é]\ndef f(ä):\n    return ä + 1')
    assert python.code == "[ß for ß in é]"
    (javascript, _) = javascript_idioms('const é = "ü"; ss.map((ß) => ß + é); function f(ä) { return ä }')
    assert javascript.code == "ss.map((ß) => ß + é)"


def test_javascript_idioms_stand_anywhere() -> None:
    code = """const half = (n) => n / 2, rows = [1, half(4), half`x`];
const table = { a: [[1, 2]], b: xs.map((x) => x + 1), c: async () => { for (;;) { await half(9) } } };
switch (rows[0]) { default: while (true) { break } }
gql`query { a }`;
await [fetch("/a")];
check({ deep: [() => { function inner(a) { return a } }] });"""
    found = [(idiom.kind, idiom.name, idiom.inputs) for idiom in javascript_idioms(code)]
    assert found == [
        ("function", "half", ("half(4)", "half`x`", "half(9)")),
        ("comprehension", ".map()", ()),
        ("loop", "for (;;)", ()),
        ("async", "await", ()),
        ("loop", "while (true)", ()),
        ("async", "await", ()),
        ("api_call", "fetch", ()),
        ("function", "inner", ()),
    ]


def test_a_docstrings_first_sentence_does_not_depend_on_its_indentation() -> None:
    body = '"""\n        Adds {}\n      what it is given.  And more.\n    """\n    return x + 1'
    for written, read in (("one to", "one to"), ("one\tto", "one        to")):  # tabs as far as the next eighth column
        (idiom,) = python_idioms(f"def f(x):\n    {body.format(written)}")
        assert idiom.explanation == f"Function `f(x)`. Adds {read} what it is given."


def test_a_pattern_counts_executions_and_tells_what_is_known(ingest_lines: Callable[..., Ingest]) -> None:
    renamed = FUNCTION.replace("best", "b")
    ingest = ingest_lines(
        envelope(FUNCTION + "largest([])", execution_id="a", timestamp="2026-10-05T00:00:00Z",
                 execution=executed(error=("IndexError", "list index out of range", "Traceback"))),
        *[
            envelope(renamed + f"largest([{n}, 7])", execution_id=f"b{n}", timestamp=f"2026-10-05T00:00:0{n}Z",
                     task="Find the largest.", sandbox_id=f"s{n}", execution=executed(text="7"))
            for n in range(1, 5)
        ],
    )  # fmt: skip
    patterns = extract_patterns(ingest.executions, Domain.PYTHON, RECIPE)
    assert problems(Pattern, patterns) == []
    (row,) = patterns.filter(pl.col("kind") == "function").iter_rows(named=True)
    assert (row["name"], row["frequency"], row["successes"], row["success_rate"]) == ("largest", 5, 4, 0.8)
    assert row["code"] == renamed.rstrip("\n")  # the first that worked
    assert row["sandbox_ids"] == ["s1", "s2", "s3", "s4", "sandbox"]
    assert row["explanation"] == "Function `largest(values)`. Find the largest value. It loops."
    for part in (
        "5 executions of 5 sandboxes; 4 ended",
        "Task: Find the largest.",
        "largest([1, 7])",
        "with it: 7",
        "IndexError (1)",
    ):
        assert part in row["context"]


def test_success_is_told_for_each_language(ingest_lines: Callable[..., Ingest]) -> None:
    query = "SELECT a FROM b WHERE c > 3"
    error = executed(error=("OperationalError", "no such table: b", ""))
    ingest = ingest_lines(
        envelope(query, language="sql", execution_id="a", execution=error),
        *[envelope(query, language="sql", execution_id=f"b{n}") for n in range(3)],
        envelope(f"c.execute('{query}').fetchall()", execution_id="c", sandbox_id="other"),
    )
    patterns = extract_patterns(ingest.executions, Domain.SQL, RECIPE)
    (row,) = patterns.filter(pl.col("kind") == "sql_query").iter_rows(named=True)
    assert (row["language"], row["frequency"], row["success_rate"]) == ("sql", 5, 0.8)
    assert (row["languages"], row["language_success_rates"]) == (["python", "sql"], [1.0, 0.75])
    assert success_by_language(patterns).rows() == [("sql_query", "python", 1, 1.0), ("sql_query", "sql", 1, 0.75)]


def test_shares_found_apart_make_the_same_table(real: Ingest) -> None:
    some = real.executions.filter(pl.col("sandbox_id") < "i6")
    for domain in (Domain.PYTHON, Domain.SQL, Domain.DEBUG):
        own = of_domain(some, domain)
        shares = [own.filter(pl.col("sandbox_id").hash(seed=1) % 3 == n) for n in (2, 0, 1)]
        merged = merge_patterns(find_patterns(share, domain) for share in shares)
        assert pattern_table(merged, RECIPE).equals(extract_patterns(own, domain, RECIPE))


def test_what_mostly_fails_is_no_pattern(ingest_lines: Callable[..., Ingest]) -> None:
    error = executed(error=("IndexError", "", ""))
    ingest = ingest_lines(envelope(FUNCTION), envelope(FUNCTION + "largest([])", execution_id="b", execution=error))
    assert extract_patterns(ingest.executions, Domain.PYTHON, RECIPE).is_empty()
    assert (
        extract_patterns(ingest.executions, Domain.PYTHON, RECIPE.model_copy(update={"min_success_rate": 0.5})).height
        == 2
    )


def test_real_patterns_are_reasonable_and_do_not_depend_on_the_order_of_rows(real: Ingest) -> None:
    for domain in DOMAINS:
        executions = of_domain(real.executions, domain).filter(pl.col("sandbox_id") < "i8")
        patterns = extract_patterns(executions, domain, RECIPE)
        assert problems(Pattern, patterns) == []
        assert 10 < patterns.height < executions.height
        assert (patterns["success_rate"] >= 0.7).all()
        shuffled = extract_patterns(executions.sample(fraction=1, shuffle=True, seed=1), domain, RECIPE)
        assert shuffled.equals(patterns)


def test_no_executions_no_patterns(tmp_path: Path, real: Ingest) -> None:
    assert extract_patterns(real.executions.clear(), Domain.SQL, RECIPE).is_empty()


def test_a_pair_whose_definition_and_passing_test_belong_to_other_domains(tmp_path: Path) -> None:
    """In `debug` stand only the two ends of a pair; what was tested, and what passed later, stand around them."""
    test = "assert half(3) == 1.5"
    failed = {"outcome": "error", "error_name": "AssertionError", "domains": ["api", "debug"]}
    session = [
        run("made", "def half(n):\n    return n // 2"),
        run("failed", test, minute=1, **failed),
        run("mended", "def half(n):\n    return n / 2", minute=2, domains=["python", "api", "debug"]),
        run("passed", test, minute=3, domains=["api"]),
    ]
    executions = table(Execution, session)
    for domain, found in ((Domain.DEBUG, 1), (Domain.API, 1), (Domain.PYTHON, 0)):
        tables = tables_of(executions, domain)
        knowledge = extract_knowledge(
            tables["executions"], tables["around"], tables["commands"], domain, RECIPE, tmp_path / domain
        )
        assert knowledge.repairs.height == found, domain
        assert knowledge.repairs["failing_code"].to_list() == [f"{session[0].code}\n\n{test}"] * found
