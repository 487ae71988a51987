"""One execution of a session as an attempt at something: what repair pairs are judged by."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from capibara_assets.executions.formats.agents.failures import any_shows_failure
from capibara_assets.executions.parsing import JAVASCRIPT, first_line, parse_javascript, parse_python
from capibara_assets.executions.patterns.shown_failures import shows_failure
from capibara_assets.executions.patterns.similarity import tokens
from capibara_assets.executions.patterns.statements import CellStatement, pattern_names, stopped_at, top_level
from capibara_assets.executions.schema import FAILED, HIDDEN_EXIT, SHELLS

HORIZON = 50  # later executions of a session that are considered
_FOLDER = re.compile(r"^\s*cd\s+(\"[^\"\n]*\"|'[^'\n]*'|\S+)\s*(?:&&|;)\s*")
_BEHIND_COMMAND = re.compile(r"(?<!\s)\s*(?:2>&1\s*)?\|\s*(?:head|tail)(?:\s+-\w*)*(?:\s+\d+)?\s*$|(?<!\s)\s*2>&1\s*$")
_NAMED = frozenset({"function_declaration", "generator_function_declaration", "class_declaration"})
_LEADING_COMMENT = re.compile(r"\s*((?:(?:#|--|//)[^\n]*\n\s*)+|/\*.*?\*/)", re.DOTALL)


@dataclass
class Attempt:
    """One execution of a session; properties that pairs are judged by are computed on demand."""

    row: dict[str, Any]

    @property
    def ok(self) -> bool:
        return bool(self.row["outcome"] == "ok")

    @cached_property
    def failed(self) -> bool:
        if self.row["outcome"] in FAILED or HIDDEN_EXIT not in self.row["flags"]:
            return self.row["outcome"] in FAILED
        return any_shows_failure((self.row["stdout"], self.row["stderr"]), self.code)

    @cached_property
    def output(self) -> str:
        texts = (self.row[name] for name in ("stdout", "result_text", "stderr"))
        return "\n".join(text.strip() for text in texts if text and text.strip())

    @cached_property
    def refuted(self) -> bool:
        """Whether it ended well and its output says that something is not as it should be."""
        return self.ok and shows_failure(self.code, self.output)

    @cached_property
    def command(self) -> str | None:
        return bare_command(self.code) if self.row["language"] in SHELLS else None

    @property
    def code(self) -> str:
        return str(self.row["code"])

    @cached_property
    def tokens(self) -> list[str]:
        return tokens(self.code)

    @cached_property
    def uncommented(self) -> list[str]:
        """The tokens below a leading comment: a task that a first attempt quotes is often not quoted again."""
        comment = _LEADING_COMMENT.match(self.code)
        return tokens(self.code[comment.end() :]) if comment else self.tokens

    @cached_property
    def definitions(self) -> Mapping[str, str]:
        """Functions and classes defined at the top level: name -> its (last) definition as written."""
        return _definitions(self.row["language"], self.code)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self.definitions)

    @cached_property
    def bound(self) -> frozenset[str]:
        return self.names | _assigned_names(self.row["language"], self.code)

    @cached_property
    def statement(self) -> str | None:
        return _leading_text(self.row["language"], self.code)

    @cached_property
    def statements(self) -> tuple[CellStatement, ...]:
        return top_level(self.row["language"], self.code)

    @cached_property
    def stopped(self) -> int | None:
        """Index of the statement that failed; None where nothing tells."""
        if self.row["outcome"] != "error":
            return None
        return stopped_at(self.row["language"], self.code, self.row["traceback"])

    @property
    def said(self) -> tuple[str, str | None]:
        return self.row["stdout"], self.row["result_text"]


def bare_command(code: str) -> str:
    """A shell command without what does not change what it does: the folder it begins in, `2>&1`, `| tail -20`."""
    return _BEHIND_COMMAND.sub("", _FOLDER.sub("", code)).strip()


def folder_of(code: str) -> str:
    """The folder that a shell command says it begins in; "" where it says none."""
    begins = _FOLDER.match(code)
    return begins[1].strip("\"'/") if begins else ""


@lru_cache(maxsize=4096)
def _definitions(language: str, code: str) -> Mapping[str, str]:
    if language == "python":
        tree = parse_python(code)
        if tree is None:
            return dict.fromkeys(re.findall(r"^(?:async\s+)?(?:def|class)\s+(\w+)", code, re.MULTILINE), "")
        kinds, lines = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), code.split("\n")
        nodes = [node for node in tree.body if isinstance(node, kinds)]
        return {node.name: "\n".join(lines[first_line(node) - 1 : node.end_lineno]) for node in nodes}
    return dict(_javascript_definitions(code)) if language in JAVASCRIPT else {}


@lru_cache(maxsize=4096)
def _assigned_names(language: str, code: str) -> frozenset[str]:
    """Variables that a program assigns by name at its top level."""
    if language == "python" and (tree := parse_python(code)) is not None:
        targets = [t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets]
        each = (one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target]))
        return frozenset(one.id for one in each if isinstance(one, ast.Name))
    if language in JAVASCRIPT:
        return frozenset(name for name, *_ in _declared(code))
    return frozenset()


def _javascript_definitions(code: str) -> Iterator[tuple[str, str]]:
    for node in parse_javascript(code).root_node.children:
        name = node.child_by_field_name("name") if node.type in _NAMED else None
        if name is not None and name.text and node.text:
            yield name.text.decode(), node.text.decode()
    for variable, kind, statement in _declared(code):
        if kind in ("arrow_function", "function_expression"):
            yield variable, statement


def _declared(code: str) -> Iterator[tuple[str, str, str]]:
    """(name, type of its value, its statement) of what JavaScript declares with a value at its top level."""
    for node in parse_javascript(code).root_node.children:
        if node.type in ("lexical_declaration", "variable_declaration"):
            for declarator in node.named_children:
                value, name = (declarator.child_by_field_name(field) for field in ("value", "name"))
                if value is not None and name is not None and name.text and node.text:
                    for each in pattern_names(name.text.decode()):
                        yield each, value.type, node.text.decode()


@lru_cache(maxsize=4096)
def _leading_text(language: str, code: str) -> str | None:
    """The code's own description: its leading comment, or else the docstring of its first definition."""
    if match := _LEADING_COMMENT.match(code):
        text = " ".join(re.sub(r"^[ \t]*(?:#+|--+|//+|/\*+|\*+/?)", "", match.group(1), flags=re.MULTILINE).split())
        if len(text) >= 12:
            return text.removesuffix("*/").strip()
    if language != "python" or (tree := parse_python(code)) is None:
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = " ".join((ast.get_docstring(node) or "").split())
            return text if len(text) >= 12 else None
    return None
