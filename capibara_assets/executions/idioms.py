"""What an idiom is: a piece of code of some kind and its canonical form, in which names are numbered by appearance."""

import ast
import builtins
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_BUILTINS = frozenset(dir(builtins)) | {"self", "cls"}


@dataclass(frozen=True, slots=True)
class Idiom:
    """One occurrence in one piece of code."""

    kind: str
    name: str
    code: str
    canonical: str  # digest; equal for code that differs in names (and, for short idioms, in literals) alone
    explanation: str
    inputs: tuple[str, ...] = ()  # calls of it that stand beside it


def digest(language: str, kind: str, form: Iterable[str]) -> str:
    """Digest of a canonical form: 32 hex digits."""
    return hashlib.sha256("\x1f".join((language, kind, *form)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Names:
    """Numbers names in the order in which they come; those in `keep` stay."""

    def __init__(self, keep: frozenset[str] = frozenset()) -> None:
        self._keep = keep
        self._numbers: dict[str, int] = {}

    def __getitem__(self, name: str) -> str:
        if name in self._keep:
            return name
        return f"${self._numbers.setdefault(name, len(self._numbers))}"


def python_form(node: ast.AST, *, literals: bool) -> Iterator[str]:
    """The canonical form of a tree: attributes, keywords and builtins stay, other names are numbered, docstrings go.

    With `literals=False` a literal counts by its type alone.
    """
    return _form(node, Names(_BUILTINS), literals)


def _form(node: ast.AST, names: Names, literals: bool) -> Iterator[str]:
    yield type(node).__name__
    match node:
        case ast.Name(id=name) | ast.arg(arg=name):
            yield names[name]
        case ast.Constant(value=value):
            yield repr(value) if literals else type(value).__name__
            return
        case ast.Attribute(attr=name):
            yield name
        case ast.keyword(arg=name):
            yield name or "**"
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield names[name]
        case ast.ExceptHandler(name=str(name)):
            yield names[name]
        case ast.alias(name=name, asname=asname):
            yield f"{name} as {names[asname]}" if asname else name
        case ast.Global(names=listed) | ast.Nonlocal(names=listed):
            yield from (names[name] for name in listed)
        case ast.ImportFrom(module=module):
            yield module or "."
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            if not isinstance(value, ast.expr_context):
                yield from _form(value, names, literals)
        elif isinstance(value, list):
            yield f"({field}"
            children = [child for child in value if isinstance(child, ast.AST)]
            if field == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                children = without_docstring(children)
            for child in children:
                yield from _form(child, names, literals)
            yield ")"


def without_docstring(body: list[ast.AST]) -> list[ast.AST]:
    """The statements of a definition without its docstring."""
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
    return body


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring or comment, at most 200 characters; "" when there is none."""
    lines: list[str] = []
    for line in (text or "").strip().splitlines():
        stripped = line.strip().lstrip("* ")
        if (not stripped and lines) or stripped.startswith(">"):
            break
        if stripped:
            lines.append(stripped)
    joined = " ".join(lines)
    end = joined.find(". ")
    return (joined if end < 0 else joined[: end + 1])[:200]
