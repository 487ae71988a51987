"""Scans of a text for many patterns at once, by Vectorscan: which of many words it holds, in one pass.

A search for each word takes seconds per MiB.
"""

import threading
from collections.abc import Sequence

import hyperscan


class Scanner:
    """Patterns that are sought together; several threads may scan at a time.

    Args:
        database: the compiled patterns, whose numbers a scan gives.
    """

    def __init__(self, database: hyperscan.Database) -> None:
        self._database = database
        self._threads = threading.local()  # two scans must not share their scratch space

    def numbers_in(self, text: str) -> list[int]:
        """The numbers of the patterns that `text` holds, each once."""
        scratch = getattr(self._threads, "scratch", None)
        if scratch is None:
            scratch = self._threads.scratch = hyperscan.Scratch(self._database)
        numbers: list[int] = []
        self._database.scan(text.encode("utf-8", "surrogatepass"), _append, context=numbers, scratch=scratch)
        return numbers


def seeking(words: Sequence[str]) -> Scanner:
    """A scanner for words; the number of each is its place in the list."""
    database = hyperscan.Database()
    # written byte by byte: a word may hold what an expression gives a meaning
    expressions = ["".join(f"\\x{byte:02x}" for byte in word.encode("utf-8")).encode("ascii") for word in words]
    database.compile(expressions, ids=range(len(words)), flags=hyperscan.HS_FLAG_SINGLEMATCH)
    return Scanner(database)


def _append(number: int, start: int, end: int, flags: int, numbers: object) -> None:
    numbers.append(number)  # type: ignore[attr-defined]
