"""Constants of a chat template, learned by rendering probes, so that conversations are joined without Jinja.

For one sequence of roles a template writes constant text around the contents, which it copies unchanged or stripped of
whitespace at their ends. Contents with a text that a template searches for (such as `</think>`) are rendered by Jinja:
`content_triggers` lists those texts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from capibara_assets.errors import InputError

Strip = Callable[[str], str]

STRIPS: dict[str, Strip | None] = {
    "unchanged": None,
    "strip": str.strip,
    "rstrip": str.rstrip,
    "lstrip": str.lstrip,
    "strip newlines": lambda text: text.strip("\n"),
    "rstrip newlines": lambda text: text.rstrip("\n"),
    "lstrip newlines": lambda text: text.lstrip("\n"),
}
_WHITESPACE = (" \n  probe {}", "probe {} \n\n  ", "\n\n \tprobe {}\t\n", "\nprobe {}\n")
_ODD = '<b>&amp;"{}"</b> \\n {{{{ x }}}} {{% y %}} {{# z #}} \u00e9\u6f22\U0001f642\n\n\n  \tend, \'quoted\' and "more"'


@dataclass(frozen=True)
class TurnRule:
    """How the template changes one turn's content."""

    role: str
    strip: str  # a key of STRIPS


@dataclass(frozen=True)
class Span:
    """The supervised part of an assistant's turn, relative to its content.

    Attributes:
        turn: number of the turn.
        lead: number of characters before the content that belong to the answer (a blank).
        end: number of characters after it that do: the end of turn.
        slack: numbers of whitespace characters before and after that a token of the answer may include.
    """

    turn: int
    lead: int
    end: int
    slack: tuple[int, int]


@dataclass(frozen=True)
class Structure:
    """A template's rendering of one sequence of roles: `constants[k]` stands before content k, the last at the end."""

    constants: tuple[str, ...]
    turns: tuple[TurnRule, ...]
    spans: tuple[Span, ...]
    strips: bool  # whether any content is stripped
    control: tuple[int, int]  # control tokens in the constants: count and sum of ids


def split_by(text: str, probes: Sequence[str]) -> tuple[str, ...] | None:
    """The constants around the probes; None where a probe is missing, repeated or out of order."""
    constants, at = [], 0
    for probe in probes:
        place = text.find(probe, at)
        if place < 0 or text.count(probe) != 1:
            return None
        constants.append(text[at:place])
        at = place + len(probe)
    return (*constants, text[at:])


def joined(constants: Sequence[str], contents: Sequence[str]) -> str:
    """The constants with the contents between them."""
    pieces = [""] * (2 * len(contents) + 1)
    pieces[::2], pieces[1::2] = constants, contents
    return "".join(pieces)


def probe(turn: int) -> str:
    """A content for probing, which occurs in no template."""
    return f"Zq{turn:04d}Wx"


def learned_turns(
    roles: Sequence[str], constants: Sequence[str], render: Callable[[Sequence[str]], str]
) -> tuple[TurnRule, ...] | None:
    """The treatment of each content, learned by rendering odd contents; None where it is none of STRIPS."""
    plain = [probe(turn) for turn in range(len(roles))]
    turns = []
    for turn, role in enumerate(roles):
        trials = [text.format(turn) for text in (*_WHITESPACE, _ODD)]
        rendered = [render([*plain[:turn], trial, *plain[turn + 1 :]]) for trial in trials]
        for name, strip in STRIPS.items():
            expected = [
                joined(constants, [*plain[:turn], strip(trial) if strip else trial, *plain[turn + 1 :]])
                for trial in trials
            ]
            if rendered == expected:
                turns.append(TurnRule(role, name))
                break
        else:
            return None
    return tuple(turns)


def end_of_turn(reference: str, tail: str, control: Sequence[str]) -> int:
    """Number of characters of `tail`, the text after an answer, that belong to the end of the turn.

    Args:
        reference: the text after the conversation's last answer.
        control: the tokenizer's control tokens; the first one in `reference` ends the turn, without one all of its
            text does. In the middle of a conversation the same text must follow, else there is no end of turn.
    """
    blank = len(reference) - len(reference.lstrip())
    token = max((token for token in control if reference.startswith(token, blank)), key=len, default="")
    end = reference[: blank + len(token)] if token else reference.rstrip()
    return len(end) if end and tail.startswith(end) else 0


def slack(before: str, after: str) -> tuple[int, int]:
    """Numbers of whitespace characters at the end of `before` and at the beginning of `after`."""
    return len(before) - len(before.rstrip()), len(after) - len(after.lstrip())


class _Generation(Extension):
    """Transformers' `{% generation %}` block, for parsing only."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=lineno)


@cache
def content_triggers(template: str) -> tuple[str, ...]:
    """Texts that the template compares, searches or replaces, so that contents with them may render differently.

    Role names are left out, and whitespace, which the probes cover.

    Raises:
        InputError: the template is no Jinja, or nested too deeply to be read.
    """
    environment = Environment(extensions=[_Generation, loopcontrols], trim_blocks=True, lstrip_blocks=True)
    try:
        return tuple(sorted(set(_literals(environment.parse(template), inside=False))))
    except RecursionError as error:
        raise InputError("the tokenizer's chat template is nested too deeply to be read") from error
    except TemplateSyntaxError as error:
        raise InputError(f"the tokenizer's chat template is no Jinja: line {error.lineno}: {error.message}") from error


def _literals(node: nodes.Node, inside: bool) -> Iterator[str]:
    if isinstance(node, nodes.Const):
        if inside and isinstance(node.value, str) and node.value.strip():
            yield node.value
        return
    if isinstance(node, nodes.Compare) and _names_role(node):
        return
    if isinstance(node, nodes.Call) and getattr(node.node, "name", "") in ("raise_exception", "strftime_now"):
        return
    if isinstance(node, nodes.Getitem):
        yield from _literals(node.node, inside)
        if not isinstance(node.arg, nodes.Const):
            yield from _literals(node.arg, inside)
        return
    examines = isinstance(node, (nodes.Compare, nodes.Call, nodes.Filter, nodes.Test))
    for child in node.iter_child_nodes():
        yield from _literals(child, inside or examines)


def _names_role(node: nodes.Node) -> bool:
    keys: list[Any] = [item.arg.value for item in node.find_all(nodes.Getitem) if isinstance(item.arg, nodes.Const)]
    keys += [item.attr for item in node.find_all(nodes.Getattr)]
    keys += [item.name for item in node.find_all(nodes.Name)]
    return any(isinstance(key, str) and "role" in key for key in keys)


def in_order(text: str, contents: Sequence[str]) -> int | None:
    """Index of the first content (stripped) that is not in `text` after the previous ones; None when all are."""
    at = 0
    for turn, content in enumerate(contents):
        place = text.find(content.strip(), at)
        if place < 0:
            return turn
        at = place + len(content.strip())
    return None
