"""InterCode's episodes: `{"0": {environment, query, turn_history: {actions, observations, ..}}}` or one trajectory.

Written by the `experiments/` of InterCode, parallel lists in one object that is keyed by task ("Plan & Solve" nests it
under `logs`), and by its environments, `{"environment": .., "trajectory": [{action, observation}]}`. What misleads:

- a message without code is a turn too, its observation asks for code and `valid_action` may be the turn's before;
- `submit` asks for the reward; in a ReAct episode the code is what stands in `execute[..]`, as its parser finds it;
- `valid_action` says that bash or SQL ran without error; Python's environment means the contrary by it, so that there
  the observation counts and, for a `def`, which is submitted at once to the task's tests, the reward;
- a CTF episode states no success, and its oldest environment takes `cmd <command>`.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.strict_json import Fault

_SHELLS = {"ic_bash", "ic_ctf", "ic_swe"}
_EXECUTE = re.compile(r"execute\[(.*)\]", re.DOTALL)
_ASKS_FOR_CODE = re.compile(
    r"No \S+ code was found in your last response\."
    r"|Format your \S+ command as follows:\n```"
    r"|Error executing query: Your last `execute` action did not contain "
)
_FAILED_TESTS = re.compile(r"Test case did not pass|Failed Test Case: |Failed \d+/\d+ Test Cases")


class _Turn(NamedTuple):
    action: Any
    observation: Any  # None: the log ends before it
    valid: Any
    reward: Any
    thinks: bool  # a ReAct episode
    solved: bool | None = None  # its reward, or that of the `submit` behind it, is 1; None: nothing was rewarded


def _is_record(record: Any) -> bool:
    environment = record.get("environment") if isinstance(record, dict) else None
    if not isinstance(environment, str) or not environment.startswith("ic_"):
        return False
    history, trajectory = record.get("turn_history"), record.get("trajectory")
    if isinstance(history, dict):
        return isinstance(history.get("actions"), list) and isinstance(history.get("observations"), list)
    return isinstance(trajectory, list) and all(
        isinstance(turn, dict) and "action" in turn and "observation" in turn for turn in trajectory[:1]
    )


def _records(value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or _is_record(value):
        return [("0", value)]
    logs = value.get("logs")
    return list((logs if isinstance(logs, dict) else value).items())


def _reads(document: LogDocument) -> bool:
    return any(_is_record(record) for _, record in _records(document.value))


def _turns(record: dict[str, Any]) -> Iterator[_Turn]:
    history = record.get("turn_history")
    if not isinstance(history, dict):
        turns = [turn if isinstance(turn, dict) else {} for turn in record["trajectory"]]
        for number, fields in enumerate(turns):
            reward = fields.get("reward")
            if reward is None and number == len(turns) - 1:
                reward = record.get("reward")  # the episode's: of what it ended with
            yield _Turn(fields.get("action"), fields.get("observation"), None, reward, False)
        return
    thinks = isinstance(history.get("thoughts"), list)
    columns = [
        found if isinstance(found := history.get(name), list) else []
        for name in ("observations", "valid_action", "rewards")
    ]
    for number, action in enumerate(history["actions"]):
        observation, valid, reward = (column[number] if number < len(column) else None for column in columns)
        yield _Turn(action, observation, valid, reward, thinks)


def _lacks_code(turn: _Turn) -> bool:
    return isinstance(turn.observation, str) and _ASKS_FOR_CODE.match(turn.observation) is not None


def _with_verdicts(turns: list[_Turn]) -> Iterator[_Turn]:
    if not any(isinstance(turn.reward, int | float) for turn in turns):
        yield from turns
        return
    for number, turn in enumerate(turns):
        following = next((later for later in turns[number + 1 :] if not _lacks_code(later)), None)
        submitted = following is not None and str(following.action).startswith("submit") and following.reward == 1
        yield turn._replace(solved=turn.reward == 1 or submitted)


def _code(turn: _Turn, action: str, environment: str) -> str | None:
    """The code in an action; None where there is none."""
    if turn.thinks or action.startswith("execute["):
        found = _EXECUTE.search(action)
        return found[1] if found else None
    return action[4:].strip() if environment == "ic_ctf" and action.startswith("cmd ") else action


def _result(environment: str, turn: _Turn, code: str) -> tuple[bool | None, str, str]:
    """Success, output and standard error."""
    output = turn.observation if isinstance(turn.observation, str) else str(turn.observation)
    if environment == "ic_python":
        return _python_result(turn, code, output)
    if isinstance(turn.valid, bool):
        return turn.valid, output, ""
    if environment == "ic_sql":  # rows, or the error as text
        return not output.startswith("Error executing query: "), output, ""
    return (False if output in ("Command timed out", "Malformed command") else None), output, ""


def _python_result(turn: _Turn, code: str, output: str) -> tuple[bool | None, str, str]:
    success: bool | None = None
    stderr = ""
    if output.startswith("{"):
        try:
            streams = ast.literal_eval(output)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            streams = None
        if isinstance(streams, dict) and isinstance(streams.get("error"), str):
            stderr, output = streams["error"], str(streams.get("output", ""))
            success = not stderr
    elif output.startswith("Error executing action: ") or _FAILED_TESTS.match(output):
        success = False
    if success is not False and code.startswith("def") and isinstance(turn.reward, int | float):
        success = turn.reward == 1
    return success, output, stderr


def _entry(turn: _Turn, session: str, environment: str, task: str | None) -> Entry | None:
    # a CTF agent's answer can be a list of which the first was taken
    action = turn.action[0] if isinstance(turn.action, list) and turn.action else turn.action
    if action == "submit" or (environment == "ic_ctf" and isinstance(action, str) and action.startswith("submit")):
        return None
    if turn.observation is None:
        return NotRun("no_result", session, action if isinstance(action, str) else None)
    if _lacks_code(turn):
        return NotRun("no_code", session, action if isinstance(action, str) else None)
    code = _code(turn, action, environment) if isinstance(action, str) else None
    if code is None:
        return Fault("invalid_record", f"{session}: an action without code that has an observation", turn._asdict())
    success, output, stderr = _result(environment, turn, code)
    timed_out = environment in _SHELLS and output == "Command timed out"
    language = "bash" if environment in _SHELLS else environment.removeprefix("ic_")
    solved = None if turn.solved is None else turn.solved and success is True
    return AgentRun(session, language, code, success, output, stderr, timed_out=timed_out, task=task, solved=solved)


def _entries(document: LogDocument) -> Iterator[Entry]:
    records = _records(document.value)
    first = next((record["environment"] for _, record in records if _is_record(record)), None)
    sessions: set[str] = set()
    for key, record in records:
        # a file is of one environment: a record that lost its name is of the others'
        named = isinstance(record, dict) and {**record, "environment": record.get("environment") or first}
        if not named or not _is_record(named):
            yield Fault("invalid_record", f"{key}: no episode with actions and observations", record)
            continue
        session = f"task-{named.get('task_id', named.get('query_idx', key))}"
        session = f"{session}#{key}" if session in sessions else session
        sessions.add(session)
        task = named.get("query")
        for turn in _with_verdicts(list(_turns(named))):
            entry = _entry(turn, session, named["environment"], task if isinstance(task, str) else None)
            if entry:
                yield entry


READER = Reader("intercode", (b'"ic_',), _reads, _entries)
