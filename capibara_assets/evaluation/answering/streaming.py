"""Generate one answer at a time for an interactive session: text is streamed, and Ctrl-C stops it.

Chooses the same tokens as `generation.generate` for the same seed, which is for many answers at once.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering.answer import prompt_tokens
from capibara_assets.evaluation.answering.generation import Generated, choose, generate, longest_context, stop_ids
from capibara_assets.evaluation.decoding import Decoding
from capibara_assets.modeling.base import running

if TYPE_CHECKING:
    from capibara_assets.modeling.base import Base

Messages = Sequence[Mapping[str, str]]
Finish = Literal["stop", "length", "interrupted"]


@dataclass(frozen=True)
class StreamedAnswer:
    """One generated answer, possibly interrupted.

    Attributes:
        text: without the token that ended it.
        tokens: how many, that one included.
        finish: it ended by itself, at the budget or the model's length, or was interrupted.
        seconds: wall clock that it took.
    """

    text: str
    tokens: int
    finish: Finish
    seconds: float


def answer(
    base: "Base",
    messages: Messages,
    decoding: Decoding,
    *,
    on_text: Callable[[str], None] | None = None,
    draw: int = 0,
) -> StreamedAnswer:
    """Generate the next turn of a conversation; near the end of the context with fewer tokens than the budget.

    Args:
        messages: the conversation, a user's turn last.
        on_text: gets each piece of text as soon as it can no longer change; Ctrl-C then ends the answer, not the
            program, and what is there is returned.
        draw: added to the seed: other draws for the next turn.

    Raises:
        InputError: no chat template, or one that refuses the conversation; no room for an answer; logits that are
            not finite, or a model that cannot be run.
    """
    (ids,) = prompt_tokens(base, [messages])
    limit = longest_context(base.model) or len(ids) + decoding.max_new_tokens
    if len(ids) >= limit:
        raise InputError(f"the conversation has {len(ids)} tokens, the model takes {limit}: begin a new one")
    most = min(decoding.max_new_tokens, limit - len(ids))
    begun, stops = time.perf_counter(), stop_ids(base)
    made: list[int] = []
    shown, count, finish = 0, 0, "length"
    try:
        for token in _tokens(base, ids, decoding, decoding.seed + draw, most):
            count += 1
            if token in stops:
                finish = "stop"
                break
            made.append(token)
            if on_text:
                text = base.tokenizer.decode(made, skip_special_tokens=True)
                if not text.endswith("\ufffd"):  # a character whose bytes are not all there yet
                    on_text(text[shown:])
                    shown = len(text)
    except KeyboardInterrupt:
        if not on_text:
            raise
        finish = "interrupted"
    except ValueError as error:
        raise InputError(f"{base.path}: {error}") from error
    text = base.tokenizer.decode(made, skip_special_tokens=True)
    if on_text and text[shown:]:
        on_text(text[shown:])
    return StreamedAnswer(text, count, finish, time.perf_counter() - begun)  # type: ignore[arg-type]


def answers(base: "Base", conversations: Sequence[Messages], decoding: Decoding) -> list[Generated]:
    """Generate the next turn of several conversations, each with random draws of its own.

    Raises:
        InputError: as `answer`, or the budget does not fit into the context.
    """
    prompts = prompt_tokens(base, conversations)
    seeds = [[decoding.seed + number] for number in range(len(prompts))]
    made = {index: one for index, _, one in generate(base.model, prompts, seeds, decoding, stop_ids(base))}
    return [made[index] for index in range(len(prompts))]


def _tokens(base: "Base", ids: Sequence[int], decoding: Decoding, seed: int, most: int) -> Iterator[int]:
    """Tokens one after the other, with a key-value cache."""
    model: Any = base.model
    device = next(model.parameters()).device
    draws = np.random.Generator(np.random.Philox(seed)).random(most)
    given, cache = torch.tensor([list(ids)], device=device), None
    for number in range(most):
        with torch.inference_mode(), running(base.path):
            output = model(input_ids=given, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = output.past_key_values
        (token,) = choose(output.logits[:, -1].float(), decoding, draws[number : number + 1])
        yield token
        given = torch.tensor([[token]], device=device)


def looping(tokens: Sequence[int], *, longest: int = 32, rounds: int = 4) -> int:
    """Length of the loop at the end: tokens in `rounds` or more repeats of a cycle of at most `longest`; else 0."""
    best = 0
    for period in range(1, min(longest, len(tokens) // rounds) + 1):
        same = 0
        while same + period < len(tokens) and tokens[-1 - same] == tokens[-1 - same - period]:
            same += 1
        if same + period >= rounds * period:
            best = max(best, same + period)
    return best


def distinct(tokens: Sequence[int], n: int = 2) -> float:
    """Share of n-grams that differ (Li et al. 2016, arXiv 1510.03055); NaN for fewer than n tokens."""
    grams = [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else math.nan


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Transformers' warnings in a block whose caller reports the problems itself."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
