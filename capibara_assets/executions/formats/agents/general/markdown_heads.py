"""Lines of an exported session that say who speaks, which tool is called, or that an output follows."""

import re
from collections.abc import Sequence
from typing import NamedTuple

FENCE = re.compile(r"( *)(`{3,}|~{3,})([\w+-]*)[^`\n]*\Z")
TURN = re.compile(
    r"(?:\s{0,3}#{1,4}\W*|_\*\*)(user|human|you|assistant|agent|model|ai|claude|copilot)\b", re.IGNORECASE
)
USER = ("user", "human", "you")
GOES_ON = re.compile(  # how an export goes on behind a block, or behind a line that names a tool
    r"\s{0,3}(?:#{1,6}\s|\*\*|__|---\s*\Z|\*\*\*\s*\Z|</?\w|_\w|(?:Output|Result|Error):)|\s*(?:`|~{3}|\$ )"
)
PLAIN_LABELS = ("output:", "result:", "error:")  # without a mark
LONG = 160  # signs of a line that names a tool

_SIGN = r"(?:[^\w\s#*`>_<|\[(-]{1,3}\s)?"  # a picture in front of a label
_LABELLED = re.compile(rf"\s{{0,3}}{_SIGN}(?:#{{1,6}}\s|\*\*|__|>|<summary>|[-*]\s+\*\*|_)")
_CALLED = re.compile(
    r"\b(?:tool|function)\b(?:[ _-]?(?:use|call|name|request|invocation|run)|(?=\s*[^\s\w]))", re.IGNORECASE
)
_USES = re.compile(r"Tool (?:use|call): (?:\*\*|`)([\w.:-]+)(?:\*\*|`)", re.IGNORECASE)
_CODED = re.compile(r"`([A-Za-z][\w.:/-]*)`")
_FILE = re.compile(r"\.(?:sh|py|js|ts|ps1|bat|md|txt|json|ya?ml|toml)\Z")
_NAMED = re.compile(r"\W{1,8}([A-Za-z][\w.:/-]*)")
_ANSWER = re.compile(r"(?:tool |function |command )?(?:outputs?|results?|responses?|stdout)\b", re.IGNORECASE)
_MARKUP = re.compile(r"^\s*#{1,6}|[*_>`]|</?\w+>|^\s*[-]\s")
_TAG = re.compile(r"</?code>")
_BOLD = re.compile(r"\s{0,3}\*\*[^*]+\*\*\s*\Z")
_STATE = re.compile(r"\s{0,3}#{2,5} Tool Call \[(completed|failed|pending|in_progress|cancelled|rejected)\]:", re.I)
_BARE = re.compile(r"\s{0,4}[^\w\s#*`>-]{1,3}\s+(?:Using )?tool: ([A-Za-z][\w.:/-]*)\s*\Z", re.IGNORECASE)
_INPUT = re.compile(r"\s{0,4}Input: (?=\{)")
_SIGNED = re.compile(r"[^\w\s#*`>-]{1,3}\s?\*\*(\w+)(?:: ([^\n]+?))?\*\*\s*\Z")
_SIGNED_TOOLS = {
    "Bash", "Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Glob", "Grep", "LS", "Task", "TodoWrite", "WebFetch",
    "WebSearch",
}  # fmt: skip
_FOLDED = re.compile(
    rf"<summary>{_SIGN}(?:<(\w+)>)?({'|'.join(sorted(_SIGNED_TOOLS))})(?:</\1>)?(?::? ([^\n]+?))?</summary>\s*\Z"
)


class Head(NamedTuple):
    """A line that names a tool as called.

    `form` says where what was asked for stands, and the output: "block" below it, in fences and labelled lines;
    "input" as JSON behind `Input:`; "state" in labelled lines, below a heading that also says how the call ended;
    "signed" in fences right below, without a line between; "folded" in fences of a `<details>`, the output in the next.
    """

    name: str
    form: str = "block"
    said: str | None = None  # how the call ended, or what it is about


def plain(line: str) -> str:
    """A line without its marks."""
    return _MARKUP.sub("", line).strip()


def begins_output(line: str) -> bool:
    """Whether a line says that an output follows."""
    return plain(line).lower() in PLAIN_LABELS or bool(
        _LABELLED.match(line) and len(line) < LONG and _ANSWER.match(plain(line))
    )


def heads_of(lines: Sequence[str], names_session: bool) -> dict[int, Head]:
    """The lines that name a tool; those with a sign alone count where the text names its session."""
    found: dict[int, Head] = {}
    for at, line in enumerate(lines):
        if len(line) > LONG:
            continue
        if (state := _STATE.match(line)) is not None:
            found[at] = Head("", "state", state[1].lower())
        elif (bare := _BARE.match(line)) is not None and _INPUT.match(_next(lines, at, 1)):
            found[at] = Head(bare[1], "input")
        elif names_session and (signed := _SIGNED.match(line)) is not None and signed[1] in _SIGNED_TOOLS:
            found[at] = Head(signed[1], "signed", signed[2])
        elif names_session and (folded := _FOLDED.match(line)) is not None and lines[at - 1].strip() == "<details>":
            found[at] = Head(folded[2], "folded", folded[3])
        elif (name := _tool(line)) and GOES_ON.match(_next(lines, at, 4)) and not _describes(lines, at, found):
            found[at] = Head(name)
    return found


def input_begins(line: str) -> int | None:
    """Where the JSON behind `Input:` begins in a line."""
    given = _INPUT.match(line)
    return None if given is None else given.end()


def _describes(lines: Sequence[str], at: int, found: dict[int, Head]) -> bool:
    """Whether a line only tells more of the call that the heading above it begins: its kind, or what it is for."""
    above = next((number for number in range(at - 1, max(at - 4, -1), -1) if lines[number].strip()), None)
    named = above is not None and above in found and lines[above].lstrip().startswith("#")
    if above is not None and named and found[above].form == "state":
        return True
    return named and bool(_BOLD.match(lines[at])) and _next(lines, at, 4).startswith("$ ")


def _next(lines: Sequence[str], at: int, reach: int) -> str:
    """The next line that is not blank, as far as it is near."""
    return next((line for line in lines[at + 1 : at + 1 + reach] if line.strip()), "")


def _tool(line: str) -> str | None:
    """The tool that a line names as called; None: it names none."""
    if (used := _USES.match(line)) is not None:
        return used[1]
    if not _LABELLED.match(line) or _ANSWER.match(plain(line)):
        return None
    line = _TAG.sub("`", line)
    called, coded = _CALLED.search(line), _CODED.search(line)
    if called is None and not (coded and line.lstrip().startswith("#") and not _FILE.search(coded[1])):
        return None  # a heading may speak of a file, too
    named = coded or (_NAMED.match(line, called.end()) if called else None)
    return named[1] if named else None
