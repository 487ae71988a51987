"""Tracer of re-executed Python: runs cells, counts their tests, loops and calls, and notes the values at a failure.

`python_worker.py` imports it as a script inside the sandbox: it imports the standard library alone, and keeps out of
the session's own names. What a value looks like is its `repr`; a value that has none of its own, or a long one, is not
shown.
"""

import ast
import builtins
import functools
import inspect
import io
import json
import math
import operator
import re
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

NAME = "__capibara_tracer__"  # under which instrumented code reaches this module
CELL_S, SESSION_S = 1.0, 4.0  # CPU seconds of one cell, and of a session's cells before the next one begins
MOST_CALLS, MOST_EVENTS, MOST_CHARS, MOST_ITEMS, MOST_ENTRIES = 12, 20_000, 160, 60, 16
Json = dict[str, Any]
Function = Callable[..., Any]

_COMPARES: dict[str, Function] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "In": lambda a, b: a in b,
    "NotIn": lambda a, b: a not in b,
}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SIZED = (list, tuple, dict, set, frozenset, bytearray)
_VALUES = (int, float, complex, str, *_SIZED)


class Traced:
    """What happened while one cell ran."""

    def __init__(self) -> None:
        self.calls: list[Json] = []
        self.requests: list[Json] = []
        self.tests: dict[str, list[int]] = {}  # of the cell's own statements
        self.compared: Json | None = None  # the last assertion's operands
        self.events = 0
        self.depth = threading.local()


cell = Traced()


class Timeout(BaseException):
    """The cell used up its CPU seconds."""


def shown(value: Any) -> str | None:
    """A value as text; None where its text is long, or holds an address."""
    with suppress(Exception):
        if isinstance(value, str | bytes) and len(value) > MOST_CHARS:
            return None
        if isinstance(value, _SIZED) and (len(value) > MOST_ITEMS or not all(map(_is_small, value))):
            return None
        if isinstance(value, set | frozenset) and value:
            return f"{{{', '.join(sorted(map(repr, value)))}}}"
        if (shape := getattr(value, "shape", None)) is not None and not isinstance(value, type):
            whole = tuple(int(each) for each in shape)
            if whole and (math.prod(whole) > MOST_ENTRIES or hasattr(value, "iloc")):
                return f"{type(value).__name__} of shape {whole}"
            text = " ".join(repr(value if whole else value.item()).split())
        else:
            text = repr(value)
        odd = "\n" in text or "..." in text or " at 0x" in text or text.startswith("<")
        return None if odd or len(text) > MOST_CHARS else text
    return None


def _is_small(value: Any) -> bool:
    return not isinstance(value, (str, bytes, *_SIZED)) or len(value) <= MOST_ITEMS


def described(value: Any) -> Json | None:
    """A variable's value: its text, or the shape and types of what is larger."""
    with suppress(Exception):
        kind = type(value).__name__
        if isinstance(getattr(value, "columns", None), object) and hasattr(value, "dtypes") and hasattr(value, "iloc"):
            columns = {str(name): str(dtype) for name, dtype in zip(value.columns, value.dtypes, strict=True)}
            missing = int(value.isna().sum().sum())
            return {"type": kind, "shape": list(value.shape), "columns": columns, "missing": missing}
        if hasattr(value, "dtype") and getattr(value, "shape", None) is not None and tuple(value.shape):
            whole: Json = {"type": kind, "shape": [int(n) for n in value.shape], "dtype": str(value.dtype)}
            with suppress(Exception):  # of numbers alone
                whole["range"] = [f"{float(end):.4g}" for end in (value.min(), value.max())]
            return whole
        if callable(getattr(value, "parameters", None)) and callable(getattr(value, "state_dict", None)):
            return {"type": kind, "parameters": sum(int(each.numel()) for each in value.parameters())}
        if isinstance(value, _VALUES) or hasattr(value, "dtype"):
            text = shown(value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value)
            return {"type": kind, "value": text, "length": len(value) if isinstance(value, (str, *_SIZED)) else None}
    return None


def place(node: Any) -> str:
    """Where a node stands: its first line and column, its last line and column."""
    return f"{node.lineno}:{node.col_offset}:{node.end_lineno}:{node.end_col_offset}"


class Instrument(ast.NodeTransformer):
    """Counts tests and loops, notes values on the way and what assertions compare, and wraps functions and methods."""

    def __init__(self) -> None:
        self.inside = 0
        self.returning = False

    def _call(self, method: str, node: ast.AST, *arguments: ast.expr, at: bool = True) -> ast.Call:
        where = [ast.Constant(place(node))] if at else []
        function = ast.Attribute(ast.Name(NAME, ast.Load()), method, ast.Load())
        return ast.copy_location(ast.Call(function, [*where, *arguments], []), node)

    def _function(self, node: Any) -> ast.AST:
        self.inside += 1
        self.generic_visit(node)
        self.inside -= 1
        yields = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node))
        # a function that asserts is a test: what it calls is what counts
        tests = any(isinstance(each, ast.Assert) for each in ast.walk(node))
        dunder = node.name.startswith("__") and node.name.endswith("__")
        if self.inside == 0 and not (yields or tests or dunder):
            node.decorator_list.append(self._call("wrapped", node, at=False).func)
        return node  # type: ignore[no-any-return]

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def _tested(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        node.test = self._call("tested", node, node.test)
        return node  # type: ignore[no-any-return]

    visit_If = visit_While = visit_IfExp = _tested

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        turn = ast.copy_location(ast.Expr(self._call("turned", node)), node.body[0])
        node.body.insert(0, turn)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if self.inside and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            node.value = self._call("step", node, node.value)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if node.value is not None:
            self.returning = True
            self.generic_visit(node.value)  # its own value is the result
            self.returning = False
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return self._call("step", node, node) if self.returning and self.inside else node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs = [self._call("tested", test, test) for test in node.ifs]
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        match node.test:
            case ast.Compare(left=left, ops=[operation], comparators=[right]):
                name = ast.Constant(type(operation).__name__)
                node.test = self._call("compared", node, name, left, right)
            case ast.Call(func=function, args=arguments, keywords=[]) if not any(
                isinstance(each, ast.Starred) for each in arguments
            ):
                node.test = self._call("held", node, function, *arguments)
        return node


def tested(at: str, value: Any) -> Any:
    """Counts a test as true or false, and gives its value."""
    cell.events += 1
    if cell.events < MOST_EVENTS:
        try:
            truth = bool(value)
        except Exception:  # noqa: BLE001 (the code itself fails with it, in the next moment)
            return value
        _counts().setdefault(at, [0, 0])[0 if truth else 1] += 1
    return value


def turned(at: str) -> None:
    """Counts a turn of a loop."""
    cell.events += 1
    if cell.events < MOST_EVENTS:
        _counts().setdefault(at, [0, 0])[0] += 1


def step(at: str, value: Any) -> Any:
    """Notes a value on the way to a call's result, the first time."""
    record = getattr(cell.depth, "record", None)
    if record is not None and cell.events < MOST_EVENTS:
        cell.events += 1
        known = record["steps"].get(at)
        record["steps"][at] = [1, shown(value)] if known is None else [known[0] + 1, None]
    return value


def _counts() -> dict[str, list[int]]:
    record = getattr(cell.depth, "record", None)
    return cell.tests if record is None else record["tests"]


def compared(at: str, operation: str, left: Any, right: Any) -> Any:
    """Compares as an assertion does, and notes both sides."""
    cell.compared = {"at": at, "operation": operation, "left": shown(left), "right": shown(right)}
    return _COMPARES[operation](left, right)


def held(at: str, function: Function, *arguments: Any) -> Any:
    """Calls what an assertion calls, and notes its arguments."""
    cell.compared = {"at": at, "operation": "call", "arguments": [shown(each) for each in arguments]}
    return function(*arguments)


def wrapped(function: Function) -> Function:
    """The function, whose outermost calls are noted: arguments, result, tests and loops inside, depth of recursion."""
    if not inspect.isfunction(function):
        return function
    names = list(inspect.signature(function).parameters)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def running(*positional: Any, **named: Any) -> Any:
            with _noted(function, names, positional, named) as note:
                note.append(await function(*positional, **named))
                return note[0]

        return running

    @functools.wraps(function)
    def calling(*positional: Any, **named: Any) -> Any:
        with _noted(function, names, positional, named) as note:
            note.append(function(*positional, **named))
            return note[0]

    return calling


@contextmanager
def _noted(function: Function, names: list[str], positional: tuple[Any, ...], named: Json) -> Iterator[list[Any]]:
    """Notes one call; the caller puts its result into the list that it gets."""
    own, given = cell, getattr(cell.depth, "record", None)
    cell.events += 1
    if given is not None:  # inside another call
        if given["function"] == function.__qualname__:
            given["inner"] += 1
            given["now"] += 1
            given["depth"] = max(given["depth"], given["now"])
        try:
            yield []
        finally:
            if given["function"] == function.__qualname__:
                given["now"] -= 1
        return
    if len(own.calls) >= MOST_CALLS or own.events > MOST_EVENTS:
        yield []
        return
    values = [*zip(names, positional, strict=False), *named.items()]
    record: Json = {
        "function": function.__qualname__,
        "arguments": [[name, shown(value)] for name, value in values],
        "named": sorted(named),
        "line": _calling_line(),
        "tests": {},
        "steps": {},
        "inner": 0,
        "now": 0,
        "depth": 0,
        "result": None,
        "raised": None,
    }
    if len(positional) > len(names):
        record["arguments"] += [["", shown(value)] for value in positional[len(names) :]]
    own.calls.append(record)
    own.depth.record = record
    result: list[Any] = []
    try:
        yield result
    except BaseException as error:
        record["raised"] = [type(error).__name__, str(error)[:MOST_CHARS]]
        raise
    finally:
        own.depth.record = None
        if result:
            record["result"] = shown(result[0])
            record["type"] = type(result[0]).__name__
        after = {name: shown(value) for name, value in values if isinstance(value, list | dict | set | bytearray)}
        before = dict(record["arguments"])
        record["changed"] = {name: text for name, text in after.items() if text != before.get(name) and text}
        record["cut"] = own.events > MOST_EVENTS
        del record["now"]


def _calling_line() -> int | None:
    frame = sys._getframe(2)
    while frame is not None and not (
        frame.f_code.co_filename.startswith("<cell") and frame.f_code.co_name == "<module>"
    ):
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else frame.f_lineno


def watch_requests() -> None:
    """Notes the requests of HTTP clients that the session has imported; test clients of web frameworks are of them."""
    for module, client in (("httpx", "Client"), ("httpx2", "Client"), ("requests", "Session")):
        kind = getattr(sys.modules.get(module), client, None)
        if kind is not None and not hasattr(kind.send, "__wrapped__"):
            kind.send = _watched(kind.send)


def _watched(plain: Function) -> Function:
    @functools.wraps(plain)
    def send(client: Any, request: Any, **options: Any) -> Any:
        own, first = cell, len(cell.calls)
        response = plain(client, request, **options)
        with suppress(Exception):
            sent = request.content if hasattr(request, "content") else request.body or b""
            content = sent.decode() if isinstance(sent, bytes) else str(sent)
            own.requests.append(
                {
                    "request": f"{request.method} {re.sub('^[a-z]+://[^/]*', '', str(request.url)) or '/'}",
                    "headers": [f"{name}: {text}" for name, text in _own_headers(client, request)],
                    "sent": content if len(content) <= MOST_CHARS else None,
                    "status": response.status_code,
                    "body": response.text if len(response.text) <= 2 * MOST_CHARS else None,
                    "location": response.headers.get("location"),
                    "calls": [first, len(own.calls)],
                }
            )
        return response

    return send


def _own_headers(client: Any, request: Any) -> Iterator[tuple[str, str]]:
    """The headers that this request has and the client's others have not, but those that describe its body."""
    usual = {name.lower(): text for name, text in client.headers.items()}
    for name, text in request.headers.items():
        if name.lower() not in ("host", "content-length", "content-type") and usual.get(name.lower()) != text:
            yield name.lower(), text


def failure(error: BaseException, sources: dict[str, ast.Module]) -> Json:
    """Class and message of an exception, and the names that its line reads, with their values."""
    places = []
    step = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if file.startswith("<cell"):
            places.append((file, step.tb_frame, step.tb_lineno))
        step = step.tb_next
    stated: Json = {"name": type(error).__name__, "value": "", "line": None, "function": None, "names": {}}
    with suppress(Exception):
        stated["value"] = str(error)[:300]
    if isinstance(error, SyntaxError):
        stated["line"] = error.lineno
    if not places:
        return stated
    file, frame, line = places[-1]
    stated |= {"line": line, "file": file, "function": frame.f_code.co_name, "outer": [at for _, _, at in places]}
    inner: ast.stmt | None = None
    for node in ast.walk(sources[file]):  # from the outside to the inside
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            inner = node
    if inner is not None:
        heads = [
            getattr(inner, field) for field in ("test", "iter") if hasattr(inner, "body") and hasattr(inner, field)
        ]
        for part in heads or [inner]:
            for node in ast.walk(part):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in stated["names"]:
                    value = frame.f_locals.get(node.id, frame.f_globals.get(node.id, shown))
                    if not callable(value) and not inspect.ismodule(value) and (text := shown(value)) is not None:
                        stated["names"][node.id] = text
    return stated


def _expire(number: int, frame: Any) -> None:
    raise Timeout


_SOURCES: dict[str, ast.Module] = {}


def run(code: str, number: int) -> Json:
    """Runs one cell in the session's namespace; returns what happened. Its failure does not end the session."""
    global cell
    cell = Traced()
    names = sys.modules["__main__"].__dict__
    record: Json = {"number": number, "error": None, "result": None, "stdout": ""}
    file, tables = f"<cell {number}>", {key: described(value) for key, value in names.items() if _is_table(value)}
    before = {key: id(value) for key, value in names.items()}
    out, quiet = io.StringIO(), io.StringIO()
    builtins.__dict__[NAME] = sys.modules[__name__]
    handler = signal.signal(signal.SIGVTALRM, _expire)
    try:
        _SOURCES[file] = ast.parse(code)
        tree = ast.fix_missing_locations(Instrument().visit(ast.parse(code)))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        signal.setitimer(signal.ITIMER_VIRTUAL, CELL_S)
        with redirect_stdout(out), redirect_stderr(quiet):
            watch_requests()
            exec(compile(tree, file, "exec"), names)
            watch_requests()
            if last is not None:
                value = eval(compile(ast.Expression(last.value), file, "eval"), names)
                record["result"] = described(value)
    except BaseException as error:  # noqa: BLE001 (whatever the cell raises, the next one runs)
        with suppress(Exception):
            record["error"] = failure(error, _SOURCES)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
    record |= {"calls": cell.calls, "requests": cell.requests, "tests": cell.tests, "compared": cell.compared}
    record |= {"stdout": out.getvalue()[:4000], "before": {key: value for key, value in tables.items() if value}}
    changed = {k: v for k, v in names.items() if not k.startswith("_") and (before.get(k) != id(v) or k in tables)}
    kept = {key: described(value) for key, value in changed.items()}
    record["variables"] = {key: value for key, value in kept.items() if value}
    return record


def _is_table(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(value, "iloc") and hasattr(value, "dtypes")


def run_all(cells: list[str]) -> str:
    """Runs the cells of a session one after the other, twice from the start; returns what each did, as JSON."""
    return json.dumps([_run_all(cells) for _ in range(2)])


def _run_all(cells: list[str]) -> list[Json]:
    session = types.ModuleType("__main__")
    sys.modules["__main__"] = session
    session.__dict__["display"] = lambda *values, **options: None
    done: list[Json] = []
    began = time.process_time()
    for number, code in enumerate(cells):
        if time.process_time() - began > SESSION_S:
            break
        done.append(run(code, number))
    return done
