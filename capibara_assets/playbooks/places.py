"""Whose file it is: an agent belongs to the folder in which its manifest or playbook stands, and to what is below it.

A file in a folder above may speak for it, too: who writes there could write a manifest for all that is below.
Nobody takes over another agent by stating its id: what states it from elsewhere is an agent of its own, named by the
first path that states it there, and is told in the quarantine. Where two folders hold advice of one agent, nothing
tells which was first: then neither has the id.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby, islice
from pathlib import PurePosixPath

from capibara_assets.playbooks.formats.parsed import Rejected
from capibara_assets.playbooks.rows import Redact, ScannedFile

_SHOWN = 3  # folders that a detail names


class _Weight(IntEnum):
    """What a file says of the agent that it states: only a manifest or a playbook makes a folder the agent's."""

    REPORT = 0
    CHANGES = 1
    RECORD = 2
    ADVICE = 3


@dataclass(frozen=True)
class _Claim:
    """The agent that a file states, or the manifest of the nearest folder upwards."""

    path: str
    agent_id: str
    folder: str
    """The folder of what states it."""
    weight: _Weight
    stated: bool
    """Whether the file itself states it."""


@dataclass(frozen=True)
class Places:
    """The agents of the files that state one."""

    agents: Mapping[str, str]
    """Path -> agent."""
    homes: Mapping[str, str]
    """Agent -> the folder that it belongs to."""
    rejected: Mapping[str, Rejected]
    """Path -> why the id that it states is not its agent's."""

    def may_speak(self, path: str, agent: str) -> bool:
        """Whether a file that states no agent can be about this one; an agent that no file states is anybody's."""
        return agent not in self.homes or _speaks_for(path, self.homes[agent])


def places_of(files: Sequence[ScannedFile], redact_name: Redact) -> Places:
    """Finds whose each file is. Does not depend on the order of the files."""
    # a manifest file holds for its folder, a manifest inside a playbook for that playbook alone
    manifests = {
        _folder(file.path): redact_name(file.contents.manifest.agent_id)
        for file in sorted(files, key=lambda file: file.path)
        if file.contents.manifest is not None and file.contents.parsed is None
    }
    claims = [claim for file in files for claim in _claims(file, manifests, redact_name)]
    # an agent that no file states has the id of a path
    named = {file.path: _folder(file.path) for file in files if file.contents.status == "read"}
    agents: dict[str, str] = {}
    homes: dict[str, str] = {}
    rejected: dict[str, Rejected] = {}
    for agent, group in groupby(sorted(claims, key=lambda claim: (claim.agent_id, claim.path)), _agent_of):
        stated = list(group)
        tops = dict.fromkeys(_tops(stated, named.get(agent)))
        first: dict[str, str] = {}
        for claim in stated:
            home = _home(claim, tops)
            own = tops == {home: None}
            name = agent if own else first.setdefault(home, claim.path)
            agents[claim.path], homes[name] = name, home
            if claim.stated and not own:
                rejected[claim.path] = _elsewhere(claim, tops, name)
    return Places(agents, homes, rejected)


def _claims(file: ScannedFile, manifests: Mapping[str, str], redact_name: Redact) -> list[_Claim]:
    contents = file.contents
    folder = next((each for each in _above(file.path) if each in manifests), None)
    own, weight = None, _Weight.RECORD
    if contents.parsed is not None:
        own, weight = contents.parsed.agent_id, _Weight.ADVICE if contents.parsed.bullets else _Weight.RECORD
    elif contents.deltas:
        own = next((delta.agent_id for delta in contents.deltas if delta.agent_id is not None), None)
        weight = _Weight.CHANGES if folder is None else _Weight.ADVICE
    elif contents.run is not None:
        own, weight, folder = contents.run.agent_id, _Weight.REPORT, None
    if contents.manifest is not None:
        own, folder = contents.manifest.agent_id, None
    if folder is not None and (contents.parsed is not None or contents.deltas):
        return [_Claim(file.path, manifests[folder], folder, weight, stated=False)]
    return [_Claim(file.path, redact_name(own), _folder(file.path), weight, stated=True)] if own is not None else []


def _tops(claims: Sequence[_Claim], named: str | None) -> list[str]:
    """The folders that the agent may belong to, none of them below another; `named`: that of the file with this name.

    One where it has advice goes before those that only state it.
    """
    strongest = max(claim.weight for claim in claims)
    if strongest == _Weight.REPORT and named is None:
        return ["."]  # nothing that could be taken over
    other = {named} if named is not None else set()
    folders = other | {claim.folder for claim in claims if claim.weight >= min(strongest, _Weight.RECORD)}
    tops = [folder for folder in sorted(folders) if folders.isdisjoint(_above(folder))]
    advised = other | {claim.folder for claim in claims if claim.weight == _Weight.ADVICE}
    holding = {each for folder in advised for each in (folder, *_above(folder))}
    return [top for top in tops if top in holding] or tops


def _home(claim: _Claim, tops: Collection[str]) -> str:
    """The agent's folder for which the file speaks, else that of what states the agent."""
    if len(tops) == 1 and _speaks_for(claim.path, *tops):
        return next(iter(tops))
    return next((folder for folder in _above(claim.path) if folder in tops), claim.folder)


def _elsewhere(claim: _Claim, tops: Collection[str], name: str) -> Rejected:
    shown = " and ".join([*islice(tops, _SHOWN), *(["others"] if len(tops) > _SHOWN else [])])
    first = "it belongs there" if len(tops) == 1 else "which was first is unknown"
    detail = f"agent {claim.agent_id} is stated in {shown}, {first}: read as an agent of its own, {name}"
    return Rejected("agent_elsewhere", detail, claim.agent_id, locator="agent_id")


def _agent_of(claim: _Claim) -> str:
    return claim.agent_id


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _above(path: str) -> list[str]:
    """The folders above a file or folder, from the nearest to the top."""
    return [str(folder) for folder in PurePosixPath(path).parents]


def _speaks_for(path: str, home: str) -> bool:
    """Whether a file stands in a folder, at any depth, or in one above it."""
    return _within(path, home) or _within(home, _folder(path))


def _within(path: str, folder: str) -> bool:
    """Whether a file or folder stands in a folder, at any depth, or is it."""
    return PurePosixPath(path).is_relative_to(folder)
