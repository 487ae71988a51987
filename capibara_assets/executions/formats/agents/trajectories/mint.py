"""MINT's episodes, `{"state": {"history": [..], "success", "terminate_reason", ..}, "task": {..}}`, one on a line.

The user's first message holds a demonstration with code of its own, so only what the assistant says is code. By
MINT's `general_env.py` a message that holds `<solution>` is only judged: code beside it never runs, and what seems to
be its output is the model's own. Several `<execute>` blocks are joined and run as one. The observation is IPython's
standard output (cut at 2,000 characters), followed by the steps left and an expert's feedback. The last turn's
observation is not logged: `finished` tells that it ran. `success` is the verdict on what the episode proposed: after a
failed one nothing that ran in it solves the task; after one that succeeded it is not said which code was proposed.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader, texts
from capibara_assets.executions.formats.strict_json import Fault

_BLOCK = re.compile(r"<execute>(.*?)</execute>", re.DOTALL)
_STEPS_LEFT = re.compile(r"(?:^|\n)You have -?\d+ steps left and -?\d+ chances to propose solution left\.(?=\n|$)")
_FEEDBACK = re.compile(r"\n\nExpert feedback:\n")
_NOTHING = "[Executed Successfully with No Output]"
_TRUNCATED = "...\n[Output Truncated]"
_NOT_UNDERSTOOD = "I don't understand your input."
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):?[ \t]*$", re.MULTILINE)
_SYNTAX = re.compile(
    r'^[ \t]*(?:File "<[^"]*>"|File <[^>]*>|(?:Input|Cell) In ?\[\d+\]),.*?^[A-Za-z_.]+Error\b',
    re.MULTILINE | re.DOTALL,
)
_TIMED_OUT = re.compile(r"^TimeoutError: Timed out after \d+ seconds\.", re.MULTILINE)
_OF_A_STATE = {"agent_action_count", "finished", "latest_output", "success", "terminate_reason"}


def _is_record(record: Any) -> bool:
    state = record.get("state")
    if not isinstance(state, dict) or not isinstance(record.get("task"), dict):
        return False
    history = state.get("history")
    messages = isinstance(history, list) and any(isinstance(turn, dict) and "role" in turn for turn in history)
    return messages and not _OF_A_STATE.isdisjoint(state)


def _reads(document: LogDocument) -> bool:
    return any(_is_record(record) for record in document.lines)


def _observation(text: str) -> str:
    """What the code printed, of the message that answers it."""
    text = text.removeprefix("Observation:\n")
    tail = _STEPS_LEFT.search(text) or _FEEDBACK.search(text)
    text = text[: tail.start()] if tail else text.removesuffix("\n")
    return "" if text == _NOTHING else text


def _success(output: str) -> bool | None:
    """IPython prints every exception; what was cut away may have been one."""
    if _TRACEBACK.search(output) or _SYNTAX.search(output):
        return False
    return None if output.endswith(_TRUNCATED) else True


def counted(text: str) -> tuple[str, bool | None] | None:
    """Output and success of an observation that ends with the steps left, also in other formats; None: it does not."""
    if not _STEPS_LEFT.search(text):
        return None
    output = _observation(text)
    return output, _success(output)


def _task(record: dict[str, Any], history: list[Any]) -> str | None:
    prompt = record["task"].get("prompt")
    if isinstance(prompt, str):
        return prompt
    first = texts(history[0].get("content")) if isinstance(history[0], dict) else ""
    return first.rpartition("\n---\n")[2].rpartition("Task:\n")[2].strip() or None


def _turn(
    said: str, answer: str | None, finished: bool, session: str, task: str | None, solved: bool | None
) -> Iterator[Entry]:
    blocks = [block.strip() for block in _BLOCK.findall(said)]
    output = None if answer is None else _observation(answer)
    code = "\n".join(blocks)
    if not code:
        return
    if "<solution>" in said:
        yield from (NotRun("beside_solution", session, block) for block in blocks)
    elif output is None and not finished:
        yield NotRun("no_result", session, code)
    elif output is None:
        yield AgentRun(session, "python", code, None, task=task, solved=solved)
    elif output.startswith(_NOT_UNDERSTOOD):
        yield NotRun("not_understood", session, code)
    else:
        success = _success(output)
        timed_out = success is False and bool(_TIMED_OUT.search(output))
        yield AgentRun(session, "python", code, success, output, timed_out=timed_out, task=task, solved=solved)


def _entries(document: LogDocument) -> Iterator[Entry]:
    yield from document.faults
    for number, record in enumerate(document.lines):
        if not _is_record(record):
            yield Fault("invalid_record", f"episode {number}: expected a state with its history, and a task", record)
            continue
        state, fields = record["state"], record["task"]
        history = state["history"]
        session = f"{fields.get('task_name', 'task')}-{fields.get('task_id', number)}#{number}"
        task = _task(record, history)
        finished = bool(state.get("finished") or state.get("terminate_reason"))
        solved = False if finished and state.get("success") is False else None
        for place, message in enumerate(history):
            if not isinstance(message, dict):
                yield Fault("invalid_record", f"episode {number}: a message that is no object", message)
            elif message.get("role") == "assistant":
                after = history[place + 1] if place + 1 < len(history) else None
                heard = isinstance(after, dict) and after.get("role") == "user"
                answer = texts(after.get("content")) if isinstance(after, dict) and heard else None
                yield from _turn(texts(message.get("content")), answer, finished, session, task, solved)


READER = Reader("mint", (b'"state"',), _reads, _entries)
