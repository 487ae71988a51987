"""What a pre-training run is: corpus, shape of the model, optimiser, budget."""

from __future__ import annotations

from dataclasses import dataclass

CONTEXT = 2048


@dataclass(frozen=True)
class Settings:
    """What a run is: the corpus, the model's shape, the optimiser and the budget."""

    minutes: float = 85.0
    threads: int = 1
    seed: int = 0
    corpus_bytes: int = 72_000_000
    vocabulary: int = 4096
    hidden: int = 256
    intermediate: int = 688
    layers: int = 6
    heads: int = 4
    sequence: int = 1024
    batch: int = 8  # sequences per step
    micro_batch: int = 2  # sequences per forward pass: what fits the cache
    matrix_rate: float = 0.004  # Muon, in AdamW's units (rate x 0.2 is the size of an update)
    vector_rate: float = 0.003  # AdamW: embeddings and norms
    save_minutes: float = 5.0
    start: str = ""  # folder of an earlier run's model: its weights and tokenizer are gone on with
    skills: float = 0.0  # share of the corpus that is `skills.py`'s
    compiled: bool = False  # torch.compile: a fifth faster or more, needs a C++ compiler
    tokenizer: str = ""  # folder of a model whose tokenizer is taken; "": that of `start`, or one of the corpus's own
    device: str = "cpu"
    workers: int = 0  # processes that draw skills while a GPU trains
