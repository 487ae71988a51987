"""Prompts for trying a model manually: the shipped ones, and files of prompts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from capibara_assets.deployment.declarations import Declared, declared, read_declared
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.storage.foreign import read_document
from capibara_assets.storage.jsonfiles import user_json


class PromptTurn(Declared):
    """One message of a prompt."""

    role: str
    content: str


class Prompt(Declared):
    """One conversation up to the assistant's turn: `text` for a single question, else `messages`."""

    id: str = Field(min_length=1)
    domain: str = ""
    text: str = ""
    messages: tuple[PromptTurn, ...] = ()

    @model_validator(mode="after")
    def _one_of_both(self) -> "Prompt":
        if bool(self.text) == bool(self.messages):
            raise ValueError(f"prompt {self.id!r}: give either text or messages")
        if self.messages and self.messages[-1].role == "assistant":
            raise ValueError(f"prompt {self.id!r} ends with the assistant's turn: leave that to the model")
        return self

    @property
    def conversation(self) -> tuple[Mapping[str, str], ...]:
        """The prompt as messages."""
        if self.text:
            return ({"role": "user", "content": self.text},)
        return tuple(turn.model_dump() for turn in self.messages)


class Prompts(Declared):
    """A file of prompts."""

    prompts: tuple[Prompt, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_once(self) -> "Prompts":
        require_once([prompt.id for prompt in self.prompts])
        return self


def require_once(ids: Sequence[str]) -> None:
    """Raises ValueError: an id occurs twice."""
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise ValueError(f"ids are given twice: {', '.join(twice)}")


def shipped_prompts() -> tuple[Prompt, ...]:
    """The shipped prompts, a few for each domain."""
    return read_declared(resources_root() / "prompts.yaml", Prompts).prompts


def read_prompts(file: Path) -> tuple[Prompt, ...]:
    """Read prompts from a YAML file (`prompts:`), of JSON lines (`prompt`, `text` or `messages`), or of a text's lines.

    Raises:
        InputError: the file cannot be read, or a line is not a prompt; the message names it.
    """
    if file.suffix in (".yaml", ".yml"):
        return read_declared(file, Prompts).prompts
    try:
        lines = read_document(file).decode("utf-8").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8: {error}") from error
    rows = [
        _of_line(line, f"{file}:{number}", number) if file.suffix in (".jsonl", ".ndjson") else _plain(line, number)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    return declared(Prompts, {"prompts": rows}, file).prompts


def _plain(line: str, number: int) -> dict[str, Any]:
    return {"id": f"line-{number}", "text": line}


def _of_line(line: str, where: str, number: int) -> dict[str, Any]:
    row = user_json(line, where)
    if isinstance(row, str):
        return _plain(row, number)
    if not isinstance(row, dict) or not any(key in row for key in ("prompt", "text", "messages")):
        raise InputError(f"{where}: expected an object with prompt, text or messages")
    text = row.get("text", row.get("prompt", ""))
    if isinstance(text, list):  # a conversation, as preference data has it
        return {"id": str(row.get("id", f"line-{number}")), "messages": text}
    kept = {"domain": row.get("domain", ""), "text": text, "messages": row.get("messages", ())}
    turns = [turn for turn in kept["messages"] if isinstance(turn, dict)]
    while turns and turns[-1].get("role") == "assistant":  # a training example: its answer is left to the model
        turns.pop()
    return {"id": str(row.get("id", f"line-{number}")), **kept, "messages": [_turn(turn) for turn in turns]}


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": turn.get("role"), "content": turn.get("content")}
