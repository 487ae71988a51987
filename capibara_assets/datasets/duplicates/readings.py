"""Features of code texts that grouping compares (digests, hashed shingles, counts), with a cache on disk.

Reading a text (parsing, cutting, numbering its names) costs a millisecond and depends only on the text and this
program, so one new log must not cause all history to be read again. The cache holds no text and drops entries that are
no longer requested, so a forgotten record leaves nothing here once the groups were made again.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np

from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code.sessions import definitions
from capibara_assets.datasets.code.structure import normal_text, shingles, structural_key, tokens
from capibara_assets.datasets.duplicates.problems import ProblemView, problem_view
from capibara_assets.datasets.duplicates.shingles import UInts, hash_sets, offsets_of
from capibara_assets.processes.ray_map import RayCluster, ray_map
from capibara_assets.storage.cache import Cache, CacheRead
from capibara_assets.storage.kept import program_digest

Code = tuple[str, str]  # language, text

_MIN_STATEMENT_WORDS = 5  # shorter statements ("plot the result") do not tell one problem from another
_AT_ONCE = 2_000  # texts whose shingles are in memory as strings
_DIGEST = 32


@dataclass(frozen=True)
class CodeView:
    """Features of one view of a cell: of its definitions, or of the whole."""

    keys: tuple[bytes, bytes]  # structural, and of the normalised text
    shingles: UInts  # hashed, ascending, distinct
    tokens: int


@dataclass(frozen=True)
class CodeReading:
    """Features of one code text: its views, the digest of its statement, and its problem."""

    views: tuple[CodeView, ...]
    statement_key: bytes | None  # None: no statement, or too short to tell problems apart
    problem: ProblemView


def readings(
    codes: Iterable[Code], shingle: int, cache: Path | None = None, cluster: RayCluster | None = None
) -> dict[Code, CodeReading]:
    """The features of each text, with shingles of `shingle` tokens.

    Args:
        cache: folder that caches readings by digest of text and program; it does not change the result. Afterwards it
            holds exactly these texts' readings; it may be deleted at any time.
        cluster: whose workers read the texts, instead of this process, where they are many.
    """
    wanted = sorted(set(codes))
    name = f"readings-{shingle}-{program_digest()[:32]}.sqlite"
    file = None if cache is None else Cache(cache / name, "readings of code", former=("readings-*",))
    known = CacheRead() if file is None else file.read()
    keys = {code: code_key(*code) for code in wanted}
    read = {code: unpacked(known.values[key]) for code, key in keys.items() if key in known.values}
    missing = [code for code in wanted if code not in read]
    parts = [missing[start : start + _AT_ONCE] for start in range(0, len(missing), _AT_ONCE)]
    some = partial(_read, shingle=shingle)
    made = (
        map(some, parts) if cluster is None or len(parts) < 2 else (part for _, part in ray_map(cluster, some, parts))
    )
    for part in made:
        read |= part
    if file is not None and (missing or known.damaged or len(known.values) != len(read) or not file.path.exists()):
        file.replace({keys[code]: packed(reading) for code, reading in read.items()})
    return read


def statement_key(statement: str | None) -> bytes | None:
    """Digest of a task or statement; None where there is none, or it is too short to tell problems apart."""
    if statement is None or len(statement.split()) < _MIN_STATEMENT_WORDS:
        return None
    return _sha(normal_text(statement))


def code_key(language: str, code: str) -> bytes:
    """Digest of a code text and its language."""
    return sha256(f"{language}\n{code}".encode("utf-8", "surrogatepass")).digest()


def _read(codes: Sequence[Code], shingle: int) -> dict[Code, CodeReading]:
    parts: list[tuple[str, str]] = []  # language and text of all views
    counts, stated = [], []
    for language, code in codes:
        anatomy = dissect(code, language)
        body = anatomy.definitions or anatomy.body or code
        views = list(dict.fromkeys((body, code)))
        parts += [(language, view) for view in views]
        counts.append(len(views))
        problem = problem_view(anatomy.statement, code, defined=definitions(body, language))
        stated.append((statement_key(anatomy.statement), problem))
    cut = [tokens(code, language) for language, code in parts]
    sets = hash_sets([shingles(each, shingle) for each in cut])
    made = [
        CodeView(
            (bytes.fromhex(structural_key(code, language)), _sha(f"text\n{normal_text(code)}")),
            sets.values[start:end].copy(),  # a slice would keep the shingles of all others alive
            len(each),
        )
        for (language, code), each, (start, end) in zip(parts, cut, pairwise(sets.offsets.tolist()), strict=True)
    ]
    ends = offsets_of(np.asarray(counts, np.int64)).tolist()
    grouped = [CodeReading(tuple(made[a:b]), *about) for (a, b), about in zip(pairwise(ends), stated, strict=True)]
    return dict(zip(codes, grouped, strict=True))


def _sha(text: str) -> bytes:
    return sha256(text.encode("utf-8", "replace")).digest()


# --- on disk ----------------------------------------------------------------------------------------------------------

_HEAD = struct.Struct("<qqqq")  # bytes of the statement's digest; words, cases and names of the problem
_VIEW = struct.Struct(f"<{_DIGEST}s{_DIGEST}sqq")  # of a view: its keys, tokens and number of shingles


def packed(reading: CodeReading) -> bytes:
    """A reading as bytes: the digest of the statement, or nothing, its problem, and its views with their shingles."""
    stated, problem = reading.statement_key or b"", reading.problem
    parts = [_HEAD.pack(len(stated), len(problem.words), len(problem.cases), len(problem.names)), stated, *problem.key]
    for view in reading.views:
        parts += [_VIEW.pack(*view.keys, view.tokens, len(view.shingles)), view.shingles.tobytes()]
    return b"".join(parts)


def unpacked(data: bytes) -> CodeReading:
    """The reading that `packed` made the bytes of."""
    stated, *sizes = _HEAD.unpack_from(data)
    first = _HEAD.size + stated
    at = first + 8 * sum(sizes)  # all lengths are multiples of eight: arrays are aligned
    told = np.split(np.frombuffer(data, np.uint64, sum(sizes), first), np.cumsum(sizes[:-1]))
    views = []
    while at < len(data):
        structure, text, count, size = _VIEW.unpack_from(data, at)
        views.append(CodeView((structure, text), np.frombuffer(data, np.uint64, size, at + _VIEW.size), count))
        at += _VIEW.size + 8 * size
    return CodeReading(tuple(views), data[_HEAD.size : first] or None, ProblemView(*told))
