"""What recorded code did when it ran again, in sentences: calls, requests, and the values that a cell leaves."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from capibara_assets.datasets.code.decisions import Decision
from capibara_assets.executions.replay.traces import Trace

_MOST_DETAILS, _LONGEST_CALL, _LONGEST_STEP = 4, 120, 80
_WORD, _NUMBER, _QUOTED = re.compile(r"\w+"), re.compile(r"\b\d[\d.]*\b"), re.compile(r"`([^`]*)`")
_PLAIN = re.compile(r"(?:None|null|undefined)$")


def call_text(call: Mapping[str, Any]) -> str | None:
    """A call as the language writes it; None where an argument has no text."""
    parts = []
    for name, text in call["arguments"]:
        if text is None or " of shape (" in text:
            return None
        parts.append(f"{name}={text}" if name in call["named"] else text)
    written = f"{call['function']}({', '.join(parts)})"
    return written if len(written) <= _LONGEST_CALL else None


def call_facts(call: Mapping[str, Any], places: Mapping[str, Decision], shown_code: str) -> list[str]:
    """What one call returns, raises or changes, then the steps, tests and loops on the way there; none: nothing to say.

    Args:
        places: the tests, loops and steps of the cell that defines the function.
        shown_code: the code that the reader sees, on one line; nothing else is referred to.
    """
    text, changed = call_text(call), call["changed"]
    if text is None:
        return []
    if call["raised"]:
        name, message = call["raised"]
        said = f"`{text}` raises `{name}`" + (f" with the message `{message}`" if message else "")
    elif call["result"] is not None and not (changed and _PLAIN.match(call["result"])):
        said = f"`{text}` returns `{call['result']}`"
    elif changed:
        said = f"`{text}` returns nothing"
    else:
        return []
    details = list(_details(call, places, shown_code))
    kept = sorted(sorted(details)[:_MOST_DETAILS], key=lambda each: each[1])
    parts = [detail for _, _, detail in kept]
    if call["inner"]:
        parts.append(f"it calls itself {times(call['inner'])}, {call['depth']} deep")
    parts += [f"`{name}` is changed to `{value}`" for name, value in changed.items() if name]
    return [said, *parts]


def _details(
    call: Mapping[str, Any], places: Mapping[str, Decision], shown_code: str
) -> Iterator[tuple[int, int, str]]:
    """(rank, line, detail) of each step, test and loop of a call; tests and loops before values."""
    arguments = {value for _, value in call["arguments"]}
    said: set[tuple[str, str]] = set()
    # of a call that calls itself, each value is of another depth
    for at, (count, value) in {} if call["inner"] else call["steps"].items():
        step = places.get(at)
        if step is None or count != 1 or value is None or step.text not in shown_code or call["cut"]:
            continue
        told = value in arguments or value == call["result"] or len(value) > _LONGEST_STEP or value in shown_code
        told = told or value.startswith("range(") or value in ("new Map([])", "new Set([])")
        if not told and (step.text, value) not in said and value != step.text:
            said.add((step.text, value))
            # a variable's object may change later
            yield 1, step.line, f"`{step.text}` {'becomes' if step.sort == 'name' else 'is'} `{value}`"
    for at, (yes, no) in {} if call["cut"] else call["tests"].items():
        test = places.get(at)
        if test is None or test.text not in shown_code:
            continue
        if test.sort in ("for", "while"):
            where = f"over `{test.text}`" if test.sort == "for" else f"while `{test.text}`"
            yield 0, test.line, f"the loop {where} runs {times(yes)}" if yes else f"the loop {where} never runs"
        elif yes + no == 1:
            yield 0, test.line, f"`{test.text}` is {'true' if yes else 'false'}"
        elif yes and no:
            yield 0, test.line, f"`{test.text}` holds {times(yes)} out of {yes + no}"
        else:
            yield 0, test.line, f"`{test.text}` {'always' if yes else 'never'} holds ({times(yes + no)} tested)"


def times(number: int) -> str:
    """How often, in words."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence as a list: a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def request_text(request: Mapping[str, Any]) -> str:
    """A request: its method and target, its own headers, and what it sent."""
    parts = [f"the header `{header}`" for header in request["headers"]]
    parts += [f"the body `{request['sent']}`"] if request["sent"] else []
    return f"`{request['request']}`" + (f" with {listed(parts)}" if parts else "")


def request_sentence(request: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> str | None:
    """What answered a request, with which status and body; None: nothing that can be shown."""
    body, handled = (request["body"] or "").strip(), [text for call in calls if (text := call_text(call))]
    if request["body"] is None or "\n" in body:
        return None
    answer = f"status {request['status']}" + (f" and the body `{body}`" if body else " and no body")
    if request["location"]:
        answer += f", and sends the client on to `{request['location']}`"
    if calls and not handled:
        handled = [call["function"] for call in calls]
    by = f" through `{handled[0]}`" if handled else ", before any of its functions runs,"
    return f"{request_text(request)} is answered{by} with {answer}."


def table_sentences(trace: Trace, shown_code: str) -> Iterator[tuple[str, str]]:
    """(name, sentence) of the tables that a cell changed.

    What else a variable holds after it (a shape, a random draw, a number of parameters) explains nothing.
    """
    for name, value in trace["variables"].items():
        before = trace["before"].get(name)
        if "columns" not in value or before is None or "columns" not in before or value == before:
            continue
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", shown_code) and (said := _table_sentence(name, value, before)):
            yield name, said


def _table_sentence(name: str, value: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """What changed of the size and the columns of a table; "" where nothing did."""
    rows, parts = value["shape"][0], []
    if rows != before["shape"][0]:
        parts.append(f"goes from {before['shape'][0]} to {rows} rows")
    new = {key: kind for key, kind in value["columns"].items() if key not in before["columns"]}
    gone = [key for key in before["columns"] if key not in value["columns"]]
    other = {k: kind for k, kind in value["columns"].items() if before["columns"].get(k, kind) != kind}
    if new:
        parts.append(f"gains {_typed(new)}")
    if gone:
        parts.append(f"loses {', '.join(f'`{key}`' for key in gone)}")
    parts += [f"has `{key}` as {kind} instead of {before['columns'][key]}" for key, kind in other.items()]
    if value["missing"] != before["missing"]:
        parts.append(f"has {value['missing']} missing values instead of {before['missing']}")
    return f"`{name}` {listed(parts)}." if parts else ""


def _typed(columns: Mapping[str, str]) -> str:
    listed = [f"`{name}` {kind}" for name, kind in columns.items()]
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")


def is_new(answer: str, prompt: str) -> bool:
    """Whether an explanation has a value, and a word or number of it, that its prompt does not show."""
    quoted, known, squeezed = _QUOTED.findall(answer), set(_WORD.findall(prompt)), _squeezed(prompt)
    numbers = _NUMBER.findall(_QUOTED.sub("", answer))
    words = [*_WORD.findall(" ".join(quoted)), *numbers]
    values = [*(value for value in quoted if _squeezed(value) not in squeezed), *(n for n in numbers if n not in known)]
    return any(word not in known for word in words) and any(value != "200" for value in values)


def _squeezed(text: str) -> str:
    return re.sub(r"[\s'\"]", "", text)
