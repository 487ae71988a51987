"""From a family to sessions: draws a variant's words, learns the values of its checks, writes the cells out."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from capibara_assets.domains import Domain
from workshop.experience.families import Bug, Family, fill
from workshop.experience.sql.databases import DATABASES, Database
from workshop.experience.vocabulary import THINGS, python_literal, words_of

#: A check line that asks for the value of its expression.
ASKS = " ==>"

_LEADS = {
    "python": (
        "Write a function `{sig}` that {core}.",
        "Implement `{sig}`. It {core}.",
        "I need a Python function `{sig}`: it {core}.",
        "Add a helper `{sig}` that {core}.",
        "Write Python code: `{sig}` {core}.",
    ),
    "javascript": (
        "Write a JavaScript function `{sig}` that {core}.",
        "Implement `{sig}` in JavaScript. It {core}.",
        "I need a JavaScript helper `{sig}`: it {core}.",
        "In JavaScript, `{sig}` {core}.",
    ),
}
_SIGNATURES = {
    "python": re.compile(r"^(?:async )?def (\w+\(.*?\))(?: ->.*)?:$", re.MULTILINE),
    "javascript": re.compile(r"^(?:async )?function\*? ?(\w+\([^\n]*\)) \{$", re.MULTILINE),
}
_DOC = {"python": '"""{}"""', "javascript": "// {}", "sql": "-- {}"}
_STYLES = {
    Domain.PYTHON: ("assert", "assert", "print", "show"),
    Domain.JAVASCRIPT: ("assert", "assert", "print", "show"),
    Domain.ML: ("print", "print", "assert", "show"),
    Domain.API: ("print", "assert", "show"),
}

#: Evaluates a check: plain lines run, the others' values come back as source text, in order.
Learn = Callable[[Sequence[str], Sequence["CheckLine"]], list[str]]


@dataclass(frozen=True)
class CheckLine:
    """One statement of a check; `asks` when the value of the expression is to be learnt."""

    text: str
    asks: bool


@dataclass(frozen=True)
class Attempt:
    """One cell to run: what is asked, the code, and whether it is meant to fail."""

    task: str
    code: str
    language: str
    fails: bool = False


@dataclass(frozen=True)
class Variant:
    """A family with its words drawn; `bug` makes it a session that fails first."""

    family: Family
    number: int
    bug: Bug | None
    seed: int
    thing: int

    @property
    def name(self) -> str:
        kind = "repair" if self.bug else "solve"
        return f"{self.family.domain}/{self.family.name}/{kind}-{self.number}"


def database_of(variant: Variant) -> Database | None:
    """The database that a SQL session finds in its sandbox."""
    return DATABASES[variant.thing % len(DATABASES)] if variant.family.language == "sql" else None


def draw_words(variant: Variant) -> dict[str, str]:
    """The variant's words: the thing's or the database's, then the family's own picks (coordinated ones together)."""
    family, rng = variant.family, Random(variant.seed)
    database = database_of(variant)
    if database is None:
        words = words_of(THINGS[variant.thing % len(THINGS)], rng, javascript=family.language == "javascript")
    else:
        words = database.words(rng) | {f"schema_{table}": columns for table, columns in database.columns.items()}
    for names, choices in family.pick.items():
        # By number rather than at random: the first variants of a family differ as much as they can.
        choice = choices[variant.number % len(choices)]
        values = (choice,) if isinstance(choice, str) else choice
        words |= dict(zip(names.split("|"), values, strict=True))
    return words


def render(variant: Variant, learn: dict[str, Learn]) -> list[Attempt]:
    """The cells of a variant, in order; with a bug, the failing attempt comes right before its repair.

    Raises:
        ValueError: a bug whose text is not in its cell exactly once.
    """
    family, rng = variant.family, Random(variant.seed + 1)
    words = draw_words(variant)
    attempts: list[Attempt] = []
    before: list[str] = []
    buggy = range(len(family.cells))[family.bug_cell]
    for position, cell in enumerate(family.cells):
        with_doc = rng.random() < 0.7
        statement = fill(rng.choice(cell.statements), words)
        code = _with_doc(fill(cell.code, words | {"doc": "<<doc>>"}), statement, family.language, keep=with_doc)
        task = _task(statement, code, family.language, rng)
        check = _check_lines(fill(cell.check, words))
        style = "assert" if variant.bug else rng.choice(_STYLES.get(family.domain, ("print",)))
        fails_here = variant.bug is not None and position == buggy
        if _shows(code, family.language) and not fails_here and rng.random() < 0.6:
            check = []  # the cell's own output is its evidence
        values = learn[family.language]([*before, code], check) if check else []
        written = _write_check(check, values, "assert" if _shows(code, family.language) else style, family.language)
        good = _join(code, written)
        if fails_here:
            broken = _with_doc(
                fill(_break(cell.code, variant), words | {"doc": "<<doc>>"}), statement, family.language, keep=with_doc
            )
            attempts.append(Attempt(task, _join(broken, written), family.language, fails=True))
        attempts.append(Attempt(task, good, family.language))
        before.append(good)
    return attempts


def _break(code: str, variant: Variant) -> str:
    bug = variant.bug
    assert bug is not None
    if code.count(bug.find) != 1:
        raise ValueError(
            f"{variant.name}: {bug.find!r} of bug {bug.kind!r} is in the code {code.count(bug.find)} times"
        )
    return code.replace(bug.find, bug.replace)


def _shows(code: str, language: str) -> bool:
    """Whether the last line of a Python cell shows something by itself: a print or a bare expression."""
    last = code.rpartition("\n")[2]
    return (
        language == "python"
        and re.match(r"(?!return|raise|assert)[\w(]", last) is not None
        and not re.search(r"(?<![=<>!])=(?!=)", re.sub(r"\(.*\)|\[.*\]", "", last))
    )


def _join(code: str, check: str) -> str:
    """The cell with its check; an expression that is shown stays the last line."""
    if not check:
        return code
    body, _, last = code.rpartition("\n")
    if _shows(code, "python") and not last.startswith("print("):
        return f"{body}\n{check}\n{last}"
    return f"{code}\n\n{check}"


def _task(statement: str, code: str, language: str, rng: Random) -> str:
    if not statement[0].islower():
        return statement
    signature = _SIGNATURES[language].search(code)
    assert signature is not None, code
    return rng.choice(_LEADS[language]).format(sig=signature[1], core=statement)


def _with_doc(code: str, statement: str, language: str, *, keep: bool) -> str:
    """Puts the statement where the code says `<<doc>>`, or takes that line out."""
    text = statement.split("\nTables: ")[0]
    text = text[0].upper() + text[1:] + ("" if text.endswith(("?", ".")) else ".")
    lines = []
    for line in code.split("\n"):
        if line.strip() != "<<doc>>":
            lines.append(line)
        elif keep:
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(indent + _DOC[language].format(text))
    return "\n".join(lines)


def _check_lines(check: str) -> list[CheckLine]:
    """Statements of a check: a line and what is indented below it stay together."""
    groups: list[list[str]] = []
    for line in check.split("\n"):
        follows = line.startswith((" ", ")", "}", "]", "except", "finally", "else", "def", "class")) or not line
        decorated = bool(groups) and groups[-1][-1].startswith("@")
        if groups and (
            decorated or (follows and not groups[-1][0].endswith(ASKS) and not line.startswith(("def", "class")))
        ):
            groups[-1].append(line)
        elif line:
            groups.append([line])
    texts = ["\n".join(group).rstrip() for group in groups]
    return [CheckLine(text.removesuffix(ASKS), text.endswith(ASKS)) for text in texts]


def _write_check(check: Sequence[CheckLine], values: Sequence[str], style: str, language: str) -> str:
    remaining = iter(values)
    last = max((index for index, line in enumerate(check) if line.asks), default=-1)
    lines = []
    for index, line in enumerate(check):
        if not line.asks:
            lines.append(line.text)
            continue
        value = next(remaining)
        if style == "print":
            lines.append(f"print({line.text})" if language == "python" else f"console.log({line.text});")
        elif style == "show" and index == last == len(check) - 1:
            lines.append(line.text if language == "python" else f"{line.text};")
        elif language == "python":
            lines.append(_python_assert(line.text, value))
        else:
            lines.append(f"assert.deepStrictEqual({line.text}, {value});")
    if any("assert." in line for line in lines) and language == "javascript":
        lines.insert(0, 'const assert = require("assert");')
    return "\n".join(lines)


def _python_assert(expression: str, value: str) -> str:
    compared = re.search(r" (==|>=|<=|in|<|>) ", expression)
    if value == "True" and (compared or "(" in expression):
        return f"assert {expression}"
    if value == "False" and not compared:
        return f"assert not {expression}"
    if value in ("True", "False", "None"):
        return f"assert ({expression}) is {value}" if compared else f"assert {expression} is {value}"
    return f"assert {expression} == {value}"


def _run(text: str, mode: str, names: dict[str, Any]) -> Any:
    """Runs one cell or expression as a notebook does: `await` is allowed at the top level."""
    code = compile(text, "<authored>", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    value = eval(code, names)
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def learn_python(before: Sequence[str], check: Sequence[CheckLine]) -> list[str]:
    """Runs authored code in this process (it is this package's own) and returns the asked values as literals."""
    names: dict[str, Any] = {"__name__": "__main__"}
    values = []
    with contextlib.redirect_stdout(io.StringIO()):
        for code in before:
            _run(code, "exec", names)
        for line in check:
            value = _run(line.text, "eval" if line.asks else "exec", names)
            if line.asks:
                values.append(python_literal(value.item() if type(value).__module__ == "numpy" else value))
    return values
