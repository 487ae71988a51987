"""Items of OpenAI's Responses API for shells and patches: calls, which the caller or the provider runs, and answers.

`shell_call` holds several commands and its output a part for each, in order; a part's outcome is an exit code or a
timeout. `local_shell_call` is one command in words, whose output is text or JSON in it. An item `apply_patch_call` is
an edit once its output says that it was done.
"""

from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, of_json, record, text_at, whole, word
from capibara_assets.executions.formats.agents.hosted.api_items import ApiAnswer, ApiCall, Item, NoCode
from capibara_assets.executions.formats.agents.tools.codex_calls import command_of

SHELL_ITEMS = (
    "shell_call", "shell_call_output", "local_shell_call", "local_shell_call_output",
    "apply_patch_call", "apply_patch_call_output",
)  # fmt: skip


def shell_items(item: dict[str, Any]) -> Iterator[Item]:
    """The calls or answers of one item of these kinds; nothing of any other."""
    kind, name = item.get("type"), word(item.get("call_id", item.get("id")))
    if kind == "shell_call":
        yield from _commands(item, name)
    elif kind == "shell_call_output":
        parts = item.get("output")
        for number, part in enumerate(objects(parts)):
            yield _outcome(_numbered(name, number), part)
    elif kind == "local_shell_call":
        command = command_of(item.get("action"))
        yield ApiCall(name, *command) if command else NoCode("local_shell_call: no command", item)
    elif kind == "local_shell_call_output":
        yield _of_text(name, text_at(item, "output"), item.get("status"))
    elif kind == "apply_patch_call":
        asked = item.get("operation")
        path = text_at(asked, "path")
        yield ApiCall(name, "patch", text_at(asked, "diff") or f"{text_at(asked, 'type')} {path}", path)
    elif kind == "apply_patch_call_output":
        yield ApiAnswer(name, item.get("status") == "completed", text_at(item, "output"))


def _commands(item: dict[str, Any], name: str | None) -> Iterator[Item]:
    action = record(item.get("action"))
    commands = action.get("commands")
    if not isinstance(commands, list) or not all(isinstance(command, str) for command in commands):
        yield NoCode("shell_call: no list of commands", item)
        return
    for number, command in enumerate(commands):
        yield ApiCall(_numbered(name, number), "bash", command)


def _numbered(name: str | None, number: int) -> str | None:
    return f"{name}/{number}" if name and number else name


def _outcome(name: str | None, part: dict[str, Any]) -> ApiAnswer:
    outcome = record(part.get("outcome"))
    code, timed_out = whole(outcome.get("exit_code")), outcome.get("type") == "timeout"
    success = False if timed_out else None if code is None else code == 0
    return ApiAnswer(name, success, text_at(part, "stdout"), text_at(part, "stderr"), code, timed_out=timed_out)


def _of_text(name: str | None, output: str, status: Any) -> ApiAnswer:
    """An answer of the local shell: its documentation promises JSON, its examples give the output alone."""
    told = record(of_json(output)) if output.startswith("{") else {}
    if "stdout" not in told and "output" not in told:
        return ApiAnswer(name, False if status == "incomplete" else None, output)
    code = whole(told.get("exit_code", record(told.get("metadata")).get("exit_code")))
    said = text_at(told.get("stdout", told.get("output")))
    return ApiAnswer(name, None if code is None else code == 0, said, text_at(told, "stderr"), code)
