"""`insufficient_prompt`: questions that a competent engineer could not answer with what they show.

- The answer of *solve*, *repair* or *apply* reads a name that neither it, nor its imports, nor the language, nor the
  prompt defines. The prompt defines a name in its code (assigned, imported, a parameter, or used there), or by naming
  it as code: in quotes, called, with a dot or an underscore in it. A word of prose does not.
- It reads a table whose columns the prompt does not list (a repair: a table that the failing code does not name, or a
  column that nothing names).
- It reads a file that the prompt does not name and the answer does not write, or a column of a frame likewise.
- A *repair* or diagnosis has neither a task nor a failing test nor an error that tells more than that something
  is not as expected; or a *repair* has a task, and its error says no more than that a hidden test or command failed.
- The block of an edit replaces a text that the prompt does not show, or the command's output is missing (`edits.py`).
- The task of *solve* or *apply* points at what an earlier turn said, or its answer names places or does steps of which
  it says nothing (`referents.py`).
"""

import ast
import builtins
import re
from collections.abc import Sequence

from benchmarks.datasets.faults import edits, javascript_code
from benchmarks.datasets.faults.cases import CODE_KINDS, Case, Section, is_error
from benchmarks.datasets.faults.leaks import SHELLS
from benchmarks.datasets.faults.python_code import parse
from benchmarks.datasets.faults.python_names import free_names, read_columns, read_files
from benchmarks.datasets.faults.queries.schemas import embedded_queries, missing_in_schema
from benchmarks.datasets.faults.referents import untold
from benchmarks.datasets.faults.words import ASKING, JAVASCRIPT, words

_LANGUAGE = frozenset(dir(builtins)) | words(
    """__name__ __file__ __doc__ __builtins__ __annotations__ __spec__ get_ipython display In Out exit quit _ __
    reveal_type"""
)
_BARE_ERROR = re.compile(
    r"^(?:Traceback \(most recent call last\)|exit (?:code|status) \d+|"
    r"(?:(?:\w+\.)*(?:AssertionError|Error|Exception|OperationalError|Timeout\w*)(?: \[\w+\])?|"
    r"assertion failed|failed|false|none|null|undefined)?"
    r"\s*[:.!-]?\s*(?:assert(?:ion)? ?(?:error|failed)|false == true|timed out|(?:(?:the )?test )?failed|none|null|"
    r"the expression evaluated to a falsy value|expected values to be (?:strictly |loosely )?(?:deep-)?equal)?)[:.!]*$",
    re.I,
)
_FAILED_ONLY = re.compile(
    r"^(?:(?:Assertion|CalledProcess)?Error|(?:CommandExit)?Exception|SystemExit|)\s*:?\s*"
    r"(?:(?:process |command )?(?:exit(?:ed)?(?: with)? )?(?:code|status) -?\d+|"
    r"failed (?:\d+/\d+ )?test cases?|test cases? (?:did not|didn't) pass|assertion ?(?:error|failed)?)?"
    r"[.!]*(?: please try again[.!]*)?$",
    re.I,
)
_ASSERTION = re.compile(
    r"\bassert\b\s*[\w(\[{'\"-]|\bassert(?:\.\w+|[A-Z_]\w*)?\(|\bexpect\(|\bself\.assert\w+\(|^\s*>{1,3} \S",
    re.M,
)


def insufficient_prompt(case: Case) -> str | None:
    """What the prompt lacks; None when it suffices."""
    if edits.is_edit(case):
        return edits.without_place(case)
    if (case.kind == "repair" or _is_diagnosis(case)) and (reason := _tells_nothing(case)):
        return reason
    if case.kind not in CODE_KINDS:
        return None
    if reason := untold(case):
        return reason
    if case.language == "python":
        return _python(case)
    if case.language in ("javascript", "typescript"):
        return _javascript(case)
    if case.language == "sql":
        return missing_in_schema(case.code, case.prompt, given=_given(case))
    return _shell(case) if case.language in SHELLS else None


# --- what is asked ----------------------------------------------------------------------------------------------------


def _given(case: Case) -> str:
    """The code that is to be mended."""
    return case.failing.text if case.kind == "repair" and case.failing is not None else ""


def _is_diagnosis(case: Case) -> bool:
    """Whether an explanation is asked of code that fails."""
    return case.kind == "explain" and any(map(is_error, case.sections))


def _tells_nothing(case: Case) -> str | None:
    errors = [section.text for section in case.sections if is_error(section)]
    failing = case.failing
    others = [s for s in case.sections if not is_error(s) and (failing is None or s != failing)]
    if any(_content(s.title + "\n" + s.text) for s in others):
        return _only_failed(case, errors)
    if failing is not None and _content("\n".join(_comments(failing.text, case.language))):
        return None
    told = [line.strip() for text in errors for line in text.splitlines() if line.strip()]
    if any(_ASSERTION.search(line) for line in told):
        return None
    if any(not _BARE_ERROR.match(line) for line in told):
        return None
    return f"neither a task nor a failing test, and the error is {' '.join(told)[:60] or 'missing'!r}"


def _only_failed(case: Case, errors: Sequence[str]) -> str | None:
    """Why nobody could tell what a test that is not shown found wrong."""
    told = [line.strip() for text in errors for line in text.splitlines() if line.strip()]
    if case.kind != "repair" or not told or any(not _FAILED_ONLY.match(line) for line in told):
        return None
    if _ASSERTION.search(case.prompt):
        return None
    return f"the failing test is not shown, and the error is {' '.join(told)[:60]!r}"


def _content(text: str) -> bool:
    """Whether a text says more than that code is to be mended: three words of its own."""
    words = [word.lower() for word in re.findall(r"[A-Za-z_]\w+", text)]
    return len([word for word in words if word not in ASKING]) >= 3


def _comments(code: str, language: str) -> list[str]:
    """Comments and docstrings."""
    marks = {"sql": r"--[^\n]*|/\*.*?\*/", "python": r"#[^\n]*|\"\"\".*?\"\"\"|'''.*?'''"}
    pattern = marks.get(
        language, r"//[^\n]*|/\*.*?\*/" if language in ("javascript", "typescript") else r"(?:^|\s)#[^\n]*"
    )
    return re.findall(pattern, code, re.S)


# --- names ------------------------------------------------------------------------------------------------------------


def _python(case: Case) -> str | None:
    tree = parse(case.code)
    if tree is None:
        return None
    given = _given_names(case)
    free = {name for name in free_names(tree) if name not in _LANGUAGE and not _is_named(name, case, given)}
    if free:
        return f"nothing defines {', '.join(sorted(free))}"
    for file in sorted(read_files(tree)):
        if file not in case.prompt and file.rsplit("/", 1)[-1] not in case.prompt:
            return f"a file that nothing names: {file}"
    for column in sorted(read_columns(tree)):
        if not re.search(rf"(?<!\w){re.escape(column)}(?!\w)", case.prompt):
            return f"a column that nothing names: {column}"
    for query in embedded_queries(tree):
        if reason := missing_in_schema(query, case.prompt, given=_given(case)):
            return reason
    return None


def _javascript(case: Case) -> str | None:
    root = javascript_code.parse(case.code)
    given = _given_names(case)
    free = {n for n in javascript_code.free_names(root) if n not in JAVASCRIPT and not _is_named(n, case, given)}
    if free:
        return f"nothing defines {', '.join(sorted(free))}"
    for file in re.findall(r"\breadFile(?:Sync)?\(\s*['\"]([^'\"]+)['\"]", case.code):
        if file not in case.prompt and not re.search(rf"writeFile(?:Sync)?\(\s*['\"]{re.escape(file)}", case.code):
            return f"a file that nothing names: {file}"
    return None


def _given_names(case: Case) -> set[str]:
    """Names that stand in code of the prompt: sections and fences that read as code, line by line where they do not."""
    given: set[str] = set()
    for section in case.sections:
        if is_error(section) and not _ASSERTION.search(section.text):
            continue
        given |= _names_of(section, case.language)
    return given


def _names_of(section: Section, language: str) -> set[str]:
    if language == "python":
        if (tree := parse(section.text)) is not None and not _is_prose(section.text):
            return _python_names(tree)
        found: set[str] = set()
        for line in section.text.splitlines():
            line = line.strip().removeprefix(">>> ").removeprefix("... ")
            for dressed in (line, f"{line}\n pass", f"{line} pass", f"{line}: pass"):
                if not _is_prose(line) and (tree := parse(dressed)) is not None:
                    found |= _python_names(tree)
                    break
        return found
    lines = [line for line in section.text.splitlines() if not _is_prose(line)]
    return javascript_code.names(javascript_code.parse("\n".join(lines))) | javascript_code.bindings(
        javascript_code.parse(section.text)
    )


def _python_names(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
    return found


def _is_prose(text: str) -> bool:
    """Whether a text is of words alone, such as a lone word or a sentence that happens to parse."""
    return not re.search(
        r"[=()\[\]{}.:;@+*/<>]\S|[=(\[{:;]\s*$|\S[=(\[]|^\s*(?:import|from|del|global|await|return)\s", text, re.M
    )


def _is_named(name: str, case: Case, given: set[str]) -> bool:
    """Whether the prompt defines a name, or names it as code in its prose."""
    if name in given:
        return True
    escaped = re.escape(name)
    as_code = (
        rf"[`'\"]{escaped}[`'\"(.\[]|(?<![\w.]){escaped}(?:\(|\[|\.\w|\s*=[^=])|`[^`\n]*(?<!\w){escaped}(?!\w)[^`\n]*`"
    )
    if re.search(as_code, case.prompt):
        return True
    telling = bool(re.search(r"_|\d|[a-z][A-Z]", name)) or (len(name) <= 3 and name.lower() not in ASKING)
    return telling and bool(re.search(rf"(?<!\w){escaped}(?!\w)", case.prompt))


_READING = r"(?:<|\b(?:cat|source|head(?: -n? ?\d+)?|tail(?: -n? ?\d+)?|wc -[lwc]|sort|uniq|python3?|node|bash|sh))\s*"
_WRITING = r"(?:>>?|\b(?:touch|mkdir(?: -p)?|tee(?: -a)?|cp \S+|mv \S+))\s*"
_BINDING = (
    r"(?:^|[\s;(&|])(?:local |export |readonly |declare(?: -\w+)? )?(\w+)\+?=",
    r"\b(?:for|select)\s+(\w+)",
    r"getopts\s+\S+\s+(\w+)",
    r"-v\s+(\w+)=",
)


def _shell(case: Case) -> str | None:
    """Files that a shell answer reads and names that it expands, and that nothing names or sets."""
    code = case.code
    written = set(re.findall(rf"{_WRITING}[\"']?([\w./-]+)", code))
    for file in re.findall(rf"{_READING}[\"']?([\w./-]*\w\.\w{{1,5}})\b", code):
        if file not in written and file.rsplit("/", 1)[-1] not in case.prompt:
            return f"a file that nothing names: {file}"
    bound = {name for pattern in _BINDING for name in re.findall(pattern, code, re.M)}
    for words_read in re.findall(r"\b(?:read|local|mapfile|readarray|declare)((?:\s+[\w=-]+)+)", code):
        bound |= set(re.findall(r"\w+", words_read))
    expanded = set(re.findall(r"\$\{?([a-z]\w*)", re.sub(r"'[^'\n]*'", " ", code)))
    missing = sorted(name for name in expanded - bound if name not in case.prompt)
    return f"nothing defines ${', $'.join(missing)}" if missing else None
