"""Assets stay thin and functions short: what is longer is work of the library, or several functions."""

import ast
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

import capibara_assets
from capibara_assets.assets import STAGES

PACKAGE = Path(capibara_assets.__file__).parent
ASSETS = PACKAGE / "assets"
MOST_OF_AN_ASSET = 20
MOST_OF_A_FUNCTION = 80
TABLES = frozenset[str]()
"""Functions that are longer because they are tables of data, as `module.function`."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
HOLDS_FUNCTIONS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def body_lines(function: Function) -> int:
    """From the first statement after docstring and imports to the last."""
    statements = function.body[1:] if ast.get_docstring(function) is not None else function.body
    work = [one for one in statements if not isinstance(one, ast.Import | ast.ImportFrom)]
    return (work[-1].end_lineno or 0) - work[0].lineno + 1 if work else 0


def functions(file: Path) -> Iterator[Function]:
    """All of a file, those inside others, too; expressions hold none, and are most of a tree."""
    waiting: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        waiting += [one for one in ast.iter_child_nodes(node) if isinstance(one, HOLDS_FUNCTIONS)]


def is_asset(function: Function) -> bool:
    called = [one.func if isinstance(one, ast.Call) else one for one in function.decorator_list]
    return any(ast.unparse(one).removeprefix("dg.") in ("asset", "multi_asset") for one in called)


BODIES = {one.name: body_lines(one) for file in ASSETS.glob("*.py") for one in functions(file) if is_asset(one)}


def test_every_asset_is_counted() -> None:
    there = [one for stage in STAGES for one in vars(stage).values() if isinstance(one, dg.AssetsDefinition)]
    assert {key.path[-1] for one in there for key in one.keys} == set(BODIES) and BODIES


@pytest.mark.parametrize("asset", sorted(BODIES))
def test_an_asset_reads_calls_publishes_and_returns(asset: str) -> None:
    assert BODIES[asset] <= MOST_OF_AN_ASSET, f"{asset}: {BODIES[asset]} lines, of which {MOST_OF_AN_ASSET} are allowed"


def test_functions_are_short() -> None:
    lengths = {
        ".".join((*file.relative_to(PACKAGE).with_suffix("").parts, one.name)): body_lines(one)
        for file in PACKAGE.rglob("*.py")
        for one in functions(file)
    }
    long = {name: lines for name, lines in lengths.items() if lines > MOST_OF_A_FUNCTION and name not in TABLES}
    assert not long, f"over {MOST_OF_A_FUNCTION} lines: {long}"


def test_lines_are_counted_without_docstring_and_imports() -> None:
    source = 'def f():\n    """Says."""\n    import os\n\n    a = 1\n\n    return a\n'
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef) and body_lines(function) == 3
