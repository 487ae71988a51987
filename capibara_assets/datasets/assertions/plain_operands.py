"""What an assertion computes with in the process of an answer, as the plain values that objects of its classes hold."""

import ast
from collections.abc import Callable
from typing import Any

#: Runs before the tests, in the process of the answer: what an assertion computes with is of plain types, so that no
#: special method of a class that the answer defines decides it. Classes that are asked for stay, by their names, and
#: so do exceptions and the classes of modules; and, where nothing is computed (`_capibara_unsaid`), objects of classes
#: that are no numbers, texts or containers.
PLAINER = """
def _capibara_unsaid(_value):
    return _capibara_plain(_value, strict=False)

def _capibara_plain(_value, _seen=None, strict=True):
    import sys
    kind = type(_value)
    if kind in (bool, int, float, complex, str, bytes, bytearray, type(None)):
        return _value
    seen = {} if _seen is None else _seen
    if id(_value) not in seen:
        seen[id(_value)] = (_value, _value)
        inner = lambda each: _capibara_plain(each, seen, strict)
        seen[id(_value)] = (_value, _capibara_made_plain(_value, kind, inner, sys, strict))
    return seen[id(_value)][1]

def _capibara_made_plain(_value, kind, inner, sys, strict):
    if kind in (list, tuple, set, frozenset):
        made = [inner(each) for each in _value]
        return _value if all(a is b for a, b in zip(made, _value)) else kind(made)
    if kind is dict:
        made = [(inner(key), inner(each)) for key, each in _value.items()]
        same = all(a is c and b is d for (a, b), (c, d) in zip(made, _value.items()))
        return _value if same else dict(made)
    flags = type.__dict__["__flags__"].__get__(kind)
    if not flags & (1 << 9) or flags & (1 << 8) or issubclass(kind, (type, BaseException)):
        return _value  # a type written in C
    name = type.__dict__["__name__"].__get__(kind)
    where = type.__getattribute__(kind, "__module__")
    module = sys.modules.get(where) if type(where) is str and where != "__main__" else None
    if name in _capibara_asked or (module is not None and any(each is kind for each in vars(module).values())):
        return _value
    for plain in (int, float, complex):
        if issubclass(kind, plain):
            return plain.__pos__(_value)
    if issubclass(kind, str):
        return str.__str__(_value)
    for plain in (bytes, bytearray):
        if issubclass(kind, plain):
            return plain.__getitem__(_value, slice(None))
    for plain in (list, tuple, set, frozenset):
        if issubclass(kind, plain):
            return plain([inner(each) for each in plain.__iter__(_value)])
    if issubclass(kind, dict):
        return {inner(key): inner(each) for key, each in dict.items(_value)}
    if not strict:
        return _value
    raise TypeError("a value of a class that is not asked for: " + name)
"""


class PlainOperands(ast.NodeTransformer):
    """Takes the plain value of all that an answer may have made: variables, what calls return, attributes, elements."""

    def __init__(self, is_clean: Callable[[ast.expr], bool]) -> None:
        self._is_clean = is_clean

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.Call | ast.Name | ast.Attribute | ast.Subscript):
            return self.generic_visit(node)
        if type(getattr(node, "ctx", None)) in (ast.Store, ast.Del) or self._is_clean(node):
            return self.generic_visit(node)
        if isinstance(node, ast.Call):  # what is called stays as it is; what its method is of does not
            if isinstance(node.func, ast.Attribute | ast.Name):
                self.generic_visit(node.func)
            else:
                node.func = self.visit(node.func)
            node.args = [self.visit(each) for each in node.args]
            for keyword in node.keywords:
                self.generic_visit(keyword)
        else:
            self.generic_visit(node)
        return ast.Call(ast.Name("_capibara_plain", ast.Load()), [node], [])
