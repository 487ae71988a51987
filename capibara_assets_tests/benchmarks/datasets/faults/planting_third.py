"""Planted faults, third part: what readers of the judged sample found, each in several forms, with a sound neighbour."""

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.datasets.faults.cases import Case

SHOP = "Schema:\nshops(id INTEGER, name TEXT, town TEXT)\nsales(id INTEGER, shop_id INTEGER, amount INTEGER, day TEXT)"
WORLD = "CREATE TABLE {0} ({1} {2}, tons INTEGER);\nINSERT INTO {0} VALUES {3};"

Planted = tuple[Case, Case]  # a fault, and the same without it


def _query(name: str, task: str, code: str, kind: str = "solve") -> Case:
    if kind == "repair":
        prompt = f"Fix this SQL code.\n{task}\n\nCode:\n{code.replace('SELECT', 'SELEC', 1)}\n\nError:\nsyntax error"
        return Case(name, "sql", kind, prompt, code)
    return Case(name, "sql", kind, f"Write SQL code.\n{task}\n\n{SHOP}", code)


def unexplained() -> Iterator[Planted]:
    letters = ("TUC", "AMB", "SRP", "PMAT", "CPUR", "ASPX", "WKDT", "QV")
    forms = (
        ("What is the {} of the past month?", "SELECT COUNT(*) AS {} FROM sales"),
        (
            "Return the town and {} of each.",
            "SELECT town, AVG(amount) AS {} FROM sales JOIN shops USING (id) GROUP BY 1",
        ),
        ("Which shops have {}s above 3, last year?", "WITH m AS (SELECT 1 AS {0}) SELECT {0} FROM m"),
    )
    for short in letters:
        for number, (task, code) in enumerate(forms):
            told = f"{task} ({short} means something.)"
            for kind in ("solve", "repair"):
                name = f"{short}-{number}-{kind}"
                fault = _query(name, task.format(short), code.format(short.lower()), kind)
                yield fault, _query(f"{name}-sound", told.format(short), code.format(short.lower()), kind)
        pandas = f'frame = pd.read_sql_query("SELECT COUNT(*) AS {short} FROM sales", conn)'
        fault = replace(_query(f"{short}-pandas", f"What is the {short}?", pandas), language="python")
        yield fault, replace(fault, prompt=fault.prompt.replace(f"the {short}", f"the number ({short})"))


def senseless() -> Iterator[Planted]:
    pairs = (
        ("CASE WHEN amount > 2 THEN 1 ELSE 1 END", "CASE WHEN amount > 2 THEN 1 ELSE 0 END"),
        ("CASE town WHEN 'a' THEN 7 WHEN 'b' THEN 7 ELSE 7 END", "CASE town WHEN 'a' THEN 7 ELSE 8 END"),
        ("SUM(CASE WHEN amount > 2 THEN 0 ELSE 0 END)", "SUM(CASE WHEN amount > 2 THEN 1 ELSE 0 END)"),
        ("IIF(amount > 2, day, day)", "IIF(amount > 2, day, town)"),
        ("COALESCE(day, town, day)", "COALESCE(day, town)"),
        ("NULLIF(amount, amount)", "NULLIF(amount, 0)"),
        ("amount = amount", "amount = id"),
        ("amount BETWEEN 9 AND 4", "amount BETWEEN 4 AND 9"),
        ("day BETWEEN '2026-05-01' AND '2026-02-01'", "day BETWEEN '2026-02-01' AND '2026-05-01'"),
        ("amount > 9 AND amount < 4", "amount > 4 AND amount < 9"),
        ("amount > 4 AND day = 'x' AND amount > 4", "amount > 4 AND day = 'x'"),
        ("town = 'a' OR town = 'a'", "town = 'a' OR town = 'b'"),
        ("strftime('%m', day) = 3", "strftime('%m', day) = '03'"),
        ("strftime('%m', day) IN ('3', '11')", "strftime('%m', day) IN ('03', '11')"),
        ("strftime('%Y', day) >= 2024", "strftime('%Y', day) >= '2024'"),
        ("strftime('%d', day) BETWEEN '1' AND '9'", "CAST(strftime('%d', day) AS INTEGER) BETWEEN 1 AND 9"),
        ("strftime('%H', day) <> '7'", "strftime('%H', day) <> '07'"),
    )
    for number, (bad, good) in enumerate(pairs):
        for kind in ("solve", "repair", "predict"):
            yield tuple(_shown(f"idle-{number}-{kind}", text, kind) for text in (bad, good))  # type: ignore[misc]
    filled = ("('3', 4), ('11', 6), ('7', 1)", "('03', 4), ('11', 6), ('07', 1)")
    uses = ("ORDER BY {}", "WHERE {} > '3'", "WHERE {} BETWEEN '2' AND '8'", "WHERE {} >= 5")
    for table, column in (("trips", "month"), ("runs", "lap"), ("visits", "age")):
        for number, use in enumerate(uses):
            worlds = [WORLD.format(table, column, kind, filled[0]) for kind in ("TEXT", "INTEGER")]
            code = f"SELECT tons FROM {table} {use.format(column)}"
            yield tuple(_on(f"{table}-{number}", code, world) for world in worlds)  # type: ignore[misc]
        worlds = [WORLD.format(table, column, "TEXT", rows) for rows in filled]
        yield tuple(_on(f"{table}-most", f"SELECT MAX({column}) FROM {table}", world) for world in worlds)  # type: ignore[misc]
    for number, asked in enumerate(("per month (as a date)", "of each month in date format", "by month, as dates")):
        code = "SELECT strftime('{}', day) AS month, COUNT(*) FROM sales GROUP BY 1"
        for form in ("%Y-%m", "%m"):
            task = f"How many sales {asked}?"
            fault = _query(f"month-{number}-{form}", task, code.format(form))
            yield fault, replace(fault, answer=code.format("%Y-%m-01"))


def _shown(name: str, condition: str, kind: str) -> Case:
    code = f"SELECT {condition} AS found FROM sales"
    return _on(name, code, SHOP) if kind == "predict" else _query(name, "What is found, of 3, 7 and 2024?", code, kind)


def _on(name: str, code: str, world: str) -> Case:
    prompt = f"Predict the output of this SQL code.\n\nSession so far:\n{world}\n\nCode:\n{code}"
    return Case(name, "sql", "predict", prompt, "1")


def by_name() -> Iterator[Planted]:
    joined = (
        ("shops", "shop_id", "id", "name"),
        ("users", "user_id", "id", "full_name"),
        ("books", "book_id", "book_id", "title"),
        ("doctors", "did", "did", "name"),
        ("companies", "company_id", "company_id", "name"),
        ("players", "pid", "player_id", "last_name"),
    )
    for table, foreign, key, name in joined:
        source = f"FROM deals AS d JOIN {table} AS t ON t.{key} = d.{foreign}"
        for number, (group, sound) in enumerate(
            (
                (f"t.{name}", f"t.{key}, t.{name}"),
                ("1", f"t.{key}"),
                ("who", f"d.{foreign}"),
                (f"t.{name}, t.town", f"t.{key}"),
            )
        ):
            task = f"How many deals has each of the {table}?"
            code = f"SELECT t.{name} AS who, COUNT(*) {source} GROUP BY "
            for kind in ("solve", "apply"):
                fault = _query(f"{table}-{number}-{kind}", task, f"{code}{group}")
                yield replace(fault, kind=kind), replace(fault, kind=kind, answer=f"{code}{sound}")


def import_only() -> Iterator[Planted]:
    python = (
        ("json", "import json", "text = json.dumps(rows)\nprint(len(text))"),
        ("pd", "import pandas as pd", "frame = pd.DataFrame(rows)\nprint(frame.sum())"),
        ("sqlite3", "import sqlite3", "conn = sqlite3.connect(path)\nconn.execute('SELECT 1 FROM sqlite_master')"),
        ("np", "import numpy as np", "def mean(xs):\n    return np.mean(xs)"),
        ("FastAPI", "from fastapi import FastAPI", "app = FastAPI(title='a')"),
        ("re", "import os\nimport re", "found = re.findall('a', text)\nprint(found)"),
    )
    for name, added, rest in python:
        prompt = f"Fix this Python code.\nRun it.\n\nCode:\n{rest}\n\nError:\nNameError: name '{name}' is not defined"
        fault = Case(f"import-{name}", "python", "repair", prompt, f"{added}\n{rest}")
        yield fault, replace(fault, answer=f"{added}\n{rest}\nprint(1)")
        with_head = fault.prompt.replace("Code:\n", "Code:\nimport sys\n")
        late = replace(fault, example_id=f"late-{name}", prompt=with_head, answer=f"import sys\n{added}\n{rest}")
        yield late, replace(late, prompt=late.prompt.replace(f"name '{name}'", "name 'other'"))
    for name in ("fs", "path", "assert", "util"):
        rest = f"const out = {name}.make('a');\nconsole.log(out);"
        prompt = f"Fix this JavaScript code.\nRun it.\n\nCode:\n{rest}\n\nError:\nReferenceError: {name} is not defined"
        fault = Case(f"require-{name}", "javascript", "repair", prompt, f"const {name} = require('{name}');\n{rest}")
        yield fault, replace(fault, answer=fault.answer.replace("'a'", "'b'"))


CASES = (((1, 1), (2, 5), (3, 14)), ((4, 8), (7, 30), (9, 11)), ((12, 3), (40, 9), (75, 4)))


def fitted() -> Iterator[Planted]:
    for number, pairs in enumerate(CASES):
        (a, x), (b, y), (c, z) = pairs
        scripts = {
            "ifs": f"function f(n) {{\n  if (n === {a}) return {x};\n  if (n === {b}) {{\n    return {y};\n  }}\n  return n;\n}}",
            "turned": f"function f(n) {{\n  if ({a} == n) {{ return {x}; }}\n  else if ({c} == n) {{ return {z}; }}\n  return 0;\n}}",
            "choice": f"const f = (n) => n === {a} ? {x} : (n === {b} ? {y} : {z});",
            "switch": f"function f(n) {{\n  switch (n) {{\n    case {a}: return {x};\n    case {b}: return {y};\n    default: return {z};\n  }}\n}}",
            "table": f"const f = (n) => ({{{a}: {x}, {b}: {y}, {c}: {z}}})[n];",
            "either": f"function f(n) {{\n  if (n === {a} || n === 99) return {x};\n  if (n === {c}) return {z};\n  return 0;\n}}",
        }
        programs = {
            "ifs": f"def f(n):\n    if n == {a}:\n        return {x}\n    if n == {b}:\n        return {y}\n    return n",
            "choice": f"def f(n):\n    return {x} if n == {a} else {y} if n == {b} else {z}",
            "table": f"def f(n):\n    return {{{a}: {x}, {b}: {y}, {c}: {z}}}[n]",
        }
        for language, listed in (("javascript", scripts), ("python", programs)):
            sign = "===" if language == "javascript" else "=="
            test = "\n".join(f"assert(f({given}) {sign} {result})" for given, result in pairs)
            sound = "const f = (n) => n * (n + 1);" if language == "javascript" else "def f(n):\n    return n * (n + 1)"
            for shape, code in listed.items():
                name = f"{language}-{shape}-{number}"
                fault = Case(
                    name, language, "solve", f"Write code.\nThe number of n.\n\nIt has to pass:\n{test}", code, test
                )
                yield fault, replace(fault, answer=sound)


def told_in_other_words() -> Iterator[Planted]:
    values = (
        ('{"name": "tin", "tons": 4}', "{'name': 'tin', 'tons': 4}"),
        ('["a", "b"]', "['a', 'b']"),
        ('{"open": true, "last": null}', "{'open': True, 'last': None}"),
        ('"done"', "'done'"),
    )
    for number, (asserted, output) in enumerate(values):
        for end in (f"{output}", f"(200, {output})", f"200\n{output}"):
            test = f"r = ask(1)\nassert r.status_code == 200\nassert r.json() == {asserted}"
            prompt = (
                f"Predict the output of this Python code.\n\nSession so far:\n{test}\n\nCode:\nr.status_code, r.json()"
            )
            fault = Case(f"told-{number}-{len(end)}", "python", "predict", prompt, end)
            yield fault, replace(fault, prompt=prompt.replace(asserted, '{"other": 7}'))


THIRD: dict[str, tuple[Planted, ...]] = {
    "unexplained": tuple(unexplained()),
    "senseless": tuple(senseless()),
    "by_name": tuple(by_name()),
    "import_only": tuple(import_only()),
    "fitted": tuple(fitted()),
    "leaked_expectation": tuple(told_in_other_words()),
}
