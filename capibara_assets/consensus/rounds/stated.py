"""What the organiser states in the JSON documents of its messages, checked when read."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from capibara_assets.consensus.rounds.messages import Message
from capibara_assets.consensus.rounds.submissions import Named
from capibara_assets.errors import InputError, in_words
from capibara_assets.storage.foreign import read_document
from capibara_assets.storage.jsonfiles import strict_json, why_not_json

PROPOSAL, RESULT, AFTER = "proposal.json", "result.json", "after.json"


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StatedProposal(_Document):
    """What the accepted voters are asked to confirm; `confirming.Proposed` says what the common part holds."""

    common: dict[str, Any]
    own: dict[str, dict[str, float | None]]
    """Voter -> candidate -> loss on its own examples."""


class StatedResult(_Document):
    """How an attempt ended: the digest of the consensus or the error, and every ignored message."""

    named: tuple[Named, ...]
    consensus: str | None = None
    error: str | None = None

    @model_validator(mode="after")
    def _ended(self) -> "StatedResult":
        if (self.consensus is None) == (self.error is None):
            raise ValueError("expected a consensus or an error")
        return self


class StatedAfter(_Document):
    """What an election says if it follows an attempt that ended."""

    result: str
    """Name of the message that ended the attempt."""


_Stated = TypeVar("_Stated", bound=_Document)


def read_proposal(message: Message) -> StatedProposal:
    """The proposal of a message. Raises InputError: it is none."""
    return _read(message, PROPOSAL, StatedProposal)


def read_result(message: Message) -> StatedResult:
    """The result of a message. Raises InputError: it is none."""
    return _read(message, RESULT, StatedResult)


def read_after(message: Message) -> StatedAfter | None:
    """The attempt that an election follows, None for the first. Raises InputError: the document is none."""
    return _read(message, AFTER, StatedAfter) if AFTER in message.head.content.files else None


def _read(message: Message, name: str, model: type[_Stated]) -> _Stated:
    whose = f"the {message.head.content.kind} of {message.sender} (message {message.head.name[:12]})"
    if name not in message.head.content.files:
        raise InputError(f"{whose} has no {name}: ask whoever closes the round")
    try:
        return model.model_validate(strict_json(read_document(message.folder / name)))
    except ValidationError as error:
        raise InputError(f"{whose} is none that this software reads: {in_words(error)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{whose} is {why_not_json(error)}") from error
