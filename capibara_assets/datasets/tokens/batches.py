"""Streaming tokenisation of an example table into columns of tokens and labels.

While the library's threads encode one batch, the Python thread renders the next and labels the previous one, so that
tokenising with labels takes about as long as tokenising alone.
"""

import array
import json
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from capibara_assets.datasets.tokens.lengths import TokenLengths, token_lengths
from capibara_assets.datasets.tokens.packing import IGNORED
from capibara_assets.datasets.tokens.templates import ChatTemplate, Tokenizer
from capibara_assets.datasets.tokens.templates_jinja import AnswerSpan, JinjaTemplate, Messages, Rendered, surrogates
from capibara_assets.processes.pools import process_pool

SCHEMA = pa.schema(
    [
        pa.field("example_id", pa.string(), nullable=False),
        pa.field("input_ids", pa.list_(pa.int32())),  # null where the example is left out
        pa.field("labels", pa.list_(pa.int32())),
        pa.field("supervised", pa.int32(), nullable=False),  # labels with a loss
        pa.field("answers", pa.int32(), nullable=False),  # assistant turns
        pa.field("unended", pa.int32(), nullable=False),  # of those, turns without an end of turn
        pa.field("merged", pa.int32(), nullable=False),  # tokens without loss that span an answer's edge
        pa.field("left_out", pa.string()),
    ]
)
CONTROL = "a control token of the tokenizer occurs in its text"
MASKED = "no token of the assistant's turn is supervised"
NO_JSON = "its messages are no JSON list of {role, content}"
NO_TEXT = "its text holds half of a surrogate pair"

_BATCH_BYTES = 1_000_000  # of messages encoded at once: enough for every core, with a short tail
_AHEAD = 2  # batches queued for the library's threads, so that these never idle
_SAMPLE = 64  # conversations on which assembled rendering is compared with Jinja before anything is encoded
_POOL_FROM = 50_000  # examples for Jinja from which a process pool pays off


@dataclass(frozen=True)
class _Prepared:
    """A rendered batch: a text for each example, empty for a faulty one."""

    ids: list[str]
    rendered: list[Rendered]


def too_long(max_length: int) -> str:
    """The reason for leaving out an example because of its length."""
    return f"longer than max_length={max_length}"


def token_batches(
    frame: pl.DataFrame, tokenizer: Tokenizer, max_length: int, *, workers: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Examples (columns example_id, messages) as record batches of SCHEMA, in the order of the table.

    The bytes do not depend on `workers`.

    Args:
        workers: 1 encodes in this thread; more use the library's own pool, which has as many threads as there are
            cores, or as `RAYON_NUM_THREADS` said when it was first used.

    Raises:
        InputError: no chat template, no fast tokenizer, or a template that refuses, drops or changes turns.
    """
    workers = workers or os.cpu_count() or 1
    template = ChatTemplate(tokenizer)
    backend = template.backend
    if backend.truncation or backend.padding:  # what a tokenizer file may ask for; nothing is cut silently here
        backend.no_truncation()
        backend.no_padding()
    sample = np.unique(np.linspace(0, max(0, frame.height - 1), min(_SAMPLE, frame.height)).astype(np.int64))
    template.verify(turns for text in frame["messages"].gather(sample) if (turns := conversation(text)) is not None)
    control = _control_table(template)
    lengths = token_lengths(backend)
    encode = backend.encode_batch_fast if lengths else backend.encode_batch  # without or with offsets

    with ExitStack() as stack:
        stack.enter_context(_one_thread(workers == 1))
        thread = stack.enter_context(ThreadPoolExecutor(1))
        renderer = _Renderer(template, frame.height, workers, stack)
        waiting: deque[tuple[_Prepared, Future[Any]]] = deque()
        for begin, end in _cuts(frame["messages"]):
            prepared = renderer.prepare(frame[begin:end])
            texts = [each.text for each in prepared.rendered]
            future = thread.submit(encode, texts, add_special_tokens=False)
            del texts
            waiting.append((prepared, future))
            if len(waiting) > _AHEAD:
                prepared, future = waiting.popleft()
                yield _labelled(prepared, future.result(), backend, lengths, control, max_length)
        for prepared, future in waiting:
            yield _labelled(prepared, future.result(), backend, lengths, control, max_length)


class _Renderer:
    """Renders batches; conversations that need Jinja in a process pool, if they are many."""

    def __init__(self, template: ChatTemplate, examples: int, workers: int, stack: ExitStack):
        self._template, self._examples, self._workers, self._stack = template, examples, workers, stack
        self._pool: ProcessPoolExecutor | None = None

    def prepare(self, part: pl.DataFrame) -> _Prepared:
        rendered: list[Rendered] = []
        by_jinja: dict[int, Messages] = {}
        for place, text in enumerate(part["messages"]):
            messages = conversation(text)
            whole = Rendered("", (), fault=NO_JSON) if messages is None else self._template.assembled(messages)
            if whole is None and messages is not None:
                by_jinja[place] = messages
            rendered.append(whole or Rendered("", ()))
        for place, late in zip(by_jinja, self._by_jinja(list(by_jinja.values()), part.height), strict=True):
            rendered[place] = late
        for place, each in enumerate(rendered):
            if not each.text.isascii() and surrogates(each.text):
                rendered[place] = Rendered("", (), fault=NO_TEXT)
        return _Prepared(part["example_id"].to_list(), rendered)

    def _by_jinja(self, conversations: Sequence[Messages], of: int) -> Sequence[Rendered]:
        if not conversations:
            return []
        if self._workers > 1 and self._examples * len(conversations) // of >= _POOL_FROM and self._pool is None:
            self._pool = self._stack.enter_context(process_pool(self._workers))
        if self._pool is None:
            return render_all(self._template.jinja, conversations)
        size = -(-len(conversations) // self._workers)
        parts = [conversations[at : at + size] for at in range(0, len(conversations), size)]
        done = self._pool.map(render_all, [self._template.jinja] * len(parts), parts)
        return [rendered for part in done for rendered in part]


def render_all(jinja: JinjaTemplate, conversations: Sequence[Messages]) -> list[Rendered]:
    """Render conversations with Jinja; a control token in a content is reported as that conversation's fault."""
    rendered = []
    for messages in conversations:
        held = any(token in message["content"] for message in messages for token in jinja.control)
        rendered.append(Rendered("", (), fault=CONTROL) if held else jinja.rendered(messages))
    return rendered


def _labelled(
    prepared: _Prepared,
    encodings: list[Any],
    backend: Any,
    lengths: TokenLengths | None,
    control: NDArray[np.bool_],
    max_length: int,
) -> pa.RecordBatch:
    """The columns of one batch: tokens, with labels on the answers."""
    by_offsets = list(range(len(encodings)))
    if lengths:
        by_offsets = [place for place, each in enumerate(prepared.rendered) if not lengths.fits(each.text)]
        for place in by_offsets:
            encodings[place] = backend.encode(prepared.rendered[place].text, add_special_tokens=False)
    flat = array.array("i")
    offsets = np.zeros(len(encodings) + 1, dtype=np.int64)
    for place, encoding in enumerate(encodings):
        flat.fromlist(encoding.ids)
        offsets[place + 1] = len(flat)
    ids = np.frombuffer(flat, dtype=np.int32) if flat else np.zeros(0, dtype=np.int32)
    spans = [
        (place, *_tokens_of(encodings[place], answer), int(offsets[place]))
        for place in by_offsets
        for answer in prepared.rendered[place].answers
    ]
    placed = np.array(spans, dtype=np.int64).reshape(-1, 5)
    rows, starts, ends, lost = placed[:, 0], placed[:, 1] + placed[:, 4], placed[:, 2] + placed[:, 4] + 1, placed[:, 3]
    if lengths:
        others = _spans_by_bytes(prepared.rendered, set(by_offsets), ids, offsets, lengths)
        both = zip((rows, starts, ends, lost), others, strict=True)
        rows, starts, ends, lost = (np.concatenate(pair) for pair in both)
    merged = np.bincount(rows, weights=lost, minlength=len(encodings)).astype(np.int32)
    change = np.zeros(len(ids) + 1, dtype=np.int8)
    change[starts[starts < ends]] += 1
    change[ends[starts < ends]] -= 1
    labelled = np.cumsum(change[:-1], dtype=np.int8).view(np.bool_)
    labels = np.where(labelled, ids, np.int32(IGNORED))
    before = np.concatenate([[0], np.cumsum(labelled)])
    supervised = (before[offsets[1:]] - before[offsets[:-1]]).astype(np.int32)

    faults = _faults(prepared.rendered, ids, offsets, supervised, control, max_length)
    out = np.array([fault is not None for fault in faults], dtype=np.bool_)
    if out.any():
        sizes = np.diff(offsets)
        kept = np.repeat(~out, sizes)
        ids, labels = ids[kept], labels[kept]
        offsets = np.concatenate([[0], np.cumsum(np.where(out, 0, sizes))])
        supervised = np.where(out, 0, supervised).astype(np.int32)
    bounds = pa.array(offsets.astype(np.int32))
    nulls = pa.array(out)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(prepared.ids, pa.string()),
            pa.ListArray.from_arrays(bounds, pa.array(ids), mask=nulls),
            pa.ListArray.from_arrays(bounds, pa.array(labels), mask=nulls),
            pa.array(supervised),
            pa.array([len(each.answers) for each in prepared.rendered], pa.int32()),
            pa.array([sum(not answer.ended for answer in each.answers) for each in prepared.rendered], pa.int32()),
            pa.array(merged),
            pa.array(faults, pa.string()),
        ],
        schema=SCHEMA,
    )


def _tokens_of(encoding: Any, answer: AnswerSpan) -> tuple[int, int, int]:
    """First and last token of an answer, and the number of tokens at its edges without loss, as they span other text.

    A token that includes whitespace beside the answer (an end of turn with the newline after it, the blank before a
    word) still belongs to the answer. The last character may be several tokens, the bytes of an emoji.
    """
    start, end, (before, after), _ = answer
    first = last = None
    while start < end and first is None:
        first = encoding.char_to_token(start)
        start += first is None
    while end > start and last is None:
        last = encoding.char_to_token(end - 1)
        end -= last is None
    if first is None or last is None:
        return 0, -1, 0
    while last + 1 < len(encoding) and encoding.token_to_chars(last + 1)[0] < end:
        last += 1
    lost = 0
    if encoding.token_to_chars(first)[0] < answer.start - before:
        first, lost = first + 1, lost + 1
    if first <= last and encoding.token_to_chars(last)[1] > answer.end + after:
        last, lost = last - 1, lost + 1
    return first, last, lost


def _spans_by_bytes(
    rendered: Sequence[Rendered],
    without: set[int],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    lengths: TokenLengths,
) -> tuple[NDArray[np.int64], ...]:
    """(rows, first tokens, ends, tokens lost at the edges) of all answers, from token lengths; as by `_tokens_of`.

    Raises:
        RuntimeError: the tokens of a text have another length than the text: the tokenizer drops or adds bytes.
    """
    last = np.cumsum(lengths.of[ids], dtype=np.int64)  # where each token ends, in bytes of all texts
    first = last - lengths.of[ids]
    edges = np.concatenate([[0], last])[offsets]
    spans: list[tuple[int, int, int, int, int]] = []
    sizes = np.zeros(len(rendered), dtype=np.int64)
    for place, (text, answered, _, _) in enumerate(rendered):
        if place in without:
            sizes[place] = edges[place + 1] - edges[place]
            continue
        plain = text.isascii()
        sizes[place] = len(text) if plain else len(text.encode("utf-8"))
        for begin, stop, (before, after), _ in answered:
            if not plain:
                begin, stop = len(text[:begin].encode("utf-8")), len(text[:stop].encode("utf-8"))
            spans.append((place, begin, stop, before, after))
    if (np.diff(edges) != sizes).any():
        wrong = int(np.flatnonzero(np.diff(edges) != sizes)[0])
        raise RuntimeError(f"{np.diff(edges)[wrong]} bytes in the tokens of a text of {sizes[wrong]} bytes")
    answers = np.array(spans, dtype=np.int64).reshape(-1, 5)
    start, end = (answers[:, column] + edges[answers[:, 0]] for column in (1, 2))
    head = np.searchsorted(last, start, side="right")
    tail = np.searchsorted(first, end, side="left")
    some = head < tail  # an answer has tokens unless it is empty
    answers, start, end, head, tail = answers[some], start[some], end[some], head[some], tail[some]
    early = first[head] < start - answers[:, 3]
    late = (last[tail - 1] > end + answers[:, 4]) & (tail - head > early)
    return answers[:, 0], head + early, tail - late, early.astype(np.int64) + late


def _faults(
    rendered: Sequence[Rendered],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    supervised: NDArray[np.int32],
    control: NDArray[np.bool_],
    max_length: int,
) -> list[str | None]:
    """The first fault of each example, None where it can be trained on."""
    places = np.flatnonzero(control[ids])
    rows = np.searchsorted(offsets, places, side="right") - 1
    counts = np.bincount(rows, minlength=len(rendered))
    sums = np.bincount(rows, weights=ids[places], minlength=len(rendered))
    lengths = np.diff(offsets)
    faults: list[str | None] = []
    for place, each in enumerate(rendered):
        if each.fault is None and each.control and each.control != (counts[place], sums[place]):
            faults.append(CONTROL)
        elif each.fault is not None:
            faults.append(each.fault)
        elif not supervised[place]:
            faults.append(MASKED)
        else:
            faults.append(too_long(max_length) if lengths[place] > max_length else None)
    return faults


def conversation(text: str) -> Messages | None:
    """Parse `messages` (JSON); None where it is no list of turns with text."""
    try:
        try:
            turns = orjson.loads(text)
        except ValueError:  # orjson refuses half surrogate pairs, which have a reason of their own
            turns = json.loads(text)
    except ValueError:
        return None
    if not isinstance(turns, list) or not turns:
        return None
    for turn in turns:
        if type(turn) is not dict or type(turn.get("role")) is not str or type(turn.get("content")) is not str:
            return None
    return turns


def _control_table(template: ChatTemplate) -> NDArray[np.bool_]:
    """Mask over all token ids, true for control tokens."""
    ids = list(template.control_ids.values())
    table = np.zeros(max([template.backend.get_vocab_size(with_added_tokens=True), *(i + 1 for i in ids)]), np.bool_)
    table[ids] = True
    return table


def _cuts(messages: pl.Series) -> Iterator[tuple[int, int]]:
    """Yield row ranges of about _BATCH_BYTES each."""
    batch = messages.str.len_bytes().cast(pl.UInt64).cum_sum().to_numpy() // _BATCH_BYTES
    yield from pairwise([0, *(np.flatnonzero(np.diff(batch)) + 1).tolist(), len(messages)] if len(messages) else [])


@contextmanager
def _one_thread(wanted: bool) -> Iterator[None]:
    """Context that keeps the tokenizers library, which reads the environment before each batch, to one thread."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    if wanted:
        os.environ[name] = "false"
    try:
        yield
    finally:
        if wanted and before is None:
            del os.environ[name]
        elif wanted and before is not None:
            os.environ[name] = before
