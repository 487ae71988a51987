"""Code of notebooks as trees, whatever stands in it."""

import ast
import time
import typing
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.executions.labels.signals import code_facts
from capibara_assets.executions.parsing import (
    _NO_NODES,
    child_nodes,
    descend,
    embedded_sql,
    parse_javascript,
    parse_python,
    parse_sql,
    python_nodes,
    python_tree,
    walk,
    without_magics,
)
from capibara_assets.executions.patterns.idioms_python import python_idioms


@pytest.mark.parametrize(
    "code",
    [
        "!pip install x\nimport os",
        "!pip install \\\n    a \\\n    b\nimport os",
        "%matplotlib inline\nx = 1",
        "%%time\nx = 1",
        "files = !ls\nprint(files)",
        "out = %timeit -o f()\nx = out",
        "for i in range(2):\n    !echo {i}\n    x = i",
        "df?\ndf.head??",
        "await f()",
        "text = '''\n%not a magic\n!nor this\n'''",
        "x = 7 % 3\ny = x != 2",
    ],
)
def test_notebook_cells_are_python(code: str) -> None:
    assert parse_python(code) is not None


def test_lines_keep_their_numbers() -> None:
    tree = parse_python("!pip install \\\n  x\n\ny = 1")
    assert tree is not None
    assert tree.body[-1].lineno == 4


def test_text_that_looks_like_magic_stays() -> None:
    tree = parse_python("x = '''\n%d items\n'''")
    assert tree is not None
    assert ast.unparse(tree) == "x = '\\n%d items\\n'"


def test_a_cell_of_another_language_is_no_python() -> None:
    assert without_magics("%%bash\nls").strip() == ""
    assert code_facts("python", "%%html\n<b>x</b>").empty


@pytest.mark.parametrize("code", ["x = (", "def f(:", "x = '\0'", "(" * 500 + ")" * 500, "-" * 100_000 + "1"])
def test_what_is_no_python_is_none_and_never_an_error(code: str) -> None:
    assert parse_python(code) is None
    assert python_idioms(code) == ()


@given(st.text(max_size=60))
def test_any_text_gets_facts_in_any_language(text: str) -> None:
    for language in ("python", "javascript", "sql", "bash"):
        facts = code_facts(language, text)
        assert isinstance(facts.parses, bool)


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        ("SELECT a FROM b", True),
        ("SELECT count(*)::float FROM b", True),
        ("SELECT TOP 1 a FROM [b c]", True),
        ("SELECT FROM WHERE (", False),
        ("-- only a comment", False),
        ("", False),
    ],
)
def test_sql_of_common_dialects_is_read(code: str, reads: bool) -> None:
    assert (parse_sql(code) is not None) == reads


def test_javascript_tells_errors() -> None:
    assert not parse_javascript("const f = async () => { await g() }").root_node.has_error
    assert parse_javascript("function (").root_node.has_error


def test_nodes_by_kind_are_those_of_the_tree_without_texts_that_stand_alone() -> None:
    code = """def f(a, *b, c=1, **d):
    'For people.'
    x: int
    return {**a, 'k': [i for i in b if i > c]}
'too'
7"""
    tree = parse_python(code)
    assert tree is not None
    kinds = {kind: len(nodes) for kind, nodes in python_nodes(code).items()}
    assert kinds == {**Counter(map(type, descend(tree))), ast.Constant: 2}
    bare = {n for n in ast.walk(tree) if isinstance(n, ast.expr_context | ast.operator | ast.cmpop)}
    assert set(descend(tree)) == set(ast.walk(tree)) - bare
    assert python_nodes("def f(:") == {}


def test_an_embedded_query_loses_its_indentation() -> None:
    assert embedded_sql("\n        SELECT a\n          FROM b\n    ") == "SELECT a\n  FROM b"


def test_a_walk_gives_the_nodes_of_ast_walk_in_its_order() -> None:
    files = [Path(ast.__file__), Path(typing.__file__), Path(__file__)]
    made = ast.parse("f(a + b)")  # as code that makes nodes may leave them
    del made.body[0].value.keywords, made.body[0].value.args[0].op  # type: ignore[attr-defined]
    for tree in (*(ast.parse(file.read_text("utf-8")) for file in files), made):
        assert list(walk(tree)) == [node for node in ast.walk(tree) if not isinstance(node, _NO_NODES)]


def test_child_nodes_are_those_of_ast() -> None:
    for node in ast.walk(ast.parse("def f(a, *b, c=1, **d) -> int:\n    return {**a, 'x': a if not b else -c < 2}")):
        children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, _NO_NODES)]
        assert child_nodes(node) == children


def test_a_walk_goes_on_in_what_was_there_when_a_node_is_replaced_meanwhile() -> None:
    tree = ast.parse("x = [1, 2]")
    for node in walk(tree):
        if isinstance(node, ast.List):
            node.elts = []
    assert sum(isinstance(node, ast.Constant) for node in walk(tree)) == 0


def test_a_long_row_of_comments_is_read_in_no_time_and_moves_nothing() -> None:
    started = time.process_time()
    row = "/*a*/" * 30_000
    root = parse_javascript(f"let a = 1 {row}\nlet b = 2").root_node
    assert time.process_time() - started < 5 and not root.has_error
    assert [child.type for child in root.named_children] == ["lexical_declaration"] * 2
    assert root.named_children[1].start_byte == len(f"let a = 1 {row}\n")
    few = parse_javascript("f(/* one */ /* two */ x)").root_node
    assert "two" in (few.text or b"").decode()


@pytest.mark.parametrize(
    "inside", [("(", "1", ")"), ("", "1", " + 1"), ("a[", "0", "]"), ("!", "x", ""), ("x => ", "1", "")]
)
def test_programs_that_are_nested_as_none_is_do_not_parse(inside: tuple[str, str, str]) -> None:
    before, middle, behind = inside
    for times, parses in ((40, True), (900, False)):
        code = f"y = {before * times}{middle}{behind * times}"
        assert parse_javascript(code).root_node.has_error is not parses
        assert javascript_source.parse(code).has_error is not parses
        python = code.replace("!", "-").replace("x => ", "lambda: ")
        assert (python_tree(python) is not None) is parses and (python_source.parse(python) is not None) is parses


def test_sql_that_is_nested_as_no_query_is_is_not_read() -> None:
    assert parse_sql(f"select 1 where {' and '.join(f'a{n} = {n}' for n in range(40))}") is not None
    assert parse_sql(f"select {'(' * 60}1{')' * 60}") is not None
    assert parse_sql("select 1 " + "=" * 4000) is None
    assert parse_sql(f"select {'- ' * 2000}1") is None
