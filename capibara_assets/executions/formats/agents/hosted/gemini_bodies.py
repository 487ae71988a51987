"""Bodies of Gemini's `generateContent`: executable code and its result among the parts of a content.

REST bodies are in camel case, those that Google's Python SDK dumps in snake case. Older versions have no ids: the
result belongs to the code before it. What a chunk of a stream holds is whole, so chunks are bodies as they are.
"""

from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, text_at, word
from capibara_assets.executions.formats.agents.hosted.api_items import ApiAnswer, ApiCall, Item, NoCode, Task
from capibara_assets.executions.formats.agents.runs import texts

_VERDICTS = {"OUTCOME_OK": True, "OUTCOME_FAILED": False, "OUTCOME_DEADLINE_EXCEEDED": False}


def is_body(body: dict[str, Any]) -> bool:
    """Whether an object is a request, a response or a content of this API."""
    return any(isinstance(body.get(field), list) for field in ("candidates", "contents", "parts"))


def items(body: dict[str, Any]) -> Iterator[Item]:
    """The calls and answers in a body, in order."""
    asked = [{"role": "user", **content} for content in objects(body.get("contents"))]
    answered = objects([candidate.get("content") for candidate in objects(body.get("candidates"))])
    for content in asked + answered or [body]:
        parts = objects(content.get("parts"))
        if content.get("role") == "user" and (said := texts([part for part in parts if text_at(part, "text")])):
            yield Task(said)
        for part in parts:
            code = part.get("executableCode", part.get("executable_code"))
            if isinstance(code, dict):
                yield _call(code)
            result = part.get("codeExecutionResult", part.get("code_execution_result"))
            if isinstance(result, dict):
                yield _answer(result)


def _call(code: dict[str, Any]) -> Item:
    if not isinstance(code.get("code"), str):
        return NoCode("executableCode: no text at code", code)
    language = text_at(code, "language").rpartition(".")[2].lower()
    unnamed = language in ("", "language_unspecified")
    return ApiCall(word(code.get("id")), "python" if unnamed else language, code["code"])


def _answer(result: dict[str, Any]) -> ApiAnswer:
    outcome = text_at(result, "outcome").rpartition(".")[2]
    success, said = _VERDICTS.get(outcome), text_at(result, "output")
    output, stderr = ("", said) if success is False else (said, "")
    return ApiAnswer(word(result.get("id")), success, output, stderr, timed_out=outcome == "OUTCOME_DEADLINE_EXCEEDED")
