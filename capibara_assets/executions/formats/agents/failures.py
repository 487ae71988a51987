"""Failures that an output shows, where no exit code tells how a command ended: its programs' own words.

A command that only prints files or records (`cat run.log`, `git diff`) says nothing of itself by what it prints; only
its own name before a message does.
"""

import re
from collections.abc import Iterable

from capibara_assets.executions.formats.agents.pipes import pipelines
from capibara_assets.executions.formats.agents.tool_failures import TOOLS

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOURED = re.compile(r"^\x1b\[[0-9;]*m\w+(?:Error|Exception|Interrupt)\x1b\[[0-9;]*m(?::|$)", re.M)  # as IPython does
_RAISED = re.compile(
    r"^(?:[\w.]+ +)?Traceback \(most recent call last\)|\AUsageError: "
    r"|^(?:\w+\.)*[A-Z]\w*(?:Error|Exception)(?:: [^\n]*)?\Z",  # the last line, where the rest was cut off
    re.M,
)
_NOT_PARSED = re.compile(
    r"^ +(?:File \"[^\"\n]*\", |Cell In ?\[\d+\], |(?:Cell )?Input In \[\d+\][^\n]*?)line \d+\b[^\n]*"
    r"(?:\n[^\n]*){0,5}?\n(?:Syntax|Indentation|Tab)Error: ",
    re.M,
)
_SHELL = re.compile(
    r"^[^\s:][^:\n]*: (?:[^\n]*[:(] ?)?"
    r"(?:No such file or directory|command not found|Command not found|Permission denied|Is a directory"
    r"|Operation not permitted|syntax error near unexpected token [^\n]*"
    r"|unexpected EOF while looking for [^\n]*)[^\w\n]*$"
    r"|^zsh: (?:no such file or directory|permission denied): ",
    re.M,
)
_COMPLAINS = re.compile(
    r"^([\w.+-]+): (?:cannot|failed to|unable to|invalid|unrecognized|illegal|missing|unknown) ", re.M
)
_SHELLS = ("bash: ", "sh: ", "zsh: ", "/bin/", "fatal: ")

_VIEWERS = re.compile(
    r"[bc]at|tac|nl|head|tail|less|more|[efz]?grep|zcat|rg|ag|ack|g?awk|sed|find|tree|diff|cmp|comm|jq|yq|strings|xxd|od"
    r"|hexdump|curl|wget|http|journalctl|gh|echo|printf|open|goto|find_file|search_\w+|scroll_\w+"
    r"|(?i:get-content|gc|select-string|sls|get-childitem|get-winevent)"
)
_VIEWING = re.compile(  # those that only show where they are given these words
    r"(git)(?: -[Cc] \S+| --no-pager)* (?:show|log|diff|grep|blame|shortlog|reflog|cat-file|stash show)\b"
    r"|(docker|podman|kubectl)(?: compose| -\S+(?: (?!logs\b)[^-\s]\S*+)?)*+ logs\b|(str_replace_editor) view\b"
)
_WRITING = re.compile(
    r"sed\s(?:.*\s)?-\w*i|find\s.*-(?:exec|execdir|ok)\s+(?!grep|cat|head|tail|ls|wc|sed -n|file|stat)", re.DOTALL
)
_FILTERS = re.compile(r"sort|uniq|wc|cut|tr|tee|column|fold|rev|paste|base64|xargs|shuf|expand")
_QUIET = re.compile(
    r"cd|pushd|popd|export|set|unset|source|\.|pwd|ls|wc|true|:|test|\[\[?|mkdir|touch|sleep|which|type|local|declare"
    r"|shopt|alias|clear|stat|file|du|date|read|for|while|until|if|elif|case|esac|done|fi|[})]"
)
_LEAD = re.compile(r"(?:\w+=\S*|sudo|command|time|nice|env|timeout \S+|xargs(?: -\S+(?: \d+)?)*|do|then|else|[({!])\s+")


def raised(output: str) -> bool:
    """Whether Python's own report of an exception or of code that does not parse stands in an output."""
    plain = _ANSI.sub("", output).rstrip()
    return bool(_RAISED.search(plain) or _COLOURED.search(output) or _NOT_PARSED.search(plain))


def shows_failure(output: str, code: str) -> bool:
    """Whether an output says that a command failed."""
    plain = _ANSI.sub("", output).replace("\r\n", "\n").strip("\n")
    if views := _views(code):
        begin = plain.split("\n", 1)[0]
        return begin.startswith((*_SHELLS, *(f"{program}: " for program in views))) and _told(begin)
    return raised(output) or _told(plain) or _complains(plain, code)


def any_shows_failure(streams: Iterable[str], code: str) -> bool:
    """Whether one of a command's streams says that it failed."""
    return any(shows_failure(text, code) for text in streams if text)


def _told(plain: str) -> bool:
    return bool(TOOLS.search(plain) or _SHELL.search(plain))


def _complains(plain: str, code: str) -> bool:
    """Whether a program of a command names itself before what it cannot do, as the coreutils write it."""
    named = {complaint[1] for complaint in _COMPLAINS.finditer(plain)}
    return not named.isdisjoint(programs(code)) if named else False


def programs(code: str) -> set[str]:
    """The names of the programs that a command runs."""
    return {_program(each) for line in pipelines(code) for each in line}


def _views(code: str) -> set[str]:
    """The programs of a command that only shows what is stored; none where it does anything else."""
    found: set[str] = set()
    for first, *others in pipelines(code):
        viewer = _viewer(first)
        if not all(_viewer(each) or _FILTERS.fullmatch(_program(each)) for each in others):
            return set()
        if viewer is not None:
            found.add(viewer)
        elif not _QUIET.fullmatch(_program(first)):
            return set()
    return found


def only_shows(command: str) -> bool:
    """Whether a command without pipes shows or selects what is stored, and changes nothing of it."""
    program = _program(command)
    return _viewer(command) is not None or bool(_FILTERS.fullmatch(program) or _QUIET.fullmatch(program) or not program)


def _viewer(command: str) -> str | None:
    """The name of the program where it only shows something."""
    if viewing := _VIEWING.match(without_lead(command)):
        return next(name for name in viewing.groups() if name)
    program = _program(command)
    return program if _VIEWERS.fullmatch(program) and not _WRITING.search(command) else None


def _program(command: str) -> str:
    return (without_lead(command).split(maxsplit=1) or [""])[0].rpartition("/")[2]


def without_lead(command: str) -> str:
    """A command without assignments, keywords and programs that stand before the one that is run."""
    while lead := _LEAD.match(command):
        command = command[lead.end() :]
    return command
