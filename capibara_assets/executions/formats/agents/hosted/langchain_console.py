"""What LangChain's chains print with `verbose=True`, in a notebook's cell or a text file: actions and observations.

A chain begins with "> Entering new .. chain..." and ends with "> Finished chain."; what the model said is green, what a
tool returned has another colour. An agent that calls tools says "Invoking: `tool` with `{..}`", and only its colour
tells where what the tool returned ends; ReAct agents label both, also where colours are lost; chat agents say
`{"action": .., "action_input": ..}`. `SQLDatabaseChain` labels what it runs. Traps: a tool may be a chain, whose lines
stand before its answer; "Prompt after formatting:" shows earlier steps again; `PALChain` prints its code, but the
chain's value is only returned.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from capibara_assets.executions.formats.agents.fields import of_json
from capibara_assets.executions.formats.agents.general import react_text, stepwise_calls
from capibara_assets.executions.formats.agents.hosted.console_dialogues import console_reader, dialogues, plain
from capibara_assets.executions.formats.agents.literals import literal
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument

_HEADING = re.compile(r"^[ \t]*(?:\x1b?\[1m)?> Entering new [^\n]{0,80}?chain\b", re.MULTILINE)
_EVENT = re.compile(
    r"\x1b?\[(?P<colour>\d{1,3}(?:;\d{1,3}){0,4})m\x1b?\[1;3m"
    r"|^[ \t]*(?:\x1b?\[1m)?> (?:Entering new (?P<chain>[^\n]{0,80}?) ?chain\b|Finished[^\n]{0,60} chain\b)[^\n]{0,20}",
    re.MULTILINE,
)
_END = re.compile(r"\x1b?\[0m")
_SAID = "32;1"  # the colour of what the model said
_INVOKES = re.compile(r"\s*Invoking: `([^`\n]{1,200})` with `")
_RESPONDED = "`\nresponded: "
_MARK = "> Entering new "
_PROMPT = "Prompt after formatting:"
_STATEMENT = "SQLQuery:"


def is_dialogue(cell_output_text: str) -> bool:
    """Whether console text holds a chain that executed code."""
    if _MARK not in cell_output_text:
        return False
    return any(isinstance(entry, AgentRun | Edit) for entry in _of_text("", cell_output_text))


def _dialogues(document: LogDocument) -> Iterator[tuple[str, str]]:
    if document.value is None and b"[1;3m" not in document.data:
        return  # text without colours is read by its labels, whoever wrote it
    yield from dialogues(document, is_dialogue, _HEADING, prepare=lambda text: text.replace("\r\n", "\n"))


@dataclass(slots=True)
class _Chain:
    """A chain that has not finished: its class, and the call that waits for its answer."""

    name: str
    call: dict[str, Any] | None = None


def _of_text(session: str, text: str) -> Iterator[Entry]:
    if "[1;3m" not in text:
        yield from stepwise_calls.steps(react_text.steps(text), session)
        return
    console = _Console()
    events = list(_EVENT.finditer(text))
    ends = [*(event.start() for event in events), len(text)][1:]
    above = ""  # what stands between the last piece or heading and this
    for event, end in zip(events, ends, strict=True):
        said, below = text[event.end() : end], ""
        if event["colour"] is None:
            console.heading(event["chain"])
            below = said
        elif event["colour"] == _SAID:
            said, below = _cut(said, first=True)
            console.said(said, above)
        else:
            said, below = _cut(said, first=False)
            console.returned(said)
        above = below
    yield from stepwise_calls.steps(console.rows(), session)
    yield from (AgentRun(session, "python", code, None) for code in console.programs if code)


class _Console:
    """What was printed so far: the calls with their answers as messages, the chains that have not finished."""

    def __init__(self) -> None:
        self.programs: list[str] = []
        self._rows: list[dict[str, Any]] = []
        self._chains = [_Chain("")]

    def rows(self) -> list[dict[str, Any]]:
        """The messages, with the calls that never had an answer."""
        while len(self._chains) > 1:
            self.heading(None)
        self._leave(self._chains[0])
        return self._rows

    def heading(self, name: str | None) -> None:
        """A chain begins, or the last one ends."""
        if name is not None:
            self._chains.append(_Chain(name))
        else:
            self._leave(self._chains.pop() if len(self._chains) > 1 else self._chains[0])

    def said(self, said: str, above: str) -> None:
        """What the model said, and what stands above it."""
        chain = self._chains[-1]
        if _PROMPT in above:
            return
        if above.rstrip().endswith(_STATEMENT):
            question = plain(above).strip().removesuffix(_STATEMENT).strip()
            self._leave(chain)
            self._rows += [{"role": "user", "content": question}] if question else []
            chain.call = stepwise_calls.message_of("sql_query", {"query": said.strip()})
        elif chain.name == "PALChain":
            self.programs.append(said.strip())
        elif (call := _call(said)) is not None:
            self._leave(chain)
            chain.call = call

    def returned(self, said: str) -> None:
        """What a tool returned."""
        if (call := self._chains[-1].call) is not None:
            self._rows += [call, {"role": "tool", "content": plain(said).strip()}]
            self._chains[-1].call = None

    def _leave(self, chain: _Chain) -> None:
        self._rows += [] if chain.call is None else [chain.call]
        chain.call = None


def _cut(said: str, first: bool) -> tuple[str, str]:
    """A coloured piece, to its first or last end, and what stands below: what a tool returned may have colours, too."""
    found = [*_END.finditer(said)]
    if not found:
        return said, ""
    end = found[0 if first else -1]
    return said[: end.start()], said[end.end() :]


def _call(said: str) -> dict[str, Any] | None:
    """The call that the model asks for; None: it asks for none."""
    invokes = _INVOKES.match(said)
    if invokes is not None:
        given = said[invokes.end() :].partition(_RESPONDED)[0].rstrip().removesuffix("`")
        return stepwise_calls.message_of(invokes[1], _evaluated(given))
    if '"action"' in said:
        blob = of_json(said[said.find("{") : said.rfind("}") + 1])
        if isinstance(blob, dict) and isinstance(blob.get("action"), str):
            return stepwise_calls.message_of(blob["action"].replace(" ", "_"), blob.get("action_input"))
    return next((row for row in react_text.steps(said) if row["role"] == "assistant"), None)


def _evaluated(given: str) -> Any:
    """Arguments, which are printed as Python writes a dictionary; else they are the tool's only text."""
    shown = literal(given) if given.startswith("{") else None
    return given if shown is None else shown


READER = console_reader("langchain-console", (_MARK.encode(),), _dialogues, _of_text)
