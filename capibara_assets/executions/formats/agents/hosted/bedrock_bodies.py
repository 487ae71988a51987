"""Bodies of Amazon Bedrock's Converse API: Nova's code interpreter among the content blocks."""

from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, text_at, word
from capibara_assets.executions.formats.agents.hosted.api_items import ApiAnswer, ApiCall, Item, NoCode

_TOOL = "nova_code_interpreter"


def is_body(body: dict[str, Any]) -> bool:
    """Whether an object is a response of this API; its requests have the shape of Anthropic's."""
    output = body.get("output")
    return isinstance(output, dict) and isinstance(output.get("message"), dict)


def items(body: dict[str, Any]) -> Iterator[Item]:
    """The calls and answers in a response, in order."""
    for block in objects(body["output"]["message"].get("content")):
        call, result = block.get("toolUse"), block.get("toolResult")
        if isinstance(call, dict) and call.get("name") == _TOOL:
            given = call.get("input")
            code = given.get("snippet") if isinstance(given, dict) else None
            if isinstance(code, str):
                yield ApiCall(word(call.get("toolUseId")), "python", code)
            else:
                yield NoCode(f"{_TOOL}: no text at input.snippet", call)
        elif isinstance(result, dict) and word(result.get("toolUseId")):
            yield _answer(result)  # that of another tool answers no call that we know


def _answer(result: dict[str, Any]) -> ApiAnswer:
    said: dict[str, Any] = {}
    for part in objects(result.get("content")):
        said = part["json"] if isinstance(part.get("json"), dict) else said
    code = said.get("exitCode")
    code = code if isinstance(code, int) and not isinstance(code, bool) else None
    failed = said.get("isError") is True or result.get("status") == "error" or code not in (0, None)
    success = False if failed else True if code == 0 or result.get("status") == "success" else None
    return ApiAnswer(word(result.get("toolUseId")), success, text_at(said, "stdOut"), text_at(said, "stdErr"), code)
