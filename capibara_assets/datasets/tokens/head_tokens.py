"""Tokenisation of conversations for sequence-to-sequence (T5) and masked (BERT) models.

Tokenizers of such models mostly have no chat template. A conversation is then plain text: a line `role: content` for
each turn, and `assistant:` before the answer.
"""

from typing import Any

import jinja2
import polars as pl

from capibara_assets.datasets.tokens.batches import CONTROL, MASKED, NO_JSON, NO_TEXT, conversation
from capibara_assets.datasets.tokens.packing import IGNORED
from capibara_assets.datasets.tokens.templates import ChatTemplate, Tokenizer, control_ids
from capibara_assets.datasets.tokens.templates_jinja import ASSISTANT, Messages, refusal, surrogates
from capibara_assets.errors import InputError

Tokens = tuple[list[int], list[int]]  # input ids, and labels: -100 where there is no loss
NO_ANSWER = "its last turn is not the assistant's, after another"


def plain_text(messages: Messages, *, answer_next: bool = False) -> str:
    """A conversation as plain text, for tokenizers without a template.

    Args:
        answer_next: end with `assistant:`, as a prompt for the answer.
    """
    lines = [f"{message['role']}: {message['content']}" for message in messages]
    return "\n".join([*lines, f"{ASSISTANT}:"] if answer_next else lines)


def head_tokens(frame: pl.DataFrame, tokenizer: Tokenizer, head: str) -> tuple[dict[str, Tokens], dict[str, str]]:
    """Tokens of examples (columns example_id, messages) by id, and the faults of those without, in the table's order.

    Args:
        head: `seq2seq` or `masked`.

    Raises:
        InputError: the tokenizer lacks what the head needs, or its template refuses the turns.
    """
    writer = _Writer(tokenizer)
    encoded, faults = dict[str, Tokens](), dict[str, str]()
    for name, text in frame.select("example_id", "messages").iter_rows():
        messages = conversation(text)
        fault = NO_JSON if messages is None else writer.fault(messages, head)
        if messages is None or fault:
            faults[name] = fault or NO_JSON
            continue
        tokens = writer.seq2seq(messages) if head == "seq2seq" else writer.masked(messages)
        if all(label == IGNORED for label in tokens[1]):
            faults[name] = MASKED
        else:
            encoded[name] = tokens
    return encoded, faults


class _Writer:
    """Writes conversations as tokens, by the tokenizer's template where it has one."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._template = ChatTemplate(tokenizer) if getattr(tokenizer, "chat_template", None) else None
        self._control = tuple(control_ids(tokenizer))
        self._special = {*control_ids(tokenizer).values(), *tokenizer.all_special_ids}

    def seq2seq(self, messages: Messages) -> Tokens:
        """The encoder's input without labels, then the labelled answer with its end of sequence.

        All turns before the last are the encoder's input; earlier answers among them have no loss.
        """
        end = self._tokenizer.eos_token_id
        if end is None:
            raise InputError("the tokenizer has no end-of-sequence token: a model could not learn where an answer ends")
        question = self._ids(self._text(messages[:-1], answer_next=True), special=self._template is None)
        answer = [*self._ids(messages[-1]["content"], special=False), int(end)]
        return [*question, *answer], [*[IGNORED] * len(question), *answer]

    def masked(self, messages: Messages) -> Tokens:
        """The whole conversation; every token but special ones has a label, since it may be masked (masking.py)."""
        ids = self._ids(self._text(messages), special=self._template is None)
        return ids, [IGNORED if token in self._special else token for token in ids]

    def fault(self, messages: Messages, head: str) -> str | None:
        """The fault of a conversation, None where it can be trained on."""
        contents = [message["content"] for message in messages]
        if any(surrogates(content) for content in contents):
            return NO_TEXT
        if any(token in content for content in contents for token in self._control):
            return CONTROL
        if head == "seq2seq" and (len(messages) < 2 or messages[-1]["role"] != ASSISTANT):
            return NO_ANSWER
        return MASKED if head == "seq2seq" and not contents[-1].strip() else None

    def _text(self, messages: Messages, *, answer_next: bool = False) -> str:
        if self._template is None:
            return plain_text(messages, answer_next=answer_next)
        try:
            return self._template.jinja.text_of(messages, generation_prompt=answer_next)
        except jinja2.TemplateError as error:
            raise refusal([message["role"] for message in messages], error) from error

    def _ids(self, text: str, *, special: bool) -> list[int]:
        encoded: Any = self._tokenizer(text, add_special_tokens=special, verbose=False)
        return list(encoded["input_ids"])
