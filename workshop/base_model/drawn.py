"""Windows of skills, drawn by processes of their own while the training goes on, so that few are read twice."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from workshop.base_model.corpus import Document
from workshop.base_model.skills import Skills
from workshop.base_model.streams import learned
from workshop.base_model.tokenizer import DOCUMENT_END

_BLOCK = 64  # windows that a process hands over at a time
_WAITING = 4  # blocks of a process that wait for the trainer at most: it rests then

#: Token ids (windows, tokens + 1) and, of the same shape, which of them are targets.
Windows = tuple[NDArray[np.uint16], NDArray[np.bool_]]


def draw_windows(
    functions: Sequence[str], bpe: Tokenizer, sequence: int, seed: str, block: int = _BLOCK
) -> Iterator[Windows]:
    """Blocks of ``block`` windows of ``sequence`` + 1 tokens with whole documents, without end."""
    documents = Skills(functions, seed).documents()
    while True:
        yield _block(documents, bpe, sequence, block)


def _block(documents: Iterator[Document], bpe: Tokenizer, sequence: int, block: int) -> Windows:
    separator = bpe.token_to_id(DOCUMENT_END)
    windows = np.full((block, sequence + 1), separator, np.uint16)
    targets = np.zeros(windows.shape, np.bool_)
    used = np.zeros(block, np.int64)
    while True:
        ids = np.array([separator, *bpe.encode(next(documents).text).ids], np.uint16)
        if len(ids) > sequence + 1:
            continue
        row = int(np.argmax(used + len(ids) <= sequence + 1))  # the first with room
        start, end = used[row], used[row] + len(ids)
        if end > sequence + 1:  # none has
            break
        windows[row, start:end] = ids
        targets[row, start:end] = learned(bpe, ids)
        used[row] = end
    # Whatever fills a window up, like the separator before a document, is not to be foretold.
    targets[windows == separator] = False
    return windows, targets


def _fill(functions: Path, tokenizer: Path, sequence: int, seed: str, block: int, into: Queue[Windows]) -> None:
    bpe = Tokenizer.from_file(str(tokenizer))
    for drawn in draw_windows(json.loads(functions.read_text()), bpe, sequence, seed, block):
        into.put(drawn)


class Drawing:
    """Processes that draw windows until `close`; each has its own seed, so that no two draw the same."""

    def __init__(
        self, functions: Path, tokenizer: Path, sequence: int, seed: int, workers: int, block: int = _BLOCK
    ) -> None:
        context = multiprocessing.get_context("spawn")
        # A queue each: of one for all, a process that stops while it writes would stop the others.
        self._queues: list[Queue[Windows]] = [context.Queue(_WAITING) for _ in range(workers)]
        self._processes = [
            context.Process(
                target=_fill,
                args=(functions, tokenizer, sequence, f"{seed}-skills-{number}", block, blocks),
                daemon=True,
            )
            for number, blocks in enumerate(self._queues)
        ]
        for process in self._processes:
            process.start()

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        return [process.pid for process in self._processes if process.pid is not None]

    def drawn(self, at_least: int = 0) -> list[Windows]:
        """The blocks that wait; it waits itself until there are ``at_least`` so many.

        Raises:
            RuntimeError: a drawing process has ended.
        """
        found: list[Windows] = []
        while True:
            for blocks in self._queues:
                while not blocks.empty():
                    found.append(blocks.get())
            if not all(process.is_alive() for process in self._processes):
                raise RuntimeError("a process that draws skills has ended: see its traceback above")
            if len(found) >= at_least:
                return found
            time.sleep(0.05)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()
