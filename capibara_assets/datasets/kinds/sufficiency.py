"""Static check that a prompt contains what its answer needs: names, files, tables and columns, shell variables."""

import re
from collections import Counter

from capibara_assets.datasets.code import javascript_source
from capibara_assets.datasets.code.python_source import IPYTHON
from capibara_assets.datasets.code.queries import reads_of
from capibara_assets.datasets.code.sessions import cell_names
from capibara_assets.datasets.code.structure import without_comments
from capibara_assets.datasets.kinds.files_needed import unnamed_files
from capibara_assets.datasets.kinds.prompts import CODE, ERROR, SESSION, SIGNATURE, TESTS, section, sections, stated
from capibara_assets.executions.parsing import JAVASCRIPT

_HOST = frozenset(
    re.findall(
        r"\w+",
        """AbortController AbortSignal Blob BroadcastChannel CompressionStream CryptoKey CustomEvent DOMException Event
        EventTarget File FinalizationRegistry Float16Array FormData Headers Iterator MessageChannel MessageEvent
        MessagePort ReadableStream Request Response SharedArrayBuffer SubtleCrypto TransformStream WebAssembly WebSocket
        WritableStream __dirname __filename atob btoa crypto import navigator new super this""",
    )
)
_SHELL_GIVEN = frozenset(
    re.findall(
        r"\w+",
        """HOME PATH PWD OLDPWD USER SHELL TERM LANG LC_ALL TMPDIR HOSTNAME RANDOM SECONDS LINENO UID EUID IFS PPID
        BASH""",
    )
)
_SHELL_VARIABLE = re.compile(r"(?<!\\)\$\{?([A-Za-z_]\w*)")
_SHELL_BOUND = re.compile(
    r"(?:^|[;&|(\s])(?:export\s+|local\s+|declare\s+(?:-\w+\s+)?|readonly\s+)?([A-Za-z_]\w*)\+?=|\bfor\s+(\w+)\s+in\b|"
    r"\bread\s+(?:-\w+\s+)*(\w+)",
    re.MULTILINE,
)
_SINGLE_QUOTED = re.compile(r"'[^']*'")
_IN_PROSE = re.compile(r"`([^`\n]+)`|\b([A-Za-z_$][\w$]*)(?=\()|\b(\w*(?:_\w|[a-z][A-Z]|\d)[\w$]*)|\b([A-Z])\b")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_DECLARES = re.compile(r"^(?:const|let|class)\s+([\w$]+)", re.MULTILINE)
_UNBOUND = re.compile(r"\b(?:NameError|UnboundLocalError|ReferenceError)\b")
_NAMING = frozenset({SIGNATURE, TESTS})  # sections whose every name is given


def why_unpredictable(language: str, prompt: str) -> str | None:
    """Undefined names of the code whose output is asked for; None if there are none."""
    before, _, code = prompt.rpartition(f"\n\n{CODE}\n")
    return why_insufficient(language, before, code)


def why_redeclared(language: str, prompt: str) -> str | None:
    """Names that the JavaScript of a session, or that to be run below it, declares twice, which no program may.

    Code that failed, and what mends it, may declare anew what an earlier cell did. None if there are none.
    """
    shown = section(prompt, SESSION)
    below = "" if section(prompt, ERROR) else section(prompt, CODE)
    listed = Counter(_DECLARES.findall(f"{shown}\n{below}") if language in JAVASCRIPT and shown else ())
    twice = sorted(name for name, times in listed.items() if times > 1)
    return f"names that its session declares twice: {', '.join(twice[:5])}" if twice else None


def why_unfounded(language: str, prompt: str) -> str | None:
    """Undefined names of code that failed, whose error is not that; None if there are none."""
    if _UNBOUND.search(section(prompt, ERROR)):
        return None
    missing = _unknown_names(language, prompt.partition(f"\n\n{CODE}\n")[0], section(prompt, CODE))
    return f"names that the failing code needs and the prompt does not define: {missing}" if missing else None


def why_insufficient(language: str, prompt: str, answer: str) -> str | None:
    """What the answer uses that is defined neither by it, the prompt nor the language; None if nothing.

    A name counts as defined where code of the prompt binds it, or where its text names it as code: in a signature, as a
    call, in backticks, or in a form that no word of prose has. A table or column counts where its name occurs.
    """
    if language in ("bash", "sh", "shell"):
        missing = sorted(_shell_needs(answer) - set(_SHELL_VARIABLE.findall(prompt)) - _bound_in_shell(prompt))
        return f"variables that the prompt does not define: {', '.join(missing)}" if missing else None
    if (lacking := _unknown_names(language, prompt, answer)) is not None:
        return f"names that the prompt does not define: {lacking}"
    if files := unnamed_files(language, prompt, answer):
        return f"files that the prompt does not name: {', '.join(files[:5])}"
    reads = reads_of(answer, language)
    lowered = prompt.lower()
    words = set(re.findall(r"\w+", lowered))
    for what, names in (("tables", reads.tables), ("columns", reads.columns)):
        if missing := sorted(n for n in names if n not in words and not (re.search(r"\W", n) and n in lowered)):
            return f"{what} that the prompt does not name: {', '.join(missing[:5])}"
    return None


def _unknown_names(language: str, prompt: str, answer: str) -> str | None:
    if language != "python" and language not in JAVASCRIPT:
        return None
    names = cell_names(answer, language)
    if names is None or not names.exact:
        return None  # what a star import binds is not known
    given = IPYTHON if language == "python" else _HOST | _assigned(answer)
    missing = names.needed - given
    if missing:
        missing -= _defined_in(language, prompt) - _bound_by_test(language, prompt)
    return ", ".join(sorted(missing)[:5]) or None


def _assigned(code: str) -> frozenset[str]:
    """Names that JavaScript assigns without declaring them, which makes them global: `s = …`, `for (k in …)`."""
    assigned = set()
    for node in javascript_source.walk(javascript_source.parse(code)):
        if node.type in ("assignment_expression", "for_in_statement"):
            target = node.child_by_field_name("left")
            assigned |= (
                {javascript_source.text(n) for n in javascript_source.walk(target)} if target is not None else set()
            )
    return frozenset(assigned)


def _defined_in(language: str, prompt: str) -> frozenset[str]:
    """Names that the prompt's code binds, or that its text names as code."""
    defined: set[str] = set()
    for match in _IN_PROSE.finditer(stated(prompt)):
        defined.update(_WORD.findall(next(group for group in match.groups() if group)))
    for title, code in sections(prompt):
        names = None if title in _NAMING else cell_names(code, language)
        if names is None:  # a signature, a test, or failing code that does not parse
            defined.update(_WORD.findall(without_comments(code, language)))
        else:
            defined |= names.bound
    return frozenset(defined)


def _bound_by_test(language: str, prompt: str) -> frozenset[str]:
    """Names that only the test binds, which runs after the answer."""
    bound: dict[bool, frozenset[str]] = {True: frozenset(), False: frozenset()}
    for title, code in sections(prompt):
        if (names := cell_names(code, language)) is not None and title != SIGNATURE:
            bound[title == TESTS] |= names.bound - (names.imported if title == TESTS else frozenset())
    return bound[True] - bound[False]


def _shell_needs(command: str) -> set[str]:
    plain = _SINGLE_QUOTED.sub("''", command)
    return set(_SHELL_VARIABLE.findall(plain)) - _bound_in_shell(command) - _SHELL_GIVEN


def _bound_in_shell(text: str) -> set[str]:
    return {next(group for group in match.groups() if group) for match in _SHELL_BOUND.finditer(text)}
