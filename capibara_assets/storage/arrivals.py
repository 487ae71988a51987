"""Fingerprint of the finished files in a folder, local or remote, from names, sizes and stamps; no file is read.

It is computed in sweeps of bounded time.
"""

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

UNFINISHED = (".part", ".tmp", ".crdownload", ".filepart")
"""Suffixes under which programs write a file that they rename when it is whole."""
# Hidden names under which agents keep their sessions, or that say so, and those below which programs keep their data
# (XDG's); others are somebody's unfinished or private ones.
_AGENTS = re.compile(
    r"\.(?:agno|aichat|aider|amazonq|amp|antigravity|augment|autogen|autogpt|automaker|blackbox|charm|claude|cline|cmux"
    r"|codebuddy|codebuff|codeium|codex|cody|continue|copilot|crewai|crush|cursor|devin|droid|entire|factory|forge|gemini"
    r"|goose|gptme|grok|happy|iflow|inspect_ai|interpreter|jules|junie|kilocode|kimi|kiro|letta|lingma|llm|mistral|mux"
    r"|openclaw|openhands|opencode|pearai|pi|plandex|qoder|qodo|qwen|replit|roo|rovodev|serena|smolagents|specstory"
    r"|sweagent|swe-agent|tabnine|trae|vibe|void|vscode|vscode-server|warp|windsurf|zed|local|config"
    r"|(?:[a-z]+[-_])?(?:agent|chat|conversation|session|thread|trace|trajector(?:y|ie)|transcript)s?)(?![a-z])"
)
_STAMPS = ("generation", "md5Hash", "etag", "ETag", "mtime", "LastModified", "updated", "created")
_SET_BACK_S = 600.0
"""A file of a later time than so long after now was written before the clock was set back."""
_MODULUS = 2**128

Parts = tuple[str, ...]
"""A folder below the root, by the names on the way."""

Entry = tuple[str, int, str, float | None]
"""One file as (name, bytes, stamp, written). The stamp differs when the content does; `written` is the Unix time of the
last write, None where files are always whole. A plain tuple: there are 100,000 of them at every tick."""


class Listing(NamedTuple):
    """The files and folders right below a folder."""

    files: list[Entry]
    folders: list[str]


Lister = Callable[[Parts], Listing]


@dataclass(frozen=True)
class Sweep:
    """Progress of a sweep through a folder. Once `done`, `fingerprint` covers every finished file."""

    total: int = 0
    files: int = 0
    waiting: int = 0
    """Files that were written to too recently to count."""
    after: Parts | None = None
    """The last folder that was counted, in the order of the walk."""
    done: bool = False

    @property
    def fingerprint(self) -> str:
        """Digest of the counted files' folders, names, sizes and stamps; independent of the order of listing."""
        return f"{self.total:032x}"[:24]


def sweep(list_folder: Lister, state: Sweep, *, now: float, quiet: float, budget: float) -> Sweep:
    """Continue a sweep, or begin one, for about `budget` seconds: at least one more folder, never part of one.

    Every finished file counts, whatever its time: a file that comes late is as new as any other. A file that was
    written to less than `quiet` seconds before `now` waits for a later sweep; one of a time
    far after `now` does not: the clock was set back since.
    """
    if state.done:
        state = Sweep()
    deadline = time.monotonic() + budget
    before = state.after
    for folder, listing in _walk(list_folder, state.after):
        if before is not None and folder <= before:
            continue  # on the way to where the last sweep stopped
        state = _count(state, folder, listing, now, quiet)
        if time.monotonic() > deadline:
            return state
    return replace(state, after=None, done=True)


def local_lister(root: Path) -> Lister:
    """A lister of the folders below a local one; files that vanish while it lists are left out."""

    def list_folder(folder: Parts) -> Listing:
        files: list[Entry] = []
        folders: list[str] = []
        now = time.time()
        try:
            with os.scandir(root.joinpath(*folder)) as entries:
                # one pass with little in it: it runs for every file at every tick
                for entry in entries:
                    name = entry.name
                    if not _visible(name):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(name)
                        continue
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue
                    if not stat.S_ISREG(status.st_mode):
                        continue
                    # a time in the future says nothing: then that of the last change of state
                    written = status.st_mtime if status.st_mtime <= now else status.st_ctime
                    stamp = f"{status.st_mtime_ns}.{status.st_ctime_ns}"
                    files.append((name, status.st_size, stamp, written))
        except (FileNotFoundError, NotADirectoryError):
            if not folder:
                raise
        return Listing(files, folders)

    return list_folder


def remote_lister(system: Any, root: str) -> Lister:
    """A lister of the folders below one of an fsspec file system, such as gs://; objects appear there whole."""

    def list_folder(folder: Parts) -> Listing:
        path = "/".join((root.rstrip("/"), *folder))
        files: list[Entry] = []
        folders: list[str] = []
        try:
            objects = system.ls(path, detail=True, refresh=True)
        except FileNotFoundError:
            return Listing([], [])
        for entry in objects:
            name = PurePosixPath(entry["name"]).name
            if not _visible(name) or entry["name"].strip("/") == path.strip("/"):
                continue
            if entry["type"] == "directory":
                folders.append(name)
            else:
                files.append((name, int(entry["size"] or 0), stamp_of(entry), None))
        return Listing(files, folders)

    return list_folder


def stamp_of(entry: dict[str, Any]) -> str:
    """The version stamp of an object: its generation, else a digest, else its time of writing; empty without any."""
    return str(next((entry[name] for name in _STAMPS if entry.get(name) is not None), ""))


def files_below(list_folder: Lister) -> Iterator[tuple[Parts, Entry]]:
    """Every visible file with its folder, finished or not."""
    for folder, listing in _walk(list_folder, None):
        yield from ((folder, entry) for entry in listing.files)


def _walk(list_folder: Lister, after: Parts | None) -> Iterator[tuple[Parts, Listing]]:
    """Every folder before its subfolders, by name; with `after`, only from there on, and the folders above it."""
    stack: list[Parts] = [()]
    while stack:
        folder = stack.pop()
        if after is not None and folder < after and after[: len(folder)] != folder:
            continue  # all of it lies before
        listing = list_folder(folder)
        yield folder, listing
        stack += [(*folder, name) for name in sorted(listing.folders, reverse=True)]


def _count(state: Sweep, folder: Parts, listing: Listing, now: float, quiet: float) -> Sweep:
    finished = [
        f"{name}\0{size}\0{stamp}\n"
        for name, size, stamp, changed in listing.files
        if changed is None or now - changed >= quiet or changed - now > _SET_BACK_S
    ]
    total = state.total
    if finished:
        finished.sort()
        content = "/".join(folder) + "\0" + "".join(finished)
        digest = hashlib.blake2b(content.encode("utf-8", "surrogateescape"), digest_size=16).digest()
        total = (total + int.from_bytes(digest)) % _MODULUS
    return replace(
        state,
        total=total,
        files=state.files + len(finished),
        waiting=state.waiting + len(listing.files) - len(finished),
        after=folder,
    )


def is_hidden(name: str) -> bool:
    """Whether a file or folder is not looked into because of its name; where agents keep their sessions, it is."""
    return name.startswith(".") and _AGENTS.match(name) is None


def _visible(name: str) -> bool:
    return name != "" and not is_hidden(name) and not name.endswith(UNFINISHED)
