"""Whether the output or error of a program is worth predicting, judged by the texts alone."""

import ast
import re

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.effort import TRIVIAL, steps
from capibara_assets.datasets.code.structure import without_comments
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.predict import UNQUOTED
from capibara_assets.datasets.kinds.prompts import CODE, PREDICT_ERROR, section
from capibara_assets.executions.parsing import walk

STATED = "an assertion in its prompt tells its output"
NO_PLACE = "no place is told of the error, which its prompt asks for"
QUOTES_ANOTHER = "its error quotes a line that its code does not hold: what recorded it had changed the code"
CUT_OFF = "its error is too long to be told whole"
REWORDED = "its error names what stands otherwise in its code"
LOADED = "what it shows comes from data of a library, or from its distributions"
ECHOED = "what it shows is a table as Node sets it"
OF_VERSION = "the words of its error depend on the version of Python"
OF_ENGINE = "where its stack overflows is where Node looks, not where its code calls"

_EXPECTED = re.compile(r"^\s*(?:(?:const|let|var)\s+)?expected\w*\s*=[^=]", re.MULTILINE | re.IGNORECASE)
_NO_FUNCTION = re.compile(r"^TypeError: (\S+[.\[]\S+) is not (?:iterable|a function|a constructor)", re.MULTILINE)
_LOADED = re.compile(
    r"\b(?:karate_club_graph|les_miserables_graph|load_(?:iris|wine|digits|diabetes|breast_cancer|dataset)|fetch_[a-z]\w+"
    r"|make_(?:blobs|moons|classification|circles|regression|friedman\d|s_curve|swiss_roll))\("
    r"|\bstats\.\w+\.(?:sf|cdf|ppf|pdf)\("
)
_ASSERTS = (
    r"(?:(?:console\.|self\.)?assert|require\(['\"](?:node:)?assert|expect\("
    r"|[\w$]+\.(?:deepStrictEqual|strictEqual|deepEqual|equal)\()"
)
_STATUS_ALONE = re.compile(r"\.status_code\)?\s*\Z")


def unworthy_output(candidate: ExampleCandidate, fewest_steps: int) -> str | None:
    """Why what is asked of a program's output or error is told, trivial or cannot be told; None otherwise."""
    language, code = candidate.language, candidate.prompt.partition("\n\n")[2]
    if candidate.prompt.startswith(PREDICT_ERROR):
        if "\n" not in candidate.answer:
            return NO_PLACE
        if any(line not in code for line in _quoted(candidate.answer)):
            return QUOTES_ANOTHER
        if re.search(r"\w: \.\.\. .*\Z", candidate.answer):
            return CUT_OFF
        quoted = _NO_FUNCTION.search(candidate.answer)
        if quoted is not None and quoted[1] not in code:
            return REWORDED
        if re.search(r"recursion depth exceeded (?:in|while) .*\Z", candidate.answer):
            return OF_VERSION
        if "Maximum call stack size exceeded" in candidate.answer:
            return OF_ENGINE
        bare = (
            candidate.answer.endswith("AssertionError") and steps(section(code, CODE) or code, language) < fewest_steps
        )
        return TRIVIAL if bare else None
    if _is_stated(code, candidate.answer, language) or _EXPECTED.search(code) or _are_in_doctests(code):
        return STATED
    if "console.table(" in (section(code, CODE) or code):
        return ECHOED
    if _LOADED.search(code):
        return LOADED
    if _STATUS_ALONE.search(code) and candidate.answer.strip().isdecimal():
        return TRIVIAL
    program = re.sub(r"^(Session so far|Code):$", "", code, flags=re.MULTILINE)
    if language == "python" and _ends_in_text(program):
        return UNQUOTED
    return TRIVIAL if steps(program, language) < fewest_steps else None


def _quoted(error: str) -> list[str]:
    """The lines of code that an error's account quotes, as far as it shows them."""
    lines = error.split("\n")[:-1]
    return [re.sub(r"^in [\w.<>$]+: ", "", line).removesuffix(" ...") for line in lines]


def _ends_in_text(code: str) -> bool:
    """Whether the last value of a cell is that of a call of a function that gives a text: `return str(total)`."""
    tree = python_source.parse(code)
    last = tree.body[-1] if tree is not None and tree.body else None
    call = last.value if isinstance(last, ast.Expr) else None
    if tree is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return False
    name = call.func.id
    called = [node for node in walk(tree) if isinstance(node, python_source.Function) and node.name == name]
    given = [node.value for one in called[-1:] for node in walk(one) if isinstance(node, ast.Return)]
    return any(isinstance(value, ast.JoinedStr) or _is_str(value) for value in given)


def _is_str(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str"


def _is_stated(code: str, output: str, language: str) -> bool:
    """Whether an assertion in code quotes the output, or the last part of it."""
    if not re.search(_ASSERTS, code):
        return False
    flat = _as_written(output).strip("()'")
    parts = {flat, flat.partition(",")[2]} - {""}
    asserted = [
        _as_written(one)
        for one in re.split(rf"\n(?=\S)|\n[^\S\n]*(?={_ASSERTS})", without_comments(code, language))
        if re.match(rf"\s*{_ASSERTS}", one)
    ]
    return any(len(part) > 1 and part in one for part in parts for one in asserted)


def _are_in_doctests(code: str) -> bool:
    """Whether all that a program prints are calls whose results stand in its doctests."""
    told = {_as_written(one) for one in re.findall(r"^\s*>>> (.+)$", code, re.MULTILINE)}
    printed = re.findall(r"^print\((.+)\)$", code, re.MULTILINE) if told else []
    return bool(printed) and all(_as_written(one) in told for one in printed)


def _as_written(text: str) -> str:
    """A text without blanks, in Python's words and one sort of quotes: `"a": true` says what `'a': True` does."""
    same = {"true": "True", "false": "False", "null": "None"}
    flat = "".join(text.split()).replace('"', "'")
    return re.sub(r"\b(?:true|false|null)\b", lambda found: same[found[0]], flat)
