"""Readers of public code benchmarks in the published formats of HumanEval, HumanEvalPack and MBPP.

The format follows from an item's fields; compression, and JSON lines or one JSON list, from the file's content. No
benchmark is shipped; a deployment names its files in the recipe.
"""

import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.foreign import read_document
from capibara_assets.storage.jsonfiles import user_json

_GZIP = b"\x1f\x8b"
_LARGEST = 1 << 30  # bytes of a file of items, as it is stored
_LANGUAGES = {"python": "python", "javascript": "javascript", "js": "javascript", "java": "java"}
_SHAPES = "HumanEval's (task_id, prompt, canonical_solution, entry_point) or MBPP's (task_id, text or prompt, code)"


@dataclass(frozen=True)
class BenchmarkItem:
    """One task of a code benchmark.

    Attributes:
        benchmark: its name in the recipe.
        item_id: its `task_id`, as text.
        language: of the solution.
        texts: texts that a training example must not hold: prompt, solution, tests.
        solution: the whole of the reference solution, with its signature.
        entry_point: name of the requested function; None: the last one defined.
    """

    benchmark: str
    item_id: str
    language: str
    texts: tuple[str, ...]
    solution: str
    entry_point: str | None


def read_items(benchmark: str, path: Path) -> list[BenchmarkItem]:
    """Read the items of one benchmark file.

    Raises:
        InputError: no such file, damaged compression, a line that is no JSON object, or one of neither shape; the
            message names file and line (of a JSON list: which item).
    """
    return [_item(benchmark, entry, place) for place, entry in entries(benchmark, path)]


def benchmark_digests(benchmarks: Mapping[str, str]) -> dict[str, str]:
    """Name -> SHA-256 of each benchmark's file, on which a decontaminated dataset depends, wherever the files lie.

    Raises:
        InputError: no such file.
    """
    digests = {}
    for name, path in sorted(benchmarks.items()):
        if not Path(path).is_file():
            raise InputError(
                f"benchmark {name}: no file at {path}; correct decontamination.benchmarks in the dataset recipe"
            )
        digests[name] = sha256_file(Path(path))
    return digests


def entries(benchmark: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (place, entry) for each item of a file: JSON lines or one JSON list, with or without gzip.

    Raises:
        InputError: no such file, damaged compression, no UTF-8, or no JSON; the message names file and line.
    """
    try:
        data = read_document(path, _LARGEST)
        text = (gzip.decompress(data) if data.startswith(_GZIP) else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(
            f"benchmark {benchmark}: no file at {path}; correct decontamination.benchmarks in the dataset recipe"
        ) from None
    except OSError as error:
        raise InputError(f"benchmark {benchmark}: {path} cannot be read: {error}") from error
    except (EOFError, zlib.error) as error:
        raise InputError(f"benchmark {benchmark}: {path} is damaged gzip: {error}; fetch it again") from error
    except UnicodeDecodeError as error:
        raise InputError(f"benchmark {benchmark}: {path} is not UTF-8 (byte {error.start})") from error
    if text.lstrip().startswith("["):
        listed = user_json(text, f"benchmark {benchmark}: {path}, which starts like a JSON list,")
        placed = [(f"{path}, item {number}", entry) for number, entry in enumerate(listed, 1)]
    else:
        placed = []
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                placed.append((f"{path}:{number}", user_json(line, f"benchmark {benchmark}: {path}:{number}")))
    if not placed:
        raise InputError(f"benchmark {benchmark}: {path} holds no item")
    yield from placed


def _item(benchmark: str, entry: Any, place: str) -> BenchmarkItem:
    if not isinstance(entry, dict):
        raise InputError(f"benchmark {benchmark}: {place} is {type(entry).__name__}, expected an object")
    if "canonical_solution" in entry:
        prompt, solution = _texts(benchmark, entry, place, "prompt", "canonical_solution")
        test = _optional(benchmark, entry, place, "test")
        head = _optional(benchmark, entry, place, "declaration") or prompt
        whole = solution if _optional(benchmark, entry, place, "entry_point") is None else head + solution
        texts = (prompt, solution, *((test,) if test else ()))
        entry_point = _optional(benchmark, entry, place, "entry_point")
    elif "code" in entry and ("text" in entry or "prompt" in entry):
        prompt, whole = _texts(benchmark, entry, place, "text" if "text" in entry else "prompt", "code")
        tests = entry.get("test_list") or []
        if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
            raise InputError(f"benchmark {benchmark}: {place}: test_list is no list of texts")
        texts = (prompt, whole, *tests)
        entry_point = None
    else:
        raise InputError(f"benchmark {benchmark}: {place} has fields {sorted(entry)}; expected {_SHAPES}")
    if not isinstance(entry.get("task_id"), (str, int)) or isinstance(entry["task_id"], bool):
        raise InputError(f"benchmark {benchmark}: {place} has no task_id (a text or a number)")
    item_id = str(entry["task_id"])
    family = item_id.partition("/")[0].lower()
    return BenchmarkItem(benchmark, item_id, _LANGUAGES.get(family, "python"), texts, whole, entry_point)


def _texts(benchmark: str, entry: dict[str, Any], place: str, *names: str) -> list[str]:
    for name in names:
        if not isinstance(entry.get(name), str):
            raise InputError(f"benchmark {benchmark}: {place}: {name} is missing or no text")
    return [entry[name] for name in names]


def _optional(benchmark: str, entry: dict[str, Any], place: str, name: str) -> str | None:
    value = entry.get(name)
    if value is not None and not isinstance(value, str):
        raise InputError(f"benchmark {benchmark}: {place}: {name} is no text")
    return value
