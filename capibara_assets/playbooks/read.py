"""Reads a folder of playbooks into tables: bullets, quarantined entries, files, and runs of agents."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import polars as pl

from capibara_assets.errors import InputError
from capibara_assets.playbooks.formats.detection import read_contents
from capibara_assets.playbooks.formats.parsed import Rejected
from capibara_assets.playbooks.formats.revisions import DeltaFile, Revisions, Snapshot, revise
from capibara_assets.playbooks.rows import Redact, ScannedFile, bullet_row, file_row, quarantined_row, run_rows
from capibara_assets.playbooks.schema import AgentRun, Bullet, PlaybookFile, QuarantinedBullet
from capibara_assets.playbooks.similarity import components, normalised
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.records import Record, table

VOLATILE = ("files.parquet",)
"""Outside the data version: names of files say nothing about the bullets."""
PLAYBOOKS = "playbooks"
_SHARED = 0.5
"""Two files of at least half the smaller one's bullets in common are snapshots of one agent's playbook."""


@dataclass(frozen=True)
class Playbooks:
    """Tables of `Bullet`, `QuarantinedBullet`, `PlaybookFile` and `AgentRun`."""

    bullets: pl.DataFrame
    quarantine: pl.DataFrame
    files: pl.DataFrame
    runs: pl.DataFrame

    @classmethod
    def of(cls, artifact: Artifact) -> "Playbooks":
        """Loads the tables from an artifact that was published with `tables`."""
        return cls(*(artifact.frame(name) for name in ("bullets", "quarantine", "files", "runs")))

    def tables(self) -> dict[str, tuple[type[Record], pl.DataFrame]]:
        """Name -> (row type, table)."""
        return {
            "bullets": (Bullet, self.bullets),
            "runs": (AgentRun, self.runs),
            "quarantine": (QuarantinedBullet, self.quarantine),
            "files": (PlaybookFile, self.files),
        }


def read_playbooks(folder: Path, *, redact: Redact = str, redact_name: Redact = str) -> Playbooks:
    """Reads every playbook in `folder/playbooks` or, where there is none, every file below `folder` that is one.

    Deltas are applied to the playbooks that they change (`revisions.py`). Does not depend on the order of files.

    Args:
        redact: removes secrets from a text; applied to everything that is kept or quarantined.
        redact_name: as `redact`, for paths and ids; different ones stay different.

    Raises:
        InputError: the folder does not exist.
    """
    if not folder.is_dir():
        raise InputError(f"no folder {folder}: give the folder that holds playbooks/ and e2b_logs/")
    own = (folder / PLAYBOOKS).is_dir()
    root = folder / PLAYBOOKS if own else folder
    files = [_scan(path, root, folder, redact_name, own_folder=own) for path in _paths(root)]
    return _tables([file for file in files if own or file.contents.status != "ignored"], redact, redact_name)


def _tables(files: list[ScannedFile], redact: Redact, redact_name: Redact) -> Playbooks:
    row_of = partial(bullet_row, redact=redact, redact_name=redact_name)
    # a manifest file holds for its folder, a manifest inside a playbook for that playbook alone
    manifests = {
        str(PurePosixPath(file.path).parent): file.contents.manifest.agent_id
        for file in files
        if file.contents.manifest is not None and file.contents.parsed is None
    }
    repeats = _repeats(files, manifests)
    fresh = [file for file in files if file.path not in repeats]
    agents = _agents(fresh, manifests)
    revisions = _revisions(fresh, manifests, agents)
    agents |= {path: revised.agent_id for path, revised in revisions.items()}
    agents = {path: redact_name(agent) for path, agent in agents.items()}
    rows: dict[str, list[Bullet]] = {}
    rejected: dict[str, list[Rejected]] = {}
    for file in fresh:
        parsed, revised = file.contents.parsed, revisions.get(file.path)
        rows[file.path] = [row_of(file, raw, agents[file.path]) for raw in (parsed.bullets if parsed else ())]
        rejected[file.path] = [*file.contents.rejected, *(parsed.rejected if parsed else ())]
        if revised is not None:
            rows[file.path] += [row_of(file, each.bullet, agents[file.path], each.replaces) for each in revised.bullets]
            rejected[file.path] += revised.rejected
    quarantine = {
        row.quarantine_id: row
        for file in fresh
        for each in rejected[file.path]
        for row in [quarantined_row(file, each, redact)]
    }
    return Playbooks(
        bullets=table(Bullet, (row for of_file in rows.values() for row in of_file)),
        quarantine=table(QuarantinedBullet, quarantine.values()),
        files=table(
            PlaybookFile,
            [
                file_row(
                    file,
                    agents.get(file.path),
                    repeat=file.path in repeats,
                    bullets=len(rows.get(file.path, ())),
                    quarantined=len(rejected.get(file.path, ())),
                )
                for file in files
            ],
        ),
        runs=table(AgentRun, [row for file in fresh for row in run_rows(file, _runner(file, fresh, agents))]),
    )


def _paths(root: Path) -> list[Path]:
    """Files below `root`, hidden ones left out, in an order that does not depend on the file system."""
    present = (path for path in root.rglob("*") if path.is_file())
    visible = (path for path in present if not any(part.startswith(".") for part in path.relative_to(root).parts))
    return sorted(visible, key=lambda path: path.relative_to(root).as_posix())


def _scan(path: Path, root: Path, folder: Path, redact_name: Redact, *, own_folder: bool) -> ScannedFile:
    data = path.read_bytes()
    return ScannedFile(
        path=redact_name(path.relative_to(root).as_posix()),
        shown=redact_name(path.relative_to(folder).as_posix()),
        size=len(data),
        digest=sha256_bytes(data),
        contents=read_contents(data, own_folder=own_folder),
    )


def _repeats(files: list[ScannedFile], manifests: dict[str, str]) -> set[str]:
    """Paths of playbooks, deltas and runs with the same bytes as an earlier file of the same agent."""
    seen: set[tuple[str | None, str]] = set()
    repeats: set[str] = set()
    for file in files:
        if file.contents.parsed is None and file.contents.run is None and not file.contents.deltas:
            continue
        key = (_manifest_agent(file.path, manifests), file.digest)
        if key in seen:
            repeats.add(file.path)
        seen.add(key)
    return repeats


def _manifest_agent(path: str, manifests: Mapping[str, str]) -> str | None:
    """The agent in the manifest of the nearest folder upwards. `manifests`: folder -> agent id ("." is the root)."""
    for folder in PurePosixPath(path).parents:
        if str(folder) in manifests:
            return manifests[str(folder)]
    return None


def _agents_by_content(contents: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Path -> agent id for files that name no agent: those that share bullets have the same one.

    The id is the first path of the group. `contents`: path -> the bullets' texts. Does not depend on order.
    """
    paths = sorted(contents)
    texts = [frozenset(normalised(text) for text in contents[path]) for path in paths]
    holders: dict[str, list[int]] = {}
    for place, each in enumerate(texts):
        for text in each:
            holders.setdefault(text, []).append(place)
    shared = Counter(
        (left, right)
        for places in holders.values()
        for position, left in enumerate(places)
        for right in places[position + 1 :]
    )
    pairs = [(i, j) for (i, j), count in shared.items() if count >= _SHARED * min(len(texts[i]), len(texts[j]))]
    return {paths[place]: paths[group[0]] for group in components(len(paths), sorted(pairs)) for place in group}


def _agents(files: list[ScannedFile], manifests: dict[str, str]) -> dict[str, str]:
    """Path -> agent, for every file with bullets or a manifest."""
    known: dict[str, str] = {}
    anonymous: dict[str, list[str]] = {}
    for file in files:
        parsed, manifest = file.contents.parsed, file.contents.manifest
        if manifest is not None:
            known[file.path] = manifest.agent_id
        elif parsed is not None:
            if agent := _manifest_agent(file.path, manifests) or parsed.agent_id:
                known[file.path] = agent
            elif parsed.bullets:
                anonymous[file.path] = [bullet.content for bullet in parsed.bullets]
    return known | _agents_by_content(anonymous)


def _revisions(files: list[ScannedFile], manifests: dict[str, str], agents: dict[str, str]) -> dict[str, Revisions]:
    snapshots = [
        Snapshot(file.path, agents[file.path], tuple(file.contents.parsed.bullets))
        for file in files
        if file.contents.parsed is not None and file.path in agents
    ]
    deltas = [
        DeltaFile(file.path, file.contents.deltas, _manifest_agent(file.path, manifests) or _named(file))
        for file in files
        if file.contents.deltas
    ]
    return revise(snapshots, deltas)


def _named(file: ScannedFile) -> str | None:
    return next((delta.agent_id for delta in file.contents.deltas if delta.agent_id is not None), None)


def _runner(file: ScannedFile, files: Iterable[ScannedFile], agents: dict[str, str]) -> str | None:
    """The agent of a run report: named in it, or the agent of playbooks with the experiment's id in their paths."""
    run = file.contents.run
    if run is None or run.agent_id is not None:
        return run.agent_id if run is not None else None
    written = {agents[f.path] for f in files if run.experiment and run.experiment in f.path and f.path in agents}
    return written.pop() if len(written) == 1 else None
