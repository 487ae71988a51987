"""Whether an example is worth learning: work to do, a real task, and no knowledge of its author alone.

Judged by the texts alone. That an answer is right is judged by running it (executing.py, agreement/fitted.py).
"""

import ast
import copy
import re

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.cases import cases
from capibara_assets.datasets.code.effort import TRIVIAL, is_call, steps
from capibara_assets.datasets.code.queries import holds_sql
from capibara_assets.datasets.code.structure import located_tokens
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import (
    CODE,
    ERROR,
    SESSION,
    SIGNATURE,
    TESTS,
    section,
    sections,
    stated,
    states_task,
)
from capibara_assets.datasets.schema import CODE_KINDS
from capibara_assets.datasets.worth import javascript
from capibara_assets.datasets.worth.leftovers import left_over
from capibara_assets.datasets.worth.outputs import shows_too_little
from capibara_assets.datasets.worth.own_tests import HOLDS_TEST, holds_test, javascript_holds_test
from capibara_assets.datasets.worth.predictions import unworthy_output
from capibara_assets.datasets.worth.queries import unworthy_query
from capibara_assets.datasets.worth.query_leniency import lenient
from capibara_assets.datasets.worth.query_tasks import mismatched
from capibara_assets.datasets.worth.rewrites import changes_others, selects_else, wraps_former, written_anew
from capibara_assets.datasets.worth.tests_alone import FIXTURE, OWN_NAME, is_fixture, lacks_a_task, reads_own_name
from capibara_assets.datasets.worth.unseen_data import needs_unseen_data
from capibara_assets.executions.parsing import JAVASCRIPT, walk
from capibara_assets.executions.secrets.redact import PLACEHOLDER

UNTOLD = "its answer is made of texts or data that its prompt does not tell"
CONTRADICTED = "the examples of its task contradict its test"
ANOTHER = "its answer defines something else than its task names"
ERROR_ELSEWHERE = "its error names what neither its code nor its answer holds: its test failed by itself"
DELETES = "its repair only deletes the line that failed"
NO_EFFECT = "its code holds a statement without effect"
REPLACES = "its test puts another method in the place of one of the answer"
MISREAD = "its test compares only a part of what it expects: the rest is the assertion's message"
NO_SUCCESS = "its test sees only requests that fail"
UNASKED = "its answer serves what its prompt never asks for"
INPUT_ONLY = "its repair changes input data, not code"
OVERWRITTEN = "its test reads a name that the code sets more than once"
IMPORT_ONLY = "its repair only adds the import of what its error names, and there is nothing else to understand"
OTHER_METHOD = "its answer does not use what its task says to use"
NO_NUMBER = "its answer showed nan or infinity, of which its prompt says nothing"
GARBLED = "its task says the same words three times in a row: remains of a page"
REPLACED = "a secret was replaced in it, with which its code does something else"

_LONG_TEXT, _MOST_UNTOLD, _MOST_NUMBERS, _MOST_FOREIGN = 25, 200, 8, 4
_ROUTE = re.compile(r"^@\w+\.\w+\(\s*[\"'](/[^\"']*)[\"']", re.MULTILINE)
_NAMED = re.compile(r"^[ \t]*(?:async +)?def +(\w+) *\(|^[ \t]*assert +(?:not +)?(\w+)\(", re.MULTILINE)
_DEFINES = re.compile(r"\b(def|class|lambda|function)\b|=>")
_LITERAL = re.compile(r"^(?:[rbfuRBFU]{0,2}['\"`]|\d)")
_FILE = re.compile(
    r"(?:https?://\S+|[\w./~-]+\.(?:txt|[ct]sv|jsonl?|xml|ya?ml|parquet|xlsx?|db|sqlite|zip|gz|png|jpe?g|wav|pkl|np[yz]|pt|h5))$"
)
_WRITES = re.compile(r"\bopen\([^()\n]*,\s*(?:mode=)?[\"'][wxa]|\.to_\w+\(|\bdump\(|\b(?:sav|writ)e")
_FIRST_FAILURE = 400  # of HTTP's statuses
_FEWEST_OF_TABLE, _FEWEST_STATEMENTS = 3, 2
_NAN = re.compile(r"(?<![\w'\"])-?(?:nan|inf)\b")  # as Python and numpy print numbers; tables of pandas have NaN
_ON_NAN = re.compile(r"\b(?:nans?|inf|infin\w+|missing|null|none|empty|undefined|overflow\w*|zero)\b", re.IGNORECASE)
_STATUS = re.compile(r"assert\s+[\w.]+\.status_code\s*==\s*(\d{3})")
_ON_TESTS = re.compile(r"\b(?:unit)?tests?\b|\bassert", re.IGNORECASE)
_REGEX = r"\bre\.|\bregex|RegExp|/[^/\n]+/[gimsuy]*"
_METHODS = {  # what a task names -> what code that uses it holds
    "heapq": r"heap", "heap queue": r"heap", "lambda": r"\blambda\b|=>", "itertools": r"itertools|\bfunction\*",
    "collections": r"collections|\bMap\b", "counter": r"Counter|\bMap\b", "defaultdict": r"defaultdict",
    "regex": _REGEX, "regular expression": _REGEX, "bisect": r"bisect", "numpy": r"numpy|\bnp\.", "deque": r"deque",
    "functools": r"functools", "map": r"\bmap\b", "filter": r"\bfilter\b", "reduce": r"\breduce",
}  # fmt: skip
_WITH = re.compile(
    rf"\b(?:using|with(?: the)? help of|by means of)\s+(?:the |an? |python'?s? )*({'|'.join(_METHODS)})s?\b",
    re.IGNORECASE,
)
_ALGORITHM = re.compile(
    r"\b(?:heap|merge|bubble|insertion|selection|quick|radix|counting|shell|comb|gnome|cocktail|pancake)[ _-]?sort\b|"
    r"\bheap ?queue",
    re.IGNORECASE,
)
_OWN_SORT = re.compile(r"\bsorted\(|\.(?:s|toS)ort(?:ed)?\(")  # the language's
_STUTTER = re.compile(r"(\b[A-Za-z]+(?: [A-Za-z]+){1,3}\b)(?:[ ,*]+\1\b){2}")
_IMPORTS = re.compile(r"^[ \t]*(?:import|from)\b.*$", re.MULTILINE)
_REPLACES = re.compile(r"^[A-Z]\w*\.(\w+) = \1$", re.MULTILINE)
_UNBOUND = re.compile(r"(?:NameError: name '|ReferenceError: )([\w$]+)'? is not defined")
_REQUIRES = re.compile(r"(?:const|let|var)\s[\w${},\s]++=\s*require\(|import\s")


def unworthy(candidate: ExampleCandidate, fewest_steps: int) -> str | None:
    """Why an example is not worth learning, or cannot be answered; None if it is worth learning.

    Args:
        fewest_steps: of code that is worth writing or reading (`steps`).
    """
    if re.search(PLACEHOLDER, f"{candidate.prompt}\n{candidate.answer}\n{candidate.test or ''}"):
        return REPLACED
    if _STUTTER.search(stated(candidate.prompt)):
        return GARBLED
    if (why := mismatched(candidate) or shows_too_little(candidate) or written_anew(candidate)) is not None:
        return why
    if candidate.language == "sql":
        return unworthy_query(candidate) or lenient(candidate) or selects_else(candidate)
    if is_fixture(candidate):
        return FIXTURE
    queries = candidate.kind in CODE_KINDS and holds_sql(candidate.answer, candidate.language)
    if queries and (candidate.kind != "repair" or unworthy_query(candidate) is not None):
        return unworthy_query(candidate)
    if candidate.language != "python" and candidate.language not in JAVASCRIPT:
        return None
    if candidate.language in JAVASCRIPT and (why := _unworthy_javascript(candidate)):
        return why
    if candidate.kind == "predict":
        return unworthy_output(candidate, fewest_steps)
    if candidate.kind not in CODE_KINDS:
        return None
    if _misread(candidate.test or "", candidate.language):
        return MISREAD
    if _is_contradicted(candidate):
        return CONTRADICTED
    if _REPLACES.search(candidate.test or ""):
        return REPLACES
    if candidate.language == "python" and _defines_another(candidate):
        return ANOTHER
    if _holds_test(candidate):
        return HOLDS_TEST
    if _lacks_method(stated(candidate.prompt), candidate.answer):
        return OTHER_METHOD
    if candidate.language == "python" and _holds_idle(candidate.answer):
        return NO_EFFECT
    if candidate.language == "python" and (why := wraps_former(candidate.answer)) is not None:
        return why
    if candidate.kind == "repair":
        why = _unworthy_repair(candidate) or changes_others(candidate) or needs_unseen_data(candidate)
        return why or (OWN_NAME if reads_own_name(candidate) else None) or lacks_a_task(candidate)
    if _DEFINES.search(candidate.answer) and steps(candidate.answer, candidate.language) < fewest_steps:
        return TRIVIAL
    if _overflows(candidate):
        return NO_NUMBER
    if _only_fails(section(candidate.prompt, TESTS)):
        return NO_SUCCESS
    if candidate.language in JAVASCRIPT and (
        why := javascript.unfit_to_ask_for(candidate.answer, candidate.prompt, candidate.test or "")
    ):
        return why
    if any(path.partition("{")[0] not in candidate.prompt for path in _ROUTE.findall(candidate.answer)):
        return UNASKED
    if (why := left_over(candidate.answer, candidate.language)) is not None:
        return why
    return UNTOLD if _untold(candidate) else lacks_a_task(candidate)


def _holds_test(candidate: ExampleCandidate) -> bool:
    if _ON_TESTS.search(stated(candidate.prompt)):
        return False  # they may be what is asked for
    if candidate.language != "python":
        return javascript_holds_test(candidate.answer)
    return holds_test(candidate.answer, shown=candidate.kind == "repair")


def _unworthy_javascript(candidate: ExampleCandidate) -> str | None:
    judged = f"{_code_of(candidate)}\n{section(candidate.prompt, TESTS)}"
    why = javascript.senseless(judged)
    if why is None and candidate.kind in CODE_KINDS:
        why = javascript.careless(candidate.answer, candidate.prompt)
    return why


def _only_fails(test: str) -> bool:
    """Whether every request in a test of a server fails: nothing then says what a successful answer holds."""
    statuses = [int(status) for status in _STATUS.findall(test)]
    return bool(statuses) and min(statuses) >= _FIRST_FAILURE


def _lacks_method(task: str, answer: str) -> bool:
    """Whether a task says what to solve it with, a module, function, way or algorithm, and an answer does without."""
    asked = [_METHODS[name.lower()] for name in _WITH.findall(task)]
    sorts_itself = _OWN_SORT.search(answer) is not None and "heapq" not in answer
    lacks = any(re.search(used, answer, re.IGNORECASE) is None for used in asked)
    return lacks or (sorts_itself and _ALGORITHM.search(task) is not None)


def _code_of(candidate: ExampleCandidate) -> str:
    if candidate.kind in CODE_KINDS:
        return candidate.answer
    return f"{section(candidate.prompt, SESSION)}\n{section(candidate.prompt, CODE)}"


def _overflows(candidate: ExampleCandidate) -> bool:
    """Whether what an answer showed is no number, of which its prompt says nothing."""
    return _NAN.search(candidate.proof or "") is not None and _ON_NAN.search(candidate.prompt) is None


def _holds_idle(code: str) -> bool:
    """Whether a function holds an expression that does nothing, such as a value that it was to return."""
    for function in python_source.nodes(code):
        if isinstance(function, python_source.Function):
            for node in walk(function):
                if isinstance(node, ast.Expr) and node is not function.body[0]:
                    value = node.value
                    if isinstance(value, ast.Compare | ast.Name | ast.BinOp):
                        return True
                    if isinstance(value, ast.Constant) and not isinstance(value.value, str) and value.value is not ...:
                        return True
    return False


def _misread(test: str, language: str) -> bool:
    """Whether an assertion's message is a value: `assert f(x) == 1, 2` was meant to compare a pair."""
    return (
        language == "python"
        and "assert" in test
        and any(
            isinstance(node, ast.Assert)
            and (isinstance(node.msg, ast.UnaryOp | ast.List | ast.Tuple | ast.Dict) or _is_number(node.msg))
            for node in python_source.nodes(test)
        )
    )


def _is_contradicted(candidate: ExampleCandidate) -> bool:
    """Whether the prose of a prompt expects another list or truth of a call than its test."""
    shown = dict(sections(candidate.prompt)).get(TESTS, "")
    asserted = {case.arguments: case.expected for case in cases(f"{shown}\n{candidate.test or ''}")}
    return any(
        case.expected != other
        and (
            {case.expected, other} == {"true", "false"}
            or (case.expected[:1] == "[" == other[:1] and case.expected.count(",") == other.count(","))
        )
        for case in cases(stated(candidate.prompt))
        if (other := asserted.get(case.arguments)) is not None
    )


def _defines_another(candidate: ExampleCandidate) -> bool:
    """Whether a task gives the head of a function, or a call that has to come true, and its answer defines others."""
    named = {name for groups in _NAMED.findall(stated(candidate.prompt)) for name in groups if name}
    nodes = python_source.nodes(candidate.answer) if named else ()
    own = {node.name for node in nodes if isinstance(node, python_source.Definition)}
    return bool(own) and not named & own


def _is_number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, str)


def _untold(candidate: ExampleCandidate) -> bool:
    """Whether an answer holds much that only its author knew: one asked for by tests alone, or that no test judges."""
    texts, numbers = _literals(candidate.answer, candidate.language)
    rest = candidate.prompt.partition("\n\n")[2]
    if not states_task(candidate.prompt) and rest.startswith((SIGNATURE, TESTS)):
        foreign = {text for text in (*texts, *numbers) if text.strip() and text not in candidate.prompt}
        return len(foreign) >= _MOST_FOREIGN and not _ROUTE.search(candidate.answer)
    if candidate.test:
        return False
    if candidate.language == "python" and _holds_records(candidate.answer, candidate.prompt):
        return True
    if not _WRITES.search(candidate.answer) and any(_FILE.match(t) and t not in candidate.prompt for t in texts):
        return True
    long = sum(len(text) for text in texts if len(text) >= _LONG_TEXT and text not in candidate.prompt)
    return long > _MOST_UNTOLD or sum(number not in candidate.prompt for number in numbers) >= _MOST_NUMBERS


def _holds_records(code: str, prompt: str) -> bool:
    """Whether code binds several records at its top whose texts the prompt does not tell."""
    tree = python_source.parse(code)
    bound = [node.value for node in (tree.body if tree is not None else ()) if isinstance(node, ast.Assign)]
    records = [node for value in bound for node in walk(value) if isinstance(node, ast.Dict)]
    texts = [
        [v.value for v in one.values if isinstance(v, ast.Constant) and isinstance(v.value, str)] for one in records
    ]
    return sum(any(text not in prompt for text in listed) for listed in texts) > 1


def _literals(code: str, language: str) -> tuple[list[str], list[str]]:
    """(contents of texts, numbers of more than one digit) of a program."""
    tokens = [token for token, _, _ in located_tokens(code, language)]
    texts = [t.lstrip("rbfuRBFU").strip("'\"`") for t in tokens if t.lstrip("rbfuRBFU")[:1] in ("'", '"', "`")]
    return texts, [t for t in tokens if t[0].isdigit() and len(t) > 1]


def _unworthy_repair(candidate: ExampleCandidate) -> str | None:
    if _only_imports(candidate):
        return IMPORT_ONLY
    if _only_deletes(candidate):
        return DELETES
    missing = _UNBOUND.search(section(candidate.prompt, ERROR))
    used = _IMPORTS.sub("", f"{candidate.failing}\n{candidate.answer}")
    if missing and missing[1] not in re.findall(r"[\w$]+", used):
        return ERROR_ELSEWHERE
    given_only = candidate.failing and not _DEFINES.search(candidate.answer)
    if given_only and (_changes_input(candidate) or (candidate.language == "python" and _changes_table(candidate))):
        return INPUT_ONLY
    return OVERWRITTEN if candidate.language == "python" and _is_overwritten(candidate) else None


def _only_imports(candidate: ExampleCandidate) -> bool:
    """Whether all that a repair adds are imports of what its error names, of a module by its name or for one statement.

    To know where a name comes from is to know something; that `json` is missing stands in the error.
    """
    missing = _UNBOUND.search(section(candidate.prompt, ERROR))
    if missing is None or candidate.failing is None:
        return False
    before, after = ([one.strip() for one in code.split("\n")] for code in (candidate.failing, candidate.answer))
    added = [line for line in after if line and line not in before]
    if not added or [line for line in before if line] != [line for line in after if line and line in before]:
        return False
    if candidate.language != "python":
        return all(map(_REQUIRES.match, added)) and any(missing[1] in line for line in added)
    trees = [python_source.parse(line) for line in added]
    imports = [node for tree in trees for node in (tree.body if tree is not None else [None])]
    if not all(isinstance(node, ast.Import | ast.ImportFrom) for node in imports):
        return False
    bound = {alias.asname or alias.name for node in imports for alias in node.names}  # type: ignore[union-attr]
    tree = python_source.parse(candidate.answer)
    rest = [
        node for node in (tree.body if tree is not None else []) if not isinstance(node, ast.Import | ast.ImportFrom)
    ]
    simple = len(rest) < _FEWEST_STATEMENTS and not any(isinstance(node, python_source.Definition) for node in rest)
    return missing[1] in bound and (simple or all(isinstance(node, ast.Import) for node in imports))


def _only_deletes(candidate: ExampleCandidate) -> bool:
    """Whether all that a repair does is to delete lines, one of which is that of the error."""
    before, after = (
        [one.strip() for one in code.split("\n") if one.strip()] for code in (candidate.failing or "", candidate.answer)
    )
    if not before or len(after) >= len(before) or any(one not in before for one in after):
        return False
    error = {one.strip().partition(": ")[2] or one.strip() for one in section(candidate.prompt, ERROR).split("\n")}
    gone = [one for one in before if one not in after]
    return any(one in error or any(line.endswith(one) for line in error) for one in gone)


def _changes_input(candidate: ExampleCandidate) -> bool:
    """Whether all the code is one call, or only literals differ, and what is new is what the test expects."""
    before, after = (
        [token for token, _, _ in located_tokens(code, candidate.language)]
        for code in (candidate.failing or "", candidate.answer)
    )
    new = [b for a, b in zip(before, after, strict=False) if a != b]
    if is_call(candidate.answer):
        return True
    if len(before) != len(after) or not new or not all(map(_LITERAL.match, new)):
        return False
    shown = candidate.prompt.rpartition("\n\nCode:\n")[2].partition(f"\n\n{TESTS}\n")[2]
    return all(token in shown for token in new)


def _changes_table(candidate: ExampleCandidate) -> bool:
    """Whether all that differs are values of written tables: which ones are right, only their author knows."""
    before, after = python_source.parse(candidate.failing or ""), python_source.parse(candidate.answer)
    if before is None or after is None:
        return False
    return ast.dump(before) != ast.dump(after) and _but_tables(before) == _but_tables(after)


def _but_tables(tree: ast.Module) -> str:
    """The tree as text, with 0 for each constant of a list or dictionary that holds several and nothing else."""
    own = copy.deepcopy(tree)
    for node in walk(own):
        parts = node.elts if isinstance(node, ast.List) else node.values if isinstance(node, ast.Dict) else []
        constants = [part for part in parts if isinstance(part, ast.Constant)]
        if len(constants) == len(parts) >= _FEWEST_OF_TABLE:
            for part in constants:
                part.value = 0
    return ast.dump(own)


def _is_overwritten(candidate: ExampleCandidate) -> bool:
    code, test = python_source.parse(candidate.answer), python_source.parse(candidate.test or "")
    if code is None or test is None or _DEFINES.search(candidate.answer):
        return False
    targets = [
        t.id for node in code.body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)
    ]
    return any(targets.count(name) > 1 for name in python_source.names_in(test))
