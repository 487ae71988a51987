"""JavaScript that runs and passes its tests, and that no reviewer would let in."""

import re
from collections import Counter
from collections.abc import Iterator

from tree_sitter import Node

from capibara_assets.datasets.code import javascript_source
from capibara_assets.datasets.code.javascript_source import text, walk
from capibara_assets.datasets.kinds import prompts

NEVER_EQUAL = "its code compares a list with one that it writes down: these are never equal"
COMMA = "its code has several values in parentheses, of which JavaScript takes the last"
SORTED_AS_TEXT = "its answer sorts numbers as texts: 10 comes before 9"
TRUTH = "its code sorts by whether one is less than another: the order is the engine's"
RUNNERS = "its answer holds functions that only run its tests"
METHODS = "its answer is a class of whose methods its prompt tells none"
LEAKED = "its answer sets variables that it does not declare"

_RUN = frozenset(("describe", "it", "test", "expect", "suite", "spec", "beforeEach", "afterEach"))
_LOG = re.compile(r"console\.log\(\s*(?:'[^'\n]*'|\"[^\"\n]*\"|`[^`$\n]*`)\s*\)")
_DECIDES = re.compile(r"(?:if|for|for_in|while|do|switch|try)_statement")
_NUMBERS = re.compile(r"\[\s*-?\d")
_TEXTS = re.compile(r"split\(|join\(|keys\(|String|toString|\.words|chars?\b", re.IGNORECASE)


def senseless(code: str) -> str | None:
    """Why code says something else than it seems to; None if it does not."""
    root = javascript_source.parse(code)
    if any(_compares_written(node) for node in walk(root)):
        return NEVER_EQUAL
    if any(_is_tuple(node) for node in walk(root)):
        return COMMA
    return TRUTH if any(_sorts_by_truth(node) for node in walk(root)) else None


def careless(answer: str, prompt: str) -> str | None:
    """Why an answer is not fit to be learned although its test passes; None if it is."""
    root = javascript_source.parse(answer)
    if _NUMBERS.search(prompt) and any(_sorts_as_text(node) for node in walk(root)):
        return SORTED_AS_TEXT
    # `for (x of xs)` declares nothing, but is listed there
    declared = Counter(javascript_source.declared(root)) - Counter(map(_looped, walk(root)))
    known = {*declared, *javascript_source.GLOBALS, *re.findall(r"[\w$]+", prompt)}
    return LEAKED if any({_assigned(node), _looped(node)} - known - {""} for node in walk(root)) else None


def unfit_to_ask_for(answer: str, prompt: str, test: str) -> str | None:
    """Why nobody would ask for an answer as it stands; None if they would.

    Args:
        test: the hidden test.
    """
    root = javascript_source.parse(answer)
    declared = set(javascript_source.declared(root)) - set(re.findall(r"\w+", prompts.stated(prompt)))
    if any(_only_runs(name, answer, test) for name in declared):
        return RUNNERS
    methods = {name for node in walk(root) if (name := _method(node))}
    return METHODS if methods and methods.isdisjoint(re.findall(r"\w+", prompt)) else None


def _only_runs(name: str, answer: str, test: str) -> bool:
    """Whether a function is that of a test's runner, or one that only the test calls, to wait."""
    called = len(re.findall(rf"(?<![\w.]){name}\(", test))
    if name in _RUN:
        return called > 0
    waits = len(re.findall(rf"(?:^|[;{{}}])\s*await {name}\(", test, re.MULTILINE))
    return 0 < called == waits and len(re.findall(rf"\b{name}\b", answer)) == 1


def _method(node: Node) -> str:
    """The name of a method that a class shows; "" for anything else."""
    if node.type != "method_definition" or node.parent is None or node.parent.type != "class_body":
        return ""
    name = node.child_by_field_name("name")
    shown = name is not None and name.type == "property_identifier" and not text(name).startswith("_")
    return text(name) if name is not None and shown and text(name) != "constructor" else ""


def printed_texts(code: str) -> Iterator[str]:
    """Texts that code prints outside branches and loops, which decide something."""
    pending = [javascript_source.parse(code)]
    while pending:
        node = pending.pop()
        if node.type == "call_expression" and _LOG.fullmatch(text(node)):
            yield text(node).partition("(")[2].strip(" )\n")[1:-1]
        elif not _DECIDES.fullmatch(node.type):
            pending += node.named_children


def _compares_written(node: Node) -> bool:
    """Whether something is compared with a list or object that is written there, which is a new one each time."""
    return (
        node.type == "binary_expression"
        and any(child.type in ("===", "==", "!==", "!=") for child in node.children)
        and any(child.type in ("array", "object") for child in node.named_children)
    )


def _is_tuple(node: Node) -> bool:
    """Whether parentheses hold values with commas between them, as Python writes several, and none has an effect."""
    if node.type != "parenthesized_expression" or not node.named_children:
        return False
    inner = node.named_children[0]
    return inner.type == "sequence_expression" and not any(
        part.type in (*javascript_source.ASSIGNMENTS, "call_expression", "await_expression", "yield_expression")
        for part in walk(inner)
    )


def _sorts_by_truth(node: Node) -> bool:
    """Whether what `.sort()` compares by gives true or false, where a number is asked for."""
    _, given = _sorting(node)
    body = given[0].child_by_field_name("body") if given and given[0].type == "arrow_function" else None
    operator = body.child_by_field_name("operator") if body is not None and body.type == "binary_expression" else None
    return operator is not None and text(operator) in ("<", ">", "<=", ">=")


def _sorts_as_text(node: Node) -> bool:
    """Whether `.sort()` has nothing to compare by, and is not that of letters or words."""
    called, given = _sorting(node)
    return called is not None and not given and _TEXTS.search(text(called)) is None


def _sorting(node: Node) -> tuple[Node | None, list[Node]]:
    """(what is called, its arguments) of a call that sorts; (None, []) for anything else."""
    called = node.child_by_field_name("function") if node.type == "call_expression" else None
    method = called.child_by_field_name("property") if called is not None else None
    given = node.child_by_field_name("arguments")
    if method is None or given is None or text(method) not in ("sort", "toSorted"):
        return None, []
    return called, given.named_children


def _assigned(node: Node) -> str:
    """The variable that a node assigns; "" if it assigns none."""
    if node.type not in javascript_source.ASSIGNMENTS:
        return ""
    target = javascript_source.assigned(node)
    return text(target) if target is not None and target.type == "identifier" else ""


def _looped(node: Node) -> str:
    """The variable of a loop over something that does not declare it; "" for anything else."""
    if node.type != "for_in_statement" or node.child_by_field_name("kind") is not None:
        return ""
    target = node.child_by_field_name("left")
    return text(target) if target is not None and target.type == "identifier" else ""
