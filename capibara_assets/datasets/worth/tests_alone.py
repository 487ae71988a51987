"""Tasks that a test alone tells: whether it says enough of what is asked."""

import ast
import builtins
import re

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.python_source import called_name
from capibara_assets.datasets.code.sessions import cell_names
from capibara_assets.datasets.code.structure import JAVASCRIPT
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import SESSION, SIGNATURE, TESTS, sections, states_task
from capibara_assets.datasets.schema import CODE_KINDS
from capibara_assets.executions.parsing import walk

READS_UNTOLD = "its test reads a name that neither its prompt nor its answer binds"
SAYS_NOTHING = "its test compares nothing, and nothing else says what is asked"
BARE_VARIABLE = "its test begins with the value of a variable, and nothing else says what is asked"
NOT_SHOWN = "no test shows what its signature names, and nothing else says what is asked"
NAMELESS = "the name of what its test calls says nothing, nor does anything else say what is asked"
UNJUDGED = "no test judges its answer"

_HEADED = re.compile(r"^(?:async )?(?:def|class|function) (\w+)", re.MULTILINE)
_DECLARED = re.compile(r"\b(?:def|class|function|const|let|var) (\w+)")
_DEFINES = re.compile(r"\b(?:function|class)\b|=>")
#: Names that people and generators of tasks give to any function.
_PLACEHOLDERS = re.compile(
    r"(?:my|task|test|some|user|main)?_?"
    r"(?:func(?:tion)?|fn|f|g|foo|bar|baz|method|solution|solve|main|run|candidate|answer)_?\d*",
    re.IGNORECASE,
)
_OF_IPYTHON = ("display", "get_ipython", "In", "Out", "_", "__", "___", "__name__", "__file__")
_GIVEN = frozenset((*dir(builtins), *_OF_IPYTHON))
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
    if candidate.language != "python":
        unjudged = candidate.kind != "repair" and not candidate.test and _DEFINES.search(candidate.answer)
        return UNJUDGED if unjudged else None
    if not shown:
        return None
    if (read := _unbound(shown, candidate.answer, titled.get(SESSION, ""))) is not None:
        return read
    if candidate.kind == "repair" or is_told or (tree := python_source.parse(shown)) is None:
        return None
    if not any(isinstance(node, _JUDGES) or _asserts(node) for node in walk(tree)):
        return SAYS_NOTHING
    first = next((node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)), None)
    compared = first.test if isinstance(first, ast.Assert) else None
    literal = isinstance(compared, ast.Compare) and isinstance(compared.left, ast.Name)
    return BARE_VARIABLE if literal and _is_literal(compared.comparators[0]) else None  # type: ignore[union-attr]


def _is_nameless(signature: str, shown: str) -> bool:
    """Whether all that a test calls of a signature has a name that anything could have."""
    called = set(_DECLARED.findall(signature)) & _words(shown)
    return bool(called) and all(_PLACEHOLDERS.fullmatch(name) for name in called)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _unbound(shown: str, answer: str, session: str) -> str | None:
    names = [cell_names(code, "python") for code in (shown, answer, session)]
    test, own, earlier = names
    if test is None or own is None or not all(one is None or one.exact for one in names):
        return None
    bound = own.bound | (earlier.bound if earlier is not None else frozenset())
    return READS_UNTOLD if test.needed - bound - _GIVEN else None


def _asserts(node: ast.AST) -> bool:
    """Whether a call compares what it is given: `case.assertEqual(f(2), 4)`, `assert_allclose(x, y)`."""
    return isinstance(node, ast.Call) and called_name(node).startswith("assert") and bool(node.args)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
