"""Many executions out of some: copies of real logs perturbed in identifiers and literals, so that no cache can help."""

import gzip
import hashlib
import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from capibara_assets.executions.formats.lines import LineReader
from capibara_assets.executions.ingest.file_plan import log_files

FILES = 48  # the corpus is spread over so many, as logs come by day or hour
_BOUND = re.compile(r"\b(?:def|class|function|const|let|var|for)\s+(\w{2,})|^\s*(\w{2,})\s*=(?!=)", re.MULTILINE)
_NAME = re.compile(r"(?<![.\w])[^\W\d]\w+(?!['\"\w])")
_NUMBER = re.compile(r"(?<![\w.\"'%])\d{1,6}(?![\w.\"'])")
_STATEMENT = re.compile(r"\bselect\b", re.IGNORECASE)
_SPACE = uuid.UUID("6d0c1b52-8a63-4e0e-9a0b-6f4ff2c3b1a7")


def write_corpus(experience: Path, folder: Path, records: int) -> int:
    """Writes gzipped JSON lines into `folder`; returns how many bytes of text they hold.

    Copy n of a record has ids, names and numbers of its own, the same ones in its code and in its output. Copies of one
    sandbox stay one sandbox; copy 0 is perturbed too.
    """
    folder.mkdir(parents=True)
    originals = [json.loads(line.data) for path in _paths(experience) for line in LineReader(path) if line.data.strip()]
    per_file = -(-records // FILES)
    size = 0
    copies = _copies(originals, records)
    for number in range(FILES):
        # sessions stand together, as they do in the originals
        with gzip.open(folder / f"executions-{number:02d}.jsonl.gz", "wb", compresslevel=6) as file:
            for copy, record in itertools.islice(copies, per_file):
                data = json.dumps(perturbed(record, copy)).encode("ascii") + b"\n"
                size += len(data)
                file.write(data)
    return size


def _paths(experience: Path) -> list[Path]:
    found = log_files(experience, None)
    return [found[name] for name in sorted(found)]


def _copies(originals: list[dict[str, Any]], records: int) -> Iterator[tuple[int, dict[str, Any]]]:
    for number in range(records):
        copy, place = divmod(number, len(originals))
        yield copy, originals[place]


def perturbed(record: dict[str, Any], copy: int) -> dict[str, Any]:
    """A copy of a record with other ids, names and numbers."""
    sandbox = hashlib.sha256(f"{copy} {record['sandbox_id']}".encode()).hexdigest()[:20]
    salt = int(sandbox[:6], 16)
    change = perturbation(record["code"], salt)

    def change_all(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        if isinstance(value, list):
            return [change_all(item) for item in value]
        return {key: change_all(item) for key, item in value.items()} if isinstance(value, dict) else value

    execution = record["execution"]
    if execution is not None:
        inner = {key: execution.get(key) for key in ("logs", "error")}
        opened = {k: json.loads(v) if isinstance(v, str) else v for k, v in inner.items()}
        closed = {
            k: json.dumps(change_all(v)) if isinstance(inner[k], str) else change_all(v) for k, v in opened.items()
        }
        results = [{k: change(v) if k == "text" and v else v for k, v in r.items()} for r in execution["results"]]
        execution = execution | {"results": results} | {key: closed[key] for key in closed if key in execution}
    return record | {
        "sandbox_id": "i" + sandbox,
        "execution_id": str(uuid.uuid5(_SPACE, f"{copy} {record['execution_id']}")),
        "code": perturbed_code(record["code"], salt),
        "execution": execution,
    }


def perturbed_code(code: str, copy: int) -> str:
    """Code with the same structure, other names of its own and other numbers; copy 0 is the code itself.

    A query, which binds no names and often holds no number, gets a comment; what still is the same, empty lines.
    """
    if not copy:
        return code
    changed = perturbation(code, copy)(code)
    changed = _STATEMENT.sub(lambda match: f"{match.group()} /* {copy} */", changed, count=1)
    return changed if changed != code else code + "\n" * (1 + copy % 97)


def perturbation(code: str, copy: int) -> Callable[[str], str]:
    """What changes the code's texts: every second name that it binds, and its numbers, here and in its output."""
    bound = {name for pair in _BOUND.findall(code) for name in pair if name}
    names = {name: f"{name}_{copy % 97}" for name in sorted(bound)[::2]}

    def change(text: str) -> str:
        text = _NAME.sub(lambda match: names.get(match.group(), match.group()), text)
        return _NUMBER.sub(lambda match: str(int(match.group()) + copy % 89), text)

    return change
