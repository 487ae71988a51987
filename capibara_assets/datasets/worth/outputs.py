"""Examples whose recorded or asked output shows that they are not worth learning."""

import ast
import re
from collections.abc import Iterator
from typing import Any, TypeGuard

from sqlglot import exp

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.queries import last_select
from capibara_assets.datasets.code.structure import comments
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import CODE, SESSION, section, sections, stated
from capibara_assets.datasets.kinds.referents import speaks_of_errors
from capibara_assets.datasets.schema import CODE_KINDS
from capibara_assets.datasets.worth import javascript
from capibara_assets.executions.parsing import JAVASCRIPT, walk

SYMBOLIC = "its output is a formula, in whatever form and order the library gives it"
PRINTS_TEXT = "its output consists of texts that stand in its code"
NOTED = "a comment of its code notes its output"
VERSION = "whether SQLite has the function that its error names depends on the version"
DEFINES_ONLY = "its output is a function or class, which its code defines"
CAUGHT = "its answer showed what it says of an error that it catches"
FOUND_NOTHING = "its answer found nothing, and its task asks for something"
WRITTEN_OUT = "its answer is arithmetic on numbers that its author worked out or copied"
TOLD = "a comment of its answer tells what its output should be"
CATCHES = "its repair catches the error instead of mending it"
OTHER_SOURCE = "its task names an address, and its answer reads another one"
HARNESS = "its task is what a harness tells an agent"
NULLS = "all that its query gives is NULL"
WORDED = "its output is worded by a library for tests"
INSIDE = "its output shows what only a library's own code tells"
NO_ROW = "its query looks for the first of some order, and found none"
REPEATED = "its join gives the same row several times"

_FUNCTION_REPR = re.compile(r"\[(?:Async|Generator)?(?:Function|class)\b[^\]\n]*\]|<(?:function|class) [^>\n]*>")
_FOREIGN_REPR = re.compile(r"<[A-Z]\w+ [^<>\n]*>")  # of an object whose class says how it is written
_PRIVATE = re.compile(r"\bprint\([^\n]*\b(?!self\b)[a-z]\w*\._[a-z]")
_UNITTEST = re.compile(r"\.assert[A-Z]\w+\(")
_OF_LIBRARIES = re.compile(r"wasSuccessful\(\)|ACTUAL: |DESIRED: |Not equal to tolerance|Arrays are not ")
#: Functions that some versions of SQLite, or some ways to build it, have.
_OF_VERSIONS = re.compile(
    r"no such function: (?:concat(?:_ws)?|string_agg|iif|ceil(?:ing)?|floor|log|ln|pow(?:er)?|sqrt|mod|median|unhex)\b",
    re.IGNORECASE,
)
_SYMBOLS = re.compile(r"\bsymbols\(\s*(?:r|u)?(['\"])(?P<names>[^'\"\n]*)\1|\bSymbol\(\s*(['\"])(?P<name>\w+)\3")
_NOTHING = frozenset(("[]", "{}", "()", "None", "False", "nan", "set()", "undefined", "null", "[[]]"))
_ARITHMETIC = frozenset(("abs", "min", "max", "sum", "round", "print", "len", "int", "float", "pow", "divmod"))
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.Try)
_COMPUTES = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.Attribute, ast.For, ast.While, ast.If,
    ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp,
)  # fmt: skip
_FEW_LINES = 2
_LIMIT = re.compile(r"\bLIMIT\s+\d", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^\s\"'`)>\]]+?(?=[.,]?(?:[\s\"'`)>\]]|\Z))")
_HARNESS = re.compile(
    r"\btime limit (?:for|of|is)\b|\byour working (?:folder|directory)\b|\bwill be graded\b", re.IGNORECASE
)
_CONSTANTS = frozenset(("True", "False", "None", "true", "false", "null", "undefined", "NULL"))
_WORDS = re.compile(r"\d+(?:\.\d+)?|\w+")
_TELLS = re.compile(r"(?:#|//)\W*(?:expected|should (?:be|print|return|output|give))\b", re.IGNORECASE)


def shows_too_little(candidate: ExampleCandidate) -> str | None:
    """Why what a Python program or query shows says that its example teaches nothing; None otherwise."""
    if candidate.kind == "predict":
        code = f"{section(candidate.prompt, SESSION)}\n{section(candidate.prompt, CODE)}"
        if _prints_texts(code, candidate.answer.strip(), candidate.language):
            return PRINTS_TEXT
        if _is_noted(candidate):
            return NOTED
        if _OF_VERSIONS.search(candidate.answer):
            return VERSION
        if _FUNCTION_REPR.fullmatch(candidate.answer.strip()):
            return DEFINES_ONLY
        return _why_unreadable(code, candidate.answer.strip()) if candidate.language == "python" else None
    if candidate.kind not in CODE_KINDS:
        return None
    if candidate.language == "sql":
        return _why_no_rows(candidate)
    if _TELLS.search(candidate.answer):
        return TOLD
    task = stated(candidate.prompt)
    if _HARNESS.search(task):
        return HARNESS
    if candidate.language != "python":
        return None
    if candidate.kind == "repair":
        adds = "except" in candidate.answer and "except" not in candidate.prompt and candidate.derived is None
        return CATCHES if adds and not speaks_of_errors(task) else None
    asked, read = (set(_ADDRESS.findall(text)) for text in (task, candidate.answer))
    return OTHER_SOURCE if asked and read and not asked & read else _why_no_result(candidate)


def _is_noted(candidate: ExampleCandidate) -> bool:
    """Whether all that an output shows, in rows without their head and numbers, stands in comments of its code."""
    noted = set(_WORDS.findall("\n".join(comments(section(candidate.prompt, CODE), candidate.language))))
    lines = candidate.answer.strip().split("\n")
    rows = [line.split(None, 1)[-1] for line in lines[1:]] if candidate.language == "sql" else lines
    shown = set(_WORDS.findall("\n".join(rows)))
    telling = {word for word in shown - _CONSTANTS if len(word) > 1}
    return bool(telling) and shown - _CONSTANTS <= noted


def _prints_texts(code: str, shown: str, language: str) -> bool:
    """Whether all that is shown are texts that the code prints whatever happens; of more lines the order may tell."""
    tree = python_source.parse(code) if language == "python" else None
    if language not in JAVASCRIPT and tree is None:
        return False
    texts = {text.strip() for text in (javascript.printed_texts(code) if tree is None else _printed(tree))}
    lines = [line.strip() for line in shown.split("\n")]
    few = len(lines) <= _FEW_LINES or (tree is not None and not any(isinstance(n, _BRANCHES) for n in walk(tree)))
    return few and shown != "" and texts.issuperset(lines)


def _why_unreadable(code: str, shown: str) -> str | None:
    if ("AssertionError: " in shown and _UNITTEST.search(code)) or _OF_LIBRARIES.search(shown):
        return WORDED
    names = {n for found in _SYMBOLS.finditer(code) for n in re.findall(r"\w+", found["names"] or found["name"])}
    if names and "sqrt(" in shown and "/" in shown:
        return SYMBOLIC
    if "repr" not in code and (_FOREIGN_REPR.search(shown) or _PRIVATE.search(code)):
        return INSIDE
    return SYMBOLIC if names & set(re.findall(r"(?<!['\"\w])[A-Za-z_]\w*(?!\s*:)", shown)) else None


def _printed(node: ast.AST) -> Iterator[str]:
    """Texts that code prints outside branches and loops, which decide something."""
    for inner in ast.iter_child_nodes(node):
        if _is_print(inner):
            yield from (one.value for one in inner.args if isinstance(one, ast.Constant) and isinstance(one.value, str))
        elif not isinstance(inner, _BRANCHES) or (isinstance(inner, ast.If) and "__name__" in ast.unparse(inner.test)):
            yield from _printed(inner)


def _is_print(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def _why_no_result(candidate: ExampleCandidate) -> str | None:
    """Of an answer that no test judges, what its output tells."""
    tree = python_source.parse(candidate.answer)
    if candidate.test or tree is None:
        return None
    proof = (candidate.proof or "").strip()
    handlers = [node for node in walk(tree) if isinstance(node, ast.ExceptHandler)]
    said = {n.value for one in handlers for n in walk(one) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    if any(len(text.strip()) > 3 and text.strip() in proof for text in said):
        return CAUGHT
    if proof in _NOTHING:
        return FOUND_NOTHING
    is_session = any(title == SESSION for title, _ in sections(candidate.prompt))
    return WRITTEN_OUT if not is_session and _is_arithmetic(tree) else None


def _is_arithmetic(tree: ast.Module) -> bool:
    """Whether a program only calculates with numbers that stand in it."""
    for node in walk(tree):
        if isinstance(node, _COMPUTES):
            return False
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _ARITHMETIC):
            return False
    return True


def _why_no_rows(candidate: ExampleCandidate) -> str | None:
    """Of a query that was written for a task, what its recorded rows tell."""
    if candidate.derived is not None:
        return None
    proof = (candidate.proof or "").strip()
    if proof == "[]" and _LIMIT.search(candidate.answer):
        return NO_ROW
    if candidate.kind != "repair" and proof.startswith("Empty DataFrame") and last_select(candidate.answer) is not None:
        return FOUND_NOTHING
    rows = _rows(proof)
    if not rows:
        return None
    if all(value is None for row in rows for value in row):
        return NULLS
    return REPEATED if len(set(map(repr, rows))) < len(rows) and _joins_plainly(candidate.answer) else None


def _rows(proof: str) -> list[tuple[Any, ...]]:
    """Rows that a driver printed as Python writes them; [] for any other text."""
    try:
        value = ast.literal_eval(proof) if proof.startswith("[(") else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [row for row in value if isinstance(row, tuple)] if isinstance(value, list) else []


def _joins_plainly(query: str) -> bool:
    """Whether a query's last statement joins tables without grouping, aggregating or leaving out what is equal."""
    tree = last_select(query)
    if tree is None or not tree.args.get("joins"):
        return False
    return not (tree.args.get("distinct") or tree.args.get("group") or tree.find(exp.AggFunc) or tree.args.get("limit"))
