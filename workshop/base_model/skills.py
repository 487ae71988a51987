"""Skills in chat form: repeating, editing and mending code, telling what it prints, and writing small functions."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from types import FrameType
from typing import Any

from capibara_assets.datasets.derived import javascript_bugs, python_bugs, sql_bugs
from capibara_assets.datasets.derived.edits import RepairEdit
from capibara_assets.executions.parsing import python_tree
from workshop.base_model import queries
from workshop.base_model.copying import changed, repeated, words_of
from workshop.base_model.corpus import Corpus, Document, corpus_of, take
from workshop.base_model.javascript import javascript_exchange, javascript_program
from workshop.base_model.sql import sql_exchange, sql_script, sql_statement
from workshop.base_model.tasks import Task, camel, small_task, word
from workshop.base_model.tokenizer import render_chat
from workshop.base_model.worlds import draw_world

LANGUAGE = "skills"
_NAMES = {"python": "Python", "javascript": "JavaScript", "sql": "SQL"}
_MOST_LINES = 100
_MOST_BITS = 200
_TASK = "<task>"
_SHORTEST, _LONGEST = 40, 1200  # characters of a program that is repeated or mended
_SYSTEM = ("You are a careful programmer.", "You write correct programs.", "You know {name} well.")
_KEPT = frozenset((*dir(builtins), *keyword.kwlist, "self", "cls"))


def with_skills(corpus: Corpus, size: int, seed: int) -> Corpus:
    """The corpus and `size` bytes of skills, whose library functions are those of its training documents."""
    drawn = take(Skills(lent_functions(corpus), f"{seed}-skills").documents(), size, set())
    versions = {(source.name, source.language): (source.version, source.licence) for source in corpus.sources}
    return corpus_of([*corpus.training, *corpus.held_out, *drawn], seed, versions)


def lent_functions(corpus: Corpus) -> list[str]:
    """The functions of what is trained on: none of a held-out document."""
    return functions(document for document in corpus.training if document.language == "python")


def functions(documents: Iterable[Document]) -> list[str]:
    """Functions of Python documents, without docstring and outer indentation; each once, in a fixed order."""
    found = set()
    for document in documents:
        lines = document.text.split("\n")
        try:
            nodes = list(ast.walk(ast.parse(document.text)))
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and node.end_lineno and not node.decorator_list:
                body = node.body
                cut = (body[0].lineno - 1, body[0].end_lineno or 0) if ast.get_docstring(node) else (0, 0)
                kept = [n for n in range(node.lineno - 1, node.end_lineno) if not cut[0] <= n < cut[1]]
                code = "\n".join(lines[n][node.col_offset :] for n in kept).replace(":\n\n", ":\n")
                if _SHORTEST <= len(code) <= _LONGEST and code.count("\n") >= 2 and python_tree(code) is not None:
                    found.add(code)
    return sorted(found)


def renamed(code: str, rng: Random) -> str:
    """Python with other names for its own functions, parameters and variables, most of them never read before."""
    own = sorted(
        {node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)}
        | {node.arg for node in ast.walk(ast.parse(code)) if isinstance(node, ast.arg)}
        | {n.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    )
    for name in own:
        if name not in _KEPT and rng.random() < 0.6:
            other = "_".join(word(rng) for _ in range(rng.randint(1, 2)))
            code = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", other, code)
    return code


class Skills:
    """Draws documents; the same functions and seed give the same ones."""

    def __init__(self, python: Sequence[str], seed: str) -> None:
        self._python, self._rng, self._words = python, Random(seed), words_of(python)

    def documents(self) -> Iterator[Document]:
        """Conversations without end."""
        kinds: tuple[tuple[float, Callable[[], tuple[str, str, str] | None]], ...] = (
            (0.05, self._random_repeated),
            (0.05, self._random_changed),
            (0.05, self._repeated),
            (0.08, self._edited),
            (0.20, self._mended_library),
            (0.18, self._mended_task),
            (0.03, self._mended_sql),
            (0.10, self._mended_query),
            (0.12, self._printed),
            (0.04, self._selected),
            (0.05, self._asked),
            (0.12, self._written),
        )
        weights = [weight for weight, _ in kinds]
        while True:
            (_, make), *_ = self._rng.choices(kinds, weights)
            made = make()
            if made is not None:
                language, request, answer = made
                yield Document(LANGUAGE, f"generated-{make.__name__.strip('_')}", self._chat(language, request, answer))

    def _chat(self, language: str, request: str, answer: str) -> str:
        messages = [("user", request), ("assistant", answer)]
        if self._rng.random() < 0.3:
            messages.insert(0, ("system", self._rng.choice(_SYSTEM).format(name=_NAMES[language])))
        return render_chat(messages)

    def _code(self) -> tuple[str, str]:
        """(language, a program)."""
        rng = self._rng
        pick = rng.random()
        if pick < 0.5:
            return "python", renamed(rng.choice(self._python), rng)
        if pick < 0.65:
            return "python", small_task(rng, draw_world(rng)).python
        if pick < 0.85:
            return "javascript", javascript_program(rng)[:_LONGEST].rsplit("\n\n", 1)[0]
        return "sql", sql_script(rng)[:_LONGEST].rsplit("\n", 1)[0]

    def _shown(self, code: str, language: str) -> str:
        form = self._rng.random()
        if form < 0.4:
            return f"\n\n{code}"
        return f"\n\n```{language}\n{code}\n```" if form < 0.6 else f"\n\nCode:\n{code}"

    def _random_repeated(self) -> tuple[str, str, str]:
        return "python", *repeated(self._rng, self._words)

    def _random_changed(self) -> tuple[str, str, str]:
        return "python", *changed(self._rng, self._words)

    def _repeated(self) -> tuple[str, str, str]:
        language, code = self._code()
        asked = (
            "Repeat this code.",
            "Write this again, letter by letter.",
            "Copy the code below.",
            "Return it unchanged.",
        )
        return language, self._rng.choice(asked) + self._shown(code, language), code

    def _edited(self) -> tuple[str, str, str] | None:
        language, code = self._code()
        names = sorted({name for name in re.findall(r"(?<![\w.])[a-z_]{3,}(?!\w)", code) if name not in _KEPT})
        if not names:
            return None
        rng = self._rng
        old, new = rng.choice(names), word(rng)
        asked = rng.choice(("Rename `{0}` to `{1}`.", "Call `{0}` `{1}` instead.", "Use the name {1} in place of {0}."))
        answer = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, code)
        return language, asked.format(old, new) + self._shown(code, language), answer

    def _mended_library(self) -> tuple[str, str, str] | None:
        rng = self._rng
        if rng.random() < 0.65:
            language, code = "python", renamed(rng.choice(self._python), rng)
            found = python_bugs.bugs(code, [(0, len(code))])
        else:
            language = "javascript"
            code = javascript_exchange(rng)[1] if rng.random() < 0.5 else self._script()
            found = javascript_bugs.bugs(code, [(0, len(code))])
        if len(code) > _LONGEST or not found:
            return None
        edit = self._one(found)
        error = ""
        if edit.kind == "misspelt_name" and language == "python":
            error = f"\n\nNameError: name '{_word_at(edit.applied(code), edit.start)}' is not defined"
        return language, self._fix(language) + self._shown(edit.applied(code), language) + error, code

    def _script(self) -> str:
        return javascript_program(self._rng)[:_LONGEST].rsplit("\n\n", 1)[0]

    def _one(self, found: Sequence[RepairEdit]) -> RepairEdit:
        """One edit, kinds alike often."""
        kind = self._rng.choice(sorted({edit.kind for edit in found}))
        return self._rng.choice([edit for edit in found if edit.kind == kind])

    def _fix(self, language: str) -> str:
        asked = ("Fix the bug in this {} code.", "This {} is wrong. Write it correctly.", "Repair this {} code.",
                 "There is one mistake in this {} code. Mend it.", "Correct this {}.")  # fmt: skip
        return self._rng.choice(asked).format(_NAMES[language])

    def _mended_task(self) -> tuple[str, str, str] | None:
        """A small function with a bug, and a call that shows it: executed in Python, the test alone in JavaScript."""
        rng = self._rng
        task = small_task(rng, draw_world(rng))
        script = bool(task.javascript) and rng.random() < 0.35
        language, code = ("javascript", task.javascript) if script else ("python", task.python)
        found = (javascript_bugs if script else python_bugs).bugs(code, [(0, len(code))])
        if not found:
            return None
        wrong = self._one(found).applied(code)
        try:
            failing = task.calls[0] if script else _failing(wrong, task)
            call = _call(task, failing[0] if failing else (), language)
            error = "" if script or failing is None else _ended(wrong, call)
        except _Endless:
            return None
        if failing is None:
            return None
        result = failing[1]
        tests = (
            _test(call, result, language) if rng.random() < 0.6 else f"{call} should give {_value(result, language)}"
        )
        said = f"\n{task.said}" if rng.random() < 0.7 else ""
        told = f"\n\n{error}" if error and rng.random() < 0.7 else ""
        return language, f"{self._fix(language)}{said}{self._shown(wrong, language)}\n\n{tests}{told}", code

    def _mended_sql(self) -> tuple[str, str, str] | None:
        rng = self._rng
        said, query = sql_statement(rng, draw_world(rng))
        found = sql_bugs.bugs(query)
        if not found:
            return None
        wrong = self._one(found).applied(query)
        request = f"{self._fix('sql')}{f' {said}' if rng.random() < 0.7 else ''}{self._shown(wrong, 'sql')}"
        return "sql", request, query

    def _mended_query(self) -> tuple[str, str, str] | None:
        made = queries.mended(self._rng, self._fix("sql"), self._one)
        return ("sql", *made) if made else None

    def _asked(self) -> tuple[str, str, str]:
        return "sql", *queries.asked(self._rng)

    def _printed(self) -> tuple[str, str, str]:
        rng = self._rng
        task = small_task(rng, draw_world(rng))
        language = "javascript" if task.javascript and rng.random() < 0.35 else "python"
        arguments, result = rng.choice(task.calls)
        call = _call(task, arguments, language)
        show = f"console.log({call});" if language == "javascript" else f"print({call})"
        code = f"{task.javascript if language == 'javascript' else task.python}\n\n{show}"
        asked = (
            "What does this print?",
            "What is the output of this {} code?",
            "Run this in your head: what is printed?",
        )
        request = rng.choice(asked).format(_NAMES[language]) + self._shown(code, language)
        shown = result if isinstance(result, str) else _value(result, language)
        return language, request, str(shown)

    def _selected(self) -> tuple[str, str, str] | None:
        rng = self._rng
        table, columns = word(rng), [rng.choice(("name", "city", word(rng))), rng.choice(("price", "age", word(rng)))]
        if columns[0] == columns[1]:
            return None
        rows = [(word(rng), rng.randint(1, 60)) for _ in range(rng.randint(2, 5))]
        k = rng.randint(5, 50)
        query = rng.choice((
            f"SELECT {columns[0]} FROM {table} WHERE {columns[1]} > {k};",
            f"SELECT * FROM {table} WHERE {columns[1]} < {k};",
            f"SELECT COUNT(*) FROM {table};",
            f"SELECT {columns[0]}, {columns[1]} FROM {table} ORDER BY {columns[1]};",
            f"SELECT {columns[0]} FROM {table} ORDER BY {columns[1]} DESC LIMIT 1;",
            f"SELECT SUM({columns[1]}) FROM {table};",
            f"SELECT MAX({columns[1]}) FROM {table};",
        ))  # fmt: skip
        made = [f"CREATE TABLE {table} ({columns[0]} TEXT, {columns[1]} INTEGER);"]
        made.append(f"INSERT INTO {table} VALUES " + ", ".join(f"('{a}', {b})" for a, b in rows) + ";")
        _, found = queries.result("\n".join(made), query)
        if not found:
            return None
        code = "\n".join([*made, query])
        request = rng.choice(("Which rows does this give?", "What is the result of the query?")) + self._shown(
            code, "sql"
        )
        return "sql", request, "\n".join(" | ".join(map(str, row)) for row in found)

    def _written(self) -> tuple[str, str, str]:
        rng = self._rng
        pick = rng.random()
        if pick < 0.2:
            return "sql", *sql_exchange(rng)
        if pick < 0.35:
            return "javascript", *javascript_exchange(rng)
        task = small_task(rng, draw_world(rng))
        language = "javascript" if task.javascript and rng.random() < 0.3 else "python"
        code = task.javascript if language == "javascript" else task.python
        tests = "\n".join(_test(_call(task, given, language), result, language) for given, result in task.calls[:2])
        name = camel(task.name) if language == "javascript" else task.name
        asked = rng.choice(
            ("Write the {1} function `{0}`. {2}", "{2} Use {1}; call it `{0}`.", "Define `{0}` in {1}. {2}")
        )
        request = asked.format(name, _NAMES[language], task.said)
        return language, request + (f"\n\n{tests}" if rng.random() < 0.7 else ""), code


def _value(value: Any, language: str) -> str:
    """A value as the language's interpreter shows it."""
    if language == "python":
        return repr(value)
    if isinstance(value, list):
        return f"[ {', '.join(_value(each, language) for each in value)} ]" if value else "[]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key}: {_value(each, language)}' for key, each in value.items())} }}"
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else str(value)


def _call(task: Task, arguments: Sequence[Any], language: str) -> str:
    name = camel(task.name) if language == "javascript" else task.name
    return f"{name}({', '.join(_value(each, language) for each in arguments)})"


def _test(call: str, result: Any, language: str) -> str:
    if language == "python":
        return f"assert {call} == {result!r}"
    deep = "deepStrictEqual" if isinstance(result, list) else "strictEqual"
    return f"assert.{deep}({call}, {_value(result, language)});"


def _word_at(code: str, at: int) -> str:
    found = re.match(r"\w+", code[at:])
    return found.group() if found else ""


class _Endless(BaseException):
    """Code ran longer than any that ends."""


def _result(code: str, call: str) -> Any:
    """What a call of our own task gives, in which one token may be wrong.

    Raises:
        _Endless: it ran for more lines than any call needs (a list that a loop makes longer, say), or its numbers grow
            beyond any that a call needs.
    """
    lines = 0

    def count(frame: FrameType, *_: Any) -> Any:
        nonlocal lines
        lines += 1
        # A power of a power takes minutes in a single line, in which nothing can stop it.
        large = any(isinstance(value, int) and value.bit_length() > _MOST_BITS for value in frame.f_locals.values())
        if lines > _MOST_LINES or large:
            raise _Endless
        return count

    namespace: dict[str, Any] = {}
    exec(compile(code, _TASK, "exec"), namespace)
    before = sys.gettrace()
    sys.settrace(count)
    try:
        return eval(call, namespace)
    finally:
        sys.settrace(before)


def _failing(wrong: str, task: Task) -> tuple[tuple[Any, ...], Any] | None:
    """The first call that does not give what it should."""
    for arguments, result in task.calls:
        try:
            if _result(wrong, _call(task, arguments, "python")) != result:
                return arguments, result
        except Exception:  # noqa: BLE001 - a bug may raise anything
            return arguments, result
    return None


def _ended(wrong: str, call: str) -> str:
    """What a call of wrong code gives or raises."""
    try:
        return f"It gives {_result(wrong, call)!r}."
    except Exception as error:  # noqa: BLE001 - as above
        lines = [at for frame, at in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == _TASK]
        at = f"{wrong.splitlines()[lines[-1] - 1].strip()}\n" if lines else ""
        return f"{at}{type(error).__name__}: {error}"
