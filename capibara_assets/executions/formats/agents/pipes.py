"""Takes a shell command apart, and tells whether its exit code can hide that what it ran has failed."""

import re
from functools import lru_cache

from capibara_assets.executions.heredocs import without_heredocs

_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*")
_SUBSTITUTED = re.compile(r"\$\([^()]*\)|`[^`]*`|<\([^()]*\)")
_PIPE = re.compile(r"(?<![|>])\|&?(?!\|)")
_FORGIVING = re.compile(r"(?:true|:|echo\b.*|printf\b.*|exit\s+0)\s*$", re.DOTALL)
_NEGATED = re.compile(r"!\s|(?:if|while|until)\s")
_LOOP = re.compile(r"[;\n][^\S\n]*(?:done|fi)\b[^;\n]*$")
# programs that run what stands between quotes in a shell of their own, here or elsewhere
_INNER = re.compile(
    r"\b(?:bash|sh|zsh|dash)\s+(?:-\w+\s+)*-\w*c\s+(?P<q>['\"])(?P<shell>.*?)(?P=q)|\bssh\s[^'\"|;&]*(?P<p>['\"])(?P<far>.*?)(?P=p)",
    re.DOTALL,
)
_FEEDERS = ("echo", "printf", "cat", "yes", "true", ":")  # what they feed is the program that is run


@lru_cache(maxsize=4096)
def hides_exit_code(command: str) -> bool:
    """Whether the exit code is not that of what ran.

    It is that of a filter behind a pipe, of an `echo` or `true` behind the command, of a loop's last round, of an `if`,
    turned round by `!`, or of nothing where the command goes on in the background. `set -o pipefail`, and a test of
    `PIPESTATUS`, let it through.
    """
    if "pipefail" in command or "PIPESTATUS" in command:
        return False
    if any(hides_exit_code(found["shell"] or found["far"] or "") for found in _INNER.finditer(command)):
        return True
    if not any(sign in command for sign in "|;&!\n"):
        return False
    bare = _bare(command)
    if re.search(r"(?<![&>])&$", bare) or _LOOP.search(bare):
        return True
    lists = [part for part in re.split(r"[;\n]", bare) if part.strip()]
    if not lists:
        return False
    last = lists[-1].strip()
    if _NEGATED.match(last):
        return True
    if len(lists) > 1 and _FORGIVING.match(last):
        return True
    first, *alternatives = last.split("||")
    return any(map(_filtered, first.split("&&"))) or any(_FORGIVING.match(each.strip()) for each in alternatives)


@lru_cache(maxsize=4096)
def pipelines(command: str) -> tuple[tuple[str, ...], ...]:
    """The commands of each pipeline, in order; quoted text, here-documents, comments and substitutions are left out."""
    parts = re.split(r"&&|\|\||[;\n]", _bare(command))
    return tuple(tuple(each.strip() for each in _PIPE.split(part)) for part in parts if part.strip())


def cell_hides_exit_code(cell: str) -> bool:
    """Whether a notebook's cell runs nothing but commands (`!pytest | tail`), of which one hides its exit code."""
    return runs_commands(cell) and any(hides_exit_code(line.lstrip("!")) for line in _told_lines(cell))


def runs_commands(cell: str) -> bool:
    """Whether a notebook's cell runs nothing but commands (`!pytest`, also beside `%cd`), which raise nothing in it."""
    lines = _told_lines(cell)
    return any(line.startswith("!") for line in lines) and all(line.startswith(("!", "%cd ")) for line in lines)


def _told_lines(cell: str) -> list[str]:
    return [line.strip() for line in cell.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _bare(command: str) -> str:
    """A command without what is only text to the shell."""
    bare = _COMMENT.sub("", _QUOTED.sub("''", without_heredocs(command)))
    while (inner := _SUBSTITUTED.sub("''", bare)) != bare:
        bare = inner
    return bare.rstrip()


def _filtered(pipeline: str) -> bool:
    """Whether another program than a feeder stands before the last pipe."""
    *before, _ = _PIPE.split(pipeline)
    return any((words := part.split()) and words[0] not in _FEEDERS for part in before)
