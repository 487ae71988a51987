"""What `codex exec` shows in a terminal, kept as a file or as an asciicast: blocks under `exec`, `codex`, `user`, ..

`exec`, then the command, `in` its folder, `succeeded in 18ms:` or `exited 1 in 96ms:` and the output, up to the next
block's name behind an empty line. Earlier versions dated each line and named the command again where it ended; all may
be coloured. Calls of MCP servers are `tool NAME({..})`, then `NAME({..}) success in 44ms:` and the answer as JSON.
Traps: the command is in shell's words (`bash -lc '..'`) and may have many lines; commands in what the agent says were
not run; output may be cut.
"""

import re
from collections.abc import Iterator

from capibara_assets.executions.formats.agents import asciicast
from capibara_assets.executions.formats.agents.fields import of_json
from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import asked_of
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader, moment
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.codex_calls import typed_command
from capibara_assets.executions.formats.cell_outputs import strip_ansi

_MARK = b"OpenAI Codex v"
_TIME = r"(?:\[(?P<time>\d{4}-\d\d-\d\dT[\d:.]+Z?)\] )?"
_BLOCK = re.compile(
    rf"^{_TIME}(?P<kind>exec(?(time)(?: (?=\S))?)|codex|thinking|[Uu]ser(?: instructions:)?|file update\b.*"
    r"|apply_patch\b.*|tool (?=\S+\()|tokens used\b.*|plan update\b.*|turn diff\b.*"
    r"|(?:\U0001f310 )?[Ss]earched\b.*|web search\b.*|mcp\b.*)(?:\n|(?<= )|$)",
    re.MULTILINE,
)
_EXEC = re.compile(
    r"(?P<command>.+?) in (?P<folder>(?:/|~|[A-Za-z]:\\)[^\n]{0,1000}?(?<!\s))\s++"
    r"(?:\[[\dT:.Z-]+\] (?P=command) )?(?:(?P<well>succeeded)|exited (?P<code>-?\d{1,9}))"
    r" in (?P<took>\d{1,9}(?:\.\d{1,9})?)(?P<unit>ms|s)\b:?[ \t]*(?:\n|\Z)",
    re.DOTALL,
)
_BEGUN = re.compile(r"(?P<command>.+?) in (?:/|~|[A-Za-z]:\\)[^\n]{0,1000}\s*\Z", re.DOTALL)
_TOOL = re.compile(
    r"(?P<name>[\w.-]+)\((?P<given>\{.*?\})\)\n(?:\[[^\n\]]*\] )?(?P=name)\(.*?\) (?P<how>success|failed) in [^\n]*:\n",
    re.DOTALL,
)
_SESSION = re.compile(r"^session id: (\S+)", re.MULTILINE)
_MODEL = re.compile(r"^model: (\S+)", re.MULTILINE)


def reads(document: LogDocument) -> bool:
    """Whether it begins as the program does, and a command was run."""
    return _MARK in document.data[:4096] and any(True for _ in _runs(document))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands and queries in order."""
    yield from _runs(document)


def _runs(document: LogDocument) -> Iterator[AgentRun | NotRun]:
    text = strip_ansi((asciicast.shown(document) or document.text).replace("\r\n", "\n"))
    session, model = _SESSION.search(text[:4096]), _MODEL.search(text[:4096])
    blocks = list(_BLOCK.finditer(text))
    ends = [*(block.start() for block in blocks[1:]), len(text)]
    task: str | None = None
    for block, end in zip(blocks, ends, strict=False):
        inside = text[block.end() : end]
        kind = block["kind"].strip()
        if kind.lower().startswith("user"):
            task = inside.strip() or task
        if kind not in ("exec", "tool"):
            continue
        call = Call(
            session[1] if session else document.digest, kind, None, None, moment(block["time"]), task,
            model[1] if model else None,
        )  # fmt: skip
        run = _command(call, inside, end == len(text)) if kind == "exec" else _tool(call, inside)
        if run is not None:
            yield run


def _command(call: Call, inside: str, is_last: bool) -> AgentRun | NotRun | None:
    told = _EXEC.match(inside)
    if told is None:
        begun = _BEGUN.match(inside) if is_last else None
        asked = typed_command(begun["command"]) if begun else None
        return None if asked is None else NotRun("unanswered", call.session, asked[1])
    command = typed_command(told["command"])
    if command is None:
        return None
    call.exit_code = 0 if told["well"] else int(told["code"])
    call.success = call.exit_code == 0
    call.output = inside[told.end() :].removesuffix("\n")
    call.duration_ms = float(told["took"]) * (1 if told["unit"] == "ms" else 1000)
    return call.run(*command)


def _tool(call: Call, inside: str) -> AgentRun | None:
    told = _TOOL.match(inside)
    asked = asked_of(told["name"], told["given"]) if told else None
    if told is None or asked is None or asked.path is not None:
        return None
    said = inside[told.end() :]
    answer = read_answer(of_json(said, said.strip()))
    answer.failed = True if told["how"] == "failed" else answer.failed
    write_answer(call, answer, runs_shell=False, language=asked.language)
    return call.run(asked.language, asked.text) if call.not_run is None else None


READER = Reader("codex-terminal", (_MARK,), reads, entries)
