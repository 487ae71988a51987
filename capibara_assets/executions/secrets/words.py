"""Which of many words a text holds, by one pass of Vectorscan: a search for each takes seconds per MiB."""

import threading
from collections.abc import Sequence

import hyperscan


class Words:
    """Words that are sought together; `numbers_in` may be called by several threads."""

    def __init__(self, words: Sequence[str]) -> None:
        self._database = hyperscan.Database()
        # written byte by byte: a word may hold what an expression gives a meaning
        expressions = ["".join(f"\\x{byte:02x}" for byte in word.encode("utf-8")).encode("ascii") for word in words]
        self._database.compile(expressions, ids=range(len(words)), flags=hyperscan.HS_FLAG_SINGLEMATCH)
        self._threads = threading.local()  # two scans must not share their scratch space

    def numbers_in(self, text: str) -> list[int]:
        """The places, in the list of words, of those that `text` holds, each once."""
        scratch = getattr(self._threads, "scratch", None)
        if scratch is None:
            scratch = self._threads.scratch = hyperscan.Scratch(self._database)
        numbers: list[int] = []
        self._database.scan(text.encode("utf-8", "surrogatepass"), _append, context=numbers, scratch=scratch)
        return numbers


def _append(number: int, start: int, end: int, flags: int, numbers: object) -> None:
    numbers.append(number)  # type: ignore[attr-defined]
