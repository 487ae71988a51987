"""Features of code texts that grouping compares (digests, hashed shingles, counts), with a cache on disk.

Reading a text (parsing, cutting, numbering its names) costs a millisecond and depends only on the text and this
program, so one new log must not cause all history to be read again. The cache holds no text and drops entries that are
no longer requested, so a forgotten record leaves nothing here once the groups were made again.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capibara_assets.datasets.code.anatomy import dissect
from capibara_assets.datasets.code.structure import normal_text, shingles, structural_key, tokens
from capibara_assets.datasets.duplicates.shingles import Ints, ShingleSets, UInts, hash_sets
from capibara_assets.storage.kept import program_digest

Code = tuple[str, str]  # language, text
Bytes = npt.NDArray[np.uint8]

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
    """Features of one code text: its views, and the digest of the statement in it."""

    views: tuple[CodeView, ...]
    statement_key: bytes | None  # None: no statement, or too short to tell problems apart


def readings(codes: Iterable[Code], shingle: int, cache: Path | None = None) -> dict[Code, CodeReading]:
    """The features of each text, with shingles of `shingle` tokens.

    Args:
        cache: folder that caches readings by digest of text and program; it does not change the result. Afterwards it
            holds exactly these texts' readings; it may be deleted at any time.
    """
    wanted = sorted(set(codes))
    keys = {code: code_key(*code) for code in wanted}
    path = None if cache is None else cache / f"readings-{shingle}-{program_digest()[:32]}.safetensors"
    known = {} if path is None else load(path)
    read = {code: known[keys[code]] for code in wanted if keys[code] in known}
    missing = [code for code in wanted if code not in read]
    for start in range(0, len(missing), _AT_ONCE):
        read |= _read(missing[start : start + _AT_ONCE], shingle)
    if path is not None and (missing or len(known) != len(read)):
        save(path, {keys[code]: reading for code, reading in read.items()})
    return read


def statement_key(statement: str | None) -> bytes | None:
    """Digest of a task or statement; None where there is none, or it is too short to tell problems apart."""
    if statement is None or len(statement.split()) < _MIN_STATEMENT_WORDS:
        return None
    return _sha(normal_text(statement))


def code_key(language: str, code: str) -> bytes:
    """Digest of a code text and its language."""
    return sha256(f"{language}\n{code}".encode("utf-8", "surrogatepass")).digest()


def shingle_sets(views: Sequence[CodeView]) -> ShingleSets:
    """The sets of shingles of the views."""
    sizes = np.fromiter((len(view.shingles) for view in views), np.int64, len(views))
    values = np.concatenate([view.shingles for view in views]) if views else np.empty(0, np.uint64)
    return ShingleSets(values, _offsets(sizes))


def _read(codes: Sequence[Code], shingle: int) -> dict[Code, CodeReading]:
    parts: list[tuple[str, str]] = []  # language and text of all views
    counts, statements = [], []
    for language, code in codes:
        anatomy = dissect(code, language)
        body = anatomy.definitions or anatomy.body or code
        views = list(dict.fromkeys((body, code)))
        parts += [(language, view) for view in views]
        counts.append(len(views))
        statements.append(statement_key(anatomy.statement))
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
    return dict(zip(codes, _grouped(made, counts, statements), strict=True))


def _grouped(views: Sequence[CodeView], counts: Sequence[int], statements: Sequence[bytes | None]) -> list[CodeReading]:
    ends = _offsets(np.asarray(counts, np.int64)).tolist()
    return [CodeReading(tuple(views[a:b]), key) for (a, b), key in zip(pairwise(ends), statements, strict=True)]


def _sha(text: str) -> bytes:
    return sha256(text.encode("utf-8", "replace")).digest()


def _offsets(counts: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


# --- on disk ----------------------------------------------------------------------------------------------------------


def save(path: Path, kept: Mapping[bytes, CodeReading]) -> None:
    """Write readings by key atomically, and remove all other readings of the folder."""
    from safetensors.numpy import save_file

    views = [view for reading in kept.values() for view in reading.views]
    stated = [reading.statement_key for reading in kept.values()]
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "keys": _rows(list(kept)),
        "counts": np.array([len(reading.views) for reading in kept.values()], np.int64),
        "stated": np.array([key is not None for key in stated], np.bool_),
        "statements": _rows([key or bytes(_DIGEST) for key in stated]),
        "structures": _rows([view.keys[0] for view in views]),
        "texts": _rows([view.keys[1] for view in views]),
        "tokens": np.array([view.tokens for view in views], np.int64),
        "offsets": shingle_sets(views).offsets,
        "shingles": shingle_sets(views).values,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as folder:
        written = Path(folder) / path.name
        save_file(arrays, written, {"sum": _checksum(arrays)})
        written.replace(path)
    for other in path.parent.glob("readings-*.safetensors"):
        if other != path:
            other.unlink(missing_ok=True)


def load(path: Path) -> dict[bytes, CodeReading]:
    """The readings in a file by key; none where there is no file, or it is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            stated = (file.metadata() or {}).get("sum")
    except (FileNotFoundError, SafetensorError):
        return {}
    if stated != _checksum(arrays):
        return {}
    ends = arrays["offsets"].tolist()
    views = [
        CodeView((structure, text), arrays["shingles"][a:b], count)
        for structure, text, count, (a, b) in zip(
            _cells(arrays["structures"]),
            _cells(arrays["texts"]),
            arrays["tokens"].tolist(),
            pairwise(ends),
            strict=True,
        )
    ]
    known = zip(_cells(arrays["statements"]), arrays["stated"].tolist(), strict=True)
    statements = [key if there else None for key, there in known]
    return dict(zip(_cells(arrays["keys"]), _grouped(views, arrays["counts"].tolist(), statements), strict=True))


def _rows(digests: Sequence[bytes]) -> Bytes:
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, _DIGEST)


def _cells(rows: Bytes) -> list[bytes]:
    data = rows.tobytes()
    return [data[at : at + _DIGEST] for at in range(0, len(data), _DIGEST)]


def _checksum(arrays: Mapping[str, npt.NDArray[np.generic]]) -> str:
    digest = sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
