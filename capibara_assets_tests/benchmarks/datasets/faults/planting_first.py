"""Planted faults, first half: shapes written before the detectors."""

from collections.abc import Iterator

from benchmarks.datasets.faults.cases import Case
from capibara_assets_tests.benchmarks.datasets.faults.clean import (
    BASES,
    BASH,
    COMMENT,
    JAVASCRIPT,
    PYTHON,
    SQL,
    TITLES,
    Base,
    asked,
    test_of,
)

# those whose name is the asked function
ASKED = tuple(base for base in PYTHON if base.name not in ("by_city", "route", "wait_all"))


def own_name(base: Base) -> str:
    return base.call.removeprefix("new ").removeprefix("await ").split("(")[0]


def _answer(base: Base, shape: str, code: str) -> Case:
    return Case(f"{base.name}-{shape}", base.language, "solve", asked(base), code)


def leaks() -> Iterator[Case]:
    for number, base in enumerate(ASKED):
        name, arguments = own_name(base), base.call.removeprefix(own_name(base))
        shapes = {
            "assert": f"{base.code}\n\nassert {base.call} == {base.value}",
            "candidate": f"{base.code}\n\ncandidate = {name}\nassert candidate{arguments} == {base.value}",
            "check": f"{base.code}\n\ndef check(candidate):\n    assert candidate{arguments} == {base.value}\n\ncheck({name})",
            "raise": f"{base.code}\n\nif {base.call} != {base.value}:\n    raise SystemExit('wrong')",
            "unittest": f"import unittest\n{base.code}\n\nclass Checks(unittest.TestCase):\n    def test_it(self):\n"
            f"        self.assertEqual({base.call}, {base.value})",
            "table": f"{base.code}\n\nfor given, wanted in [({base.call}, {base.value})]:\n    assert given == wanted",
            "print": f"{base.code}\n\nprint({base.call} == {base.value})",
            "harness": f"{base.code}\n\ndef check(candidate):\n    pass",
        }
        for at, (shape, code) in enumerate(shapes.items()):
            if (at + number) % 2:
                yield _answer(base, shape, code)
    for number, base in enumerate(JAVASCRIPT):
        text = f"JSON.stringify({base.call})"
        shapes = {
            "console": f"{base.code}\n\nconsole.assert({text} === JSON.stringify({base.value}));",
            "strict": f'const assert = require("assert");\n{base.code}\nassert.deepStrictEqual({base.call}, {base.value});',
            "expect": f"{base.code}\n\nexpect({base.call}).toEqual({base.value});",
            "throw": f"{base.code}\n\nif ({text} !== JSON.stringify({base.value})) {{\n  throw new Error('wrong');\n}}",
            "equal": f"{base.code}\n\nfunction isEqual(a, b) {{\n  return JSON.stringify(a) === JSON.stringify(b);\n}}",
        }
        for at, (shape, code) in enumerate(shapes.items()):
            if (at + number) % 2:
                yield _answer(base, shape, code)
    for base in SQL[:4]:
        query = base.code.rstrip(";")
        yield _answer(
            base,
            "verdict",
            f"SELECT CASE WHEN (SELECT COUNT(*) FROM orders) = 4 THEN 'PASS' ELSE 'FAIL' END;\n{query};",
        )
        yield _answer(base, "except", f"{query}\nEXCEPT\nVALUES ('Lisbon', 90);")
    for base in BASH[:3]:
        yield _answer(base, "bracket", f'{base.code}\n[ "$({base.call})" = "{base.value}" ] || exit 1')
        yield _answer(base, "diff", f"{base.code}\ndiff <({base.call}) expected.txt && echo PASS")
    for base in (*ASKED[:3], *JAVASCRIPT[:3]):
        mark, shown = COMMENT[base.language], "print" if base.language == "python" else "console.log"
        prompt = f"What does this code print?\n\nCode:\n{base.code}\n{shown}({base.call})  {mark} -> {base.value}"
        yield Case(f"{base.name}-arrow", base.language, "predict", prompt, base.value)
        line = test_of(base).splitlines()[0]
        yield Case(f"{base.name}-told", base.language, "predict", f"{prompt.rsplit('  ', 1)[0]}\n{line}", base.value)


def insufficient() -> Iterator[Case]:
    for base in (*PYTHON, *JAVASCRIPT):
        # a helper of an earlier cell that nobody shows
        used = "load_settings()"
        code = (
            f"settings = {used}\n{base.code}"
            if base.language == "python"
            else f"const limit = loadLimit();\n{base.code}"
        )
        yield _answer(base, "helper", code)
        failing = base.failing
        error = "AssertionError" if base.language == "python" else "Assertion failed"
        prompt = f"Fix this {TITLES[base.language]} code.\n\nCode:\n{failing}\n\nError:\n{error}"
        yield Case(f"{base.name}-bare", base.language, "repair", prompt, base.code)
    for base in SQL:
        if "CREATE TABLE st" not in base.code:
            prompt = f"Write SQL code.\n{base.task.splitlines()[0]}"
            yield Case(f"{base.name}-schema", "sql", "solve", prompt, base.code)
    for base in PYTHON[:3]:
        code = f"import pandas as pd\n{base.code}\nrates = pd.read_csv('rates_2025.csv')"
        yield _answer(base, "file", code)


def no_ops() -> Iterator[Case]:
    for base in BASES:
        prompt = f"Fix this {TITLES[base.language]} code.\n{base.task}\n\nCode:\n{base.code}\n\nError:\n{test_of(base)}"
        mark = COMMENT[base.language]
        yield Case(f"{base.name}-comment", base.language, "repair", prompt, f"{mark} now it is right\n{base.code}")
        if base.language == "python":
            spaced = base.code.replace("\n\n", "\n").replace("    ", "  ").replace(", ", ",")
            yield Case(f"{base.name}-spaces", base.language, "repair", prompt, spaced)
        line = max(base.code.splitlines(), key=len).strip()
        asked_why = f"Explain why this code fails.\n\nCode:\n{base.code}\n\nError:\n{test_of(base)}"
        same = line.replace("'", '"') if base.language in ("python", "javascript") else line.replace(" ", "  ")
        if base.language != "bash":
            said = f"It raises an error.\nWrong: `{line}`\nRight: `{same}`"
            yield Case(f"{base.name}-same-line", base.language, "explain", asked_why, said)


def boilerplate() -> Iterator[Case]:
    for base in (*ASKED, *JAVASCRIPT):
        head = base.code.splitlines()[0].rstrip(":{ ")
        prompt = f"Explain this {TITLES[base.language]} code.\n\nCode:\n{base.code}"
        yield Case(f"{base.name}-named", base.language, "explain", prompt, f"Function `{own_name(base)}`.")
        yield Case(
            f"{base.name}-head", base.language, "explain", prompt, f"This code defines `{head}`. It is a function."
        )
    for base in (base for base in SQL if base.name != "create"):
        words = [word for word in ("where", "group by", "order by", "limit", "join") if word.upper() in base.code]
        prompt = f"Explain this SQL code.\n\nCode:\n{base.code}"
        table = "clients" if "clients" in base.code else "orders" if "orders" in base.code else "parts"
        said = f"SQL select over {table} with {', '.join(words) or 'values'}."
        yield Case(f"{base.name}-clauses", "sql", "explain", prompt, said)
    for number, base in enumerate(PYTHON[:6]):
        prompt = f"Write Python code.\nThis cell generates Figure {number + 1}."
        yield Case(f"{base.name}-figure", "python", "solve", prompt, base.code)


FIRST = {
    "leaked_expectation": tuple(leaks()),
    "insufficient_prompt": tuple(insufficient()),
    "no_op_repair": tuple(no_ops()),
    "boilerplate": tuple(boilerplate()),
}
