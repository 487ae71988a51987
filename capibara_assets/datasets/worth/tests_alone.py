"""Tasks that a test alone tells: whether it says enough of what is asked."""

import ast
import math
import re

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.effort import steps
from capibara_assets.datasets.code.python_source import called_name
from capibara_assets.datasets.code.sessions import cell_names
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import SESSION, SIGNATURE, TESTS, sections, stated, states_task
from capibara_assets.datasets.schema import CODE_KINDS
from capibara_assets.executions.parsing import JAVASCRIPT, walk

READS_UNTOLD = "its test reads a name that neither its prompt nor its answer binds"
OWN_NAME = "its test reads a name that its prompt does not speak of, which its answer alone binds"
SAYS_NOTHING = "its test compares nothing, and nothing else says what is asked"
BARE_VARIABLE = "its test begins with the value of a variable, and nothing else says what is asked"
NOT_SHOWN = "no test shows what its signature names, and nothing else says what is asked"
NAMELESS = "the name of what its test calls says nothing, nor does anything else say what is asked"
ONE_CASE = "one case is all that says what is asked"
ONE_TRUTH = "all cases of its test have the same truth, and nothing else says what is asked"
FEW_CASES = "two cases are all that says what a long answer is to do"
FIXTURE = "its test asks a query or function of its own about rows that only the answer's author knew"
BREAKS_OFF = "its task ends with a colon: what stood below is not in the log"
UNJUDGED = "no test judges its answer"

_HEADED = re.compile(r"^(?:async )?(?:def|class|function) (\w+)", re.MULTILINE)
_BROKEN_OFF = re.compile(r"^(?!\s*(?:async )?(?:def|class|for|while|if|with)\b).*:\Z", re.MULTILINE)  # no line of code
_DECLARED = re.compile(r"\b(?:def|class|function|const|let|var) (\w+)")
_DEFINES = re.compile(r"\b(?:function|class)\b|=>")
#: Names that people and generators of tasks give to any function.
_ANY_NAME = re.compile(
    r"(?:my|task|test|some|user|main)?_?"
    r"(?:func(?:tion)?|fn|f|g|foo|bar|baz|method|solution|solve|main|run|candidate|answer)_?\d*",
    re.IGNORECASE,
)
_FEW, _LONG = 2, 16  # cases, and steps of an answer that they cannot tell
_ASKS_SERVER = re.compile(r"\bclient\b|\.invoke\(|status")  # an answer of a server says much at once
_FIXTURE = re.compile(r"\bCREATE TABLE\b.*\bINSERT INTO\b", re.IGNORECASE | re.DOTALL)
_JUDGES = (ast.Compare, ast.With, ast.AsyncWith, ast.Raise)


def lacks_a_task(candidate: ExampleCandidate) -> str | None:
    """Why the tests of an answer do not say what is asked or do not judge it; None otherwise."""
    if candidate.kind not in CODE_KINDS or candidate.language not in ("python", *JAVASCRIPT):
        return None
    titled = dict(sections(candidate.prompt))
    shown, is_told = titled.get(TESTS, ""), states_task(candidate.prompt)
    if candidate.kind != "repair" and not is_told and set(_HEADED.findall(titled.get(SIGNATURE, ""))) - _words(shown):
        return NOT_SHOWN
    if candidate.kind != "repair" and not is_told and _is_nameless(titled.get(SIGNATURE, ""), shown):
        return NAMELESS
    if candidate.kind != "repair" and is_told and not shown and _BROKEN_OFF.search(stated(candidate.prompt).rstrip()):
        return BREAKS_OFF
    if candidate.language != "python":
        unjudged = candidate.kind != "repair" and not candidate.test and _DEFINES.search(candidate.answer)
        return UNJUDGED if unjudged else None
    if not shown:
        return None
    if (read := _unbound(shown, candidate.answer, titled.get(SESSION, ""))) is not None:
        return read
    if candidate.kind == "repair" or is_told or (tree := python_source.parse(shown)) is None:
        return None
    if (few := _too_few(tree)) is not None:
        return few
    if _cases_of(tree) <= _FEW and steps(candidate.answer, "python") > _LONG and not _ASKS_SERVER.search(shown):
        return FEW_CASES
    first = next((node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)), None)
    compared = first.test if isinstance(first, ast.Assert) else None
    literal = isinstance(compared, ast.Compare) and isinstance(compared.left, ast.Name)
    return BARE_VARIABLE if literal and python_source.is_literal(compared.comparators[0]) else None  # type: ignore[union-attr]


def reads_own_name(candidate: ExampleCandidate) -> bool:
    """Whether the test of a repair asks for a value that only its answer has a name for."""
    test, own = (cell_names(code, "python") for code in (candidate.test or "", candidate.answer))
    if candidate.failing is None or candidate.language != "python" or test is None or own is None:
        return False
    return bool((test.needed & own.bound) - _words(candidate.prompt))


def is_fixture(candidate: ExampleCandidate) -> bool:
    """Whether an answer that no words ask for is a database with rows: its test knows what they have to be."""
    told = states_task(candidate.prompt) or candidate.kind != "solve"
    return not told and _FIXTURE.search(candidate.answer) is not None


def _too_few(tree: ast.Module) -> str | None:
    """Why the cases of a test leave open what is asked: none compares, there is one, or all have the same truth."""
    judging = _judging(tree)
    truths = {_truth(node) for node in judging}
    compares = any(isinstance(node, _JUDGES) or _asserts(node) for node in walk(tree))
    if not compares and not {True, False} <= truths:
        return SAYS_NOTHING
    if _cases_of(tree) == 1:
        return ONE_CASE
    return ONE_TRUTH if len(truths) == 1 and None not in truths else None


def _judging(tree: ast.Module) -> list[ast.AST]:
    return [node for node in walk(tree) if isinstance(node, ast.Assert | ast.With) or _asserts(node)]


def _cases_of(tree: ast.Module) -> float:
    """How many cases a test holds; no number where it goes through a list of them."""
    loops = any(isinstance(node, ast.For | ast.comprehension) for node in walk(tree))
    return math.inf if loops else len(_judging(tree))


def _truth(node: ast.AST) -> bool | None:
    """The truth that an assertion expects of a call; None for one that compares."""
    tested = node.test if isinstance(node, ast.Assert) else None
    match tested:
        case ast.Call():
            return True
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call()):
            return False
        case ast.Compare(left=ast.Call(), ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=bool(value))]):
            return value
    return None


def _is_nameless(signature: str, shown: str) -> bool:
    """Whether all that a test calls of a signature has a name that anything could have."""
    called = set(_DECLARED.findall(signature)) & _words(shown)
    return bool(called) and all(_ANY_NAME.fullmatch(name) for name in called)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _unbound(shown: str, answer: str, session: str) -> str | None:
    names = [cell_names(code, "python") for code in (shown, answer, session)]
    test, own, earlier = names
    if test is None or own is None or not all(one is None or one.exact for one in names):
        return None
    bound = own.bound | (earlier.bound if earlier is not None else frozenset())
    return READS_UNTOLD if test.needed - bound - python_source.BUILTINS - python_source.IPYTHON else None


def _asserts(node: ast.AST) -> bool:
    """Whether a call compares what it is given: `case.assertEqual(f(2), 4)`, `assert_allclose(x, y)`."""
    return isinstance(node, ast.Call) and called_name(node).startswith("assert") and bool(node.args)
