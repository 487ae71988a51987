"""Behaviour of a loaded model on short sane conversations: finite logits, low loss, answers that end, no loops."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from capibara_assets.datasets.tokens.tokenising import Encoded, encode
from capibara_assets.evaluation.answering.streaming import answers, distinct, looping
from capibara_assets.evaluation.decoding import Decoding
from capibara_assets.evaluation.diagnosis.catalogue import Diagnosis
from capibara_assets.modeling.losses import token_losses

if TYPE_CHECKING:
    from capibara_assets.modeling.base import Base

ANSWER_TOKENS = 48
FP16_LARGEST = 65504.0
# Shares of the way from the base, or from certainty, to guessing among all tokens
_LOST = 0.5
_NEAR_GUESSING = 0.75
_LOOPING = 0.5  # of greedy answers, over the base's: small sound models loop in half of theirs
_DRAWN_LOOPING = 0.5  # drawn answers follow the text that was learned, which seldom loops
_BROKEN = 0.3
_ENDS = 0.01
_REPLACEMENT = "\ufffd"


SANE: tuple[tuple[Mapping[str, str], ...], ...] = tuple(
    ({"role": "user", "content": question}, {"role": "assistant", "content": reply})
    for question, reply in (
        (
            "Write a Python function that returns the sum of the numbers in a list.",
            "def total(numbers):\n    result = 0\n    for number in numbers:\n        result += number\n"
            "    return result",
        ),
        (
            "Write a SQL query that counts the orders of each customer.",
            "SELECT customer_id, COUNT(*) AS orders\nFROM orders\nGROUP BY customer_id\nORDER BY customer_id;",
        ),
        (
            "Write a JavaScript function that reverses a string.",
            "function reverse(text) {\n  return text.split('').reverse().join('');\n}",
        ),
        (
            "Read a JSON file in Python and print the names in it.",
            "import json\n\nwith open('people.json') as file:\n    people = json.load(file)\n"
            "for person in people:\n    print(person['name'])",
        ),
        (
            "Why does this code raise a KeyError?\n\nages = {'ada': 36}\nprint(ages['bob'])",
            "The dictionary has no key 'bob'. Use ages.get('bob') to get None instead.",
        ),
        (
            "Compute the mean of each column of a NumPy array.",
            "import numpy as np\n\nvalues = np.array([[1.0, 2.0], [3.0, 4.0]])\nprint(values.mean(axis=0))",
        ),
        (
            "Explain what a list is.",
            "A list is an ordered collection of values. You can add values to it and read them by position.",
        ),
        (
            "Write a Python class for a stack with push and pop.",
            "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"
            "        self.items.append(item)\n\n    def pop(self):\n        return self.items.pop()",
        ),
    )
)
"""Short conversations that any language model of code should find likely."""


@dataclass(frozen=True)
class Behaviour:
    """Measurements of a model on sane conversations.

    Attributes:
        loss: nats per token of sane answers.
        guessing: the loss of a model that finds all tokens equally likely.
        entropy: mean of the next token's distribution over the same tokens, nats.
        end_probability: largest probability of the end of turn where a sane answer ends.
        greedy_loops, drawn_loops: share of answers of which at least half is a loop.
        distinct_2: share of different 2-grams in the drawn answers.
        ended: answers that ended by themselves.
        broken: share of characters of the drawn answers that are no valid UTF-8.
        answers: of either kind.
    """

    loss: float
    guessing: float
    entropy: float
    end_probability: float
    greedy_loops: float
    drawn_loops: float
    distinct_2: float
    ended: int
    broken: float
    answers: int


def sane_tokens(base: "Base") -> list[Encoded]:
    """Encode the sane conversations with the model's template and tokenizer. Raises InputError: they cannot."""
    limit = getattr(base.model.config, "max_position_embeddings", None) or 2048
    return [encode(messages, base.tokenizer, limit) for messages in SANE]


def logits_of(model: Any, examples: Sequence[Encoded]) -> list[torch.Tensor]:
    """Logits of each example, (tokens, vocabulary) float32."""
    device = next(model.parameters()).device
    with torch.inference_mode():
        return [
            model(input_ids=torch.tensor([one.input_ids], device=device), use_cache=False).logits[0].float().cpu()
            for one in examples
        ]


def check_logits(logits: Sequence[torch.Tensor]) -> list[Diagnosis]:
    """Check that logits on sane texts are finite."""
    bad = sum(int((~torch.isfinite(one)).sum()) for one in logits)
    if not bad:
        return []
    total = sum(one.numel() for one in logits)
    finding = f"{bad:,} of {total:,} logits are not finite, though all weights are"
    return [Diagnosis("logits_not_finite", finding, {"not_finite": bad, "of": total})]


def check_fp16(model: Any, examples: Sequence[Encoded]) -> list[Diagnosis]:
    """Check that activations, computed in float32, do not overflow fp16."""
    with _largest(model) as largest:
        logits_of(model, examples)
    over = {name: value for name, value in largest.items() if value > FP16_LARGEST}
    if not over:
        return []
    name, value = max(over.items(), key=lambda pair: pair[1])
    finding = f"{name} reaches {value:,.0f}, fp16 ends at {FP16_LARGEST:,.0f}: infinity in {len(over)} modules"
    return [Diagnosis("fp16_overflow", finding, {"module": name, "largest": value, "modules": len(over)})]


def behaviour(base: "Base", examples: Sequence[Encoded]) -> Behaviour:
    """Measure the behaviour of a model whose weights and logits are finite."""
    losses = token_losses(base.model, examples)
    last = np.cumsum(losses.tokens) - 1
    entropies = []
    for one, logits in zip(examples, logits_of(base.model, examples), strict=True):
        places = [index - 1 for index, label in enumerate(one.labels) if label >= 0]
        shares = torch.log_softmax(logits[places].double(), dim=-1)
        entropies += (-(shares.exp() * shares).sum(-1)).tolist()
    questions = [messages[:1] for messages in SANE]
    greedy = answers(base, questions, Decoding(max_new_tokens=ANSWER_TOKENS))
    drawn = answers(base, questions, Decoding(max_new_tokens=ANSWER_TOKENS, temperature=1.0))
    text = "".join(base.tokenizer.decode(one.tokens, skip_special_tokens=True) for one in drawn)
    return Behaviour(
        loss=float(losses.nll.mean()),
        guessing=math.log(base.model.config.vocab_size),
        entropy=float(np.mean(entropies)),
        end_probability=float(np.exp(-losses.nll[last].min())),
        greedy_loops=_loops([one.tokens for one in greedy]),
        drawn_loops=_loops([one.tokens for one in drawn]),
        distinct_2=float(np.mean([distinct(one.tokens) for one in drawn if len(one.tokens) > 1] or [1.0])),
        ended=sum(one.finish == "stop" for one in (*greedy, *drawn)),
        broken=text.count(_REPLACEMENT) / len(text) if text else 0.0,
        answers=len(questions),
    )


def judge(own: Behaviour, base: Behaviour | None) -> list[Diagnosis]:
    """Diagnose gibberish, else repetition and endless answers; not where the base is no better.

    Args:
        base: behaviour of the model it was made from, where that is known.
    """
    evidence: dict[str, Any] = asdict(own)
    beside = ""
    if base is not None:
        evidence["base"] = asdict(base)
        beside = f", the base {base.loss:.2f}"
    bar = _NEAR_GUESSING * own.guessing
    if base is not None and base.loss < bar:
        bar = min(bar, base.loss + _LOST * (own.guessing - base.loss))
    if own.loss >= bar or own.broken >= _BROKEN:
        words = (
            f"{own.loss:.2f} nats per token on sane texts{beside}, guessing {own.guessing:.2f}; entropy "
            f"{own.entropy:.2f}; {own.broken:.0%} of the characters of drawn answers are broken"
        )
        return [Diagnosis("gibberish", words, evidence)]
    diagnoses = []
    more_than_base = base is not None and own.greedy_loops - base.greedy_loops >= _LOOPING
    if own.drawn_loops >= _DRAWN_LOOPING or (more_than_base and own.greedy_loops >= _NEAR_GUESSING):
        against = f" (base {base.greedy_loops:.0%}, {base.drawn_loops:.0%})" if base is not None else ""
        words = (
            f"{own.greedy_loops:.0%} of greedy and {own.drawn_loops:.0%} of drawn answers end in a loop{against}; "
            f"{own.distinct_2:.0%} of 2-grams differ"
        )
        diagnoses.append(Diagnosis("repetition", words, evidence))
    elif own.end_probability < _ENDS and own.ended <= own.answers / 4:  # a draw may end one by chance
        words = (
            f"the end of turn gets at most {own.end_probability:.2g} where {own.answers} sane answers end, and "
            f"{own.ended} of {2 * own.answers} answers ended within {ANSWER_TOKENS} tokens"
        )
        diagnoses.append(Diagnosis("never_ends", words, evidence))
    return diagnoses


def figures(own: Behaviour, base: Behaviour | None) -> str:
    """The measurements in one line."""
    beside = f" (base {base.loss:.2f})" if base is not None else ""
    return (
        f"loss {own.loss:.2f}{beside} of {own.guessing:.2f} nats, {own.greedy_loops:.0%} of greedy and "
        f"{own.drawn_loops:.0%} of drawn answers loop, {own.ended} of {2 * own.answers} ended"
    )


def _loops(answers: Sequence[Sequence[int]]) -> float:
    return sum(looping(tokens) >= len(tokens) / 2 for tokens in answers if tokens) / len(answers)


@contextmanager
def _largest(model: Any) -> Iterator[dict[str, float]]:
    """Record each module's largest absolute output in a block: module → value."""
    largest: dict[str, float] = {}

    def note(name: str, output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple | list) and output else output
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.numel():
            largest[name] = max(largest.get(name, 0.0), float(tensor.abs().max()))

    handles = [
        module.register_forward_hook(lambda _m, _i, output, name=name: note(name, output))
        for name, module in model.named_modules()
        if name
    ]
    try:
        yield largest
    finally:
        for handle in handles:
            handle.remove()
