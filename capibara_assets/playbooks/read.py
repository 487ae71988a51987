"""Reads a folder of playbooks into tables: bullets, quarantined entries, files, and runs of agents."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from capibara_assets.errors import InputError
from capibara_assets.playbooks.formats.detection import Contents, read_contents
from capibara_assets.playbooks.formats.parsed import Rejected
from capibara_assets.playbooks.formats.revisions import DeltaFile, Revisions, Snapshot, revise
from capibara_assets.playbooks.places import Places, places_of
from capibara_assets.playbooks.rows import Redact, ScannedFile, bullet_row, file_row, quarantined_row, run_rows
from capibara_assets.playbooks.schema import AgentRun, Bullet, PlaybookFile, QuarantinedBullet
from capibara_assets.playbooks.similarity import components, normalised
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.jsonfiles import well_formed
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
    scanned = (_scan(path, root, folder, redact_name, own_folder=own) for path in _paths(root))
    # names that are not UTF-8 may become the same one, or that of a file whose name is
    files = {file.path: file for file in sorted(scanned, key=lambda file: file.contents.status == "read")}
    kept = [files[path] for path in sorted(files) if own or files[path].contents.status != "ignored"]
    return _tables(kept, redact, redact_name)


def _tables(files: list[ScannedFile], redact: Redact, redact_name: Redact) -> Playbooks:
    row_of = partial(bullet_row, redact=redact, redact_name=redact_name)
    places = places_of(files, redact_name)
    repeats = _repeats(files, places)
    fresh = [file for file in files if file.path not in repeats]
    agents = _agents(fresh, places)
    revisions = _revisions(fresh, places, agents)
    agents |= {path: revised.agent_id for path, revised in revisions.items()}
    rows: dict[str, list[Bullet]] = {}
    rejected: dict[str, list[Rejected]] = {}
    for file in fresh:
        parsed, revised = file.contents.parsed, revisions.get(file.path)
        rows[file.path] = [row_of(file, raw, agents[file.path]) for raw in (parsed.bullets if parsed else ())]
        rejected[file.path] = [*file.contents.rejected, *(parsed.rejected if parsed else ())]
        rejected[file.path] += [places.rejected[file.path]] if file.path in places.rejected else []
        if revised is not None:
            rows[file.path] += [row_of(file, each.bullet, agents[file.path], each.replaces) for each in revised.bullets]
            rejected[file.path] += revised.rejected
    quarantine = {
        row.quarantine_id: row
        for file in fresh
        for each in rejected[file.path]
        for row in [quarantined_row(file, each, redact=redact, redact_name=redact_name)]
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
        runs=table(AgentRun, [row for file in fresh for row in run_rows(file, _runner(file, fresh, places, agents))]),
    )


def _paths(root: Path) -> list[Path]:
    """Files below `root`, hidden ones left out, in an order that does not depend on the file system."""
    present = (path for path in root.rglob("*") if path.is_file())
    visible = (path for path in present if not any(part.startswith(".") for part in path.relative_to(root).parts))
    return sorted(visible, key=lambda path: path.relative_to(root).as_posix())


def _scan(path: Path, root: Path, folder: Path, redact_name: Redact, *, own_folder: bool) -> ScannedFile:
    data, named = path.read_bytes(), path.relative_to(root).as_posix()
    contents = read_contents(data, own_folder=own_folder)
    if well_formed(named) != named and contents.status != "ignored":
        said = Rejected("invalid_name", "the path of the file is not UTF-8", well_formed(named))
        contents = Contents("unreadable", "quarantined", rejected=(said,))
    return ScannedFile(
        path=redact_name(well_formed(named)),
        shown=redact_name(well_formed(path.relative_to(folder).as_posix())),
        size=len(data),
        digest=sha256_bytes(data),
        contents=contents,
    )


def _repeats(files: list[ScannedFile], places: Places) -> set[str]:
    """Paths of playbooks, deltas and runs with the same bytes as an earlier file of the same agent."""
    seen: set[tuple[str | None, str]] = set()
    repeats: set[str] = set()
    for file in files:
        if file.contents.parsed is None and file.contents.run is None and not file.contents.deltas:
            continue
        key = (places.agents.get(file.path), file.digest)
        if key in seen:
            repeats.add(file.path)
        seen.add(key)
    return repeats


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


def _agents(files: list[ScannedFile], places: Places) -> dict[str, str]:
    """Path -> agent, for every file with bullets or a manifest."""
    known = {
        file.path: places.agents[file.path]
        for file in files
        if file.path in places.agents and (file.contents.parsed is not None or file.contents.manifest is not None)
    }
    anonymous = {
        file.path: [bullet.content for bullet in file.contents.parsed.bullets]
        for file in files
        if file.path not in places.agents and file.contents.parsed is not None and file.contents.parsed.bullets
    }
    return known | _agents_by_content(anonymous)


def _revisions(files: list[ScannedFile], places: Places, agents: dict[str, str]) -> dict[str, Revisions]:
    snapshots = [
        Snapshot(file.path, agents[file.path], tuple(file.contents.parsed.bullets))
        for file in files
        if file.contents.parsed is not None and file.path in agents
    ]
    deltas = [
        DeltaFile(file.path, file.contents.deltas, places.agents.get(file.path))
        for file in files
        if file.contents.deltas
    ]
    return revise(snapshots, deltas, places.may_speak)


def _runner(file: ScannedFile, files: Iterable[ScannedFile], places: Places, agents: dict[str, str]) -> str | None:
    """The agent of a manifest or run report: named in it, or that of playbooks with the experiment's id in their paths.

    Where several are, the one counts that a file states.
    """
    run = file.contents.run
    if run is None or file.path in places.agents:
        return places.agents.get(file.path)
    near = [f.path for f in files if run.experiment and run.experiment in f.path and f.path in agents]
    written = {agents[path] for path in near if places.may_speak(file.path, agents[path])}
    written = {agent for agent in written if agent in places.homes} or written
    return written.pop() if len(written) == 1 else None
