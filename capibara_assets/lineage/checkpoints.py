"""Checkpoints that the graph's results need, and checkpoints that contain a forgotten record."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from capibara_assets.checkpoints.artifacts import FOLDER, checkpoints_of
from capibara_assets.errors import IntegrityError
from capibara_assets.lineage.traces import holds
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.store import ArtifactStore

if TYPE_CHECKING:
    from capibara_assets.checkpoints.content import PieceSource
    from capibara_assets.checkpoints.store.store import Checkpoint

_SHORT = 12


@dataclass(frozen=True)
class NamedCheckpoint:
    """A checkpoint that an artifact names: the bytes of one of its folders."""

    id: str
    artifact: Artifact
    folder: str


def named_checkpoints(store: ArtifactStore) -> list[NamedCheckpoint]:
    """Every checkpoint that an artifact in the store names."""
    return [
        NamedCheckpoint(identity, artifact, folder)
        for asset in store.names()
        for artifact in store.list(asset)
        for folder, identity in artifact.checkpoints.items()
    ]


def needed_checkpoints(store: ArtifactStore) -> dict[str, str]:
    """Checkpoints that must stay, since an artifact names, a certificate attests or a promotion serves them: id -> why.

    Raises:
        IntegrityError: a manifest, certificate or promotion is damaged, so that its needs are unknown.
        MissingArtifact: a promoted model is not in the store.
    """
    named = named_checkpoints(store)
    by_artifact: dict[tuple[str, str | None, str], list[NamedCheckpoint]] = {}
    for one in named:
        by_artifact.setdefault(one.artifact.key, []).append(one)
    reasons = {one.id: f"{one.folder} of {one.artifact.title}" for one in named}
    for consensus in store.list("consensus_checkpoint"):
        attested = consensus.document("certificate")["context"].get("trained_adapters", "")
        for owner in (("trained_adapters", consensus.partition, attested), consensus.key):
            for one in by_artifact.get(owner, ()):
                reasons[one.id] = f"attested by the certificate of {consensus.title}"
    latest = store.latest_digest("promoted_model", None)
    promotions = sorted(store.list("promoted_model"), key=lambda artifact: artifact.digest == latest)
    for promoted in promotions:  # the current promotion comes last, and its reason stays
        now = "promoted" if promoted.digest == latest else "promoted before"
        for what, identity in serving_checkpoints(store, promoted.document("promotion")).items():
            reasons[identity] = f"{now}: {what}"
    return dict(sorted(reasons.items()))


def serving_checkpoints(store: ArtifactStore, promotion: Mapping[str, Any]) -> dict[str, str]:
    """Checkpoints served by a promotion: `domain/consensus` or `merged_checkpoint` -> id.

    Results published before there were checkpoints have none.
    """
    serving = promotion["serving"]
    owners = {f"{domain}/consensus": ("consensus_checkpoint", domain, it) for domain, it in serving["experts"].items()}
    owners["merged_checkpoint"] = ("merged_checkpoint", None, serving["merged"])
    return {
        what: identity
        for what, (asset, partition, digest) in owners.items()
        if digest is not None
        for identity in store.open(asset, partition, digest).checkpoints.values()
    }


def has_checkpoints(store: ArtifactStore) -> bool:
    """Whether there is a checkpoint store beside the artifact store; does not create one."""
    return bool((store.root / FOLDER).exists())


def require_readable(store: ArtifactStore) -> None:
    """Check that checkpoints can be read. Raises InputError: they are encrypted and no key is given."""
    if has_checkpoints(store):
        checkpoints_of(store).list()


def behind(
    store: ArtifactStore, removed: Sequence[Artifact], digests: Collection[str], needles: Sequence[str]
) -> list["Checkpoint"]:
    """The checkpoints to remove with artifacts: they contain a forgotten record, and no remaining artifact names them.

    A checkpoint contains a record if it was trained on a removed dataset or made from another removed artifact,
    continues such a checkpoint, or holds a piece of the record's text in a file or in its description. Adapters that a
    published artifact names are not among these: they are stale, and retrained at the next run.

    Args:
        removed: artifacts that are about to be removed.
        digests: their digests, and those of artifacts removed before.
    """
    if not has_checkpoints(store):
        return []
    checkpoints = checkpoints_of(store)
    going = {artifact.key for artifact in removed}
    artifacts = [artifact for asset in store.names() for artifact in store.list(asset)]
    staying = [artifact for artifact in artifacts if artifact.key not in going]
    gone = set(digests) - {artifact.digest for artifact in staying}
    named = {identity for artifact in staying for identity in artifact.checkpoints.values()}
    theirs = {identity for artifact in removed for identity in artifact.checkpoints.values()}
    every = checkpoints.list()
    telling = {one.id for one in holding_checkpoints(store, needles)}
    doomed = {
        identity
        for one in every
        if not (telling | theirs).isdisjoint(_ids(one)) or not gone.isdisjoint(made_from(one))
        for identity in _ids(one)
    }
    while more := {name for one in every if one.manifest.about.parent in doomed for name in _ids(one)} - doomed:
        doomed |= more
    return [one for one in every if not doomed.isdisjoint(_ids(one)) and named.isdisjoint(_ids(one))]


def purge(store: ArtifactStore, doomed: Iterable["Checkpoint"]) -> list[str]:
    """Delete checkpoints and all bytes that only they use; returns what could not be deleted, with reasons."""
    if not has_checkpoints(store):
        return []
    checkpoints = checkpoints_of(store)
    checkpoints.retire(sorted({one.id for one in doomed}))
    collected = checkpoints.collect(thorough=True)
    return [
        f"{checkpoints.root}/{item.name} is not deleted yet: {item.why}"
        for item in (*collected.waiting, *collected.left)
    ]


def holding_checkpoints(store: ArtifactStore, needles: Sequence[str]) -> list["Checkpoint"]:
    """The checkpoints whose files or description contain one of the needles; as `searched_checkpoints`."""
    if not needles:
        return []
    return searched_checkpoints(
        store, lambda text: any(needle in text for needle in needles), lambda path: holds(path, needles)
    )


def searched_checkpoints(
    store: ArtifactStore, in_text: Callable[[str], bool], in_file: Callable[[Path], bool]
) -> list["Checkpoint"]:
    """The checkpoints whose description or files a search finds something in; tensors are not searched.

    A checkpoint with an unreadable file (a damaged pack) counts, since it may contain it.
    """
    known: dict[tuple[str, ...], bool] = {}
    holding = []
    store.work.mkdir(parents=True, exist_ok=True)
    # in the work folder, where the next forget finds the files of a killed process
    with TemporaryDirectory(dir=store.work) as folder:
        for checkpoint in checkpoints_of(store).list():
            description = checkpoint.manifest.model_dump_json(exclude={"tensors", "files", "packs"})
            holds_one = in_text(description)
            for name, source in checkpoint.content().files.items():
                pieces = checkpoint.manifest.files[name].pieces
                if pieces not in known:
                    known[pieces] = _holds(source, Path(folder) / f"file{Path(name).suffix}", in_file)
                holds_one = holds_one or known[pieces]
            if holds_one:
                holding.append(checkpoint)
    return holding


def still_holding(store: ArtifactStore, needles: Sequence[str]) -> list[str]:
    """Titles of the checkpoints that still contain a needle, such as those of published models."""
    return [title(one) for one in holding_checkpoints(store, needles)] if has_checkpoints(store) else []


def title(checkpoint: "Checkpoint") -> str:
    """How a report names a checkpoint."""
    return f"{checkpoint.manifest.about.model}@v{checkpoint.version} {checkpoint.id}"


def _holds(source: "PieceSource", path: Path, in_file: Callable[[Path], bool]) -> bool:
    try:
        with path.open("wb") as file:
            for piece in source.pieces():
                file.write(piece)
    except IntegrityError:
        return True
    return in_file(path)


def _ids(checkpoint: "Checkpoint") -> set[str]:
    """Its id, and those that it had before its store was encrypted or decrypted."""
    return {checkpoint.id, *checkpoint.manifest.aliases}


def made_from(checkpoint: "Checkpoint") -> Iterator[str]:
    about = checkpoint.manifest.about
    yield from about.sources.values()
    if about.dataset_digest is not None:
        yield about.dataset_digest
