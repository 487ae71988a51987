"""`insufficient_prompt`: questions that a competent engineer could not answer with what they show.

- The answer of *solve*, *repair* or *apply* reads a name that neither it, nor its imports, nor the language, nor the
  prompt defines. The prompt defines a name in its code (assigned, imported, a parameter, or used there), or by naming it as code: in quotes,
  called, with a dot or an underscore in it. A word of prose does not.
- It reads a table whose columns the prompt does not list (a repair: a table or column that the prompt does not name).
- It reads a file that the prompt does not name and the answer does not write, or a column of a frame likewise.
- A *repair* or diagnosis has neither a task nor a failing test nor an error that tells more than that something
  is not as expected.
"""

import ast
import builtins
import re

from benchmarks.datasets.faults import javascript_code
from benchmarks.datasets.faults.cases import CODE_KINDS, Case, Section, is_error
from benchmarks.datasets.faults.leaks import SHELLS
from benchmarks.datasets.faults.python_code import parse
from benchmarks.datasets.faults.python_names import free_names, read_columns, read_files
from benchmarks.datasets.faults.schemas import embedded_queries, missing_in_schema

_LANGUAGE = frozenset(dir(builtins)) | frozenset(
    "__name__ __file__ __doc__ __builtins__ __annotations__ __spec__ get_ipython display In Out exit quit _ __ reveal_type".split()
)
_JAVASCRIPT = frozenset(
    """AbortController AbortSignal AggregateError Array ArrayBuffer Atomics BigInt BigInt64Array BigUint64Array Blob Boolean
    BroadcastChannel Buffer Crypto CryptoKey CustomEvent DataView Date Error EvalError Event EventTarget FinalizationRegistry
    Float32Array Float64Array FormData Function Headers Infinity Int16Array Int32Array Int8Array Intl Iterator JSON Map Math
    MessageChannel MessagePort NaN Navigator Number Object Performance Promise Proxy RangeError ReadableStream ReferenceError
    Reflect RegExp Request Response Set SharedArrayBuffer String Symbol SyntaxError TextDecoder TextEncoder TransformStream TypeError
    URIError URL URLSearchParams Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet WebAssembly WebSocket
    WritableStream arguments atob btoa clearImmediate clearInterval clearTimeout console crypto decodeURI decodeURIComponent
    document encodeURI encodeURIComponent escape eval exports fetch global globalThis isFinite isNaN localStorage module navigator
    parseFloat parseInt performance process queueMicrotask require self sessionStorage setImmediate setInterval setTimeout
    structuredClone undefined unescape window location history alert XMLHttpRequest HTMLElement Element Node NodeList
    MutationObserver IntersectionObserver ResizeObserver File FileReader Worker Image Audio requestAnimationFrame cancelAnimationFrame
    __dirname __filename async of get set static super this new target React jQuery $""".split()
)
_GENERIC = frozenset(
    """fix repair correct mend debug explain why how this these that the following given below above here is are was be python
    javascript typescript sql bash shell code program script function query snippet fails fail failed failing failure error errors
    wrong bug write please make work works working so it its what when does do did doing run runs running ran raises raise
    to of in a an and or with for from on at by not no i you me my we our your can could should would will has have had
    return answer answers session far tests test expected output prints print cell which line lines goes go give gives need
    needs want wants out up problem issue step first then there""".split()
)
_BARE_ERROR = re.compile(
    r"^(?:Traceback \(most recent call last\)|exit (?:code|status) \d+|"
    r"(?:(?:\w+\.)*(?:AssertionError|Error|Exception|OperationalError|Timeout\w*)(?: \[\w+\])?|assertion failed|failed|false|none|null|undefined)?"
    r"\s*[:.!-]?\s*(?:assert(?:ion)? ?(?:error|failed)|false == true|timed out|(?:it |the test |test )?failed|none|null|"
    r"the expression evaluated to a falsy value|expected values to be (?:strictly |loosely )?(?:deep-)?equal)?)[:.!]*$",
    re.I,
)
_ASSERTION = re.compile(
    r"\bassert\b\s*[\w(\[{'\"-]|\bassert(?:\.\w+|[A-Z_]\w*)?\(|\bexpect\(|\bself\.assert\w+\(|^\s*>{1,3} \S|\bconsole\.assert\(", re.M
)


def insufficient_prompt(case: Case) -> str | None:
    """What the prompt lacks; None when it suffices."""
    if case.kind == "repair" or _is_diagnosis(case):
        if reason := _tells_nothing(case):
            return reason
    if case.kind not in CODE_KINDS:
        return None
    if case.language == "python":
        return _python(case)
    if case.language in ("javascript", "typescript"):
        return _javascript(case)
    if case.language == "sql":
        return missing_in_schema(case.code, case.prompt, whole=case.kind != "repair")
    return _shell(case) if case.language in SHELLS else None


# --- what is asked ----------------------------------------------------------------------------------------------------


def _is_diagnosis(case: Case) -> bool:
    """Whether an explanation is asked of code that fails."""
    return case.kind == "explain" and any(map(is_error, case.sections))


def _tells_nothing(case: Case) -> str | None:
    errors = [section.text for section in case.sections if is_error(section)]
    failing = case.failing
    others = [s for s in case.sections if not is_error(s) and (failing is None or s != failing)]
    if any(_content(s.title + "\n" + s.text) for s in others):
        return None
    if failing is not None and _content("\n".join(_comments(failing.text, case.language))):
        return None
    told = [line.strip() for text in errors for line in text.splitlines() if line.strip()]
    if any(_ASSERTION.search(line) for line in told):
        return None
    if any(not _BARE_ERROR.match(line) for line in told):
        return None
    return f"neither a task nor a failing test, and the error is {' '.join(told)[:60] or 'missing'!r}"


def _content(text: str) -> bool:
    """Whether a text says more than that code is to be mended: three words of its own."""
    words = [word.lower() for word in re.findall(r"[A-Za-z_]\w+", text)]
    return len([word for word in words if word not in _GENERIC]) >= 3


def _comments(code: str, language: str) -> list[str]:
    """Comments and docstrings."""
    marks = {"sql": r"--[^\n]*|/\*.*?\*/", "python": r"#[^\n]*|\"\"\".*?\"\"\"|'''.*?'''"}
    pattern = marks.get(language, r"//[^\n]*|/\*.*?\*/" if language in ("javascript", "typescript") else r"(?:^|\s)#[^\n]*")
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
        if reason := missing_in_schema(query, case.prompt, whole=case.kind != "repair"):
            return reason
    return None


def _javascript(case: Case) -> str | None:
    root = javascript_code.parse(case.code)
    given = _given_names(case)
    free = {n for n in javascript_code.free_names(root) if n not in _JAVASCRIPT and not _is_named(n, case, given)}
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
    return not re.search(r"[=()\[\]{}.:;@+*/<>]\S|[=(\[{:;]\s*$|\S[=(\[]|^\s*(?:import|from|del|global|await|return)\s", text, re.M)


def _is_named(name: str, case: Case, given: set[str]) -> bool:
    """Whether the prompt defines a name, or names it as code in its prose."""
    if name in given:
        return True
    escaped = re.escape(name)
    as_code = rf"[`'\"]{escaped}[`'\"(.\[]|(?<![\w.]){escaped}(?:\(|\[|\.\w|\s*=[^=])|`[^`\n]*(?<!\w){escaped}(?!\w)[^`\n]*`"
    if re.search(as_code, case.prompt):
        return True
    telling = bool(re.search(r"_|\d|[a-z][A-Z]", name)) or (len(name) <= 3 and name.lower() not in _GENERIC)
    return telling and bool(re.search(rf"(?<!\w){escaped}(?!\w)", case.prompt))


def _shell(case: Case) -> str | None:
    """Files that a shell answer reads: redirected or given to a reading command, and named nowhere."""
    written = set(re.findall(r">>?\s*[\"']?([\w./-]+)", case.code))
    written |= set(re.findall(r"\b(?:touch|mkdir(?: -p)?|tee(?: -a)?|cp \S+|mv \S+)\s+[\"']?([\w./-]+)", case.code))
    reading = r"(?:<\s*|\b(?:cat|source|head(?: -n? ?\d+)?|tail(?: -n? ?\d+)?|wc -[lwc]|sort|uniq|jq [^|\n]*?|python3?|node|bash|sh)\s+)"
    for file in re.findall(rf"{reading}[\"']?([\w./-]*\w\.\w{{1,5}})\b", case.code):
        if file not in case.prompt and file not in written and file.rsplit("/", 1)[-1] not in case.prompt:
            return f"a file that nothing names: {file}"
    used = set(re.findall(r"\$\{?([a-z]\w*)", case.code))
    bound = set(re.findall(r"(?:^|[\s;(&|])(?:local |export |readonly |declare(?: -\w+)? )?(\w+)\+?=", case.code, re.M))
    bound |= set(re.findall(r"\b(?:for|select)\s+(\w+)", case.code))
    bound |= {name for words in re.findall(r"\b(?:read|local|mapfile|readarray|declare)((?:\s+[\w=-]+)+)", case.code) for name in re.findall(r"\w+", words)}
    bound |= set(re.findall(r"getopts\s+\S+\s+(\w+)|-v\s+(\w+)=", case.code) and [n for pair in re.findall(r"getopts\s+\S+\s+(\w+)|-v\s+(\w+)=", case.code) for n in pair])
    missing = {name for name in used - bound if name not in case.prompt and not re.search(rf"'[^'\n]*\${name}\b[^'\n]*'", case.code)}
    return f"nothing defines ${', $'.join(sorted(missing))}" if missing else None
