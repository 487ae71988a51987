"""Selection of the submissions that take part: each registered voter's first valid one before the deadline."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from capibara_assets.consensus.election.attestation import majority_shapes, read_submission
from capibara_assets.consensus.rounds.mailbox import Mailbox
from capibara_assets.consensus.rounds.messages import Message
from capibara_assets.consensus.rounds.places import RoundPlace
from capibara_assets.consensus.rounds.round import Round
from capibara_assets.errors import printable
from capibara_assets.modeling.files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from capibara_assets.storage.jsonfiles import strict_json

REFUSED = "refused.jsonl"
"""Beside a round: what the server of its place refused."""
_LONGEST_REFUSALS = 4 << 20
_MOST_NAMED = 1000  # of a kind
_LONGEST = 500  # characters of what is named


@dataclass(frozen=True, order=True)
class Named:
    """An ignored message, or a missing one.

    Attributes:
        what: late, missing, replayed, forged, foreign, duplicate, oversized, damaged or unfit.
        sender: as the message states; empty if it cannot be read.
        letter: name of the message at the place; empty if none arrived.
    """

    what: str
    sender: str
    why: str
    letter: str = ""

    def __post_init__(self) -> None:
        for field in ("what", "sender", "why", "letter"):  # strangers' texts, which go to terminals
            object.__setattr__(self, field, printable(getattr(self, field)[:_LONGEST])[:_LONGEST])

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Submissions:
    """The accepted submissions, and the ignored ones.

    Attributes:
        accepted: voter -> its message.
    """

    accepted: dict[str, Message]
    named: tuple[Named, ...]

    def folders(self, terms: Round, work: Path) -> dict[str, Path]:
        """Adapter folder of every registered voter; missing voters get a folder that does not exist."""
        missing = work / "missing"
        return {name: self.accepted[name].folder if name in self.accepted else missing / name for name in terms.keys}


def sort_submissions(box: Mailbox) -> Submissions:
    """Judge a mailbox's submissions in the order of arrival."""
    accepted, named = dict[str, Message](), list[Named]()
    weights: dict[str, str] = {}
    for message in box.of("submission"):
        fault, why = _fault(message, box.terms, accepted, weights)
        if fault:
            named.append(Named(fault, message.sender, why, message.head.name))
        else:
            accepted[message.sender] = message
            weights[message.head.content.files[ADAPTER_WEIGHTS][1]] = message.sender
    named += [Named(fault.fault, fault.sender or "", str(fault), name) for name, fault in box.faults.items()]
    named += refusals(box.place, box.terms.digest)
    named += [Named("missing", name, "no adapter that takes part") for name in box.terms.keys if name not in accepted]
    return Submissions(accepted, tuple(sorted(named)))


def documents(named: Sequence[Named]) -> list[dict[str, Any]]:
    """Ignored messages as JSON for a result; beyond a thousand of a kind they are only counted."""
    kinds = Counter[str]()
    kept = []
    for one in named:
        kinds[one.what] += 1
        if kinds[one.what] <= _MOST_NAMED:
            kept.append(one.document())
    return kept + [
        Named(what, "", f"{number - _MOST_NAMED:,} further messages, not listed").document()
        for what, number in kinds.items()
        if number > _MOST_NAMED
    ]


def refusals(place: RoundPlace, round_digest: str) -> list[Named]:
    """Refusals recorded by a server that keeps its messages in this folder."""
    try:
        lines = place.read(f"{round_digest}/{REFUSED}", _LONGEST_REFUSALS).splitlines()
    except FileNotFoundError:
        return []
    return [_refusal(number, line) for number, line in enumerate(lines, start=1)]


def _refusal(number: int, line: bytes) -> Named:
    try:
        one = strict_json(line)
        return Named(*(str(one[name]) for name in ("what", "sender", "why", "letter")))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Named("damaged", "", f"line {number} of {REFUSED} is no refusal of a server")


def _fault(message: Message, terms: Round, accepted: dict[str, Message], weights: dict[str, str]) -> tuple[str, str]:
    files = message.head.content.files
    if message.received > terms.closes:
        return "late", f"came {message.received - terms.closes:.3g} s after the deadline, by the clock of the place"
    if message.sender in accepted:
        return "duplicate", f"{message.sender} handed in before; the first counts"
    if not {ADAPTER_CONFIG, ADAPTER_WEIGHTS} <= files.keys():
        return "unfit", f"no {ADAPTER_CONFIG} or {ADAPTER_WEIGHTS} in it"
    if (owner := weights.get(files[ADAPTER_WEIGHTS][1])) is not None:
        return "replayed", f"its weights are those that {owner} handed in before"
    return next((("unfit", why) for why in _unfit(message, terms)), ("", ""))


def _unfit(message: Message, terms: Round) -> Iterator[str]:
    read = read_submission(message.sender, message.folder, terms.base_digest)
    if read.problem or read.adapter is None:
        yield read.problem
        return
    shapes = {name: list(shape) for name, shape in majority_shapes({message.sender: read.adapter}).items()}
    if off := sorted(name for name in {*shapes, *terms.modules} if shapes.get(name) != terms.modules.get(name)):
        yield f"{off[0]} has shape {shapes.get(off[0])}, the round asks for {terms.modules.get(off[0])}"
    ranks = {name: int(read.adapter.a(name).shape[0]) for name in read.adapter.modules}
    if (most := max(ranks.values())) > terms.max_rank:
        yield f"rank {most}, the round's limit is {terms.max_rank}"
