"""Whether edits are worth learning: told by what the prompt shows, and no way round the check that failed."""

import re
from collections.abc import Sequence

from pygments.lexer import Lexer

from capibara_assets.datasets.edited.names import code_lexer, texts, unknown_names, without_remarks, words
from capibara_assets.datasets.edited.places import EditPlace
from capibara_assets.executions.secrets.redact import PLACEHOLDER

NO_CODE = "it edits text that is no code"
UNRELATED = "nothing of what the command printed is about a file that was edited"
SILENT = "its edit silences the check instead of mending what it found"
TEST_CHANGED = "its edit changes what the test expects, or drops the test"
DROPPED = "its edit drops the code that failed"
FITTED = "its edit returns what a test expects"
OUTSIDE = "it edits what is generated or stands outside the project"
REMARKS = "its edit changes only comments or spaces"
NAMES = "names that the prompt does not define"
SCRATCH = "it edits nothing but a script that an agent wrote to try something"
REDACTED = "what its command printed was redacted"
NOT_SHOWN = "its command printed more errors than are shown"
UNTOLD_TEXT = "its edit holds texts that its author chose and the prompt does not tell"

_SILENCES = re.compile(
    r"\bno(?:lint|qa|sec|inspection)\b|type:\s*ignore|pyright:\s*ignore|pylint:\s*disable|rubocop:disable"
    r"|eslint-disable|@ts-(?:ignore|nocheck|expect-error)|@SuppressWarnings|#\[allow\(|istanbul ignore|-Wno-"
    r"|\bt\.Skip|pytest\.(?:mark\.)?(?:skip|xfail)|@unittest\.skip|\b(?:it|test|describe)\.(?:skip|todo)\b|\bxit\("
    r"|\bas (?:any|never|unknown)\b|:\s*any\b|->\s*Any\b|@phpstan-ignore|@psalm-suppress|\[\[maybe_unused"
    r"|\(void\)\s*\w+;|__attribute__\(\(unused|^\s*_ = |\beval\(|sys\.excepthook|\bexit\(0\)|\|\| true\b|\bset \+e\b"
)
_CATCHES = re.compile(r"\bexcept\b|\bcatch\s*[({]|\bsuppress\(|\brescue\b")
_CONFIGURES = re.compile(
    r"(?:^|/)(?:pyproject\.toml|setup\.cfg|tox\.ini|\.flake8|\.?ruff\.toml|mypy\.ini|package\.json|tsconfig[\w.]*\.json"
    r"|jest\.config\.\w+|vitest\.config\.\w+|\.eslintrc[\w.]*|eslint\.config\.\w+|\.golangci\.\w+|Makefile|Cargo\.toml"
    r"|phpunit\.xml|\.rubocop\.yml|\.coveragerc|biome\.jsonc?|conftest\.py)$"
)
_OUTSIDE = re.compile(
    r"(?:^|/)(?:site-packages|node_modules|vendor|\.venv|venv|dist)/|^/?(?:etc|usr|opt|var)/|(?:^|/)\.\.(?:/|$)"
)
_GENERATED = re.compile(r"DO NOT EDIT|@generated\b")
_LITERAL_RETURN = re.compile(r"^\s*return\s+(?:-?[\d.]+|True|False|true|false|'[^']*'|\"[^\"]*\")\s*(?:;|if\b.*)?\s*$")
_NOT_PARSED = re.compile(r"syntax|indent|pars(?:e|ing)|unexpected|expected", re.IGNORECASE)
TRIES = re.compile(r"(?:^|[\s/])(?:\w*(?:repro|scratch|playground|tmp|temp|debug)\w*|bug_\w*)\.\w+\s*$", re.IGNORECASE)
_IMPORTS = re.compile(
    r"^\s*(?:(?:(?:pub\s+)?use|import|from|export|#include|require)\b|(?:const|let|var)\s.*\brequire\()", re.IGNORECASE
)
_OFFERS = re.compile(r"^\s*(?:pub\s+use|export)\b")
_COUNT = re.compile(r"\b(\d+) (?:previous |more )?(?:errors?|issues?|problems?|warnings?)\b", re.IGNORECASE)
_PLACE = re.compile(r"^\s*(?:error\b|\S+:\d+:\d+|\S+\(\d+,\d+\)|\d+:\d+\s)", re.IGNORECASE)
_TEST_FILE = re.compile(
    r"(?:^|/)(?:tests?|__tests__|spec|testdata)/|(?:_test|_spec|\.test|\.spec)\.\w+$|(?:^|/)(?:test_|conftest)\w*\.\w+$"
)
_ASSERTION = re.compile(
    r"^\s*--- FAIL|AssertionError|\bassert\b|\bexpected\b|\bwant\b|\bFAIL(?:ED)?\b|[✕✗]", re.M | re.I
)
_NOT_BUILT = re.compile(
    r"\[build failed\]|undefined:|does not compile|error TS\d+|error\[E\d+\]|cannot find|"
    r"\b(?:Syntax|Indentation|Import|ModuleNotFound|Name|Reference)Error\b"
)
_NEEDLESS = re.compile(
    r"\bunused\b|\bnot used\b|never (?:used|read)|redeclared|duplicate|redefin|unreachable", re.IGNORECASE
)
_DEFINES_TEST = re.compile(r"\bfunc Test\w+|\bdef test_\w+|\b(?:it|test)\(|#\[test\]|@Test\b")
_LONG_NAME, _LONG_TEXT = 5, 4
_COMMON = frozenset(  # words of any program, which tie no output to a file
    re.findall(
        r"\w+",
        """return function const class import export string value values result error errors false true print assert
        default static public private except raise while break continue lambda yield async await python package struct
        interface switch number boolean object array append length range other index Exception""",
    )
)


def unsound_edit(changed: Sequence[EditPlace], output: str, prompt: str) -> str | None:
    """Why edits teach nothing, or nothing that the prompt tells; None where they are worth learning."""
    told = words(prompt)
    lexers = [code_lexer(place.path) for place in changed]
    if not changed or not all(lexers):
        return NO_CODE
    pairs = [(lexer, place) for lexer, place in zip(lexers, changed, strict=True) if lexer is not None]
    same = all(without_remarks(lexer, place.old) == without_remarks(lexer, place.new) for lexer, place in pairs)
    if same and not _NOT_PARSED.search(output):
        return REMARKS
    if any(_OUTSIDE.search(place.path) or _GENERATED.search(place.shown) for place in changed):
        return OUTSIDE
    if any(_silences(place) for place in changed):
        return SILENT
    if _ASSERTION.search(output) and any(_LITERAL_RETURN.match(line) for place in changed for line in place.added):
        return FITTED
    if all(TRIES.search(place.path) for place in changed):
        return SCRATCH
    if re.search(PLACEHOLDER, prompt):
        return REDACTED
    if _weakens_test(changed, output):
        return TEST_CHANGED
    if _only_drops(changed, output):
        return DROPPED
    if _is_cut_short(output):
        return NOT_SHOWN
    if any(not _is_named(lexer, place, output) or _drops_import(place, output) for lexer, place in pairs):
        return UNRELATED
    unknown = [name for lexer, place in pairs for name in unknown_names(lexer, "\n".join(place.added), told)]
    if unknown:
        return f"{NAMES}: {', '.join(sorted(set(unknown))[:5])}"
    untold = [text for lexer, place in pairs for text in _untold(lexer, place, prompt)]
    return UNTOLD_TEXT if untold else None


def _silences(place: EditPlace) -> bool:
    """Whether an edit tells a check to look away, catches what failed, or changes what the check is asked for."""
    added, removed = place.added, "\n".join(place.removed)
    if _CONFIGURES.search(place.path) or any(_SILENCES.search(line) for line in added):
        return True
    return any(_CATCHES.search(line) for line in added) and _CATCHES.search(removed) is None


def _only_drops(changed: Sequence[EditPlace], output: str) -> bool:
    """Whether an edit adds nothing, and the output does not call what it removes needless."""
    removed = [line for place in changed for line in place.removed]
    if not removed or any(place.added for place in changed):
        return False
    return _NEEDLESS.search(output) is None or any(_OFFERS.match(line) for line in removed)


def _drops_import(place: EditPlace, output: str) -> bool:
    """Whether an import is removed of which the output says nothing."""
    said, kept = words(output), words("\n".join(place.added))
    imports = [words(line) - _COMMON for line in place.removed if _IMPORTS.match(line)]
    return any(names and not names & (said | kept) for names in imports)


def _is_cut_short(output: str) -> bool:
    """Whether what was cut from an output held errors: it counts more of them than it shows."""
    counted = max((int(number) for number in _COUNT.findall(output)), default=0)
    places = sum(_PLACE.search(line) is not None for line in output.split("\n"))
    return output.startswith("...") and counted > places


def _weakens_test(changed: Sequence[EditPlace], output: str) -> bool:
    """Whether tests were edited although the code was built and an assertion failed, or a test was dropped."""
    tests = [place for place in changed if _TEST_FILE.search(place.path)]
    if not tests:
        return False
    if any(_DEFINES_TEST.search(line) for place in changed for line in place.removed) and not any(
        _DEFINES_TEST.search(line) for place in changed for line in place.added
    ):
        return True
    return _ASSERTION.search(output) is not None and not _NOT_BUILT.search(output)


def _is_named(lexer: Lexer, place: EditPlace, output: str) -> bool:
    """Whether the output names the file, or something that stands in the lines that change."""
    if place.path.rsplit("/", 1)[-1] in output:
        return True
    said = words(output)
    changed = words(without_remarks(lexer, "\n".join([*place.removed, *place.added])))
    return any(len(name) >= _LONG_NAME and name not in _COMMON for name in said & changed)


def _untold(lexer: Lexer, place: EditPlace, prompt: str) -> list[str]:
    """Long texts that the edit adds and of which the prompt holds no form."""
    return [text for text in texts(lexer, "\n".join(place.added)) if len(text) >= _LONG_TEXT and text not in prompt]
