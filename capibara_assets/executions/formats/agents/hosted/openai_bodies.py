"""Bodies of OpenAI's Responses API: the code interpreter's calls among the output items, and the shell's.

One item holds call and result. `outputs` is null unless the request includes `code_interpreter_call.outputs`: then
nothing is said of success. A traceback is plain output, and the status is "completed" all the same.
"""

from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, text_at, word
from capibara_assets.executions.formats.agents.hosted.api_items import (
    ApiAnswer,
    ApiCall,
    Item,
    NoCode,
    Task,
    shows_error,
)
from capibara_assets.executions.formats.agents.hosted.openai_shells import SHELL_ITEMS, shell_items
from capibara_assets.executions.formats.agents.runs import texts


def is_body(body: dict[str, Any]) -> bool:
    """Whether an object is a request, a response or an item of this API."""
    return (
        isinstance(body.get("output"), list)
        or ("input" in body and isinstance(body["input"], list | str) and "model" in body)
        or body.get("type") in ("code_interpreter_call", *SHELL_ITEMS)
    )


def items(body: dict[str, Any]) -> Iterator[Item]:
    """The calls and answers in a body, in order."""
    if body.get("type") == "code_interpreter_call":
        yield from _run(body)
        return
    yield from shell_items(body)
    for field in "input", "output":
        said = body.get(field)
        if field == "input" and isinstance(said, str):
            yield Task(said)
        for item in objects(said):
            if item.get("type") == "code_interpreter_call":
                yield from _run(item)
            elif item.get("type") in SHELL_ITEMS:
                yield from shell_items(item)
            elif item.get("role") == "user" and (words := texts(item.get("content"))):
                yield Task(words)


def _run(item: dict[str, Any]) -> Iterator[Item]:
    call, code = word(item.get("id")), item.get("code")
    if not isinstance(code, str):
        yield NoCode("code_interpreter_call: no text at code", item)
        return
    outputs = item.get("outputs", item.get("results"))  # the name until May 2025
    logs = "\n".join(text_at(part, "logs") for part in objects(outputs) if part.get("type") == "logs")
    success = None
    if item.get("status") == "failed" or shows_error(logs):
        success = False
    elif isinstance(outputs, list) and item.get("status", "completed") == "completed":
        success = True
    yield ApiCall(call, "python", code)
    yield ApiAnswer(call, success, logs)
