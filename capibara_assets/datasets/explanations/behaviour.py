"""Observed behaviour in words: calls, and requests with their answers."""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

_LONGEST_CALL = 120
_REJECTED = {
    404: "no route has this path",
    405: "the route of this path takes another method",
    422: "the request does not fit the parameters, as the body says",
}
_RECORDER = re.compile(r"\btest(?:client|server)\b")  # what the test client calls itself and its server
_WORD, _NUMBER, _QUOTED = re.compile(r"\w+"), re.compile(r"\b\d[\d.]*\b"), re.compile(r"`([^`]*)`")


def call_text(call: Mapping[str, Any]) -> str | None:
    """A call in the syntax of its language; None if an argument has no text."""
    parts, named = [], False
    for name, text in call["arguments"]:
        if text is None or " of shape (" in text:
            return None
        named = named or name in call["named"]
        parts.append(f"{name}={text}" if named else text)
    written = f"{call['function']}({', '.join(parts)})"
    return written if len(written) <= _LONGEST_CALL else None


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence as a list: a, b and c."""
    if not parts:
        return ""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def capital(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def request_text(request: Mapping[str, Any]) -> str:
    """A request: its method and target, its own headers, and what it sent."""
    parts = [f"the header `{header}`" for header in request["headers"]]
    parts += [f"the body `{request['sent']}`"] if request["sent"] else []
    return f"`{request['request']}`" + (f" with {listed(parts)}" if parts else "")


def request_sentence(request: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> str | None:
    """Explanation of a request's answer: function, arguments, result, status and body; None if unknown.

    Args:
        calls: what the framework called for it, in order: dependencies, the function of the route, and behind what
            raised an error its handlers.
    """
    body = (request["body"] or "").strip()
    if request["body"] is None or request["sent"] is None or "\n" in body or _RECORDER.search(body):
        return None
    answer = f"status {request['status']}" + (f" and the body `{body}`" if body else " and no body")
    if request["location"]:
        answer += f", and sends the client on to `{request['location']}`"
    if not calls:
        if request["status"] not in _REJECTED:
            return None
        return f"{request_text(request)}: {_REJECTED[request['status']]}, and no function of the code runs: {answer}."
    ran = list(takewhile(lambda call: not call["raised"], calls))
    handlers = calls[len(ran) + 1 :]
    told = [_called(call) for call in calls[: len(ran) + 1]]
    if None in told:
        return None
    *before, last = [
        f"`{text}` runs" + (f" and returns `{call['result']}`" if call["result"] is not None else "")
        for text, call in zip(told, calls, strict=False)
    ]
    begin = f"{request_text(request)}: " + "".join(f"{said}, then " for said in before)
    if len(ran) == len(calls):
        return f"{begin}{last}, which gives {answer}."
    raised = calls[len(ran)]["raised"][0]
    by = [each["function"] for each in handlers]
    if not by and not raised.partition(":")[0].endswith("Exception"):
        return None  # who made that answer of it is not recorded: a dependency may have caught it
    then = f"; `{by[-1]}` turns that into" if by else ", which the framework turns into"
    return f"{begin}`{told[-1]}` runs and raises `{raised}`{then} {answer}."


def _called(call: Mapping[str, Any]) -> str | None:
    """A call that a request made, as text; None where an argument has none."""
    named = [[name, "request" if name == "request" and value is None else value] for name, value in call["arguments"]]
    return call_text({**call, "arguments": named, "named": [name for name in call["named"] if name != "request"]})


def is_new(answer: str, prompt: str) -> bool:
    """Whether an explanation contains a value and a word or number that its prompt does not."""
    quoted, known, squeezed = _QUOTED.findall(answer), set(_WORD.findall(prompt)), _squeezed(prompt)
    numbers = _NUMBER.findall(_QUOTED.sub("", answer))
    words = [*_WORD.findall(" ".join(quoted)), *numbers]
    values = [*(value for value in quoted if _squeezed(value) not in squeezed), *(n for n in numbers if n not in known)]
    return any(word not in known for word in words) and any(value != "200" for value in values)


def _squeezed(text: str) -> str:
    return re.sub(r"[\s'\"]", "", text)
