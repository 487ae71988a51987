"""Chat templates rendered by Jinja: the text, and the character spans of the assistant's answers.

A template that prints today's date gets a fixed one, so that the same input gives the same bytes on every day.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import jinja2

from capibara_assets.datasets.tokens.template_process import rendered_apart, shipped_templates
from capibara_assets.datasets.tokens.templates_learned import end_of_turn, in_order, slack
from capibara_assets.errors import InputError

Messages = Sequence[Mapping[str, str]]

ASSISTANT = "assistant"
PINNED_DATE = "26 Jul 2024"  # Llama 3's own default
STRIPPED = "the chat template strips whitespace around its answer: strip the answer, or use a template that keeps it"
CHANGED = (
    "the chat template changes earlier turns: make one example of each answer, or add {% generation %} markers to it"
)
_MARKER = re.compile(r"{%-?\s*generation\s*-?%}")
_PINNED = "{% macro strftime_now(format) %}" + PINNED_DATE + "{% endmacro %}"


class AnswerSpan(NamedTuple):
    """Characters `start` to `end` of a rendered text: one answer with its end of turn.

    Attributes:
        slack: numbers of whitespace characters before and after that a token of the answer may include.
        ended: whether the span includes an end of turn.
    """

    start: int
    end: int
    slack: tuple[int, int]
    ended: bool


class Rendered(NamedTuple):
    """A rendered conversation.

    Attributes:
        answers: the supervised spans, in order.
        control: control tokens that the template itself writes, (count, sum of ids); None where not known.
        fault: reason why it cannot be trained on, if any.
    """

    text: str
    answers: tuple[AnswerSpan, ...]
    control: tuple[int, int] | None = None
    fault: str | None = None


@dataclass(frozen=True)
class JinjaTemplate:
    """A tokenizer's chat template, rendered by Jinja; picklable.

    Attributes:
        text: the template.
        specials: the tokenizer's special tokens by name, for use in the template.
        control: every control token of the tokenizer, as text.
    """

    text: str
    specials: Mapping[str, str]
    control: tuple[str, ...]

    @property
    def marked(self) -> bool:
        """Whether the template marks generated text itself (`{% generation %}`)."""
        return bool(_MARKER.search(self.text))

    def text_of(self, messages: Messages, *, generation_prompt: bool = False) -> str:
        """The rendered text."""
        return self._render(messages, generation_prompt)[0]

    def marks_of(self, messages: Messages) -> tuple[str, list[tuple[int, int]]]:
        """The rendered text, and (start, end) of the spans that the template marks as generated."""
        return self._render(messages, False)

    def rendered(self, messages: Messages) -> Rendered:
        """Render one conversation by Jinja alone.

        Raises:
            InputError: the template refuses it.
        """
        try:
            text, marks = self.marks_of(messages)
            missing = in_order(text, [message["content"] for message in messages])
            if missing is not None:
                role = messages[missing]["role"]
                return Rendered(text, (), fault=f"the chat template leaves out or changes its turn {missing} ({role})")
            answers = self.by_marks(messages, text, marks) if self.marked else self._by_prefix(messages, text)
        except jinja2.TemplateError as error:
            raise refusal([message["role"] for message in messages], error) from error
        if answers is None:
            return Rendered(text, (), fault=CHANGED)
        spoken = [message["content"] for message in messages if message["role"] == ASSISTANT]
        kept = all(content in text for content in spoken)
        return Rendered(text, tuple(answers), fault=None if kept else STRIPPED)

    def by_marks(self, messages: Messages, text: str, marks: Sequence[tuple[int, int]]) -> list[AnswerSpan]:
        """The answers from the template's marks (`marks_of`), each with its end of turn."""
        if not marks:
            return []
        last = max(turn for turn, message in enumerate(messages) if message["role"] == ASSISTANT)
        whole, until = (text, marks) if last == len(messages) - 1 else self.marks_of(messages[: last + 1])
        reference = whole[until[-1][1] :] if until else ""
        answers = []
        for start, end in marks:
            tail = text[end:]
            held = any(text[start:end].rstrip().endswith(token) for token in self.control)
            more = 0 if held else end_of_turn(reference, tail, self.control)
            answers.append(AnswerSpan(start, end + more, slack(text[:start], text[end + more :]), bool(held or more)))
        return answers

    def _by_prefix(self, messages: Messages, text: str) -> list[AnswerSpan] | None:
        """The answers, from rendering up to and through each one; None where later turns change earlier text."""
        answers = []
        for turn, message in enumerate(messages):
            if message["role"] != ASSISTANT:
                continue
            before = self.text_of(messages[:turn], generation_prompt=True) if turn else ""
            through = self.text_of(messages[: turn + 1])
            content = message["content"] if message["content"] in through[len(before) :] else message["content"].strip()
            at = through.find(content, len(before))
            if not text.startswith(before) or at < 0 or text[: at + len(content)] != through[: at + len(content)]:
                return None
            start = len(before) if not text[len(before) : at].strip() else at
            end = at + len(content)
            more = end_of_turn(through[end:], text[end:], self.control)
            answers.append(AnswerSpan(start, end + more, slack(text[:start], text[end + more :]), bool(more)))
        return answers

    def _render(self, messages: Messages, generation_prompt: bool) -> tuple[str, list[tuple[int, int]]]:
        text, marks = self._as_written(messages, generation_prompt)
        if surrogates(text) and not any(surrogates(message["content"]) for message in messages):
            raise jinja2.TemplateRuntimeError("it writes half of a character, which no tokenizer reads")
        return text, marks

    def _as_written(self, messages: Messages, generation_prompt: bool) -> tuple[str, list[tuple[int, int]]]:
        arguments = {**self.specials, "date_string": PINNED_DATE}
        template = _PINNED + self.text if "strftime_now" in self.text else self.text
        if self.text not in shipped_templates():
            return rendered_apart(
                template, messages, arguments, marked=self.marked, generation_prompt=generation_prompt
            )
        from transformers.utils.chat_template_utils import render_jinja_template

        with failing_as_template():
            texts, marks = render_jinja_template(
                conversations=[[dict(message) for message in messages]],
                chat_template=template,
                return_assistant_tokens_mask=self.marked,
                add_generation_prompt=generation_prompt,
                **arguments,
            )
        return texts[0], marks[0] if self.marked else []


def surrogates(text: str) -> bool:
    """Whether a text contains a lone surrogate, which has no UTF-8 form."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


@contextmanager
def failing_as_template() -> Iterator[None]:
    """Context manager that converts any error of a model's own template to a refusal.

    Raises:
        jinja2.TemplateError: it failed.
    """
    try:
        yield
    except jinja2.TemplateError:
        raise
    except Exception as error:
        raise jinja2.TemplateRuntimeError(f"{type(error).__name__} {error}".strip()) from error


def refusal(roles: Sequence[str], error: Exception) -> InputError:
    """The error for a conversation on which the template raises, with advice."""
    advice = ADVICE["system"] if "system" in roles else "use turns that it knows, or another template"
    return InputError(f"the chat template refuses a conversation of {', '.join(roles)} ({error}): {advice}")


ADVICE = {"system": "put the system text at the beginning of the user's turn, or use a template that has system turns"}
