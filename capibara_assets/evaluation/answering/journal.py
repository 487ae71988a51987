"""The journal of answers: one JSON line per answer, from which an interrupted evaluation resumes."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.storage.journal import append_to, opened_alone, summed, undamaged


@dataclass(frozen=True)
class AnswerJournal:
    """An append-only file of lines with a `key` each; one writer at a time.

    Attributes:
        lines: key -> line; of two lines with one key the first.
    """

    descriptor: int
    lines: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def append(self, key: str, line: Mapping[str, Any]) -> None:
        """Write a line. Raises OSError: the disk is full, or the file cannot be written."""
        keyed = {"key": key, **line}
        append_to(self.descriptor, summed(keyed))
        self.lines[key] = keyed


@contextmanager
def open_journal(path: Path) -> Iterator[AnswerJournal]:
    """Open a journal for appending and read it; a torn last line is cut off, and lines that were edited are left out.

    Raises:
        InputError: another process writes to it, or a complete line is not JSON.
    """
    with ExitStack() as stack:
        try:
            descriptor, read = stack.enter_context(opened_alone(path))
        except BlockingIOError as error:
            raise InputError(
                f"{path} is in use by another evaluation: wait for it, or use another work folder"
            ) from error
        journal = AnswerJournal(descriptor)
        for number, why in sorted(read.damaged.items()):
            raise InputError(
                f"{path}, line {number}: not a line of this journal ({why}): remove the file to start anew"
            )
        for line in undamaged(path, read).entries.values():
            journal.lines.setdefault(line["key"], line)
        yield journal
