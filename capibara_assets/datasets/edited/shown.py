"""What a prompt shows of paths and outputs: as a terminal leaves them, without the machine's folders and users."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.edited.places import EditPlace

_MOST_OUTPUT = 1500  # characters
_ABSOLUTE = r"((?:[A-Za-z]:)?[/\\][^\s:\"'()\[\]]*?[/\\])"
_ROOTED = re.compile(r"/|[A-Za-z]:/")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u2028\u2029]")
_HOME = re.compile(
    r"(?:(?<![\w.])/(?:home|Users|mnt/[a-z]/Users)|\b[A-Za-z]:[\\/]Users)[\\/](?P<user>[^\\/:\"'\n<>]+)(?=[\\/])"
)
_SHARED = frozenset(("root", "runner", "user", "ubuntu", "dev", "app", "work", "admin", "vscode", "node", "public"))


def printed(row: Row) -> str:
    """What a failing command printed, from the end so much as is shown."""
    stdout, stderr = (_plain(row[stream]).strip("\n") for stream in ("stdout", "stderr"))
    whole = stdout if stderr in stdout else "\n".join(filter(None, [stdout, stderr]))
    if len(whole) <= _MOST_OUTPUT:
        return whole
    return f"...\n{whole[-_MOST_OUTPUT:].partition(chr(10))[2]}"


def _plain(text: str) -> str:
    """Text as a terminal leaves it: of a line that was written anew the last one, without signs of control."""
    lines = (line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return _CONTROL.sub("", "\n".join(lines))


def named(made: Sequence[EditPlace], failing: Row) -> list[EditPlace]:
    """The places with their paths as the command and its output write them, without the folders of the machine."""
    told = f"{failing['code']}\n{failing['stdout']}\n{failing['stderr']}".replace("\\", "/")
    return [replace(place, path=_short(place.path, told)) for place in made]


def _short(path: str, told: str) -> str:
    path = path.replace("\\", "/")
    if not _ROOTED.match(path):
        return path
    parts = _HOME.sub("", path).strip("/").split("/")
    ends = ["/".join(parts[n:]) for n in range(len(parts))]
    told_ends = list(takewhile(lambda end: end in told, reversed(ends)))
    return max("".join(told_ends[-1:]), "/".join(parts[-2:]), key=len)


def without_roots(output: str, changed: Sequence[EditPlace]) -> str:
    """Output without the folder of the machine in which the project stood, told by the paths of edited files."""
    for root in {match[1] for place in changed for match in re.finditer(_ABSOLUTE + re.escape(place.path), output)}:
        if folder := root.rstrip("/\\"):
            output = re.sub(re.escape(folder) + r"(?![\w.-])", ".", output.replace(root, ""))
    return output


def without_users(text: str, told: str) -> str:
    """Text without the names of users, whom the paths of their homes name."""
    users = {match["user"] for match in _HOME.finditer(told)} - _SHARED
    text = _HOME.sub("~", text)
    for user in users:
        text = re.sub(rf"(?<!\w){re.escape(user)}(?!\w)", "user", text) if len(user) > 2 else text
    return text
