"""Chat messages rendered by the base model's template, with the character spans of the answers.

A template that writes constant text around contents (all published ones do for ordinary contents) needs Jinja only
once per sequence of roles: its constants are learned (templates_learned.py), checked against Jinja, and then joined
with contents. Everything else is rendered by Jinja (templates_jinja.py).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jinja2

from capibara_assets.datasets.tokens.template_process import require_short
from capibara_assets.datasets.tokens.templates_jinja import (
    ADVICE,
    ASSISTANT,
    CHANGED,
    STRIPPED,
    AnswerSpan,
    JinjaTemplate,
    Messages,
    Rendered,
    refusal,
)
from capibara_assets.datasets.tokens.templates_learned import (
    STRIPS,
    Span,
    Structure,
    content_triggers,
    end_of_turn,
    in_order,
    joined,
    learned_turns,
    probe,
    slack,
    split_by,
)
from capibara_assets.errors import InputError

Tokenizer = Any  # transformers.PreTrainedTokenizerBase, which this module must not import
Roles = tuple[str, ...]


class ChatTemplate:
    """A tokenizer's chat template; uses learned constants if possible, otherwise Jinja."""

    def __init__(self, tokenizer: Tokenizer):
        """Raises InputError: the tokenizer has no chat template, or is not one of the tokenizers library."""
        if not getattr(tokenizer, "chat_template", None):
            raise InputError(
                f"the tokenizer {getattr(tokenizer, 'name_or_path', '')} has no chat template: "
                "set one to train on messages"
            )
        self.backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if self.backend is None:
            raise InputError(
                f"the tokenizer {getattr(tokenizer, 'name_or_path', '')} is not a fast one: save it as tokenizer.json"
            )
        self.control_ids = control_ids(tokenizer)
        self.jinja = jinja_template(tokenizer)
        self._triggers = content_triggers(self.jinja.text)
        self._structures: dict[Roles, Structure | None] = {}
        self._unchecked: set[Roles] = set()

    def assembled(self, messages: Messages) -> Rendered | None:
        """The conversation joined from learned constants; None if it needs Jinja.

        Raises:
            InputError: the template refuses, drops or rewrites turns of this form, or changes earlier turns.
        """
        roles = tuple([message["role"] for message in messages])
        contents = [message["content"] for message in messages]
        if roles not in self._structures:
            self._structures[roles] = learn(self.jinja, roles, self._control_of)
            self._unchecked.add(roles)
        structure = self._structures[roles]
        if structure is None:
            return None
        for message, content in zip(messages, contents, strict=True):
            if len(message) != 2 or not content or content.isspace():
                return None
            for trigger in self._triggers:
                if trigger in content:
                    return None
        whole = _put_together(structure, contents)
        if roles in self._unchecked:
            self._unchecked.discard(roles)
            return self._checked(roles, messages, whole)
        return whole

    def verify(self, conversations: Iterable[Messages]) -> None:
        """Compare joined constants with Jinja on real conversations; role sequences that differ are left to Jinja."""
        for messages in conversations:
            whole = self.assembled(messages)
            if whole is not None:
                self._checked(tuple(message["role"] for message in messages), messages, whole)

    def rendered(self, messages: Messages) -> Rendered:
        """Render one conversation, from learned constants or by Jinja."""
        return self.assembled(messages) or self.jinja.rendered(messages)

    def _checked(self, roles: Roles, messages: Messages, whole: Rendered) -> Rendered | None:
        if whole.text == self.jinja.text_of(messages):
            return whole
        self._structures[roles] = None
        return None

    def _control_of(self, text: str) -> tuple[int, int]:
        ids = [i for i in self.backend.encode(text, add_special_tokens=False).ids if i in self.control_ids.values()]
        return len(ids), sum(ids)


def jinja_template(tokenizer: Tokenizer) -> JinjaTemplate:
    """The chat template of a tokenizer that has one. Raises InputError: it is longer than any."""
    specials = {key: str(value) for key, value in tokenizer.special_tokens_map.items() if isinstance(value, str)}
    text = require_short(str(tokenizer.get_chat_template()))
    return JinjaTemplate(text, specials, tuple(sorted(control_ids(tokenizer))))


def control_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Text -> id of a tokenizer's control tokens (special tokens, named or not)."""
    added = {token.content: number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    named = {token: tokenizer.convert_tokens_to_ids(token) for token in tokenizer.all_special_tokens if token}
    return {**named, **added}


def learn(jinja: JinjaTemplate, roles: Sequence[str], control_of: Callable[[str], tuple[int, int]]) -> Structure | None:
    """Learn the constants around turns of these roles by rendering probes; None where contents change them.

    Raises:
        InputError: the template refuses these roles, leaves a turn out, or changes earlier turns.
    """
    probes = [probe(turn) for turn in range(len(roles))]

    def conversation(contents: Sequence[str]) -> list[dict[str, str]]:
        return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]

    try:
        text, marks = jinja.marks_of(conversation(probes))
        missing = in_order(text, probes)
        if missing is not None:
            raise InputError(
                f"the chat template leaves out the {roles[missing]} turn of a conversation of {', '.join(roles)}: "
                f"{ADVICE.get(roles[missing], 'use another template')}"
            )
        constants = split_by(text, probes)
        if constants is None:
            return None
        turns = learned_turns(roles, constants, lambda contents: jinja.text_of(conversation(contents)))
        if turns is None:
            return None
        spans = _marked_spans(jinja, roles, constants, marks) if jinja.marked else _spans(jinja, roles, constants)
    except jinja2.TemplateError as error:
        raise refusal(roles, error) from error
    if spans is None:
        return None
    strips = any(STRIPS[turn.strip] for turn in turns)
    return Structure(constants, turns, spans, strips, control_of(text))


def _spans(jinja: JinjaTemplate, roles: Sequence[str], constants: Sequence[str]) -> tuple[Span, ...]:
    """Supervised spans of a template without markers: content, a blank after the generation prompt, end of turn.

    Raises:
        InputError: a turn is rendered differently once others follow it.
    """
    spoken = [turn for turn, role in enumerate(roles) if role == ASSISTANT]
    spans = []
    whole = joined(constants, [probe(turn) for turn in range(len(roles))])
    for turn in spoken:
        messages = [{"role": role, "content": probe(k)} for k, role in enumerate(roles[: turn + 1])]
        through = jinja.text_of(messages)
        at = whole.index(probe(turn)) + len(probe(turn))
        if through[:at] != whole[:at]:
            raise InputError(f"a conversation of {', '.join(roles)}: {CHANGED}")
        if turn == spoken[-1]:
            reference = through[at:]
        prompt = _prompt(jinja, messages[:-1])
        gap = whole[len(prompt) : at - len(probe(turn))] if whole.startswith(prompt) else "?"
        spans.append((turn, 0 if gap.strip() or not prompt else len(gap)))
    supervised = []
    for turn, lead in spans:
        before, after = constants[turn], constants[turn + 1]
        end = end_of_turn(reference, after, jinja.control)
        supervised.append(Span(turn, lead, end, slack(before[: len(before) - lead], after[end:])))
    return tuple(supervised)


def _prompt(jinja: JinjaTemplate, messages: Messages) -> str:
    """The text of these turns with the generation prompt; empty where the template cannot render them alone."""
    try:
        return jinja.text_of(messages, generation_prompt=True) if messages else ""
    except jinja2.TemplateError:
        return ""


def _marked_spans(
    jinja: JinjaTemplate, roles: Sequence[str], constants: Sequence[str], marks: Sequence[tuple[int, int]]
) -> tuple[Span, ...] | None:
    """Supervised spans by the template's markers; None where a marker spans several answers, or part of one."""
    messages = [{"role": role, "content": probe(turn)} for turn, role in enumerate(roles)]
    text, _ = jinja.marks_of(messages)
    answers = jinja.by_marks(messages, text, marks)
    spans, at = [], 0
    for turn, role in enumerate(roles):
        at = text.index(probe(turn), at)
        inside = [answer for answer in answers if answer.start < at + len(probe(turn)) and at < answer.end]
        if not inside:
            continue
        lead, end = at - inside[0].start, inside[0].end - at - len(probe(turn))
        whole = 0 <= lead <= len(constants[turn]) and 0 <= end <= len(constants[turn + 1])
        if role != ASSISTANT or len(inside) > 1 or not whole:
            return None
        spans.append(Span(turn, lead, end, inside[0].slack))
    return tuple(spans) if len(spans) == len(answers) else None


def _put_together(structure: Structure, contents: list[str]) -> Rendered:
    fault = None
    if structure.strips:
        stripped = [
            strip(content) if (strip := STRIPS[turn.strip]) else content
            for turn, content in zip(structure.turns, contents, strict=True)
        ]
        if any(contents[span.turn] != stripped[span.turn] for span in structure.spans):
            fault = STRIPPED
        contents = stripped
    constants = structure.constants
    text = joined(constants, contents)
    answers, at, turn = [], len(constants[0]), 0
    for span in structure.spans:
        while turn < span.turn:
            at += len(contents[turn]) + len(constants[turn + 1])
            turn += 1
        end = at + len(contents[turn]) + span.end
        answers.append(AnswerSpan(at - span.lead, end, span.slack, span.end > 0))
    return Rendered(text, tuple(answers), structure.control, fault)
