"""Data flow of shell scripts: functions, variables and files (see `flow`).

Words are names: `sort in.txt > out.txt` reads `in.txt` and binds `out.txt`; a function is called where its name stands.
"""

import re
from collections.abc import Iterator

from capibara_assets.datasets.anatomy import flow
from capibara_assets.datasets.anatomy.flow import NONE, FlowCall, Names, Program, Unit, Value

_TOKEN = re.compile(
    r"(?P<comment>(?<![^\s;(){}|&])\#[^\n]*)|(?P<text>\"(?:\\.|[^\"\\])*\"|'[^']*')|(?P<here><<-?\s*['\"]?(?P<mark>\w+)['\"]?)"
    r"|(?P<op>\n|;;|;|&&|\|\||>>|<\(|\$\(|\)|\(|\{(?=\s)|\}|\||[<>]|&)|(?P<word>(?:\\.|[^\s;&|<>(){}\"'\\$]|\$(?!\()|\{(?!\s))+)|.",
    re.DOTALL,
)
_WORD = re.compile(r"[\w./-]+")
_OPENS = frozenset({"if", "for", "while", "until", "case", "select"})
_CLOSES = frozenset({"fi", "done", "esac"})
_KEYWORDS = (
    _OPENS | _CLOSES | frozenset({"then", "do", "else", "elif", "in", "function", "!", "time", "local", "export"})
)
_TESTS = frozenset({"[", "[[", "test", "diff", "cmp", "comm"})
_SHOWS = frozenset({"echo", "printf", "cat", "ls", "head", "tail", "less"})
_FUNCTION = re.compile(r"^(?:function\s+)?(?P<name>[\w:.-]+)\s*(?:\(\s*\))?\s*\{(?P<body>.*)\}\s*$", re.DOTALL)
_SET = re.compile(r"^(?:export\s+|local\s+|readonly\s+)?(?P<name>[A-Za-z_]\w*)=")
_INTO = re.compile(r">>?\s*(?P<file>[\w./-]+)")


def program(code: str) -> Program:
    """The script's commands: functions, compound commands, and lines."""
    units = [Unit(start, end, tuple(_statements(code[start:end]))) for start, end in _commands(code)]
    return Program(tuple(units), NONE, frozenset())


def _commands(code: str) -> Iterator[tuple[int, int]]:
    """The places of the top-level commands; `a && b` and what stands in braces or between `if` and `fi` is one."""
    start = end = -1
    depth, first, joined = 0, True, False
    position = 0
    marks: list[str] = []
    while position < len(code) and (match := _TOKEN.match(code, position)):
        position, text = match.end(), match[0]
        if match["comment"] or (text.isspace() and text != "\n"):
            continue
        if text in ("\n", ";") and depth == 0 and not joined:
            if text == "\n" and marks:
                position = end = _past_documents(code, position, marks)
            if start >= 0:
                yield start, end
            start, first = -1, True
            continue
        if match["here"]:
            marks.append(match["mark"])
        joined = text in ("&&", "||", "|") or (joined and text == "\n")
        if text.strip():
            start, end = (match.start() if start < 0 else start), match.end()
        if text in ("{", "(", "$(", "<(") or (first and text in _OPENS):
            depth += 1
        elif text in ("}", ")") or (first and text in _CLOSES):
            depth = max(0, depth - 1)
        first = text in ("\n", ";", "&&", "||", "|", "{", "(", "$(", ";;") or text in ("then", "do", "else")
    if start >= 0:
        yield start, end


def _past_documents(code: str, position: int, marks: list[str]) -> int:
    """The place after the here-documents that begin here."""
    while marks:
        end = re.compile(rf"^\t*{re.escape(marks.pop(0))}$", re.MULTILINE).search(code, position)
        position = end.end() if end else len(code)
    return position


def _statements(command: str) -> Iterator[flow.Statement]:
    function = _FUNCTION.match(command)
    if function is not None:
        body = function["body"]
        block = tuple(part for start, end in _commands(body) for part in _statements(body[start:end]))
        yield flow.Function(function["name"], frozenset({"$1", "$2", "$3", "$@"}) & _names(body), block)
        return
    value = _value(command)
    words = [word for word in re.split(r"[\s;(){}|&]+", command) if word and word not in _KEYWORDS]
    judges = any(word in _TESTS for word in words[:1]) or (" || " in command or command.lstrip().startswith("if "))
    if judges and any(word in _TESTS or word == "grep" for word in words):
        yield flow.Assert(value)
    elif (name := _SET.match(command)) is not None:
        yield flow.Bind(frozenset({name["name"]}), value)
    elif files := frozenset(match["file"] for match in _INTO.finditer(command)) - {"dev/null", "/dev/null"}:
        yield flow.Bind(files, value)
    elif words and words[0] in _SHOWS:
        yield flow.Show(value)
    else:
        yield flow.Do(value)


def _value(command: str) -> Value:
    names = _names(command)
    given = Value(names)
    return Value(names, tuple(FlowCall(name, (given,)) for name in sorted(names)[:1]))


def _names(command: str) -> Names:
    """Words of a command, and the variables that it reads."""
    variables = {f"${name}" for name in re.findall(r"\$\{?([\d@*#])", command)}
    return frozenset(_WORD.findall(command)) | frozenset(variables)
