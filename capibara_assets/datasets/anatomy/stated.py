"""Assertions stated in a prompt (in its task or failing test), which an answer has to pass as well."""

import ast
import doctest
import re
import textwrap
from collections.abc import Iterator

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.cases import cases
from capibara_assets.datasets.code.sessions import cell_names, statements
from capibara_assets.executions.parsing import walk

_ASSERTION = re.compile(r"^[ \t]*(?:E[ \t]+)?(assert[ \t(].*)$|: *(assert[ \t(].*)$", re.MULTILINE)
_RETURNS = re.compile(r"^[ \t>*-]*([A-Za-z_]\w*\([^\n]*\)) (?:will )?returns? ([^\n]+?)\.?[ \t]*$", re.MULTILINE)
_BEHIND = re.compile(r"[A-Za-z ,.!?']*")  # words that may follow an assertion, such as `Please try again.`
_LONGEST = 400
_STRAY = re.compile(r"(?<=[\w\])}'\"]) +\.\s*\Z")  # the end of the sentence that an example stands in
_ROUNDED = re.compile(r"-?\d+\.\d+")
_INEXACT = re.compile(r"\.\.\.|\d\.|\.\d")  # cut, or with numbers that are shown rounded
_GOES_ON = re.compile(r",\s*(?:\.\.\.|…)\s*[\])]\Z")


def with_stated(test: str, answer: str, language: str, said: str, failed: str = "") -> str:
    """Add the assertions that the prompt states to the test of an answer.

    Args:
        said: the task and the error, as prose.
        failed: the failing test as code, with all that it needs; one that needs names of its own session is left out.
    """
    bound = _bound(f"{answer}\n\n{test}", language)
    parts = [test]
    if bound and failed and _lacks(test, failed, language) and _needed(failed, language) <= bound:
        parts.append(failed)
    if language == "python":
        told = (each for each in stated_assertions(said) if callees(each) <= bound)
        parts += [each for each in dict.fromkeys(told) if not (own := cases(each)) or own - cases("\n".join(parts))]
    return "\n\n".join(part for part in parts if part.strip())


def stated_assertions(text: str) -> Iterator[str]:
    """Python assertions in a text that judge a call and are self-contained; prose such as `assert that` is ignored."""
    for match in _ASSERTION.finditer(text):
        words = (match[1] or match[2]).strip()[:_LONGEST].split(" ")
        for end in range(len(words), 0, -1):
            if not _BEHIND.fullmatch(" ".join(words[end:])):
                break
            tree = python_source.parse(" ".join(words[:end]).rstrip(";`"))
            if tree is not None:
                if _is_judging(tree):
                    yield ast.unparse(tree)
                break


def documented_test(text: str) -> str:
    """The examples of a docstring (`>>> f(2)`, its value below, or `f(2) returns 4`) as a test; "" where there is none.

    They run one after the other. From the first on that raises, as where a name is not told, nothing is compared.
    """
    shown = _RETURNS.sub(r">>> \1\n\2\n", textwrap.dedent(text))
    try:
        examples = doctest.DocTestParser().get_examples(shown) if ">>>" in shown else []
    except ValueError:  # not indented alike
        return ""
    lines, compared = [], False
    for example in examples:
        code, value = example.source.strip(), _STRAY.sub("", example.want).strip()
        if python_source.parse(code) is None:
            break
        compares = _comparison(code, value) if _is_expression(code) else ""
        lines.append(f"assert {compares}" if compares else code)
        compared |= bool(compares)
    told = textwrap.indent("\n".join(lines), "    ")
    return f"try:\n{told}\nexcept AssertionError:\n    raise\nexcept Exception:\n    pass" if compared else ""


def _comparison(code: str, value: str) -> str:
    """Compares an expression with the value that a docstring shows of it; "" where that cannot be compared.

    A number with a fraction is shown rounded. Of a list that goes on (`[1, 2, ...]`) the beginning is compared.
    """
    if _ROUNDED.fullmatch(value):
        return f"abs(({code}) - ({value})) <= {10.0 ** -len(value.partition('.')[2])}"
    begun = _GOES_ON.sub("", value)
    if begun != value:
        whole = f"{begun}{']' if begun.startswith('[') else ')'}"
        first = f"list({code})[:{_length(whole)}] == list({whole})"
        return first if _length(whole) and _is_expression(whole, literal=True) else ""
    exact = not _INEXACT.search(value) and _is_expression(value, literal=True)
    return f"({code}) == ({value})" if exact else ""


def _length(listed: str) -> int:
    tree = python_source.parse(listed)
    only = tree.body[0] if tree is not None and tree.body else None
    return len(only.value.elts) if isinstance(only, ast.Expr) and isinstance(only.value, ast.List | ast.Tuple) else 0


def _is_expression(code: str, *, literal: bool = False) -> bool:
    tree = python_source.parse(code)
    only = tree.body[0] if tree is not None and len(tree.body) == 1 else None
    return isinstance(only, ast.Expr) and (not literal or python_source.is_literal(only.value))


def callees(assertion: str) -> set[str]:
    """The functions that an assertion calls by name, without those of Python."""
    tree = python_source.parse(assertion)
    return set() if tree is None else _called(tree)


def _is_judging(tree: ast.Module) -> bool:
    names = python_source.names_in(tree)
    called, alone = _called(tree), len(tree.body) == 1 and isinstance(tree.body[0], ast.Assert)
    return alone and bool(called) and names <= called | python_source.BUILTINS


def _called(tree: ast.Module) -> set[str]:
    functions = (node.func for node in walk(tree) if isinstance(node, ast.Call))
    return {function.id for function in functions if isinstance(function, ast.Name)} - python_source.BUILTINS


def _lacks(test: str, failed: str, language: str) -> bool:
    """Whether a test does not hold all assertions of another."""
    held = {_plain(one.text) for one in statements(test, language)}
    asserted = [one.text for one in statements(failed, language) if "assert" in one.text or "throw" in one.text]
    return any(_plain(text) not in held for text in asserted)


def _plain(text: str) -> str:
    return re.sub(r"[\s;]", "", text)


def _bound(code: str, language: str) -> frozenset[str]:
    names = cell_names(code, language)
    return names.bound if names is not None else frozenset()


def _needed(code: str, language: str) -> frozenset[str]:
    names = cell_names(code, language)
    return names.needed | names.later if names is not None else frozenset({"?"})
