"""Whether a comment or heading asks for everything the code below does, with the values it depends on.

Such a text was written for readers of the page, about the statements right below it: a cell goes on with other steps,
and takes names, values and keys of data from its author's head.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.comments import is_task
from capibara_assets.datasets.code.effort import steps
from capibara_assets.datasets.code.names import Statement
from capibara_assets.datasets.code.sessions import statements
from capibara_assets.datasets.kinds.libraries import imported
from capibara_assets.datasets.kinds.prompts import stated
from capibara_assets.datasets.kinds.referents import names_as_code
from capibara_assets.executions.parsing import JAVASCRIPT, walk

TOO_LITTLE = "what the comment or heading above its code asks for is hardly anything to do"
BEYOND = "its answer does more than the comment or heading above it says"
MEMBERS = "its answer reads members of its arguments that its prompt does not tell"
INSIDE = "what stands above its code speaks of names inside it"
LIMITS = "its answer compares with numbers that neither its prompt nor its test tells"
CHOSEN = "its answer is made of texts, numbers or keys that its author chose and its prompt does not tell"

_MOST_CHOSEN = 1  # texts, numbers and keys that a reader may guess, such as a limit of rows
_STEM = 4  # letters by which forms of a word are known
_SHORT = 3
_FEWEST_CHOSEN = 20
# codes of characters and answers, parts of a circle, of time and of memory
_USUAL = frozenset((
    *(20, 24, 25, 26, 28, 29, 30, 31, 32, 36, 45, 48, 50, 57, 60, 64, 65, 90, 97, 100, 122, 127, 128, 180, 200, 255),
    *(256, 300, 360, 365, 366, 400, 401, 403, 404, 429, 500, 512, 1000, 1024, 3600, 86400, 10_000, 1_000_000),
))  # fmt: skip
_TELLING = re.compile(r"[^\W\d].*[/\d]|[\d/].*[^\W\d]|.{13}", re.DOTALL)  # a path, an id, a sentence: not to be guessed
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_STEP = re.compile(r"^#+\s*(?P<text>\S.*)$")
_STEPS = {
    "sql": re.compile(r"^--+\s*(?P<text>\S.*)$"),
    **dict.fromkeys(JAVASCRIPT, re.compile(r"^//+\s*(?P<text>\S.*)$")),
}
_PLAIN = re.compile(r"[\W_]+")
_REMARK_WORDS = 15  # of a remark at most: a task may reckon with names of its own
_RECKONED = re.compile(r"[\w$.]+(?:[ \t]*(?:[-+*/%<>=!&|]{1,3})[ \t]*[\w$.]+)+")
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_STANDARD = """__future__ abc bisect cmath collections contextlib copy dataclasses datetime decimal enum fractions
functools heapq itertools json math operator random re statistics string textwrap time types typing unicodedata"""
_PLAIN_MODULES = frozenset(_STANDARD.split())
# of numbers, times, matches, ranges, errors, counters and named tuples
_OF_VALUES = """real imag numerator denominator year month day hour minute second microsecond tzinfo days seconds
microseconds start stop step pattern flags string pos endpos lastindex lastgroup args errno strerror msg maxlen
default_factory _fields"""
_VALUES_MEMBERS = frozenset(_OF_VALUES.split())
_DOING = (
    ast.Call, ast.BinOp, ast.Compare, ast.For, ast.While, ast.comprehension, ast.Subscript, ast.FunctionDef,
    ast.AsyncFunctionDef, ast.ClassDef,
)  # fmt: skip
_OF_ANY = """the and for with from into our your this that these those which will can let use using used set get make
create build define run now then first next new code cell function all one two data value values result results name
list object model load initialize init import show print display need want start some each how what see also"""
_GENERIC = frozenset(_OF_ANY.split())
_OUTPUTS = """print display pprint head tail show shape describe info keys len type savefig close tight_layout legend
title xlabel ylabel plot suptitle figure subplots repr str"""
_SHOWING = frozenset(_OUTPUTS.split())
_FREE = frozenset({"0", "1", "2", "0.0", "1.0", "10", "100", "", " ", "utf-8", "__main__", "r", "w", "rb", "wb"})


def within_task(task: str, answer: str, language: str = "python") -> str:
    """Part of a cell requested by its leading comment: up to the comment of the next step."""
    inside = _inside(answer, language)
    if inside is None:
        return answer
    lines = answer.split("\n")
    for number, line in enumerate(lines, 1):
        step = _STEPS.get(language, _STEP).match(line)
        if step is not None and number > 1 and number not in inside and is_task(step["text"]):
            cut = "\n".join(lines[: number - 1]).rstrip("\n")
            apart = not lines[number - 2].strip() or language == "sql"
            asked, others = _results(task, cut) if language == "python" else _results_by_names(task, cut, language)
            return cut if apart and asked and not others and not (language == "python" and _only_binds(cut)) else answer
    return answer


def _inside(code: str, language: str) -> set[int] | None:
    """The lines within statements, but for their first ones; None of code that cannot be read."""
    if language == "python":
        tree = python_source.parse(code)
        spans = [(n.lineno, n.end_lineno or n.lineno) for n in tree.body] if tree is not None else None
    elif language == "sql":
        ended = [line.split("--")[0].rstrip() for line in code.split("\n")]
        ends = [number for number, text in enumerate(ended, 1) if text.endswith(";")]
        spans = list(zip([0, *ends], [*ends, len(ended) + 1], strict=True))
        spans = [(_first(ended, begin), end) for begin, end in spans]
    else:
        root = javascript_source.parse(code)
        spans = [(n.start_point[0] + 1, n.end_point[0] + 1) for n in root.children if n.type != "comment"]
    return None if spans is None else {n for begin, end in spans for n in range(begin + 1, end + 1)}


def _first(lines: Sequence[str], begin: int) -> int:
    """The number of the first line with code behind line `begin`."""
    return next((number for number, text in enumerate(lines, 1) if number > begin and text.strip()), len(lines) + 1)


def why_beyond_by_names(task: str, answer: str, language: str) -> str | None:
    """Why JavaScript or SQL does more than its comment asks; None if it does not, or unknown."""
    asked, others = _results_by_names(task, answer, language)
    return BEYOND if asked and others else None


def _results_by_names(task: str, answer: str, language: str) -> tuple[int, list[str]]:
    """As `_results`, of statements whose names are known: queries, and what is bound and no later statement needs."""
    listed = statements(answer, language)
    said, plain = _stems(task), _plain(task)
    needed = [
        frozenset[str]().union(*(one.names.needed | one.names.later for one in listed[at:]))
        for at in range(len(listed) + 1)
    ]

    def speaks_of(one: Statement) -> bool:
        text = one.text if language == "sql" else " ".join(one.names.bound) or one.text
        return any(_is_said(word, said) or (len(word) >= _STEM and word in plain) for word in _words(text))

    results = [
        one
        for at, one in enumerate(listed)
        if not (one.names.bound | one.names.changed) & needed[at + 1] and _gives(one, language)
    ]
    return sum(map(speaks_of, listed)), [one.text.split("\n")[0] for one in results if not speaks_of(one)]


def _gives(one: Statement, language: str) -> bool:
    """Whether a statement is a query, or defines something."""
    if language == "sql":
        return re.match(r"\s*(?:select|with)\b", one.text, re.IGNORECASE) is not None
    return bool(one.names.bound - one.names.imported)


def why_beyond(task: str, answer: str, prompt: str, fewest_steps: int) -> str | None:
    """Why an answer does more than its comment or heading asks; None if it does not, or unknown."""
    if steps(answer, "python") <= fewest_steps:  # a call of somebody else's function
        return TOO_LITTLE
    if unasked(task, answer):
        return BEYOND
    return CHOSEN if _only_binds(answer) else why_chosen(answer, prompt)


def why_chosen(answer: str, prompt: str) -> str | None:
    """Why only its author could have written untested Python code; None if others could."""
    own = chosen(answer, prompt)
    return CHOSEN if len(own) > _MOST_CHOSEN or any(map(_TELLING.search, own)) else None


def why_limits(answer: str, told: str) -> str | None:
    """Why only its author could have written Python code that compares with numbers; None if others could.

    Args:
        told: the prompt and the test.
    """
    tree = python_source.parse(answer)
    compared = (node for node in walk(tree) if isinstance(node, ast.Compare)) if tree is not None else ()
    numbers = {
        part.value
        for node in compared
        for part in (node.left, *node.comparators)
        if isinstance(part, ast.Constant) and isinstance(part.value, int | float)
    }
    said = set(re.findall(r"\d+(?:\.\d+)?", told))
    return (
        LIMITS if any(one >= _FEWEST_CHOSEN and one not in _USUAL and str(one) not in said for one in numbers) else None
    )


def why_inside(task: str, answer: str, signature: str) -> str | None:
    """Why a text above a definition is a remark on its inside: it reckons with names that only the code binds."""
    if not signature or is_task(task) or len(task.split()) > _REMARK_WORDS:
        return None
    reckoned = {name for span in _RECKONED.findall(task) for name in _NAME.findall(span)}
    own = set(_NAME.findall(answer)) - set(_NAME.findall(signature))
    return INSIDE if len(reckoned & own) > 1 else None


def why_members(answer: str, prompt: str) -> str | None:
    """Why Python code is about objects of a form that its prompt does not tell; None if it tells, or unknown.

    What libraries and the code's own classes hold is known to whoever writes it.
    """
    tree = python_source.parse(answer)
    if tree is None:
        return None
    nodes = [node for top in tree.body for node in walk(top)]
    shown = (line for line in prompt.split("\n") if line.startswith(("import ", "from ")))
    modules = imported(answer).union(*map(imported, shown))
    if not modules <= _PLAIN_MODULES:
        return None
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    inner = [node for top in tree.body if isinstance(top, python_source.Definition) for node in walk(top)]
    assigned = (node for node in inner if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr))
    handed = {name for node in inner for name in _handed(node)} - {"self", "cls"}
    handed -= {name for node in assigned for name in python_source.bindings(node)}
    read = {
        node.attr for node in inner
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in called
        if not node.attr.startswith("__") and not handed.isdisjoint(python_source.base(node))
    }  # fmt: skip
    made = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    made |= {
        name
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for one in node.body
        for name in python_source.bindings(one)
    }
    made |= {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    said = stated(prompt)
    told = set(_NAME.findall("\n".join([prompt.replace(said, ""), *texts]))) | names_as_code(said)
    return MEMBERS if read - made - told - _VALUES_MEMBERS else None


def _handed(node: ast.AST) -> Iterator[str]:
    """The names of what is handed to a function or taken out of something in turn."""
    if isinstance(node, python_source.Function | ast.Lambda):
        yield from (one.arg for one in python_source.parameters(node))
    elif isinstance(node, ast.For | ast.comprehension):
        yield from python_source.bindings(node.target)


def unasked(task: str, answer: str) -> list[str]:
    """Results of Python code that its task does not mention: final bindings, definitions and calls.

    A single result is what the task asks for in other words, unless it speaks of a step on the way there.
    """
    asked, others = _results(task, answer)
    return others if asked or len(others) > 1 else []


def _results(task: str, answer: str) -> tuple[int, list[str]]:
    """(steps of Python code of which its task speaks, results of which it does not)."""
    tree = python_source.parse(answer)
    if tree is None:
        return 0, []
    said, plain = _stems(task), _plain(task)
    made: dict[str, set[str]] = {}  # name -> words of what made it
    for node in tree.body:
        words = _words_of(node, made)
        for name in python_source.bindings(node):
            made[name] = made.get(name, set()) | words
    effects = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    results = [
        node for at, node in enumerate(effects) if not _is_read(node, effects[at + 1 :]) and not _shows(node, made)
    ]

    def speaks_of(node: ast.stmt) -> bool:
        words = _words_of(node, made)
        return any(_is_said(word, said) or (len(word) >= _STEM and word in plain) for word in words)

    return sum(map(speaks_of, effects)), [ast.unparse(node).split("\n")[0] for node in results if not speaks_of(node)]


def _is_read(node: ast.stmt, later: Sequence[ast.stmt]) -> bool:
    """Whether what a statement binds is read by a later one: it is a step on the way."""
    bound = set(python_source.bindings(node)) | set(_changed(node))
    read = {n.id for one in later for n in walk(one) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return bool(bound & read)


def _changed(node: ast.stmt) -> Iterator[str]:
    """The variable at the root of what a statement stores into or calls."""
    if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node.value)]:
            while isinstance(target, ast.Attribute | ast.Subscript | ast.Call | ast.Await):
                target = target.func if isinstance(target, ast.Call) else target.value
            if isinstance(target, ast.Name):
                yield target.id


def _shows(node: ast.stmt, made: dict[str, set[str]]) -> bool:
    """Whether a statement shows what others made, or is a text that stands for itself."""
    if not isinstance(node, ast.Expr):
        return False
    value = node.value
    names = {python_source.called_name(n) for n in walk(value) if isinstance(n, ast.Call)}
    roots = python_source.names_in(value)
    return isinstance(value, ast.Constant) or (names <= _SHOWING and bool(roots & made.keys()))


def _words_of(node: ast.stmt, made: dict[str, set[str]]) -> set[str]:
    """Words of a statement: what it binds and calls, its texts, and of earlier results it works on what made them.

    What a call is given says nothing of what comes out, nor does the inside of a definition.
    """
    words: set[str] = set()
    pending: list[ast.AST] = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, python_source.Definition):
            words |= _words(part.name)
            continue
        if isinstance(part, ast.Name):
            words |= made.get(part.id, set()) if isinstance(part.ctx, ast.Load) and part.id in made else _words(part.id)
        elif isinstance(part, ast.Attribute):
            words |= _words(part.attr)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            words |= _words(part.value)
        given = _given(part) if isinstance(part, ast.Call) else ()
        pending += [one for one in ast.iter_child_nodes(part) if one not in given]
    return words


def _given(call: ast.Call) -> list[ast.AST]:
    """Names that a call is given, bare or by keyword."""
    keywords = [one for one in call.keywords if isinstance(one.value, ast.Name)]
    return [*(one for one in call.args if isinstance(one, ast.Name | ast.List | ast.Starred)), *keywords]


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text) if len(word) >= _SHORT}


def _stems(task: str) -> set[str]:
    words = _words(task)
    return {word[:_STEM] for word in words - _GENERIC or words}


def _is_said(word: str, said: set[str]) -> bool:
    return word not in _GENERIC and word[:_STEM] in said


def _only_binds(answer: str) -> bool:
    """Whether code does no more than give names to constants."""
    tree = python_source.parse(answer)
    return tree is not None and not any(isinstance(n, _DOING) for node in tree.body for n in walk(node))


def chosen(answer: str, prompt: str) -> set[str]:
    """Texts, numbers and keys of Python code that are not in its prompt; purely displayed ones do not count."""
    tree = python_source.parse(answer)
    if tree is None:
        return set()
    told, known = _plain(prompt), set(re.findall(r"\d+(?:\.\d+)?", prompt))
    shown = {id(part) for node in walk(tree) if _is_label(node) for part in walk(node)}
    values = set[str]()
    for node in walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in shown or isinstance(node.value, bool | bytes):
            continue
        if isinstance(node.value, str):
            text = _plain(node.value)
            values |= {node.value} if len(text) > 1 and text not in told and node.value not in _FREE else set()
        elif isinstance(node.value, int | float) and str(node.value) not in known | _FREE:
            values.add(str(node.value))
    return values


def _is_label(node: ast.AST) -> bool:
    """Whether what a node holds is for readers: an output, a label, an error's message, a docstring."""
    if isinstance(node, ast.Call):
        name = python_source.called_name(node)
        return name in _SHOWING or name.startswith(("set_", "log", "warn")) or name.endswith(("Error", "Exception"))
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _plain(text: str) -> str:
    return _PLAIN.sub("", text.lower())
