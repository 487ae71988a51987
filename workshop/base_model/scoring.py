"""Held-out loss of the model beside that of an n-gram model, on the same targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from workshop.base_model.ngram import fit_ngram
from workshop.base_model.settings import Settings
from workshop.base_model.streams import Streams, Tokens
from workshop.base_model.tokenizer import token_bytes


@torch.no_grad()  # type: ignore[untyped-decorator]
def held_out_losses(model: LlamaForCausalLM, stream: Tokens, sequence: int, limit: int | None = None) -> NDArray[Any]:
    """-log P in nats of the targets of consecutive windows of ``stream``: (windows, sequence), ``limit`` at most."""
    windows = np.lib.stride_tricks.sliding_window_view(stream, sequence + 1)[::sequence][:limit]
    losses = np.empty((len(windows), sequence), np.float32)
    for row, window in enumerate(windows):
        ids = torch.from_numpy(window.astype(np.int64))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0]
        losses[row] = torch.nn.functional.cross_entropy(logits.float(), ids[1:], reduction="none").numpy()
    return losses


def evaluate(model: LlamaForCausalLM, bpe: Tokenizer, streams: Streams, settings: Settings) -> dict[str, Any]:
    """Held-out loss of the model and of a Kneser-Ney 5-gram of the same training tokens, on the same targets."""
    sequence = settings.sequence
    # Every window but its last token (the next window's first) once, in shuffled order: window borders are as rare
    # as in a fresh shuffle of the documents.
    yardstick = fit_ngram(streams.training[:, :-1].reshape(-1), settings.vocabulary, order=5)
    width = np.array(token_bytes(bpe))
    rows: dict[str, dict[str, float]] = {}
    sums = np.zeros(4)
    for language, stream in streams.held_out.items():
        neural = held_out_losses(model, stream, sequence).reshape(-1)
        targets = stream[1 : 1 + len(neural)]
        skipped = yardstick.order - 1
        counted = yardstick.losses(stream[: 1 + len(neural)])  # of tokens 4..n; the neural ones are of 1..n
        neural, targets = neural[skipped - 1 :], targets[skipped - 1 :]
        row = np.array([len(neural), width[targets].sum(), neural.sum(dtype=np.float64), counted.sum()])
        rows[language] = _score(row)
        sums += row
    return {"languages": rows, "all": _score(sums)}


def _score(sums: NDArray[np.float64]) -> dict[str, float]:
    tokens, size, neural, counted = sums.tolist()
    bits = 1 / (size * np.log(2))
    return {
        "tokens": int(tokens),
        "bytes": int(size),
        "nats_per_token": neural / tokens,
        "bits_per_byte": neural * bits,
        "ngram_nats_per_token": counted / tokens,
        "ngram_bits_per_byte": counted * bits,
    }
