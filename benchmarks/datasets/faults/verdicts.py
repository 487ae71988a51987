"""`refuted`: answers whose recorded run was judged, by a benchmark's reward or verdict, not to solve its task.

Read from the logs themselves, by their shape alone: parallel lists of actions and rewards, a submission with its
verdict, an episode with its outcome. A text that was judged to solve something once is not refuted.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_MOST_BYTES = 64 << 20
_RUN = re.compile(r"<execute>(.*?)</execute>", re.DOTALL)
_CALL = re.compile(r"\s*execute\[(.*)\]", re.DOTALL)
_VERDICTS = ("success", "is_solved", "solved", "resolved")


def judged_texts(experience: Path) -> dict[str, bool]:
    """Code without white space -> whether any verdict in the logs of a folder says that it solves its task."""
    found: dict[str, bool] = {}
    for path in sorted(experience.rglob("*.json*")):
        if path.is_file() and path.stat().st_size <= _MOST_BYTES and path.suffix in (".json", ".jsonl"):
            for document in _documents(path.read_text("utf-8", "replace")):
                for code, solved in _judged(document):
                    if key := squeezed(code):
                        found[key] = found.get(key, False) or solved
    return found


def refuted(code: str, judged: Mapping[str, bool]) -> str | None:
    """What speaks against recorded code; None where no verdict does."""
    return (
        "every verdict on its run says that it does not solve its task" if judged.get(squeezed(code)) is False else None
    )


def squeezed(code: str) -> str:
    """Code without white space."""
    return "".join(code.split())


def _documents(text: str) -> Iterator[Any]:
    try:
        yield json.loads(text)
        return
    except (ValueError, RecursionError):
        pass
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue


def _judged(document: Any) -> Iterator[tuple[str, bool]]:
    """(code, whether a verdict says that it solves its task), wherever in a document a verdict stands beside code."""
    pending = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            yield from _rewarded(node)
            yield from _submitted(node)
            yield from _episode(node)
            pending += node.values()


def _rewarded(node: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    actions, rewards = node.get("actions"), node.get("rewards")
    if not isinstance(actions, list) or not isinstance(rewards, list):
        return
    won = [isinstance(reward, int | float) and reward >= 1 for reward in rewards]
    for at, (action, reward) in enumerate(zip(actions, rewards, strict=False)):
        if isinstance(action, str) and isinstance(reward, int | float):
            submitted = at + 1 < len(won) and won[at + 1] and str(actions[at + 1]).startswith("submit")
            called = _CALL.match(action)
            yield called[1] if called else action, won[at] or submitted


def _submitted(node: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    if isinstance(node.get("code"), str) and isinstance(node.get("reward"), bool):
        yield node["code"], node["reward"]
    turns, reward = node.get("trajectory"), node.get("reward")
    if isinstance(turns, list) and isinstance(reward, int | float) and not isinstance(reward, bool):
        actions = [turn.get("action") for turn in turns if isinstance(turn, dict)]
        for at, action in enumerate(actions, 1):
            if isinstance(action, str):
                yield action, at == len(actions) and reward >= 1


def _episode(node: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    verdict = next((node[name] for name in _VERDICTS if isinstance(node.get(name), bool)), None)
    turns = node.get("history")
    if verdict is None or not isinstance(turns, list):
        return
    for turn in turns:
        said = turn.get("content") if isinstance(turn, dict) and turn.get("role") == "assistant" else None
        if isinstance(said, str) and (blocks := _RUN.findall(said)):
            yield "\n".join(blocks), verdict
