"""Windows that processes draw: whole documents, answers alone to be foretold, others of each process."""

import json
import os
import signal
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from capibara_assets.deployment.locations import resources_root
from workshop.base_model.drawn import Drawing, draw_windows
from workshop.base_model.tokenizer import DOCUMENT_END, TURN_END

FUNCTIONS = ["def greet(name):\n    text = 'hello ' + name\n    return text.title()"]
TOKENIZER = resources_root() / "base_models" / "capibara-nano" / "tokenizer.json"
SEQUENCE = 512
BLOCK = 8  # windows at a time


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER))


def test_windows_hold_whole_conversations_and_only_answers_are_targets(bpe: Tokenizer) -> None:
    (ids, targets), *others = islice(draw_windows(FUNCTIONS, bpe, SEQUENCE, "seed", BLOCK), 2)
    separator = bpe.token_to_id(DOCUMENT_END)
    assert len(others) == 1 and ids.shape == targets.shape and ids.shape == (BLOCK, SEQUENCE + 1)
    assert (ids[:, 0] == separator).all() and (ids == separator).mean() < 0.15
    for row, learned in zip(ids, targets, strict=True):
        for part in np.split(np.arange(row.size), np.flatnonzero(row == separator))[1:]:
            text = bpe.decode(row[part[1:]].tolist(), skip_special_tokens=False)
            if text:  # the end of a window is filled with separators
                answer = text[text.index("<|assistant|>") :]
                told = bpe.decode(row[part][learned[part]].tolist(), skip_special_tokens=False)
                assert text.endswith(f"{TURN_END}\n") and told.strip() in answer and TURN_END in told
    again, _ = next(draw_windows(FUNCTIONS, bpe, SEQUENCE, "seed", BLOCK))
    assert (again == ids).all() and not (others[0][0] == ids).all()


def test_processes_draw_apart_and_one_that_ends_is_an_error(tmp_path: Path) -> None:
    functions = tmp_path / "functions.json"
    functions.write_text(json.dumps(FUNCTIONS))
    drawing = Drawing(functions, TOKENIZER, SEQUENCE, seed=0, workers=2, block=BLOCK)
    try:
        blocks = drawing.drawn(at_least=4)
        assert len({ids.tobytes() for ids, _ in blocks}) == len(blocks) >= 4
        os.kill(drawing.pids[0], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="a process that draws skills has ended"):
            drawing.drawn(at_least=1000)
    finally:
        drawing.close()
