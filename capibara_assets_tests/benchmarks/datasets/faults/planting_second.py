"""Planted faults, second half: shapes written after the detectors, from the definitions alone."""

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.datasets.faults.cases import Case
from capibara_assets_tests.benchmarks.datasets.faults.clean import (
    BASES,
    BASH,
    JAVASCRIPT,
    PYTHON,
    SQL,
    TITLES,
    Base,
    asked,
    repair,
)
from capibara_assets_tests.benchmarks.datasets.faults.planting_first import ASKED, own_name


def _answer(base: Base, shape: str, code: str, kind: str = "solve") -> Case:
    return Case(f"{base.name}-{shape}", base.language, kind, asked(base), code)


def _python_shapes(base: Base) -> dict[str, str]:
    name, call, value = own_name(base), base.call, base.value
    return {
        "pytest": f"{base.code}\n\ndef test_{base.name}():\n    result = {call}\n    assert result == {value}",
        "main": f"{base.code}\n\ndef main():\n    got = {call}\n    assert got == {value}, got\n\nmain()",
        "guard": f"{base.code}\n\nif __name__ == '__main__':\n    actual = {call}\n    assert actual == {value}",
        "exit": f"import sys\n{base.code}\n\nif not {call} == {value}:\n    sys.exit(1)",
        "verdicts": f"{base.code}\n\ncases = [{value}]\nfor want in cases:\n    got = {call}\n"
        "    print('ok' if got == want else 'wrong')",
        "else": f"{base.code}\n\nif {call} == {value}:\n    print('passed')\nelse:\n    print('failed')",
        "numpy": f"import numpy as np\n{base.code}\n\nnp.testing.assert_equal({call}, {value})",
        "comment": f"{base.code}\n\nprint({call})  # expected: {value}",
        "all": f"{base.code}\n\nexpected = {value}\nprint(all({call} == want for want in [expected]))",
        "close": f"import math\n{base.code}\n\ndef approximately_equal(a, b):\n"
        "    return a == b or math.isclose(a, b, rel_tol=1e-9)",
        "try": f"{base.code}\n\ntry:\n    assert {call} == {value}\nexcept AssertionError:\n    print('wrong')",
        "own_check": f"{base.code}\n\ndef expect(got, want):\n    if got != want:\n        raise ValueError(got)\n\n"
        f"expect({call}, {value})",
        "doctest": f"{base.code}\n\ndef example():\n    '''\n    >>> {call}\n    {value}\n    '''\n\n"
        "import doctest\ndoctest.testmod()",
        "alias": f"{base.code}\n\nsolution_under_test = {name}",
    }


def _javascript_shapes(base: Base) -> dict[str, str]:
    call, value = base.call, base.value
    text, wanted = f"JSON.stringify({call})", f"JSON.stringify({value})"
    return {
        "node_test": f"import test from 'node:test';\nimport assert from 'node:assert';\n{base.code}\n\n"
        f"test('works', async () => {{\n  assert.deepEqual({call}, {value});\n}});",
        "jest": f"{base.code}\n\ndescribe('it', () => {{\n  it('works', async () => {{\n    expect({call}).toEqual({value});\n  }});\n}});",
        "log": f"{base.code}\n\nconsole.log({text} === {wanted});",
        "ternary": f"{base.code}\n\nconst got = {text};\nconsole.log(got === {wanted} ? 'PASS' : 'FAIL');",
        "exit": f"{base.code}\n\nif ({text} !== {wanted}) process.exit(1);",
        "iife": f"{base.code}\n\n(async () => {{\n  const got = {call};\n  console.assert(JSON.stringify(got) === {wanted});\n}})();",
        "table": f"{base.code}\n\n[[{text}, {wanted}]].forEach(([got, want]) => {{\n  if (got !== want) throw new Error(got);\n}});",
        "own": f"{base.code}\n\nfunction assertEqual(got, want) {{\n  if (JSON.stringify(got) !== JSON.stringify(want)) throw new Error('no');\n}}\n"
        f"assertEqual({call}, {value});",
        "chai": f"const {{ expect }} = require('chai');\n{base.code}\nexpect({call}).to.deep.equal({value});",
        "comment": f"{base.code}\n\nconsole.log({call}); // should be {value}",
        "left": f"{base.code}\n\nconst assert = require('node:assert');",
    }


def leaks() -> Iterator[Case]:
    for number, base in enumerate(ASKED):
        for at, (shape, code) in enumerate(_python_shapes(base).items()):
            if (at + number) % 3 == 0:
                yield _answer(base, f"second-{shape}", code, kind=("solve", "apply")[at % 2])
    for number, base in enumerate(JAVASCRIPT):
        for at, (shape, code) in enumerate(_javascript_shapes(base).items()):
            if (at + number) % 3 == 0:
                yield _answer(base, f"second-{shape}", code, kind=("solve", "apply")[at % 2])
    for base in SQL[:5]:
        query = base.code.rstrip(";")
        yield _answer(base, "second-count", f"SELECT (SELECT COUNT(*) FROM ({query})) = 3 AS ok;")
        yield _answer(base, "second-words", f"{query}; -- expected: 3 rows")
        yield _answer(
            base, "second-table", f"CREATE TABLE expected (a, b);\n{query}\nEXCEPT SELECT a, b FROM expected;"
        )
    for base in BASH:
        yield _answer(
            base,
            "second-captured",
            f'{base.code}\nout=$({base.call})\nif [[ "$out" != "{base.value}" ]]; then echo FAIL; exit 1; fi',
        )
        yield _answer(
            base, "second-grep", f'{base.code}\n{base.call} | grep -q "{base.value}" && echo PASS || echo FAIL'
        )
        yield _answer(base, "second-cmp", f"{base.code}\n{base.call} | cmp - expected.txt")
    for base in (*ASKED[3:6], *JAVASCRIPT[3:6]):
        shown = f"print({base.call})" if base.language == "python" else f"console.log({base.call})"
        prompt = f"Predict the output.\n\n```\n{base.code}\n{shown}\n```\n\nExpected output:\n{base.value}"
        yield Case(f"{base.name}-second-heading", base.language, "predict", prompt, base.value)


def insufficient() -> Iterator[Case]:
    for base in PYTHON:
        yield _answer(base, "second-client", f"{base.code}\nrows = warehouse.fetch(limit=3)")
        name = base.code.split("(")[0].removeprefix("def ")
        yield _answer(
            base,
            "second-decorated",
            f"@registered\ndef run_{base.name}():\n    return HANDLERS[{name!r}]\n\n{base.code}",
        )
    for base in JAVASCRIPT:
        yield _answer(base, "second-imported", f"{base.code}\nstore.dispatch(makeAction({base.name!r}));")
        prompt = f"Why does this fail?\n\n```js\n{base.failing}\n```\n\nError:\nAssertionError [ERR_ASSERTION]: The expression evaluated to a falsy value"
        yield Case(f"{base.name}-second-why", "javascript", "explain", prompt, f"{base.says} It should be fixed.")
    for base in SQL:
        if base.name != "create":
            task = base.task.splitlines()[0]
            # a schema, but of something else
            prompt = f"Write SQL code.\n{task}\nTables: rivers(id, length, mouth)"
            yield Case(f"{base.name}-second-other", "sql", "solve", prompt, base.code)
            # the table is there, and its columns are not
            names = "orders(id), clients(id), parts(id)"
            yield Case(
                f"{base.name}-second-columns", "sql", "solve", f"Write SQL code.\n{task}\nTables: {names}", base.code
            )
    for base in BASH[:3]:
        yield _answer(base, "second-file", f"{base.code}\ncat /opt/tools/defaults.ini")
    for base in PYTHON[:4]:
        code = f"import pandas as pd\n{base.code}\ntable = pd.read_sql('SELECT badge FROM employees', connection)"
        yield _answer(base, "second-query", code)
        prompt = f"Correct this program, please.\n\nCode:\n{base.failing}\n\nError:\nTraceback (most recent call last)\nAssertionError"
        yield Case(f"{base.name}-second-bare", "python", "repair", prompt, base.code)


RENAMED = {
    "median": ("ordered", "in_order"),
    "rooms": ("ends", "free_at"),
    "slug": ("title", "heading"),
    "digits": ("number", "n"),
    "cached": ("known", "cache"),
    "parse": ("key", "field"),
    "chunk": ("pieces", "parts"),
    "group": ("groups", "byKey"),
    "retry": ("last", "latest"),
    "words": ("best", "top"),
    "debounce": ("called", "done"),
    "query": ("kept", "present"),
    "revenue": ("c.", "cl."),
    "pairs": ("a.", "one."),
}


def no_ops() -> Iterator[Case]:
    for base in BASES:
        sound = repair(replace(base, wrong=("", "")))
        if base.name in RENAMED:
            old, new = RENAMED[base.name]
            code = (
                base.code.replace(old, new)
                .replace("clients AS c", "clients AS cl")
                .replace("parts AS a", "parts AS one")
            )
            yield replace(sound, example_id=f"{base.name}-second-renamed", answer=code)
        if base.language == "python" and base.name != "by_city" and "'''" not in base.code:
            quotes = base.code.replace("'", '"')
            yield replace(sound, example_id=f"{base.name}-second-quotes", answer=f"{quotes}\n\n# fixed the bug")
        if base.language == "python" and base.code.startswith("def "):
            head, rest = base.code.split("\n", 1)
            yield replace(
                sound, example_id=f"{base.name}-second-docstring", answer=f'{head}\n    """What it is for."""\n{rest}'
            )
        if base.language == "javascript":
            bare = base.code.replace(";\n", "\n").removesuffix(";")
            yield replace(sound, example_id=f"{base.name}-second-semicolons", answer=f"/* mended */\n{bare}")
        if base.language == "sql":
            yield replace(
                sound,
                example_id=f"{base.name}-second-case",
                answer=base.code.replace("SELECT", "select").replace("FROM", "from"),
            )
        if base.language == "bash":
            yield replace(sound, example_id=f"{base.name}-second-shell", answer=f"# mended\n{base.code}")
        line = max(base.code.splitlines(), key=len).strip()
        prompt = f"Why does this fail?\n\n```\n{base.code}\n```\n\nError:\nValueError: no"
        said = f"The line `{line}` is wrong. It should be `{line}` instead."
        yield Case(f"{base.name}-second-line", base.language, "explain", prompt, said)


def boilerplate() -> Iterator[Case]:
    for number, base in enumerate((*ASKED, *JAVASCRIPT)):
        prompt = f"Explain this {TITLES[base.language]} code.\n\n```\n{base.code}\n```"
        name = own_name(base)
        words = " ".join(sorted({w for w in base.code.replace("_", " ").split() if w.isalpha()})[:4])
        yield Case(f"{base.name}-second-words", base.language, "explain", prompt, f"The function {name} has {words}.")
        counted = f"A routine of moderate complexity called `{name}` with {len(base.code.splitlines())} lines, well structured."
        counted = counted.replace(f"{len(base.code.splitlines())} lines", "several lines")
        yield Case(f"{base.name}-second-praise", base.language, "explain", prompt, counted)
        if number % 2:
            error = f"{prompt}\n\nError:\nValueError: no"
            yield Case(f"{base.name}-second-error", base.language, "explain", error, "It raises ValueError.")
    for number, base in enumerate((*ASKED[:4], *JAVASCRIPT[:4])):
        stated = (
            "Run the following cell.",
            "The next code cell is an example:",
            "Implement the function below.",
            "Exercise 4 solution",
        )[number % 4]
        yield Case(
            f"{base.name}-second-task",
            base.language,
            "solve",
            f"Write {TITLES[base.language]} code.\n{stated}",
            base.code,
        )


SECOND = {
    "leaked_expectation": tuple(leaks()),
    "insufficient_prompt": tuple(insufficient()),
    "no_op_repair": tuple(no_ops()),
    "boilerplate": tuple(boilerplate()),
}
