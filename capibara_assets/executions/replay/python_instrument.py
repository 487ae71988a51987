"""Python rewritten so that `python_tracer` sees each step of a function: operands, tests, turns, and what changes.

Imports the standard library alone: the tracer imports it as a script inside the sandbox. Every rewritten expression
keeps its value, and every place is that of the code as it was written.
"""

import ast
from typing import Any

NAME = "__capibara_tracer__"  # under which instrumented code reaches the tracer
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: What a walk cannot follow: code that runs later, somewhere else, or binds names in the middle of an expression.
_NOT_FOLLOWED = (*_FUNCTIONS, ast.ClassDef, ast.With, ast.AsyncWith, ast.AsyncFor, ast.Await, ast.NamedExpr, ast.Match)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def place(node: Any) -> str:
    """Where a node stands: its first line and column, its last line and column."""
    return f"{node.lineno}:{node.col_offset}:{node.end_lineno}:{node.end_col_offset}"


def _hook(name: str, node: ast.AST, *arguments: ast.expr, at: bool = True) -> ast.Call:
    where = [ast.Constant(place(node))] if at else []
    function = ast.Attribute(ast.Name(NAME, ast.Load()), name, ast.Load())
    return ast.copy_location(ast.Call(function, [*where, *arguments], []), node)


def _names(node: ast.AST) -> ast.Tuple:
    """The names in a statement, less those that only a part of it binds."""
    parts = list(ast.walk(node))
    bound = {each.arg for each in parts if isinstance(each, ast.arg)}
    targets = [each.target for each in parts if isinstance(each, ast.comprehension)]
    bound |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    names = {each.id for each in parts if isinstance(each, ast.Name)} - bound
    return ast.Tuple([ast.Constant(name) for name in sorted(names)], ast.Load())


class Operands(ast.NodeTransformer):
    """Notes what the parts of an expression are when it is evaluated."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Lambda) or not isinstance(node, ast.expr):
            return node if isinstance(node, ast.Lambda) else self.generic_visit(node)
        if isinstance(node, _COMPREHENSIONS):
            first = node.generators[0]
            first.iter = self.visit(first.iter)
            return _hook("items" if isinstance(node, ast.GeneratorExp) else "value", node, node)
        if isinstance(node, ast.JoinedStr):
            return _hook("value", node, node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            node.args = [self.visit(each) for each in node.args]
            node.keywords = [self.visit(each) for each in node.keywords]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
            node.args = [self.visit(each) for each in node.args]
            node.keywords = [self.visit(each) for each in node.keywords]
        elif isinstance(node, ast.IfExp):
            node.test = _hook("chose", node, self.visit(node.test))
            node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        else:
            self.generic_visit(node)
        loads = isinstance(getattr(node, "ctx", None), ast.Load) and not isinstance(node, ast.Tuple | ast.List)
        noted = isinstance(node, ast.Call) or (loads and isinstance(node, ast.Name | ast.Attribute | ast.Subscript))
        return _hook("value", node, node) if noted and not isinstance(node, ast.Starred) else node


class Steps:
    """Rewrites the statements of one function."""

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in body for new in self.statement(statement)]

    def _value(self, node: Any) -> Any:
        return Operands().visit(node)

    def _after(self, node: ast.stmt) -> ast.stmt:
        here = ast.Call(ast.Name("locals", ast.Load()), [], [])
        return ast.copy_location(ast.Expr(_hook("ran", node, _names(node), here)), node)

    def _event(self, method: str, node: ast.AST, *arguments: ast.expr) -> ast.stmt:
        return ast.copy_location(ast.Expr(_hook(method, node, *arguments)), node)

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Expr(value=ast.Constant()):
                return [node]
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Expr() | ast.Delete():
                after = self._after(node)
                if getattr(node, "value", None) is not None:
                    node.value = self._value(node.value)  # type: ignore[union-attr]
                return [node, after]
            case ast.Return():
                value = node.value or ast.copy_location(ast.Constant(None), node)
                node.value = _hook("returned", node, self._value(value))
            case ast.Raise():
                event = self._event("raising", node)
                node.exc = self._value(node.exc) if node.exc is not None else None
                return [event, node]
            case ast.If() | ast.While():
                node.test = _hook("tested", node, self._value(node.test))
                node.body, node.orelse = self.block(node.body), self.block(node.orelse)
            case ast.For():
                node.iter = _hook("looped", node, self._value(node.iter))
                here = ast.Call(ast.Name("locals", ast.Load()), [], [])
                turn = self._event("turned", node, _names(node.target), here)
                node.body, node.orelse = [turn, *self.block(node.body)], self.block(node.orelse)
            case ast.Break() | ast.Continue():
                return [self._event("jumped", node), node]
            case ast.Try():
                node.body, node.orelse = self.block(node.body), self.block(node.orelse)
                node.finalbody = self.block(node.finalbody)
                for handler in node.handlers:
                    handler.body = [self._event("caught", handler), *self.block(handler.body)]
        return [node]


class Instrument(ast.NodeTransformer):
    """Wraps functions and methods, and rewrites the steps of those that a walk can follow."""

    def _function(self, node: Any) -> ast.AST:
        inside = [each for statement in node.body for each in ast.walk(statement)]
        yields = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in inside)
        # a function that asserts is a test: what it calls is what counts
        tests = any(isinstance(each, ast.Assert) for each in inside)
        dunder = node.name.startswith("__") and node.name.endswith("__")
        if yields or tests or dunder:
            return node  # type: ignore[no-any-return]
        followed = isinstance(node, ast.FunctionDef) and not any(isinstance(each, _NOT_FOLLOWED) for each in inside)
        if followed:
            node.body = Steps().block(node.body)
        node.decorator_list.append(_hook("followed" if followed else "wrapped", node, at=False).func)
        return node  # type: ignore[no-any-return]

    visit_FunctionDef = visit_AsyncFunctionDef = _function
