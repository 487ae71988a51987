"""Token-level differences between two programs; renamed names, comments and formatting are ignored."""

import ast
import copy
import io
import re
import tokenize
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from capibara_assets.datasets.code.one_line import in_one_line
from capibara_assets.datasets.code.python_source import docstring_node
from capibara_assets.datasets.code.structure import located_tokens, structural_key
from capibara_assets.executions.parsing import python_tree, walk

_MOST_TOKENS, _LONGEST_LINE, _MOST_AROUND = 2000, 100, 12
_NAME = re.compile(r"[A-Za-z_$][\w$]*$")
_CONSTANT = re.compile(r"[\d.]|['\"`]|(?:True|False|None|true|false|null|undefined)$")
_OPERATOR = re.compile(r"[^\w\s'\"`(){}\[\],:;.]+$|(?:and|or|not|in|is|AND|OR|NOT|IN|IS|LIKE)$")
_OF_SEVERAL_SIGNS = """=> == === != !== <= >= <> && || ?? ?. ++ -- += -= *= /= %= ** **= << >> >>> |= &= ^= :: ..
..."""
_LONG_OPERATORS = frozenset(_OF_SEVERAL_SIGNS.split())
_LEVELS = {tokenize.INDENT: "\x01", tokenize.DEDENT: "\x02"}  # Python's blocks, which no text of a token shows
_UNSEEN = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING, tokenize.ENDMARKER)


class Token(NamedTuple):
    """A token and where it stands in its text."""

    text: str
    start: int
    end: int


class CodeEdit(NamedTuple):
    """One change: the removed and the inserted text ("": none), with their lines."""

    before: str
    after: str
    line_before: str
    line_after: str
    level: bool  # a line changed its block, and no text

    def sentence(self) -> str:
        """The change as a sentence."""
        if self.level:
            return f"The line `{self.line_after}` has to stand in another block."
        where = "" if self.before == self.line_before or len(self.line_before) > _LONGEST_LINE else self.line_before
        if not self.before:
            whole = self.after == self.line_after or len(self.line_after) > _LONGEST_LINE
            return f"`{self.after}` is missing" + ("." if whole else f": `{self.line_after}` is right.")
        if not self.after:
            return f"`{self.before}`{f' in `{where}`' if where else ''} is too much."
        sort = next((word for word, form in _SORTS if form.match(self.before) and form.match(self.after)), "")
        said = f"{sort}`{self.before}` has to be `{self.after}`."
        return f"In `{where}` {said}" if where else said[0].upper() + said[1:]


_SORTS = (("the constant ", _CONSTANT), ("the operator ", _OPERATOR), ("the name ", _NAME))


def edits(failing: str, fixed: str, language: str) -> list[CodeEdit] | None:
    """The changes in text order; empty if the programs are equal, None if they are too long to compare."""
    if structural_key(failing, language) == structural_key(fixed, language):
        return []
    if language == "python" and (trees := _parsed(failing, fixed)) is not None:
        failing, fixed = (
            ast.unparse(tree) for tree in trees
        )  # both in one style: without brackets that change nothing
    before, after = _tokens(failing, language), _tokens(fixed, language)
    if max(len(before), len(after)) > _MOST_TOKENS:
        return None
    old, new = [token.text for token in before], [token.text for token in after]
    if language == "sql":
        old, new = [text.lower() for text in old], [text.lower() for text in new]
    renamed = _renamed(old, new)
    old = [renamed.get(text, text) for text in old]
    changes = []
    for start, stop, begin, end in _spans(old, new):
        gone, come = before[start:stop], after[begin:end]
        level = all(token.text in _LEVELS.values() for token in [*gone, *come])
        changes.append(
            CodeEdit(
                _text(failing, gone),
                _text(fixed, come),
                _line(failing, before, start),
                _line(fixed, after, begin),
                level,
            )
        )
    return list(dict.fromkeys(changes))


def _parsed(failing: str, fixed: str) -> list[ast.Module] | None:
    """Both programs without their docstrings; None when one does not parse."""
    trees = [python_tree(code) for code in (failing, fixed)]
    if any(tree is None for tree in trees):
        return None
    copies = [copy.deepcopy(tree) for tree in trees if tree is not None]
    for tree in copies:
        for node in walk(tree):
            if (docstring := docstring_node(node)) is not None and len(node.body) > 1:  # type: ignore[attr-defined]
                node.body.remove(docstring)  # type: ignore[attr-defined]
    return copies


def _spans(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Changed spans, those with at most one equal token in between as one."""
    spans: list[tuple[int, int, int, int]] = []
    for tag, start, stop, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        # one change where little is equal in between, or where its brackets close behind it
        if spans and (start - spans[-1][1] <= 1 or not _is_whole(old, new, spans[-1])):
            spans[-1] = (spans[-1][0], stop, spans[-1][2], end)
        else:
            spans.append((start, stop, begin, end))
    return [_balanced(old, new, span) for span in spans]


def _balanced(old: Sequence[str], new: Sequence[str], span: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The span, longer by the equal tokens around it that close or open its brackets."""
    start, stop, begin, end = span
    for _ in range(_MOST_AROUND):
        if start == stop or begin == end:  # a bracket that is missing, or too much
            break
        open_old, open_new = _unclosed(old[start:stop]), _unclosed(new[begin:end])
        if open_old == open_new and open_old > 0 and stop < len(old) and end < len(new) and old[stop] == new[end]:
            stop, end = stop + 1, end + 1
        elif open_old == open_new and open_old < 0 and start and begin and old[start - 1] == new[begin - 1]:
            start, begin = start - 1, begin - 1
        else:
            return start, stop, begin, end
    return span


def _is_whole(old: Sequence[str], new: Sequence[str], span: tuple[int, int, int, int]) -> bool:
    start, stop, begin, end = span
    return _unclosed(old[start:stop]) == _unclosed(new[begin:end])


def _unclosed(tokens: Sequence[str]) -> int:
    return sum(token in ("(", "[", "{") for token in tokens) - sum(token in (")", "]", "}") for token in tokens)


def _renamed(old: Sequence[str], new: Sequence[str]) -> dict[str, str]:
    """Names that only changed their spelling, throughout: old -> new."""
    gone, come = set(old) - set(new), set(new) - set(old)
    renamed: dict[str, str] = {}
    for tag, start, stop, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "replace" or stop - start != end - begin:
            continue
        for a, b in zip(old[start:stop], new[begin:end], strict=True):
            names = a in gone and b in come and _NAME.match(a) and _NAME.match(b)
            if names and renamed.setdefault(a, b) != b:
                return {}
    counts = all(old.count(a) == new.count(b) > 1 for a, b in renamed.items())
    return renamed if counts and len(set(renamed.values())) == len(renamed) else {}


def _tokens(code: str, language: str) -> list[Token]:
    if language == "python":
        try:
            return _python_tokens(code)
        except (tokenize.TokenError, SyntaxError):  # as far as its words go
            pass
    tokens: list[Token] = []
    for text, start, end in located_tokens(code, language):
        if tokens and tokens[-1].end == start and tokens[-1].text + text in _LONG_OPERATORS:
            tokens[-1] = Token(tokens[-1].text + text, tokens[-1].start, end)
        elif text != ";":
            tokens.append(Token(text, start, end))
    return tokens


def _python_tokens(code: str) -> list[Token]:
    starts = [0]
    for line in code.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tokens = []
    for kind, text, (row, column), (last, end), _ in tokenize.generate_tokens(io.StringIO(code).readline):
        if kind not in _UNSEEN:
            at = starts[min(row, len(starts)) - 1] + column
            mark = _LEVELS.get(kind)
            tokens.append(Token(mark or text, at, at if mark else starts[min(last, len(starts)) - 1] + end))
    return tokens


def _text(code: str, tokens: Sequence[Token]) -> str:
    real = [token for token in tokens if token.text not in _LEVELS.values()]
    return in_one_line(code[real[0].start : real[-1].end]) if real else ""


def _line(code: str, tokens: Sequence[Token], index: int) -> str:
    if not tokens:
        return ""
    at = tokens[min(index, len(tokens) - 1)].start
    begin = code.rfind("\n", 0, at) + 1
    end = code.find("\n", at)
    return code[begin : len(code) if end < 0 else end].strip()
