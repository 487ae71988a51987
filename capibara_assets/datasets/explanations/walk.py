"""A worked walk through one call: every recorded step, in order, as plain sentences.

A walk is whole, or there is none: a value that has no text, a step that cannot be told, a set whose order shows, a
number of many digits, a run of too many steps or too many turns that go alike end it. Every value in it was seen in
both runs.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from capibara_assets.datasets.code.steps import Part, Step
from capibara_assets.datasets.explanations.behaviour import capital, listed
from capibara_assets.datasets.explanations.substitution import (
    Substitution,
    eats_its_own,
    is_readable,
    is_set,
    plain,
    shows_order,
)

_MOST_LINES, _MOST_TURNS, _MOST_DEPTH, _LONGEST, _LONGEST_SUBSTITUTED = 26, 9, 4, 120, 90
_LEAST_SENTENCES, _LEAST_TESTS = 4, 2  # tests: and turns of loops
_MOST_ALIKE = 5  # lines that say the same of other values
_VALUE = re.compile(r"`[^`]*`")
_CHANGING = frozenset(["pop", "popleft", "popitem", "shift", "splice", "next", "heappop", "add", "append", "push"])
_TRUTHS = ("True", "False", "true", "false")


class Untold(Exception):
    """Raised for a step that cannot be explained."""


@dataclass
class _Line:
    """A line of a walk: its sentences, and the lines below it."""

    sentences: list[str]
    below: list["_Line"] = field(default_factory=list)

    def written(self, depth: int = 0) -> list[str]:
        own = [f"{'  ' * depth}- {' '.join(self.sentences)}"] if self.sentences else []
        return own + [line for each in self.below for line in each.written(depth + bool(self.sentences))]


@dataclass
class _Block:
    """A loop or a call that is under way."""

    lines: list[_Line]
    loop: Step | None = None
    at: str = ""
    turns: int = 0
    head: _Line | None = None


def walk(call: Mapping[str, Any], steps: Mapping[str, Step], code: str) -> list[str] | None:
    """The lines of a walk through a call, each a list item; None if it cannot be explained, or has little content.

    Args:
        call: as `python_tracer` and `javascript_tracer.js` note it.
        steps: those of the cell that defines the function.
        code: that cell.
    """
    if call["cut"] or call["raised"]:
        return None
    try:
        return _Walk(steps, code).lines(call)
    except Untold:
        return None


class _Walk:
    def __init__(self, steps: Mapping[str, Step], code: str) -> None:
        self.steps = steps
        self.substitution = Substitution(code)
        self.blocks: list[_Block] = []
        self.known: list[dict[str, str | None]] = []
        self.choices: list[dict[str, bool]] = []
        self.sentences = 0
        self.tests = 0
        self.ends = False  # the last event of the outermost call returned

    def lines(self, call: Mapping[str, Any]) -> list[str] | None:
        root = _Line([])
        self.blocks, self.known = [_Block(root.below)], [dict(call["arguments"])]
        for event in call["events"]:
            self.event(*event)
        if not self.ends and call["result"] not in ("None", "undefined"):
            raise Untold
        text = call["result"] if call["result"] is not None else None
        if text is None or _unreadable(text):
            raise Untold
        if not self.ends:
            self.line(f"No `return` is reached, so it returns `{text}`.")
        told = [f"the object given as `{name}` is then `{value}`" for name, value in call["changed"].items() if name]
        if any(_unreadable(value) for value in call["changed"].values()):
            raise Untold
        written = root.written()
        if told:
            written.append(f"- Changed for the caller, too: {', '.join(told)}.")
        alike = Counter(_VALUE.sub("", line) for line in written)
        if max(alike.values(), default=0) > _MOST_ALIKE:
            return None
        if len(written) > _MOST_LINES or self.sentences < _LEAST_SENTENCES or self.tests < _LEAST_TESTS:
            return None
        return written

    def line(self, sentence: str) -> _Line:
        """Add a line, or within a loop iteration a sentence to its line."""
        self.sentences += 1
        block = self.blocks[-1]
        if block.head is not None and not block.head.below:
            block.head.sentences.append(sentence)
            return block.head
        made = _Line([sentence])
        block.lines.append(made)
        return made

    def event(self, kind: str, *details: Any) -> None:
        if kind == "called":
            return self.called(*details)
        if kind == "ended":
            return self.ended(*details)
        step = self.steps.get(details[0])
        if step is None:
            raise Untold
        while (loop := self.blocks[-1].loop) is not None and not loop.holds(details[0]):
            self.blocks.pop()
        self.ends = kind == "returned"
        if kind == "tested" and step.sort == "choice":
            return self.chosen(details[0], step, *details[1:])
        handler = getattr(self, {"tested": f"{step.sort}_tested"}.get(kind, kind), None)
        if handler is None:
            raise Untold
        handler(details[0], step, *details[1:])
        if kind in ("ran", "returned", "tested"):
            self.substitution.chosen = {}
        return None

    # --- calls ---------------------------------------------------------------------------------------------------

    def called(self, function: str, arguments: Sequence[tuple[str, str | None]]) -> None:
        if len(self.known) > _MOST_DEPTH or any(value is None or _unreadable(value) for _, value in arguments):
            raise Untold
        head = _Line([f"It calls `{function}({', '.join(str(value) for _, value in arguments)})`:"])
        block = self.blocks[-1]
        (block.head.below if block.head is not None else block.lines).append(head)
        self.blocks.append(_Block(head.below))
        self.known.append(dict(arguments))
        self.choices.append(self.substitution.chosen)
        self.substitution.chosen = {}
        self.sentences += 1

    def ended(self, result: str | None, raised: Sequence[str] | None, operands: Mapping[str, str]) -> None:
        while self.blocks[-1].loop is not None:
            self.blocks.pop()
        if result is None or raised is not None or _unreadable(result):
            raise Untold
        if not self.ends:
            self.line(f"No `return` is reached, so it returns `{result}`.")
        self.blocks.pop()
        self.known.pop()
        self.substitution.chosen = self.choices.pop()
        self.ends = False

    # --- steps ---------------------------------------------------------------------------------------------------

    def ran(self, at: str, step: Step, operands: Mapping[str, str], changed: Mapping[str, str | None]) -> None:
        known = self.known[-1]
        before = dict(known)
        told = {name: text for name, text in changed.items() if name in step.targets or name in known}
        if any(text is None or _unreadable(text) for text in told.values()):
            raise Untold
        known |= changed
        said = self.parts_of(step, operands)
        others = [f"`{name}` becomes `{text}`" for name, text in told.items() if name not in step.targets]
        if others and step.targets and step.value is not None and not _calls(step.value):
            raise Untold  # an earlier step had changed them by another name, which was not seen then
        also = f", and {listed(others)}" if others else ""
        again = not step.text.startswith(("let ", "const "))  # which make a new variable in each turn
        values = [f"`{name}` {'stays' if again and name not in told else 'becomes'}" for name in step.targets]
        if step.sort == "augment" and len(step.targets) == 1:
            name = step.targets[0]
            if known.get(name) is None or before.get(name) is None:
                raise Untold
            right = "" if step.value is None else self.substitution.value(step.value, operands)
            text = step.text if step.value is None else _replaced_end(step.text, step.value.text, right)
            shown = f"`{text}`" if len(text) <= _LONGEST_SUBSTITUTED else f"`{step.text}`"
            self.line(f"{said}{shown} takes `{name}` from `{before[name]}` to `{known[name]}`.")
        elif len(step.targets) == 1:
            value = known.get(step.targets[0])
            if value is None or _unreadable(value):
                raise Untold
            self.line(f"{said}{values[0]} {self.shown(step, operands, value)}{also}.")
        elif step.targets:
            both = [(name, known.get(name)) for name in step.targets]
            if any(value is None or _unreadable(value) for _, value in both):
                raise Untold
            self.line(f"{said}{listed([f'`{name}` becomes `{value}`' for name, value in both])}{also}.")
        elif told:
            self.line(f"{said}{self.did(step, operands)} makes {listed([f'`{n}` `{v}`' for n, v in told.items()])}.")
        else:
            same = (
                step.value.parts[0]
                if step.value is not None and step.value.sort == "call" and step.value.parts
                else None
            )
            # of what is assigned to a part (`a[i] = Math.min(…)`), the value's call says nothing of what stays
            if step.sort != "do" or same is None or same.sort != "name" or same.text not in known:
                raise Untold
            if operands.get(same.place) != known[same.text] or same.text == "console":  # which prints
                raise Untold
            self.line(f"{said}{self.did(step, operands)} leaves `{same.text}` as it is.")

    def did(self, step: Step, operands: Mapping[str, str]) -> str:
        if step.sort == "do" and step.value is not None:
            text = self.substitution.written(step.value, operands, keep=True)
            return f"`{text}`" if len(text) <= _LONGEST_SUBSTITUTED else f"`{step.text}`"
        text = step.text
        if step.value is not None:  # a part of something is assigned
            text = _replaced_end(text, step.value.text, self.substitution.value(step.value, operands))
        return f"`{text}`" if len(text) <= _LONGEST_SUBSTITUTED else f"`{step.text}`"

    def shown(self, step: Step, operands: Mapping[str, str], value: str) -> str:
        """The value of a step, after its expression with values if that explains the result."""
        part = step.value
        while part is not None and part.sort == "choice":
            part = self.substitution.taken(part)
        if part is None or part.sort in ("constant", "name"):
            return f"`{value}`"
        text = self.substitution.written(part, operands)
        if plain(text) == plain(value):
            return f"`{value}`"
        if len(text) > _LONGEST_SUBSTITUTED:
            text = part.text
        return f"`{text}` = `{value}`" if len(text) <= _LONGEST_SUBSTITUTED else f"`{value}`"

    def parts_of(self, step: Step, operands: Mapping[str, str]) -> str:
        """Sentence with the values of a step's calls and comprehensions; "" if there are none."""
        if step.value is None:
            return ""
        if shows_order(step.value, operands) or eats_its_own(step.value):
            raise Untold
        told = []
        parts = list(step.value.inside())
        nested = [each for each in parts if each.sort in ("call", "comprehension") and each.place in operands]
        deep = any(part.sort in ("call", "comprehension") for each in nested for part in each.inside())
        for each in parts:
            text = operands.get(each.place)
            if text is None or text in ("None", "undefined") or len(each.text) > _LONGEST:
                continue
            if each.sort == "generator":
                inner = each.text[1:-1] if each.text.startswith("(") else each.text
                told.append(f"`{inner}` gives `{text}`")
            elif deep and each in nested and plain(each.text) != plain(text):
                told.append(f"`{each.text}` is `{text}`")
        if any(_unreadable(text) for text in operands.values()):
            raise Untold
        self.sentences += bool(told)
        return f"{capital(listed(told))}. " if told else ""

    def returned(self, at: str, step: Step, operands: Mapping[str, str], value: str | None) -> None:
        if value is None or _unreadable(value):
            raise Untold
        said = self.parts_of(step, operands)
        written = f"`{step.text}`" if step.text.startswith("return") and len(step.text) <= _LONGEST else "It"
        if step.value is None:
            self.line("`return` ends the call.")
            return
        verb = "gives" if written != "It" else "returns"
        self.line(f"{said}{written} {verb} {self.shown(step, operands, value)}.")

    def if_tested(self, at: str, step: Step, operands: Mapping[str, str], truth: bool) -> None:
        self.tests += 1
        after = {"else": ", so the `else` block runs", "elif": "", "": ", so its block is skipped"}[step.otherwise]
        self.line(f"{self.asked(step, operands, truth)}{'' if truth else after}.")

    def chosen(self, at: str, step: Step, operands: Mapping[str, str], truth: bool) -> None:
        self.tests += 1
        self.line(f"{self.asked(step, operands, truth)}, so the {'first' if truth else 'second'} value is taken.")
        self.substitution.chosen[at] = truth

    def asked(self, step: Step, operands: Mapping[str, str], truth: bool) -> str:
        """A condition with its values, and whether it holds."""
        part = step.value
        said = self.parts_of(step, operands)
        if part is None or len(step.text) > _LONGEST:
            raise Untold
        if any(each.function in _CHANGING for each in (part, *part.inside())):  # a test that changes something besides
            raise Untold
        text = self.substitution.value(part, operands)
        is_truth = part.sort == "other" or text in _TRUTHS
        holds = ("is " if is_truth else "counts as ") + ("true" if truth else "false")
        if plain(text) == plain(step.text) or text in _TRUTHS or len(text) > _LONGEST_SUBSTITUTED:
            return f"{said}`{step.text}` {holds}"
        return f"{said}`{step.text}` is `{text}`, which {holds}"

    def raising(self, at: str, step: Step) -> None:
        raise Untold

    def caught(self, at: str, step: Step) -> None:
        self.line(f"The statement in `try` raises, and `{step.text}` takes over.")

    def jumped(self, at: str, step: Step) -> None:
        self.line("`break` ends the loop." if step.sort == "break" else "`continue` goes on with the next turn.")

    # --- loops ---------------------------------------------------------------------------------------------------

    def looped(self, at: str, step: Step, operands: Mapping[str, str], over: str | None) -> None:
        said = self.parts_of(step, operands)
        if over is not None and (is_set(over) or _unreadable(over)):
            raise Untold
        if step.value is None or any(is_set(operands.get(each.place, "")) for each in step.value.inside()):
            raise Untold
        text = over if over is not None else self.substitution.value(step.value, operands)
        same = plain(text) == plain(step.value.text) or len(text) > _LONGEST
        self.opened(at, step, f"{said}The loop `for {step.text}`" + ("" if same else f" goes over `{text}`"))

    def opened(self, at: str, step: Step, said: str) -> None:
        head = self.line(f"{said}:")
        if len(head.sentences) > 1:  # in the turn of an outer loop: a line below it
            head.sentences.pop()
            below = _Line([f"{said}:"])
            head.below.append(below)
            head = below
        self.blocks.append(_Block(head.below, step, at))

    def turn(self, at: str, said: str) -> None:
        if self.blocks[-1].at == at and self.blocks[-1].head is not None:
            self.blocks.pop()
        loop = self.blocks[-1]
        if loop.at != at:
            raise Untold
        loop.turns += 1
        if loop.turns > _MOST_TURNS:
            raise Untold
        line = _Line([said])
        loop.lines.append(line)
        self.blocks.append(_Block(line.below, loop.loop, at, head=line))
        self.tests += 1

    def turned(self, at: str, step: Step, targets: Mapping[str, str | None]) -> None:
        if any(value is None or _unreadable(value) for value in targets.values()):
            raise Untold
        self.known[-1] |= targets
        if step.value is not None and step.value.sort == "other" and not targets:
            raise Untold
        self.turn(at, f"{capital(listed([f'`{name}` is `{value}`' for name, value in targets.items()]))}:")

    def while_tested(self, at: str, step: Step, operands: Mapping[str, str], truth: bool) -> None:
        said = self.asked(step, operands, truth)
        if not any(block.at == at for block in self.blocks):
            self.opened(at, step, f"The loop `while {step.text}`")
        if truth:
            self.turn(at, f"{said}:" if step.value is None or step.value.sort != "constant" else "A turn:")
            return
        self._ended(at, said)

    def for_tested(self, at: str, step: Step, operands: Mapping[str, str], truth: bool) -> None:
        """The condition of JavaScript's `for`; each iteration states its variable."""
        if not any(block.at == at for block in self.blocks):
            self.opened(at, step, f"The loop `for (…; {step.text}; …)`")
        if truth:
            self.parts_of(step, operands)
            return
        self._ended(at, self.asked(step, operands, truth))

    def _ended(self, at: str, said: str) -> None:
        """A loop's test is false: its open turns end, then the loop."""
        while self.blocks[-1].at == at and self.blocks[-1].head is not None:
            self.blocks.pop()
        self.blocks[-1].lines.append(_Line([f"{said}: the loop ends."]))
        self.blocks.pop()


def _calls(part: Part) -> bool:
    """Whether an expression calls something, which may change what it is given."""
    return any(each.sort in ("call", "comprehension", "generator") for each in (part, *part.inside()))


def _replaced_end(text: str, old: str, new: str) -> str:
    return text.removesuffix(old) + new if text.endswith(old) else text


def _unreadable(text: str) -> bool:
    return not is_readable(text)
