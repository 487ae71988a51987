"""Every field of a certificate is signed, computed again or refused; what anybody may change is listed, with why."""

import copy
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.consensus.agree import agree
from capibara_assets.consensus.certificates.certificate import certify, parse_certificate, sealed, verify_certificate
from capibara_assets.consensus.certificates.public_record import PublicRecord
from capibara_assets.consensus.certificates.published_election import PublishedElection
from capibara_assets.consensus.election.ballots import new_key, public_key
from capibara_assets.consensus.election.polling import Decide, Hold, Poll
from capibara_assets.consensus.election.voter import Assignment, Proposal
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.training.voter_manifest import MANIFEST
from capibara_assets_tests.consensus.conftest import Tokens, changed
from capibara_assets_tests.consensus.in_process import hold_here

WORDS = "words of whoever held the vote; verification says that nobody signed them"
DIGITS = "last digits of linear algebra, which other machines compute otherwise; nothing follows from them"
MAY_CHANGE = {
    r"(absent|unconfirmed)\.voter-\d( left empty)?": WORDS,
    r"(voters\.\d+\.(norm|norm_ratio)|evidence\.\w+(\.\d+)*) by its last digit": DIGITS,
}
Change = tuple[str, Any]
"""What is changed, and the certificate's document with it."""
STRATEGIES = {"voter-0": "hierarchical", "voter-1": "convexity", "voter-2": "soup", "voter-3": "soup"}


@dataclass
class Voted:
    """A vote's certificate, and all that it is verified with."""

    document: dict[str, Any]
    voters: dict[str, Path]
    adapter: Path
    record: PublicRecord

    def holds(self, document: dict[str, Any]) -> bool:
        """Whether the document is a certificate that nothing contradicts, its digest and seal computed anew."""
        try:
            certificate = sealed(parse_certificate(document))
        except InputError:
            return False
        keys = {one["name"]: one["public_key"] for one in self.document["voters"] if one["public_key"]}
        if verify_certificate(certificate, keys=keys, record=self.record).problems:  # quickly, for most
            return False
        return verify_certificate(certificate, self.voters, result=self.adapter, keys=keys, record=self.record).ok


def without_the_last(base: Base, assignments: Any, timeout: float, retries: int, decide: Decide | None = None) -> Poll:
    """A vote in which the last voter is silent."""
    *heard, silent = list[Assignment](assignments)

    def asked(poll: Poll) -> Mapping[str, Proposal]:
        keys = {**poll.keys, silent.voter: public_key(new_key())}  # it told that, and no ballot
        late = replace(poll, keys=keys, absent={silent.voter: "late: no answer within 4 s"})
        return {} if decide is None else decide(late)

    return hold_here(base, heard, timeout, retries, asked)


Make = Callable[[str], Voted]


@pytest.fixture
def voted(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], tmp_path: Path
) -> Make:
    def make(what: str) -> Voted:
        adapters = dict(honest)
        if what == "one is rejected by the vote":
            adapters["voter-2"] = changed(honest["voter-2"], -1.0)
        if what == "one is rejected by attestation":
            adapters["voter-2"] = changed(honest["voter-2"], math.nan)
        for name, adapter in adapters.items():
            write_adapter(adapter, tmp_path / "inputs" / name)
            if "strategies" in what:
                (tmp_path / "inputs" / name / MANIFEST).write_text(json.dumps({"strategy": STRATEGIES[name]}))
        hold: Hold = without_the_last if "silent" in what else hold_here
        published = list[PublishedElection]()
        folders = {name: tmp_path / "inputs" / name for name in adapters}
        agreement = agree(
            tiny, folders, validation, shards, ConsensusRecipe(), {"domain": "python"},
            announce=published.append, hold=hold,
        )  # fmt: skip
        document = json.loads(certify(agreement, tmp_path / "made").read_text())
        del document["digest"], document["seal"]  # anybody can compute them
        return Voted(document, folders, tmp_path / "made" / "adapter", PublicRecord(published[0]))

    return make


def leaves(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every part of a document with its place: numbers, texts, and the lists and objects they stand in."""
    yield place, value
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, (*place, name))
    if isinstance(value, list):
        for number, part in enumerate(value):
            if not (place == ("ballots",) and number > 1):  # two of them stand for all
                yield from leaves(part, (*place, number))


def others(value: Any) -> Iterator[tuple[str, Any]]:
    """Other values of a part's type, and of types that a reader might take for it."""
    if isinstance(value, bool):
        yield "", not value
    elif isinstance(value, int):
        yield from (("", value + 1), (" as a switch", bool(value)))
    elif isinstance(value, float):
        yield from (("", value + 0.25), (" by its last digit", math.nextafter(value, math.inf)))
    elif isinstance(value, str):
        yield from (("", f"{value}x"), (" left empty", ""))
    elif value is None:
        yield from ((" stated", "x"), (" stated as a number", 1.0), (" as a key", f"{'A' * 42}E="))
    elif isinstance(value, dict):
        yield " with more in it", {**value, "note": "audited by ACME"}
        yield from ((f" without {name}", {k: v for k, v in value.items() if k != name}) for name in value)
    elif value:
        yield from ((" the other way round", value[::-1]), (" with its last twice", [*value, value[-1]]))
        yield " without its last", value[:-1]
        yield " with its last two exchanged", [*value[:-2], *value[:-3:-1]]
    else:
        yield " not empty", ["audited by ACME"]


def changes(document: Mapping[str, Any]) -> Iterator[Change]:
    """Documents with one change."""
    for place, value in leaves(document):
        for how, other in others(value):
            if other == value and type(other) is type(value):
                continue
            made = copy.deepcopy(dict(document))
            parent: Any = made
            for step in place[:-1]:
                parent = parent[step]
            if place:
                parent[place[-1]] = other
            else:
                made = other
            yield ".".join(map(str, place)) + how, made


def left_out_is_the_default(document: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a change is one of spelling alone: the same certificate is read."""
    try:
        return parse_certificate(document) == parse_certificate(other)
    except InputError:
        return False


@pytest.mark.parametrize(
    "what",
    [
        "one is silent, of several strategies",
        pytest.param("one is rejected by the vote", marks=pytest.mark.extended),
        pytest.param("one is rejected by attestation", marks=pytest.mark.extended),
    ],
)
def test_no_part_of_a_certificate_can_be_changed_by_whoever_has_no_key(voted: Make, what: str) -> None:
    made = voted(what)
    assert made.holds(made.document)
    held = {
        where
        for where, other in changes(made.document)
        if made.holds(other) and not left_out_is_the_default(made.document, other)
    }
    assert sorted(where for where in held if not any(re.fullmatch(known, where) for known in MAY_CHANGE)) == []
    if "silent" in what:  # what is listed is so
        assert {"absent.voter-3", "unconfirmed.voter-3"} <= held
        said = verify_certificate(sealed(parse_certificate(made.document))).unproven
        assert any(line.startswith("why voter-3 gave no ballots or no confirmation") for line in said)
