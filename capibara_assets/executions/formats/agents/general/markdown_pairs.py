"""Which output is of which call, where neither names the other: told by how many there are, and by their places.

A batch is calls that follow each other, and the outputs behind them. As many outputs as calls, one behind the other:
the k-th is of the k-th, as in the messages of a model's API. Outputs that stand in turns of their own were written as
they came, the first to end first: then none is given to a call, and each call ran, as all outputs say it did. Where
all but one are in the words of the list of tasks alone, the one that is left is of the call that is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from capibara_assets.executions.formats.agents.general.markdown_heads import Head

_LISTS, _LISTED = "TodoWrite", "Todos have been modified successfully. Ensure that you continue to use the todo list "


@dataclass(slots=True)
class Called:
    """A call, as far as it was read."""

    head: Head
    name: str
    turn: int
    given: dict[str, Any] = field(default_factory=dict)
    key: str | None = None  # of the argument whose value is the next block
    cut: str | None = None  # the beginning of arguments that the export cuts
    output: Any = None  # None: none is shown
    failed: bool | None = None  # as the label of its output says
    unpaired: bool = False  # it has an output, but which is not told
    labelled: bool = False  # what it asks for stands below a label
    went_on: bool = False  # more of the agent follows
    line: str = ""  # which names the tool, often with the time

    @property
    def asks(self) -> bool:
        """Whether what it asks for was read."""
        return bool(self.given) or self.cut is not None

    @property
    def as_told(self) -> str:
        """All that the export tells of it."""
        return repr((self.line, self.name, self.given, self.cut, self.output, self.failed))


class Output(NamedTuple):
    """What a call answered, whichever it is."""

    value: Any
    failed: bool | None
    turn: int
    labelled: bool


def pair(calls: Sequence[Called], outputs: Sequence[Output]) -> None:
    """Give a batch's outputs to its calls."""
    if not calls or not outputs:
        return
    same_turn = outputs[0].turn == calls[-1].turn
    if same_turn:
        calls = [call for call in calls if call.turn == calls[-1].turn]
        told = [output for output in outputs if output.labelled and output.turn == outputs[0].turn]
        if len(calls) == 1 or len(told) < 2:
            _give(calls[-1], outputs[0])
            return
        in_order = len(told) == len(calls)
        outputs = told
    else:
        own_turns = len({output.turn for output in outputs}) == len(outputs) > 1
        one_turn = calls[0].turn == calls[-1].turn
        in_order = not own_turns and (one_turn or len(outputs) == len(calls))
    alike = all(output[:2] == outputs[0][:2] for output in outputs) and len(outputs) == len(calls)
    if len(calls) == 1 or in_order or alike:
        for call, output in zip(calls, outputs, strict=False):
            _give(call, output)
        return
    if (left := _left(calls, outputs)) is not None:
        _give(*left)
        outputs = [output for output in outputs if output is not left[1]]
        calls = [call for call in calls if call is not left[0]]
    verdicts = {output.failed for output in outputs}
    agreed = verdicts.pop() if len(verdicts) == 1 and len(outputs) == len(calls) else None
    for call in calls:
        if agreed is None:
            call.unpaired = True
        else:
            call.output, call.failed = "", agreed


def _left(calls: Sequence[Called], outputs: Sequence[Output]) -> tuple[Called, Output] | None:
    """The one call and the one output that are left where the others are Claude Code's list of tasks and its words."""
    others = [call for call in calls if call.name != _LISTS]
    untold = [output for output in outputs if not str(output.value).startswith(_LISTED)]
    return (others[0], untold[0]) if len(calls) == len(outputs) and len(others) == len(untold) == 1 else None


def _give(call: Called, output: Output) -> None:
    call.output, call.failed = output.value, output.failed
