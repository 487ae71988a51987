"""The JavaScript grammar: everything it writes parses, varies, and depends on the seed alone."""

from collections.abc import Iterator
from random import Random

import pytest
import tree_sitter_javascript
from hypothesis import given
from hypothesis import strategies as st
from tree_sitter import Language, Node, Parser

from workshop.base_model.javascript import javascript_exchange, javascript_program


@pytest.fixture(scope="module")
def parser() -> Parser:
    return Parser(Language(tree_sitter_javascript.language()))


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def test_the_parser_sees_an_error(parser: Parser) -> None:
    assert parser.parse(b"function (").root_node.has_error


@given(st.integers(0, 2**32))
def test_programs_parse(parser: Parser, seed: int) -> None:
    program = javascript_program(Random(seed))
    assert not parser.parse(program.encode()).root_node.has_error, program


@given(st.integers(0, 2**32))
def test_answers_parse(parser: Parser, seed: int) -> None:
    request, code = javascript_exchange(Random(seed))
    assert request.strip()
    assert not parser.parse(code.encode()).root_node.has_error, code


def test_no_placeholder_is_left() -> None:
    rng = Random(5)
    text = "".join(javascript_program(rng) for _ in range(1000))
    assert "@list" not in text
    assert "@result" not in text
    assert "@items" not in text
    assert "{{" not in text


def test_the_language_is_covered(parser: Parser) -> None:
    rng = Random(2)
    seen = {node.type for _ in range(400) for node in _nodes(parser.parse(javascript_program(rng).encode()).root_node)}
    assert seen >= {
        "arrow_function", "await_expression", "catch_clause", "class_declaration", "class_heritage", "for_in_statement",
        "for_statement", "function_declaration", "function_expression", "yield_expression",
        "new_expression", "object_pattern", "private_property_identifier", "regex", "rest_pattern", "spread_element",
        "switch_statement", "template_substitution", "ternary_expression", "throw_statement", "while_statement",
    }  # fmt: skip


def test_same_seed_same_programs_and_hardly_a_repetition() -> None:
    first, again = (Random(3) for _ in range(2))
    programs = [javascript_program(first) for _ in range(500)]
    assert programs == [javascript_program(again) for _ in range(500)]
    assert len(set(programs)) > 480
