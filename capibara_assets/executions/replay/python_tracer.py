"""Tracer of re-executed Python: runs cells, and notes their calls step by step, their requests and their failures.

`python_worker.py` imports it as a script inside the sandbox: it imports the standard library alone, and keeps out of
the session's own names. What a value looks like is its `repr`; a value that has none of its own, or a long one, is not
shown.

An event of a call is a list: `ran` (place, operands, name -> value of what changed), `tested` (place, operands, truth),
`looped` (place, operands, iterable), `turned` (place, targets), `returned` (place, operands, value), `raising`,
`jumped`, `caught` (place), `called` (function, [name, value] of each argument), `ended` (result, exception, operands of
the step that raised). Operands are place -> value of the parts that were evaluated.
"""

import ast
import builtins
import functools
import inspect
import io
import json
import re
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

from python_instrument import NAME, Instrument  # type: ignore[import-not-found,unused-ignore]

CELL_S, SESSION_S = 1.0, 4.0  # CPU seconds of one cell, and of a session's cells before the next one begins
MOST_CALLS, MOST_EVENTS, MOST_STEPS, MOST_CHARS, MOST_ITEMS = 12, 20_000, 90, 160, 60
Json = dict[str, Any]
Function = Callable[..., Any]
_SIZED = (list, tuple, dict, set, frozenset, bytearray)
_CHANGEABLE = (list, dict, set, bytearray)


class Traced:
    """What happened while one cell ran."""

    def __init__(self) -> None:
        self.calls: list[Json] = []
        self.requests: list[Json] = []
        self.events = 0
        self.here = threading.local()  # .record: the outermost call, .frames: those inside it, the innermost last


class Frame:
    """One call under way: what is known of its variables, and the operands of the step that is being evaluated."""

    def __init__(self, known: dict[str, str | None]) -> None:
        self.known = known
        self.operands: dict[str, str] = {}

    def taken(self) -> dict[str, str]:
        operands, self.operands = self.operands, {}
        return operands


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
            with suppress(TypeError):
                return f"{{{', '.join(map(repr, sorted(value)))}}}"
            return f"{{{', '.join(sorted(map(repr, value)))}}}"
        text = repr(value)
        odd = "\n" in text or "..." in text or " at 0x" in text or text.startswith("<")
        return None if odd or len(text) > MOST_CHARS else text
    return None


def _is_small(value: Any) -> bool:
    return not isinstance(value, (str, bytes, *_SIZED)) or len(value) <= MOST_ITEMS


def _frame() -> Frame | None:
    """The innermost frame; None outside of calls, and where a call is longer than is noted."""
    frames = getattr(cell.here, "frames", None)
    return frames[-1] if frames else None


def _note(*event: Any) -> None:
    record = cell.here.record
    if len(record["events"]) < MOST_STEPS:
        record["events"].append(list(event))
    else:
        record["cut"] = True


def value(at: str, given: Any) -> Any:
    """Notes an operand, and gives it."""
    frame = _frame()
    if frame is not None and not cell.here.record["cut"] and not callable(given) and not inspect.ismodule(given):
        text = shown(given)
        if text is not None:
            frame.operands[at] = text
    return given


def items(at: str, given: Iterator[Any]) -> Iterator[Any]:
    """The items of a generator expression, noted as far as they are consumed."""
    frame = _frame()
    if frame is None:
        return given

    def taken() -> Iterator[Any]:
        texts: list[str | None] = []
        for item in given:
            texts.append(shown(item))
            if len(texts) <= MOST_ITEMS and None not in texts:
                frame.operands[at] = ", ".join(filter(None, texts))
            else:
                frame.operands.pop(at, None)
            yield item

    return taken()


def tested(at: str, given: Any) -> Any:
    """Notes a test as true or false, and gives its value."""
    if (frame := _frame()) is not None:
        with suppress(Exception):  # the code itself fails with it, in the next moment
            _note("tested", at, frame.taken(), bool(given))
    return given


def chose(at: str, given: Any) -> Any:
    """Notes the test of a conditional expression, a part of a step whose operands go on."""
    if (frame := _frame()) is not None:
        with suppress(Exception):
            _note("tested", at, dict(frame.operands), bool(given))
    return given


def looped(at: str, given: Any) -> Any:
    """Notes what a loop goes over, and gives it."""
    if (frame := _frame()) is not None:
        _note("looped", at, frame.taken(), shown(given))
    return given


def turned(at: str, names: tuple[str, ...], variables: Json) -> None:
    """Notes a turn of a loop, with the targets' values."""
    if (frame := _frame()) is not None:
        targets = {name: shown(variables[name]) for name in names if name in variables}
        frame.known |= targets
        _note("turned", at, targets)


def ran(at: str, names: tuple[str, ...], variables: Json) -> None:
    """Notes a statement, and those of its variables that changed."""
    frame = _frame()
    if frame is None or cell.here.record["cut"]:
        return
    changed = {}
    for name in names:
        if name in variables and not callable(variables[name]):
            text = shown(variables[name])
            if name not in frame.known or text != frame.known[name]:
                changed[name] = frame.known[name] = text
    _note("ran", at, frame.taken(), changed)


def returned(at: str, given: Any) -> Any:
    """Notes what a function returns, and gives it."""
    if (frame := _frame()) is not None:
        _note("returned", at, frame.taken(), shown(given))
    return given


def raising(at: str) -> None:
    """Notes that an exception is about to be raised."""
    if _frame() is not None:
        _note("raising", at)


def jumped(at: str) -> None:
    """Notes `break` and `continue`."""
    if _frame() is not None:
        _note("jumped", at)


def caught(at: str) -> None:
    """Notes that a handler begins."""
    if (frame := _frame()) is not None:
        frame.taken()
        _note("caught", at)


def wrapped(function: Function) -> Function:
    """The function, whose outermost calls are noted: arguments, result, and what it changed."""
    return _wrapped(function, steps=False)


def followed(function: Function) -> Function:
    """The function, whose calls are noted with their steps."""
    return _wrapped(function, steps=True)


def _wrapped(function: Function, *, steps: bool) -> Function:
    if not inspect.isfunction(function):
        return function
    names = list(inspect.signature(function).parameters)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def running(*positional: Any, **named: Any) -> Any:
            with _noted(function, names, positional, named, steps) as note:
                note.append(await function(*positional, **named))
                return note[0]

        return running

    @functools.wraps(function)
    def calling(*positional: Any, **named: Any) -> Any:
        with _noted(function, names, positional, named, steps) as note:
            note.append(function(*positional, **named))
            return note[0]

    return calling


def _arguments(function: Function, positional: tuple[Any, ...], named: Json) -> dict[str, str | None]:
    """Parameter -> value, with the defaults."""
    with suppress(Exception):
        bound = inspect.signature(function).bind(*positional, **named)
        bound.apply_defaults()
        return {name: shown(each) for name, each in bound.arguments.items()}
    return {}


@contextmanager
def _noted(
    function: Function, names: list[str], positional: tuple[Any, ...], named: Json, steps: bool
) -> Iterator[list[Any]]:
    """Notes one call; the caller puts its result into the list that it gets."""
    own, given = cell, getattr(cell.here, "record", None)
    own.events += 1
    if given is None and (len(own.calls) >= MOST_CALLS or own.events > MOST_EVENTS):
        yield []
        return
    if given is not None:
        with _inside(function, positional, named, steps) as inner:
            yield inner
        return
    values = [*zip(names, positional, strict=False), *named.items()]
    record: Json = {"function": function.__qualname__, "named": sorted(named), "result": None, "raised": None}
    record |= {"arguments": [[name, shown(each)] for name, each in values], "events": [], "cut": not steps}
    record["arguments"] += [["", shown(each)] for each in positional[len(names) :]]
    own.calls.append(record)
    own.here.record, own.here.frames = record, [Frame(_arguments(function, positional, named))]
    result: list[Any] = []
    try:
        yield result
    except BaseException as error:
        record["raised"] = [type(error).__name__, str(error)[:MOST_CHARS]]
        record["operands"] = own.here.frames[-1].taken() if own.here.frames else {}
        raise
    finally:
        own.here.record, own.here.frames = None, []
        if result:
            record["result"] = shown(result[0])
        after = {name: shown(each) for name, each in values if isinstance(each, _CHANGEABLE)}
        before = dict(record["arguments"])
        record["changed"] = {name: text for name, text in after.items() if text != before.get(name) and text}


@contextmanager
def _inside(function: Function, positional: tuple[Any, ...], named: Json, steps: bool) -> Iterator[list[Any]]:
    """Notes a call inside another: with its steps where they are followed, else as one operand of its caller."""
    result: list[Any] = []
    if not steps:
        frames, cell.here.frames = cell.here.frames, []
        try:
            yield result
        finally:
            cell.here.frames = frames
        return
    arguments, raised = _arguments(function, positional, named), None
    _note("called", function.__qualname__, [[name, text] for name, text in arguments.items()])  # in their order
    cell.here.frames.append(Frame(dict(arguments)))
    try:
        yield result
    except BaseException as error:
        raised = [type(error).__name__, str(error)[:MOST_CHARS]]
        raise
    finally:
        frame = cell.here.frames.pop() if cell.here.frames else Frame({})
        _note("ended", shown(result[0]) if result else None, raised, frame.taken() if raised else {})


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


def failure(error: BaseException) -> Json:
    """Class and message of an exception, and the line of the session's code that raised it."""
    stated: Json = {"name": type(error).__name__, "value": "", "line": None, "file": None}
    with suppress(Exception):
        stated["value"] = str(error)[:300]
    step = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if file.startswith("<cell"):
            stated |= {"line": step.tb_lineno, "file": file}
        step = step.tb_next
    return stated


def _expire(number: int, frame: Any) -> None:
    raise Timeout


def run(code: str, number: int) -> Json:
    """Runs one cell in the session's namespace; returns what happened. Its failure does not end the session."""
    global cell
    cell = Traced()
    names = sys.modules["__main__"].__dict__
    record: Json = {"number": number, "error": None, "result": None}
    out, quiet = io.StringIO(), io.StringIO()
    builtins.__dict__[NAME] = sys.modules[__name__]
    handler = signal.signal(signal.SIGVTALRM, _expire)
    try:
        tree = ast.fix_missing_locations(Instrument().visit(ast.parse(code)))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        signal.setitimer(signal.ITIMER_VIRTUAL, CELL_S)
        file = f"<cell {number}>"
        with redirect_stdout(out), redirect_stderr(quiet):
            watch_requests()
            exec(compile(tree, file, "exec"), names)
            watch_requests()
            if last is not None:
                record["result"] = shown(eval(compile(ast.Expression(last.value), file, "eval"), names))
    except BaseException as error:  # noqa: BLE001 (whatever the cell raises, the next one runs)
        with suppress(Exception):
            record["error"] = failure(error)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
    return record | {"calls": cell.calls, "requests": cell.requests, "stdout": out.getvalue()[:4000]}


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
