"""JavaScript of examples, read with tree-sitter: definitions, bindings by scope, free names, tokens."""

from collections.abc import Iterator
from functools import lru_cache

import tree_sitter_javascript
from tree_sitter import Language, Node, Parser

from benchmarks.datasets.faults.words import words

_PARSER = Parser(Language(tree_sitter_javascript.language()))
FUNCTIONS = words(
    """function_declaration function_expression generator_function_declaration generator_function arrow_function
    method_definition function"""
)
_NAMES = frozenset(("identifier", "shorthand_property_identifier"))
PATTERNS = frozenset(("identifier", "shorthand_property_identifier_pattern"))


@lru_cache(maxsize=256)
def parse(code: str) -> Node:
    return _PARSER.parse(code.encode("utf-8", "replace")).root_node


def text(node: Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode("utf-8", "replace")


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it, in order."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(reversed(one.children))


def names(node: Node) -> set[str]:
    """Names that a tree reads or binds; properties are none."""
    return {text(n) for n in walk(node) if n.type in _NAMES}


def definitions(root: Node) -> dict[str, Node]:
    """Functions and classes of the top level by name, also exported ones and those that a variable holds."""
    found: dict[str, Node] = {}
    for statement in root.children:
        inner = statement.child_by_field_name("declaration") if statement.type == "export_statement" else statement
        if inner is None:
            continue
        if inner.type in FUNCTIONS or inner.type == "class_declaration":
            found[text(inner.child_by_field_name("name"))] = inner
        elif inner.type in ("lexical_declaration", "variable_declaration"):
            for one in inner.named_children:
                value = one.child_by_field_name("value")
                if value is not None and (value.type in FUNCTIONS or value.type == "class"):
                    found[text(one.child_by_field_name("name"))] = value
    return found


def parameters(function: Node) -> list[str]:
    given = function.child_by_field_name("parameters") or function.child_by_field_name("parameter")
    return [] if given is None else sorted(bound_by(given))


def bound_by(pattern: Node) -> set[str]:
    """Names that a pattern or a list of parameters binds; default values bind none."""
    found: set[str] = set()
    waiting = [pattern]
    while waiting:
        node = waiting.pop()
        if node.type in PATTERNS:
            found.add(text(node))
        elif node.type == "assignment_pattern" or node.type == "object_assignment_pattern":
            waiting.append(node.children[0])
        elif node.type == "pair_pattern":
            value = node.child_by_field_name("value")
            waiting.extend([value] if value is not None else [])
        else:
            waiting.extend(node.named_children)
    return found


def bindings(node: Node) -> set[str]:
    """Every name that is declared anywhere below a node: by variables, functions, classes, imports, catches."""
    found: set[str] = set()
    for one in walk(node):
        name = one.child_by_field_name("name")
        if one.type in ("variable_declarator", "class_declaration", "class") and name is not None:
            found |= bound_by(name)
        elif one.type in FUNCTIONS:
            if name is not None and one.type != "method_definition":
                found.add(text(name))
            found.update(parameters(one))
        elif one.type == "catch_clause":
            given = one.child_by_field_name("parameter")
            found |= bound_by(given) if given is not None else set()
        elif one.type in ("import_clause", "namespace_import", "import_specifier"):
            found |= {text(n) for n in one.named_children if n.type == "identifier"}
        elif one.type == "for_in_statement":
            left = one.child_by_field_name("left")
            found |= bound_by(left) if left is not None and left.type != "member_expression" else set()
    return found


def free_names(root: Node) -> set[str]:
    """Names that code reads and nowhere declares; what it assigns to without declaring counts as declared."""
    assigned = {
        name
        for n in walk(root)
        if n.type == "assignment_expression" and (left := n.child_by_field_name("left")) is not None
        for name in (bound_by(left) if left.type in ("identifier", "object_pattern", "array_pattern") else ())
    }
    typeof = {
        text(n.named_children[0]) for n in walk(root) if n.type == "unary_expression" and text(n).startswith("typeof")
    }
    labels = {text(n) for n in walk(root) if n.type == "statement_identifier"}
    return names(root) - bindings(root) - assigned - typeof - labels
