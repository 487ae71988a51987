"""Words that agents' shell tools put around a command's output: one function for each tool, tried in turn."""

import re

from capibara_assets.executions.formats.agents.tools.shell_reports import Report, read_report

_TAIL = 300  # characters that an end may be told in
_FOOT = re.compile(
    r"(?:\A|\n)[\[<(]?(?:The |Command |Process |Tool )*"
    r"(?:(?:execution )?(?:failed|exited|finished|completed|ended)[^\n]{0,40}?)?"
    r"(?:\b(?:with )?(?:exit|return)[ _-]?(?:code|status)\b(?: of)?|(?<=exited )with code\b)"
    r"\s?[:=]?\s?(-?\d{1,9})\.?[\]>)]?\.?\s*\Z",
    re.IGNORECASE,
)
_HEAD = re.compile(  # the command may stand above it
    r"\s*(?:\$ [^\n]{1,2000}\n)?(?:(?:exit|return)[ _]?(?:code|status):? ?(-?\d{1,9})|\[exit (-?\d{1,9})\])"
    r"[ \t]*(?:\n|\Z)",
    re.IGNORECASE,
)
_MARKED = re.compile(r"(?:\A|\n)\[exit (-?\d{1,9})\]\s*\Z")
_CLINE = re.compile(
    r"Command (?:executed|failed|completed|is still running)"
    r"(?:[^\n]*?[Ee]xit code:?,? (?P<code>-?\d{1,9}))?[^\n]*(?:\nExit code: (?P<below>-?\d{1,9}))?"
    r"(?:\n(?:Output:(?:\n|\Z))?|\Z)"
)
_ZED = re.compile(
    r'Command ".*?" (?:failed with exit code (?P<code>-?\d{1,9})\.|timed out\.[^\n]*)(?:\s*\n(?P<output>.*))?\Z',
    re.DOTALL,
)
_WELL = re.compile(r"Command (?:(?:executed|completed|ran) successfully|completed)\.?\s*\Z")
_SCRIPT = re.compile(r"Script completed successfully\.\n\nOutput:\n")  # Goose's, which says what failed otherwise
_BACKGROUND = re.compile(r"<command started in background with \w+: [^<>\n]*>\Z")
_COPILOT = re.compile(  # `<command with shellId: 1 exited with exit code 2>`, `<shellId: 0 completed with exit code 0>`
    r"(?:\A|\n)<[^<>\n]{0,80} (?:exited|completed|finished|failed|ended) with exit code (-?\d{1,9})[^<>\n]*>\s*\Z"
)
_OPENCODE = re.compile(r"\s*<bash_metadata>\n(?P<said>[^<]*)</bash_metadata>\s*\Z")
_R2E_GYM = re.compile(
    r"(?:Exit code: (?P<code>-?\d{1,9})\n)?Execution output of \[\w+\]:\n"
    r"(?:\[STDOUT\]\n(?P<out>.*?)\n\[STDERR\]\n(?P<err>.*))?",
    re.DOTALL,
)
_STRANDS = re.compile(
    r"Execution Summary:\nTotal commands: 1\n(?:Successful|Failed): [^\n]*\n(?:Failed: [^\n]*\n)?\s*Command: .*?\n"
    r"Status: \w+\nExit Code: (?P<code>-?\d{1,9})\nOutput: (?P<output>.*)\nError: (?P<error>.*)\Z",
    re.DOTALL,
)
_FENCED = re.compile(r"\s*(`{3,})\w*\n(.*?)\n?\1\s*\Z", re.DOTALL)
_KILLED = re.compile(r"Command killed by timeout\b")
_SIGNALLED = re.compile(r"\s*Command (?:was )?(?:terminated|killed) by signal \w+\.?\s*\Z")
_DROID = re.compile(r"Error: Command (?:failed \(exit code: (?P<code>-?\d{1,9})\)|timed out after [^\n]*)(?:\n|\Z)")


def read_frame(text: str) -> Report | None:
    """The outcome that the words around an output tell; None: there are none of a known tool."""
    return next((report for read in _FRAMES if (report := read(text)) is not None), None)


def read_line(text: str) -> Report | None:
    """The outcome in an output that begins or ends with a line of its exit code."""
    cut = max(len(text) - _TAIL, 0)
    if foot := _FOOT.search(text[cut:]) or _MARKED.search(text[cut:]):
        return _exited(text[: cut + foot.start()], foot[1])
    head = _HEAD.match(text)
    return _exited(text[head.end() :], head[1] or head[2]) if head else None


def read_remark(said: str) -> Report | None:
    """The outcome that a tool tells beside the output, which is not in the report."""
    if foot := _FOOT.search(said[-_TAIL:]):
        return _exited("", foot[1])
    if _WELL.match(said):
        return Report("", success=True)
    return Report("", success=False, timed_out=True) if _KILLED.match(said) else None


def read_fence(text: str) -> str | None:
    """What stands in the fence that a text is; None: it is none."""
    fenced = _FENCED.match(text)
    return fenced[2] if fenced else None


def _exited(output: str, code: str) -> Report:
    return Report(output, int(code), int(code) == 0)


def _stated(text: str) -> Report | None:
    report = read_report(text)
    return report if report.stated else None


def _cline(text: str) -> Report | None:
    head = _CLINE.match(text)
    code = None if head is None else head["code"] or head["below"]
    if head is None or not (code or "Output:" in head[0]):
        return None
    output = text[head.end() :]
    return Report(output) if code is None else _exited(output, code)


def _zed(text: str) -> Report | None:
    zed = _ZED.match(text)
    if zed is None:
        return None
    inner = zed["output"] or ""
    fenced = read_fence(inner)
    code = None if zed["code"] is None else int(zed["code"])
    return Report(inner if fenced is None else fenced, code, False, timed_out=code is None)


def _well(text: str) -> Report | None:
    return Report("", success=True) if _WELL.fullmatch(text.strip()) else None


def _script(text: str) -> Report | None:
    head = _SCRIPT.match(text)
    return Report(text[head.end() :], success=True) if head else None


def _background(text: str) -> Report | None:
    return Report("") if _BACKGROUND.match(text) else None


def _copilot(text: str) -> Report | None:
    foot = _COPILOT.search(text, max(len(text) - _TAIL, 0))
    return _exited(text[: foot.start()], foot[1]) if foot else None


def _opencode(text: str) -> Report | None:
    note = _OPENCODE.search(text, max(len(text) - _TAIL, 0))
    if note is None:
        return None
    late = "exceeding timeout" in note["said"]
    return Report(text[: note.start()], success=False if late else None, timed_out=late)


def _strands(text: str) -> Report | None:
    told = _STRANDS.match(text)
    return _exited(told["output"], told["code"])._replace(stderr=told["error"]) if told else None


def _r2e_gym(text: str) -> Report | None:
    head = _R2E_GYM.match(text)
    if head is None:
        return None
    streams = head["out"] is not None
    output = head["out"].strip("\n") if streams else text[head.end() :]
    report = Report(output) if head["code"] is None else _exited(output, head["code"])
    return report._replace(stderr=head["err"].strip("\n") if streams else "")


def _signalled(text: str) -> Report | None:
    return Report("", success=False) if _SIGNALLED.match(text) else None


def _droid(text: str) -> Report | None:
    head = _DROID.match(text)
    if head is None:
        return None
    output = text[head.end() :]
    return Report(output, success=False, timed_out=True) if head["code"] is None else _exited(output, head["code"])


_FRAMES = (
    _signalled,
    _droid,
    _stated,
    _cline,
    _zed,
    _well,
    _script,
    _background,
    _copilot,
    _opencode,
    _r2e_gym,
    _strands,
)
