"""Keys of code that are equal for programs differing only in names, comments and spacing; lexical tokens."""

import ast
import re

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.executions.parsing import JAVASCRIPT, walk
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.kept import of_text

_STRINGS = (
    r"""'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`"""
)
_REST = r"[A-Za-z_$][\w$]*|\d[\w.]*|\S"
_BLANKS = re.compile(r"\n{3,}")
_WIDE = re.compile(r"(?<![ \t])[ \t]*\n([ \t]*\n)+")
_TRAILING = re.compile(r"(?<![ \t])[ \t]+$", re.MULTILINE)
_HASH = re.compile(rf"(?P<comment>\#[^\n]*)|(?P<token>{_STRINGS}|{_REST})", re.DOTALL)
_SLASHES = re.compile(rf"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<token>{_STRINGS}|{_REST})", re.DOTALL)
_DASHES = re.compile(rf"(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<token>{_STRINGS}|{_REST})", re.DOTALL)
_LEXERS = {"sql": _DASHES, "javascript": _SLASHES, "typescript": _SLASHES, "java": _SLASHES}


def tokens(code: str, language: str) -> list[str]:
    """Lexical tokens without comments; SQL outside quotes in lower case."""
    listed = [match["token"] for match in _LEXERS.get(language, _HASH).finditer(code) if match["token"]]
    return [t if t[0] in "'\"`" else t.lower() for t in listed] if language == "sql" else listed


def located_tokens(code: str, language: str) -> list[tuple[str, int, int]]:
    """Lexical tokens without comments, as written, with the positions where they begin and end."""
    matches = _LEXERS.get(language, _HASH).finditer(code)
    return [(match["token"], match.start(), match.end()) for match in matches if match["token"]]


def without_comments(code: str, language: str) -> str:
    """The code without its comments; strings and spacing unchanged."""
    return _LEXERS.get(language, _HASH).sub(lambda match: match["token"] or "", code)


def comments(code: str, language: str) -> list[str]:
    """The comments of code, with their marks."""
    return [match.group() for match in _LEXERS.get(language, _HASH).finditer(code) if not match["token"]]


def without_trailing_spaces(code: str, language: str) -> str:
    """Remove spaces at line ends, unless they may belong to a text of several lines."""
    stripped = _TRAILING.sub("", code)
    return stripped if tokens(stripped, language) == tokens(code, language) else code


def tidied(code: str) -> str:
    """Code without blank lines at both ends, and with at most two in a row."""
    return _BLANKS.sub("\n\n\n", code.strip("\n")).rstrip()


def without_gaps(code: str) -> str:
    """Code with one blank line where several stand, and none around it."""
    return _WIDE.sub("\n\n", code).strip()


def shingles(words: list[str], size: int) -> frozenset[str]:
    """The set of runs of `size` tokens; of fewer tokens one shingle, of none the empty set."""
    if len(words) < size:
        return frozenset({"\x00".join(words)}) if words else frozenset()
    return frozenset("\x00".join(words[i : i + size]) for i in range(len(words) - size + 1))


@of_text("structural_key", str, str)
def structural_key(code: str, language: str) -> str:
    """SHA-256 of the canonical form of a program.

    Names that the code itself binds are numbered by first appearance (Python, JavaScript); docstrings, comments and
    spacing are dropped. Other languages, and code that does not parse, are compared by tokens.
    """
    if language == "python" and (tree := python_source.parse(code)) is not None:
        form = _python_form(tree)
    elif language in JAVASCRIPT and not (root := javascript_source.parse(code)).has_error:
        names = set(javascript_source.declared(root))
        form = _numbered(
            [
                (javascript_source.text(leaf), leaf.type)
                for leaf in javascript_source.leaves(root)
                if leaf.type != "comment"
            ],
            names,
        )
    else:
        form = "\x00".join(t for t in tokens(code, language) if t != ";")
    return sha256_bytes(f"{language}\n{form}".encode("utf-8", "replace"))


def bound_names(code: str, language: str) -> frozenset[str]:
    """Names that a program binds itself, but for methods; none where it does not parse or its language is another."""
    if language == "python" and (tree := python_source.parse(code)) is not None:
        return frozenset(_bound_names(tree)[1])
    if language in JAVASCRIPT:
        return frozenset(javascript_source.declared(javascript_source.parse(code)))
    return frozenset()


def normal_text(text: str) -> str:
    """Text normalised for comparison: case folded, white space collapsed, punctuation at the end dropped."""
    return " ".join(text.casefold().split()).rstrip(" .:;!?")


def _numbered(leaves: list[tuple[str, str]], names: set[str]) -> str:
    """Tokens with the declared names numbered; semicolons, which JavaScript may leave out, are dropped."""
    order: dict[str, str] = {}
    out = []
    for value, kind in leaves:
        if value == ";":
            continue
        if value in names and kind in (
            "identifier",
            "shorthand_property_identifier",
            "shorthand_property_identifier_pattern",
        ):
            value = order.setdefault(value, f"\x01{len(order)}")
        out.append(value)
    return "\x00".join(out)


def _python_form(tree: ast.Module) -> str:
    """Pre-order listing of the tree; methods keep their names, since callers reach them as attributes."""
    methods, bound = _bound_names(tree)
    order: dict[str, str] = {}
    out: list[str] = []

    def visit(node: ast.AST) -> None:
        sort = type(node)
        out.append(sort.__name__)
        docstring = python_source.docstring_node(node) if sort in _DOCUMENTED else None
        names = () if node in methods else _NAMES_IN.get(sort, _NAMES)
        for field in sort._fields:
            if field in _UNSEEN:
                continue
            value = getattr(node, field, None)
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, ast.AST):
                    if item is not docstring:
                        visit(item)
                elif item is None:
                    continue
                elif field in names and isinstance(item, str):
                    out.append(order.setdefault(item, f"\x01{len(order)}") if item in bound else item)
                else:
                    out.append(repr(item))
        out.append(")")

    visit(tree)
    return "\x00".join(out)


_UNSEEN = frozenset({"ctx", "kind", "type_comment"})
_NAMES: tuple[str, ...] = ("id", "arg", "asname", "name")  # fields that hold a name which the code may bind
_NAMES_IN: dict[type, tuple[str, ...]] = {ast.alias: ("asname",), ast.keyword: ()}
_DOCUMENTED = frozenset({ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef})


def _bound_names(tree: ast.Module) -> tuple[set[ast.AST], set[str]]:
    """The methods of its classes, and the names that the code binds beside theirs."""
    methods: set[ast.AST] = set()
    bound: set[str] = set()
    for node in walk(tree):  # classes come before their methods
        match node:
            case ast.Name(ctx=ast.Store()):
                bound.add(node.id)
            case ast.arg():
                bound.add(node.arg)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if node not in methods:
                    bound.add(node.name)
                if isinstance(node, ast.ClassDef):
                    methods.update(p for p in node.body if isinstance(p, ast.FunctionDef | ast.AsyncFunctionDef))
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
    return methods, bound
