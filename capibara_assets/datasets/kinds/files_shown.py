"""The files that code opens: the beginning of each, if the session wrote or printed it earlier."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.kinds.proof import recorded_output
from capibara_assets.executions.heredocs import heredocs
from capibara_assets.executions.parsing import JAVASCRIPT

_FILE = re.compile(r"^(?!\w+://)[\w./~\\-]*[\w-]\.[A-Za-z]\w{0,7}$")
_SHELL_WORD = re.compile(r"(?<![\w./~-])[\w./~-]+\.[A-Za-z]\w{0,7}\b")
# bounded, or hostile cells take time without end
_ECHO = (
    r"(?:echo|printf)\s{{1,9}}(?:-e\s{{1,9}})?(?P<quote>['\"])(?P<body>.{{0,2000}}?)(?P=quote)"
    r"\s{{0,9}}>\s{{0,9}}{name}\b"
)
_PRINTS = r"(?:^|[!%;&|]|\b)\s*(?:cat|head|less|more|type)\b[^|>\n]*{name}"
_LINES, _CHARS = 8, 400
_READS = frozenset({"read", "read_text", "readlines", "readline", "readFileSync", "load", "safe_load"})


@dataclass(frozen=True)
class ShownFile:
    """The beginning of a file, and the execution that wrote or printed it."""

    name: str
    head: str
    execution_id: str


def files_shown(session: Sequence[Row], position: int, codes: Sequence[tuple[str, str]]) -> list[ShownFile]:
    """The files that these codes (code, language) name and that an earlier cell wrote or printed."""
    names = dict.fromkeys(name for code, language in codes for name in _named(code, language))
    shown = []
    for name in names:
        if any(_writes_it(code, language, name) for code, language in codes):
            continue  # a file that the code makes itself
        for row in reversed(session[:position]):
            if name in row["code"] and row["outcome"] == "ok" and (head := _head(row, name)):
                shown.append(ShownFile(name, head, row["execution_id"]))
                break
    return shown


def _named(code: str, language: str) -> Iterator[str]:
    if language == "python":
        for node in python_source.nodes(code):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _FILE.match(node.value):
                yield node.value
    elif language in JAVASCRIPT:
        for part in javascript_source.walk(javascript_source.parse(code)):
            if part.type == "string" and _FILE.match(value := javascript_source.text(part)[1:-1]):
                yield value
    elif language == "bash":
        yield from _SHELL_WORD.findall(code)


def _head(row: Row, name: str) -> str:
    """The beginning of what a cell wrote to a file, or printed of it; "" where that is not known."""
    content = _written(row["code"], row["language"], name)
    if content is None and _prints(row["code"], row["language"], name):
        content = recorded_output(row)
    lines = (content or "").strip("\n").split("\n")
    head = "\n".join(lines[:_LINES])
    cut = len(lines) > _LINES or len(head) > _CHARS
    return head[:_CHARS] + ("\n..." if cut else "") if head.strip() else ""


def _written(code: str, language: str, name: str) -> str | None:
    """The text that a cell writes to a file, where it stands in the cell as a literal."""
    first, _, rest = code.lstrip().partition("\n")
    if re.match(rf"%%(writefile|file)\s+(-a\s+)?['\"]?{re.escape(name)}['\"]?\s*$", first):
        return rest
    for document in heredocs(code):
        if name in (_target(document.before), _target(document.after)):
            return document.body
    if match := re.search(_ECHO.format(name=rf"['\"]?{re.escape(name)}['\"]?"), code, re.DOTALL):
        return match["body"].replace("\\n", "\n")
    if language == "python":
        return _written_python(code, name)
    if language in JAVASCRIPT:
        for node in javascript_source.walk(javascript_source.parse(code)):
            called = node.child_by_field_name("function") if node.type == "call_expression" else None
            if called is not None and re.search(r"(write|append)File", javascript_source.text(called)):
                given = [javascript_source.text(one) for one in javascript_source.given(node)]
                if len(given) > 1 and given[0][1:-1] == name and given[1][:1] in "'\"`":
                    return given[1][1:-1].replace("\\n", "\n")
    return None


def _target(words: str) -> str | None:
    """The file that the end of a command, or the whole of it, is redirected to."""
    _, sign, file = words.rpartition(">")
    return file.strip().strip("'\"") if sign else None


def _written_python(code: str, name: str) -> str | None:
    nodes = list(python_source.nodes(code))
    literals = {
        target.id: node.value.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    handles: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.With):
            for item in node.items:
                if _opens(item.context_expr, name) and isinstance(item.optional_vars, ast.Name):
                    handles.add(item.optional_vars.id)
        elif isinstance(node, ast.Assign) and _opens(node.value, name):
            handles |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr not in ("write", "write_text", "writelines"):
                continue
            owner = node.func.value
            if (isinstance(owner, ast.Name) and owner.id in handles) or name in ast.unparse(owner):
                text = node.args[0]
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    return text.value
                if isinstance(text, ast.Name) and text.id in literals:
                    return str(literals[text.id])
    return None


def _opens(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and python_source.called_name(node) == "open" and name in ast.unparse(node)


def _writes_it(code: str, language: str, name: str) -> bool:
    quoted = rf"['\"]{re.escape(name)}['\"]"
    made = rf"open\(\s*{quoted}\s*,\s*(?:mode\s*=\s*)?['\"][wax]|(?:to_\w+|savefig|write\w*|save|dump)\(\s*{quoted}"
    return re.search(made, code) is not None or _written(code, language, name) is not None


def _prints(code: str, language: str, name: str) -> bool:
    """Whether the output of a cell is the text of a file: a lone `cat`, or a read whose value is shown."""
    if language == "bash" or code.lstrip()[:1] in "!%":
        one = code.strip("\n ").count("\n") == 0 and not re.search(r"[;&|]", code)
        return one and re.search(_PRINTS.format(name=re.escape(name)), code) is not None
    called = set(re.findall(r"\.(\w+)\(", code))
    shows = re.findall(r"\b(?:print|console\.log)\(", code)
    return bool(called & _READS) and len(shows) <= 1 and code.strip().count("\n") <= 3
