"""DSPy's `inspect_history` and logs of its prompts: fields between `[[ ## name ## ]]`, a trajectory in each prompt.

ReAct's trajectory has `tool_name_0`, `tool_args_0`, `observation_0` and so on, CodeAct's `generated_code_0` and
`code_output_0`, or an `observation_0` that says why it failed. Each prompt repeats the trajectory so far, so the
longest of a question counts. Traps: the system's message shows the fields with their placeholders; code that was not
parsed never ran; the last call of a trajectory stands in the response alone, without what came of it.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from capibara_assets.executions.formats.agents.fields import of_json
from capibara_assets.executions.formats.agents.general import stepwise_calls
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader
from capibara_assets.executions.formats.agents.tools.shell_frames import read_fence
from capibara_assets.executions.formats.cell_outputs import strip_ansi

_FIELD = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*$", re.MULTILINE)
_NUMBERED = re.compile(r"(thought|tool_name|tool_args|observation|generated_code|code_output)_(\d{1,4})")
_INPUTS = ("question", "request", "query", "task", "input", "goal")
_ENDS = re.compile(r"^(?:Response|User message|System message|Assistant message):\s*$|^Respond with the ", re.MULTILINE)


def reads(document: LogDocument) -> bool:
    """Whether a call that runs code has its observation."""
    return document.value is None and any(stepwise_calls.answers(rows) for rows in _trajectories(document).values())


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs of each question's trajectory, in order."""
    for rows in _trajectories(document).values():
        yield from stepwise_calls.steps(rows, document.digest)


def _trajectories(document: LogDocument) -> dict[str, list[dict[str, Any]]]:
    """The longest trajectory of each question, as messages."""
    found: dict[str, list[dict[str, Any]]] = {}
    for task, steps in _prompts(document):
        rows = [
            {"role": "user", "content": task},
            *(row for _, step in sorted(steps.items()) for row in _messages(step)),
        ]
        if len(rows) > len(found.get(task, [])):
            found[task] = rows
    return found


def _prompts(document: LogDocument) -> Iterator[tuple[str, dict[int, dict[str, str]]]]:
    """The question of each prompt, and the fields of its steps by their number."""
    task, steps = "", dict[int, dict[str, str]]()
    for name, told in _fields(strip_ansi(document.text)):
        numbered = _NUMBERED.fullmatch(name)
        if numbered is not None:
            steps.setdefault(int(numbered[2]), {})[numbered[1]] = told
        elif name in _INPUTS:
            yield task, steps
            task, steps = told, {}
    yield task, steps


def _fields(text: str) -> Iterator[tuple[str, str]]:
    heads = list(_FIELD.finditer(text))
    for head, then in zip_longest(heads, heads[1:]):
        told = text[head.end() : then.start() if then else len(text)]
        stop = _ENDS.search(told)
        yield head[1], (told[: stop.start()] if stop else told).strip("\n").rstrip()


def _messages(step: dict[str, str]) -> list[dict[str, Any]]:
    answer = step.get("code_output", step.get("observation"))
    if "generated_code" in step:
        fenced = read_fence(step["generated_code"])
        call = stepwise_calls.message_of("python", {"code": step["generated_code"] if fenced is None else fenced})
        printed = of_json(answer, answer) if answer else answer  # CodeAct writes it as JSON
        answer = printed if isinstance(printed, str) else answer
    elif "tool_name" in step:
        call = stepwise_calls.message_of(step["tool_name"].strip(), of_json(step.get("tool_args", ""), {}))
    else:
        return []
    failed = answer is not None and answer.startswith("Execution error in ")
    told: dict[str, Any] = {"is_error": True} if failed else {"status": "success"} if "code_output" in step else {}
    return [call] if answer is None else [call, {"role": "tool", "content": answer, **told}]


READER = Reader("dspy-history", (b"[[ ## trajectory ## ]]",), reads, entries)
