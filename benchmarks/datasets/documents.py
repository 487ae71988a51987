"""Documents to find near-duplicates in: texts of real executions, renamed copies of them, and what is planted."""

import json
import random
import re
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from capibara_assets.executions.formats.lines import LineReader
from capibara_assets.executions.ingest.file_plan import log_files

SIMILARITIES = (0.6, 0.7, 0.75, 0.8, 0.82, 0.85, 0.88, 0.9, 0.94, 0.97, 1.0)
_WORD = re.compile(r"[a-z0-9]+")
_FEWEST = 20  # words; shorter texts are no documents
_MOST = 2000  # words kept of a text: printed data would outweigh everything else
_PLANTED = (0, 0, 1, 2)  # near-duplicates beside a text


def experience_documents(folder: Path) -> list[list[str]]:
    """Words of the task, the code and the output of each execution, in the order of files and lines.

    Only letters and digits of ASCII in lower case, so that every tokeniser finds the same words in them.
    """
    found = log_files(folder, None)
    lines = (line.data for name in sorted(found) for line in LineReader(found[name]))
    documents = (_WORD.findall(_text(json.loads(data)).lower())[:_MOST] for data in lines if data.strip())
    return [words for words in documents if len(words) >= _FEWEST]


def planted_documents(originals: list[list[str]], documents: int, ngram: int, seed: int = 0) -> Iterator[str]:
    """`documents` texts; after a text or a renamed copy of one there may follow near-duplicates of it.

    Copy 0 of a text is the text itself, so near-duplicates that experience holds are there too; a later copy has
    names of its own for every third of its words. A planted near-duplicate has words replaced so far apart that each
    changes `ngram` shingles, as many as bring it to one of `SIMILARITIES`, about.
    """
    chance = random.Random(seed)
    vocabulary = sorted({word for words in originals for word in words})
    yield from map(" ".join, islice(_families(originals, ngram, vocabulary, chance), documents))


def _families(
    originals: list[list[str]], ngram: int, vocabulary: list[str], chance: random.Random
) -> Iterator[list[str]]:
    for copy in count():
        for original in originals:
            words = renamed(original, copy)
            yield words
            for _ in range(chance.choice(_PLANTED)):
                yield replaced(words, chance.choice(SIMILARITIES), ngram, vocabulary, chance)


def renamed(words: list[str], copy: int) -> list[str]:
    """The words, every third different one with a number of the copy behind it."""
    if not copy:
        return words
    names = {word: f"{word}{copy}" for place, word in enumerate(sorted(set(words))) if place % 3 == copy % 3}
    return [names.get(word, word) for word in words]


def replaced(
    words: list[str], similarity: float, ngram: int, vocabulary: list[str], chance: random.Random
) -> list[str]:
    """Words with as many replaced as bring the Jaccard similarity of the n-grams down to `similarity`, about."""
    changed = (len(words) - ngram + 1) * (1 - similarity) / (1 + similarity) / ngram
    steps = len(words) // ngram
    out = list(words)
    for step in chance.sample(range(steps), min(round(changed), steps)):
        out[step * ngram + ngram // 2] = chance.choice(vocabulary)
    return out


def _text(record: dict[str, Any]) -> str:
    execution = record.get("execution") or {}
    shown = [result.get("text") for result in execution.get("results") or []]
    logs = execution.get("logs")
    printed = json.loads(logs) if isinstance(logs, str) else logs or {}
    parts = [record.get("task"), record.get("code"), *shown, *printed.get("stdout", []), *printed.get("stderr", [])]
    return "\n".join(part for part in parts if isinstance(part, str))
