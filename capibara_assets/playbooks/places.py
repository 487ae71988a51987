"""Whose file it is: an agent belongs to the folder in which its manifest or playbook stands, and to what is below it.

A file in a folder above may speak for it, too: who writes there could write a manifest for all that is below.
Nobody takes over another agent by stating its id: what states it from elsewhere is an agent of its own, named by the
first path that states it there, and is told in the quarantine. Where two folders hold advice of one agent, nothing
tells which was first: then neither has the id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from pathlib import PurePosixPath

from capibara_assets.playbooks.formats.parsed import Rejected
from capibara_assets.playbooks.rows import Redact, ScannedFile


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
        tops = _tops(stated, named.get(agent))
        home_of = {claim.path: _home(claim, tops) for claim in stated}
        for claim in stated:
            home = home_of[claim.path]
            own = tops == [home]
            name = agent if own else next(path for path, its in home_of.items() if its == home)
            agents[claim.path], homes[name] = name, home
            if claim.stated and not own:
                rejected[claim.path] = _elsewhere(claim, tops, name)
    return Places(agents, homes, rejected)


def _claims(file: ScannedFile, manifests: Mapping[str, str], redact_name: Redact) -> list[_Claim]:
    contents = file.contents
    folder = next((str(each) for each in PurePosixPath(file.path).parents if str(each) in manifests), None)
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
    tops = [folder for folder in sorted(folders) if not any(folder != o and _within(folder, o) for o in folders)]
    advised = other | {claim.folder for claim in claims if claim.weight == _Weight.ADVICE}
    return [top for top in tops if any(_within(folder, top) for folder in advised)] or tops


def _home(claim: _Claim, tops: Sequence[str]) -> str:
    """The agent's folder for which the file speaks, else that of what states the agent."""
    if len(tops) == 1 and _speaks_for(claim.path, tops[0]):
        return tops[0]
    return next((top for top in tops if _within(claim.path, top)), claim.folder)


def _elsewhere(claim: _Claim, tops: Sequence[str], name: str) -> Rejected:
    first = "it belongs there" if len(tops) == 1 else "which was first is unknown"
    detail = f"agent {claim.agent_id} is stated in {' and '.join(tops)}, {first}: read as an agent of its own, {name}"
    return Rejected("agent_elsewhere", detail, claim.agent_id, locator="agent_id")


def _agent_of(claim: _Claim) -> str:
    return claim.agent_id


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _speaks_for(path: str, home: str) -> bool:
    """Whether a file stands in a folder, at any depth, or in one above it."""
    return _within(path, home) or _within(home, _folder(path))


def _within(path: str, folder: str) -> bool:
    """Whether a file or folder stands in a folder, at any depth, or is it."""
    return PurePosixPath(path).is_relative_to(folder)
