"""Content of answers beyond the request, and expectations that only the test states."""

import ast
import re
from collections.abc import Iterator, Sequence

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.sessions import cell_names, statements
from capibara_assets.datasets.code.structure import located_tokens, tidied
from capibara_assets.datasets.kinds.options import without_options
from capibara_assets.datasets.kinds.prompts import stated
from capibara_assets.executions.parsing import walk

_IMPORTS = re.compile(r"(?:import|from)\s|(?:const|let|var)\s[\w$\s{},:]+=\s*require\(")
_NAME = re.compile(r"[A-Za-z_]\w*")
_TEXT = re.compile(r"^[rbfuRBFU]{0,2}(['\"`])(.*)\1$", re.DOTALL)
_WORDED = re.compile(r"\w\w")
#: Special methods that code needs without naming them -> what asks for them, in prose or in a test.
_SPECIAL = {
    "__len__": re.compile(r"\blen\(|\blength|\bnumber of|\bempty|\bhow many", re.IGNORECASE),
    "__repr__": re.compile(r"\brepr|\bprint|\bshow|\bdisplay|\btext\b|\bstring|\bstr\(|\bf['\"]", re.IGNORECASE),
    "__str__": re.compile(r"\bprint|\bshow|\bdisplay|\btext\b|\bstring|\bstr\(|\bf['\"]|\bformat", re.IGNORECASE),
}

_TIME_FORMS = re.compile(r"strftime\(\s*[\"']([^\"']+)")
_TELLS_SEVERAL = re.compile(
    r"\b(?:returns?|pairs?|tuples?|triples?)\b|->|>>>|\([^()\n]*,[^()\n]*\)\s*(?:of|with|for|:|\.|$)", re.IGNORECASE
)

_Written = ast.Constant | ast.Dict | ast.List | ast.Set | ast.Tuple


def without_unasked(answer: str, prompt: str, test: str, language: str) -> str:
    """Python without the definitions, imports, constants and options that nothing in it, its prompt or its test tells.

    Of code that defines nothing all is the answer. What decorators register is used by them.
    """
    tree = python_source.parse(answer) if language == "python" else None
    if tree is None or not any(isinstance(node, python_source.Definition) for node in tree.body):
        return answer
    in_words = "\n" in stated(prompt)  # a number may be a word there, and what it is for
    plain = answer if in_words else without_options(answer, f"{prompt}\n{test}")
    if plain != answer and python_source.parse(plain) is not None:
        return without_unasked(plain, prompt, test, language)
    lines = answer.split("\n")
    for node, instead in reversed(list(_removable(tree, prompt, test))):
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        while not instead and last < len(lines) and not lines[last].strip():
            last += 1
        lines[first:last] = instead
    cut = tidied("\n".join(lines))
    if cut == answer.strip("\n") or python_source.parse(cut) is None:
        return answer
    return without_unasked(cut, prompt, test, language)  # what only that needed


def _removable(tree: ast.Module, prompt: str, test: str) -> Iterator[tuple[ast.stmt, list[str]]]:
    """Statements that may go, in their order, each with the lines that take its place."""
    told = f"{prompt}\n{test}"
    asked, used = set(_NAME.findall(told)), _used(tree)
    if not any(isinstance(node, python_source.Definition) and _is_named(node, asked) for node in tree.body):
        return  # which of its parts was asked for is not said by name
    for node in tree.body:
        if isinstance(node, python_source.Definition) and not node.decorator_list and node.name not in asked | used:
            yield node, []
        elif isinstance(node, ast.Assign) and isinstance(node.value, _Written):
            names = {name.id for name in walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
            if names and not names & (asked | used):
                yield node, []
        elif isinstance(node, ast.Import | ast.ImportFrom):
            kept = [one for one in node.names if (one.asname or one.name.partition(".")[0]) in asked | used | {"*"}]
            if len(kept) < len(node.names):
                yield node, [_importing(node, kept)] if kept else []
        elif isinstance(node, ast.ClassDef) and not node.bases:
            methods = [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]
            for method in methods:
                if not method.decorator_list and len(methods) > 1 and not _is_asked(method.name, asked | used, told):
                    yield method, []


def _importing(node: ast.Import | ast.ImportFrom, names: list[ast.alias]) -> str:
    """The import of some of its names."""
    less = ast.Import(names) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, names, node.level)
    return ast.unparse(less)


def _is_named(node: python_source.Definition, asked: set[str]) -> bool:
    """Whether its name is asked for, or that of the object which it is registered with, such as a route's."""
    registering = map(python_source.names_in, node.decorator_list)
    return bool(asked & {node.name}.union(*registering))


def _is_asked(method: str, names: set[str], told: str) -> bool:
    if method in _SPECIAL:
        return method in names or _SPECIAL[method].search(told) is not None
    return method.startswith("__") or method in names


def _used(tree: ast.Module) -> set[str]:
    """Names, attributes and texts that code reads, but for a function's or class's own name inside itself."""
    names: set[str] = set()
    for top in tree.body:
        inside = set()
        for node in walk(top):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                inside.add(node.id)
            elif isinstance(node, ast.Attribute):
                inside.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                inside.add(node.value)
        names |= inside - ({top.name} if isinstance(top, python_source.Definition) else set())
    return names


def shown_test(test: str, language: str) -> str:
    """A test up to its last assertion; "" if it has none."""
    if language != "python":
        return test if "assert" in test or "throw" in test else ""
    tree = python_source.parse(test)
    judging = [node for node in tree.body if any(map(_judges, walk(node)))] if tree is not None else []
    return "\n".join(test.split("\n")[: judging[-1].end_lineno]) if judging else ""


def with_imports(shown: Sequence[str], test: str, language: str) -> tuple[str, ...]:
    """Assertions that stand alone, below those imports of their test that they read."""
    names = cell_names("\n".join(shown), language)
    if names is None:
        return tuple(shown)
    wanted = [one for one in statements(test, language) if one.names.bound & names.needed]
    return (*(one.text for one in wanted if _IMPORTS.match(one.text)), *shown)


def _judges(node: ast.AST) -> bool:
    """Whether a node asserts, raises, or expects what is below it to raise."""
    expects = isinstance(node, ast.With) and any("raises" in ast.unparse(item).lower() for item in node.items)
    return expects or isinstance(node, ast.Assert | ast.Raise)


def only_tested(answer: str, prompt: str, test: str, language: str) -> set[str]:
    """Texts in both an answer and its test, but not in the prompt: only the test reveals them."""
    return {text for text in _texts(answer, language) & _texts(test, language) if text not in prompt}


def has_untold_form(answer: str, prompt: str, test: str) -> bool:
    """Whether Python code gives a form that its test alone tells, not its prompt: several values, a written time."""
    tree = python_source.parse(answer)
    if tree is None or not any(isinstance(node, ast.FunctionDef) and node.name in test for node in tree.body):
        return False
    if any(form not in prompt for form in _TIME_FORMS.findall(answer)):
        return True
    several = any(
        isinstance(inner, ast.Return) and isinstance(inner.value, ast.Tuple) and len(inner.value.elts) > 1
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in prompt
        for inner in walk(node)
    )
    return several and _TELLS_SEVERAL.search(prompt) is None


def _texts(code: str, language: str) -> set[str]:
    texts = (_TEXT.match(token) for token, _, _ in located_tokens(code, language))
    return {match[2] for match in texts if match is not None and _WORDED.search(match[2])}
