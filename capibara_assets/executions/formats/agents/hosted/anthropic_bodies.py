"""Bodies of Anthropic's Messages API: the code execution tool's calls and results among the content blocks.

A call may be answered in a later response (`pause_turn`). The tool of 2025-05-22 runs Python (`code_execution`), its
successors run Bash (`bash_code_execution`) and write files (`text_editor_code_execution`).
"""

from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, text_at, word
from capibara_assets.executions.formats.agents.hosted.api_items import ApiAnswer, ApiCall, Item, NoCode, Task
from capibara_assets.executions.formats.agents.runs import texts

_INTERPRETERS = {"bash_code_execution": ("bash", "command"), "code_execution": ("python", "code")}
_EDITOR = "text_editor_code_execution"
_RESULTS = tuple(f"{name}_tool_result" for name in (*_INTERPRETERS, _EDITOR))
# errors of a call that ran; all others say that it was not let run
_RAN = {"execution_time_exceeded", "output_file_too_large"}


def is_body(body: dict[str, Any]) -> bool:
    """Whether an object is a request, a response or a message of this API."""
    return isinstance(body.get("messages"), list) or (
        body.get("role") in ("assistant", "user") and isinstance(body.get("content"), list)
    )


def items(body: dict[str, Any]) -> Iterator[Item]:
    """The calls and answers in a body, in order."""
    for message in objects(body["messages"]) if isinstance(body.get("messages"), list) else [body]:
        content = message.get("content")
        if message.get("role") == "user" and (said := texts(content)):
            yield Task(said)
        for block in objects(content):
            kind = block.get("type")
            if kind == "server_tool_use":
                yield from _call(block)
            elif kind in _RESULTS:
                yield _answer(block)


def _call(block: dict[str, Any]) -> Iterator[Item]:
    name, given = block.get("name"), block.get("input")
    given = given if isinstance(given, dict) else {}
    if isinstance(name, str) and name in _INTERPRETERS:
        language, field = _INTERPRETERS[name]
        code = given.get(field)
        if isinstance(code, str):
            yield ApiCall(word(block.get("id")), language, code)
        else:
            yield NoCode(f"{name}: no text at input.{field}", block)
    elif name == _EDITOR and given.get("command") in ("create", "str_replace", "insert"):
        written = next((given[name] for name in ("file_text", "new_str", "insert_text") if text_at(given, name)), "")
        yield ApiCall(word(block.get("id")), "", written, path=text_at(given, "path"))


def _answer(block: dict[str, Any]) -> ApiAnswer:
    call, content = word(block.get("tool_use_id")), block.get("content")
    result = content if isinstance(content, dict) else {}
    if text_at(result, "type").endswith("_error"):
        error = text_at(result, "error_code")
        said = ": ".join(filter(None, (error, text_at(result, "error_message"))))
        late = error == "execution_time_exceeded"
        return ApiAnswer(call, False, stderr=said, timed_out=late, refused=error not in _RAN)
    code = result.get("return_code")
    code = code if isinstance(code, int) and not isinstance(code, bool) else None
    success = code == 0 if code is not None else None
    return ApiAnswer(call, success, text_at(result, "stdout"), text_at(result, "stderr"), code)
