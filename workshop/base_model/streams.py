"""From the corpus to token streams: shuffled training windows and held-out text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from capibara_assets.errors import InputError
from workshop.base_model.corpus import Corpus, Document, build_corpus
from workshop.base_model.files import write_json
from workshop.base_model.settings import Settings
from workshop.base_model.skills import lent_functions, with_skills
from workshop.base_model.tokenizer import DOCUMENT_END, train_bpe

Tokens = NDArray[np.uint16]

SOURCES = "sources.json"
SETTINGS = "settings.json"
FUNCTIONS = "functions.json"  # what skills are made of, for those that are drawn later
_HELD_OUT = "held_out_"
_TRAINING, _LEARNED = "training.npy", "learned.npy"
_MAY_CHANGE = ("minutes", "threads", "save_minutes", "compiled", "device")  # what a resumed run may do otherwise


@dataclass(frozen=True)
class Streams:
    """Token ids: training windows (n, sequence + 1) in a fixed order, and the held-out stream of each language.

    `learned`, of the windows' shape, says which of their tokens are targets: all but requests to the assistant.
    """

    training: NDArray[np.uint16]
    learned: NDArray[np.bool_]
    held_out: dict[str, Tokens]


def sample_for_tokenizer(corpus: Corpus, share: int = 3_000_000) -> list[str]:
    """Training texts in corpus order, up to ``share`` bytes of each language (twice that for Python)."""
    room = {language: share * (2 if language == "python" else 1) for language in corpus.languages}
    texts = []
    for document in corpus.training:
        if room[document.language] > 0:
            room[document.language] -= len(document.text)
            texts.append(document.text)
    return texts


def encode(bpe: Tokenizer, documents: tuple[Document, ...]) -> Tokens:
    """All documents as one stream, each with the document separator before it."""
    separator = bpe.token_to_id(DOCUMENT_END)
    parts = []
    for start in range(0, len(documents), 512):
        for encoding in bpe.encode_batch_fast([document.text for document in documents[start : start + 512]]):
            parts.append(np.array([separator, *encoding.ids], np.uint16))
    return np.concatenate(parts) if parts else np.empty(0, np.uint16)


def learned(bpe: Tokenizer, stream: Tokens) -> NDArray[np.bool_]:
    """Which tokens of a stream are to be foretold: all but what a system or a user says to the assistant."""

    def last(tokens: Iterable[str]) -> NDArray[np.int64]:
        """The place of the last such token up to each place, from 1; 0 where there was none."""
        found = np.isin(stream, np.array([bpe.token_to_id(token) for token in tokens]))
        return np.maximum.accumulate(np.where(found, np.arange(1, stream.size + 1), 0))

    return np.asarray(last(("<|assistant|>", DOCUMENT_END)) >= last(("<|system|>", "<|user|>")))


def make_streams(bpe: Tokenizer, corpus: Corpus, sequence: int, seed: int) -> Streams:
    """Cut the training stream into shuffled windows; neighbours share one token, the last one's target.

    Raises:
        InputError: the training text or a language's held-out text does not fill one window.
    """
    stream = encode(bpe, corpus.training)
    held_out = {
        language: encode(bpe, tuple(document for document in corpus.held_out if document.language == language))
        for language in corpus.languages
    }
    for name, length in (("training", stream.size), *((language, ids.size) for language, ids in held_out.items())):
        if length <= sequence:
            raise InputError(f"{length} tokens of {name} text do not fill a window of {sequence}: use a larger corpus")
    order = np.random.default_rng(seed).permutation((stream.size - 1) // sequence)

    def cut(tokens: NDArray[Any]) -> NDArray[Any]:
        return np.lib.stride_tricks.sliding_window_view(tokens, sequence + 1)[::sequence][order]

    return Streams(cut(stream), cut(learned(bpe, stream)), held_out)


def keep_apart(out: Path, state: Path) -> None:
    """Raises InputError: ``state`` lies in ``out``, which ships."""
    if out.resolve() in (state.resolve(), *state.resolve().parents):
        raise InputError(f"--state {state} lies in --out {out}: what ships must not hold training state")


def prepare(settings: Settings, out: Path, state: Path) -> tuple[Tokenizer, Streams]:
    """Tokenizer and token streams; kept in ``state`` so that a resumed run reads the very same tokens.

    Raises:
        InputError: ``state`` was made with other settings.
    """
    for folder in (out, state):
        folder.mkdir(parents=True, exist_ok=True)
    kept = state / SETTINGS
    if not kept.exists():
        skills = 0 if settings.workers else int(settings.corpus_bytes * settings.skills)
        corpus = build_corpus(settings.corpus_bytes - skills, settings.seed)
        if settings.workers:
            write_json(state / FUNCTIONS, lent_functions(corpus))
        corpus = with_skills(corpus, skills, settings.seed) if skills else corpus
        return tokenize_corpus(corpus, settings, out, state)
    _check_same(settings, json.loads(kept.read_text()), state)
    bpe = Tokenizer.from_file(str(state / "tokenizer.json"))
    held_out = {file.stem.removeprefix(_HELD_OUT): np.load(file) for file in sorted(state.glob(f"{_HELD_OUT}*.npy"))}
    windows, counted = (np.load(state / name, mmap_mode="r") for name in (_TRAINING, _LEARNED))
    return bpe, Streams(windows, counted, held_out)


def tokenize_corpus(corpus: Corpus, settings: Settings, out: Path, state: Path) -> tuple[Tokenizer, Streams]:
    """Train the tokenizer, or take the start's, encode the corpus, and keep both in ``state`` (it in ``out``, too)."""
    from workshop.base_model.model import save_tokenizer  # and torch, which processes that draw skills do without

    taken = settings.tokenizer or settings.start
    bpe = (
        Tokenizer.from_file(str(Path(taken) / "tokenizer.json"))
        if taken
        else train_bpe(sample_for_tokenizer(corpus), settings.vocabulary)
    )
    streams = make_streams(bpe, corpus, settings.sequence, settings.seed)
    np.save(state / _TRAINING, streams.training)
    np.save(state / _LEARNED, streams.learned)
    for language, stream in streams.held_out.items():
        np.save(_held_out_file(state, language), stream)
    bpe.save(str(state / "tokenizer.json"))
    write_json(state / SOURCES, [asdict(source) for source in corpus.sources])
    save_tokenizer(bpe, out)
    write_json(state / SETTINGS, asdict(settings))  # last: its presence says that all the rest is there
    return bpe, streams


def _held_out_file(state: Path, language: str) -> Path:
    return state / f"{_HELD_OUT}{language}.npy"


def _check_same(settings: Settings, kept: dict[str, object], state: Path) -> None:
    wanted = asdict(settings)
    differ = [name for name in wanted if name not in _MAY_CHANGE and wanted[name] != kept.get(name)]
    if differ:
        said = ", ".join(f"{name} {kept.get(name)} (now {wanted[name]})" for name in differ)
        raise InputError(f"{state} belongs to a run with {said}: give the same settings or another --state")
