"""Many executions out of some: copies of real logs perturbed in identifiers and literals, so that no cache can help."""

import gzip
import hashlib
import itertools
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capibara_assets.executions.lines import LineReader
from capibara_assets.executions.plan import log_files

FILES = 48  # the corpus is spread over so many, as logs come by day or hour
_NAME = re.compile(r"\b[a-z_][a-z0-9_]{3,}\b")
_NUMBER = re.compile(r"(?<![\w.])\d{1,6}(?![\w.])")
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
    names = {name: f"{name}{(salt + i) % 97}" for i, name in enumerate(sorted(_names(record["code"]))) if i % 3 == 0}

    def change(text: str) -> str:
        text = _NAME.sub(lambda match: names.get(match.group(), match.group()), text)
        return _NUMBER.sub(lambda match: str(int(match.group()) + salt % 89), text)

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
        "code": change(record["code"]),
        "execution": execution,
    }


def _names(code: str) -> set[str]:
    """Names that the code binds: renaming those leaves its meaning alone."""
    return set(re.findall(r"\b(?:def|class|const|let|var|function|for)\s+([a-z_][a-z0-9_]{3,})\b", code)) | set(
        re.findall(r"^\s*([a-z_][a-z0-9_]{3,})\s*=[^=]", code, re.MULTILINE)
    )
