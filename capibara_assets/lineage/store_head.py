"""Signed, numbered summary of a store's append-only content, to be kept outside the reach of the store's writers.

Every document in a store may be whole and signed, and the store an older copy of itself: what was forgotten is back,
a former model serves, the newest certificates never were. Only who remembers more than the store does notices.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets.checkpoints.artifacts import checkpoints_of
from capibara_assets.consensus.certificates.certificate_log import read_log
from capibara_assets.consensus.certificates.public_record import ELECTIONS, LOG
from capibara_assets.consensus.election.ballots import is_signature, public_key, signature_of
from capibara_assets.errors import InputError, IntegrityError, in_words
from capibara_assets.evaluation.serving.promotion_log import PromotionLog
from capibara_assets.lineage.checkpoints import has_checkpoints
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.foreign import read_document, read_stored
from capibara_assets.storage.jsonfiles import parse_json, strict_json, why_not_json, write_bytes_atomic
from capibara_assets.storage.removal import read_tombstones, removed
from capibara_assets.storage.store import ArtifactStore, MissingArtifact

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PURPOSE = b"capibara store head\n"
_LARGEST = 64 << 20
_ADDED = {"elections"}  # by version 2: it stands in no text that was signed before
_READ = 1 << 20  # bytes of a file of which every one is compared


class StoreHead(BaseModel):
    """Append-only content of a store at one time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1, 2] = 2
    number: int = Field(ge=1, description="One more than the head before it")
    time: str = Field(description="RFC 3339, UTC")
    checkpoints: dict[str, tuple[int, str]] = Field(description="Model -> number and id of its newest version")
    results: dict[str, tuple[str, str]] = Field(description="asset|partition -> time, digest of its latest artifact")
    promotions: tuple[int, str] = Field(description="Number of the last move, and digest of it")
    certificates: tuple[int, str] = Field(description="Lines of the log of certificates, and digest of the last")
    tombstones: tuple[str, ...] = Field(description="Digests of what must not come back")
    removed: tuple[str, ...] = Field(description="asset|partition|digest of removed artifacts")
    elections: dict[str, str] = Field(default={}, description="Digest of a published election -> SHA-256 of its file")

    @property
    def text(self) -> bytes:
        """The signed text."""
        return _PURPOSE + canonical_json(self.model_dump(mode="json", exclude=None if self.names_elections else _ADDED))

    @property
    def names_elections(self) -> bool:
        """Whether the elections that were published are in it; in version 1 they were not."""
        return self.schema_version > 1


def head_of(store: ArtifactStore, number: int = 1) -> StoreHead:
    """Compute the current head of a store.

    Raises:
        IntegrityError: the history of promotions or the log of certificates is broken.
        InputError: its checkpoints are encrypted and no key is given.
    """
    moves = PromotionLog(store).moves()
    lines = _certificates(store)
    return StoreHead(
        number=number,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        checkpoints=_checkpoints(store),
        results=_results(store),
        promotions=(len(moves), _digest(moves[-1].model_dump(mode="json")) if moves else ""),
        certificates=(len(lines), lines[-1] if lines else ""),
        tombstones=tuple(_tombstones(store)),
        removed=tuple(f"{one.asset}|{one.partition or ''}|{one.digest}" for one in removed(store)),
        elections=_elections(store),
    )


def rolled_back(store: ArtifactStore, head: StoreHead) -> list[str]:
    """Append-only content that a store had at the time of the head and lacks now; empty if nothing was lost.

    Raises:
        IntegrityError: as `head_of`.
    """
    now = head_of(store)
    moves, lines = PromotionLog(store).moves(), _certificates(store)
    missing = [*_former_versions(store, head), *_former_results(now, head), *_former_artifacts(store, now, head)]
    number, digest = head.promotions
    if number and (len(moves) < number or _digest(moves[number - 1].model_dump(mode="json")) != digest):
        missing.append(f"promotion {number} is not the one that was made: there are {len(moves)} now")
    number, digest = head.certificates
    if number and (len(lines) < number or lines[number - 1] != digest):
        missing.append(f"line {number} of the log of certificates is not what it was: there are {len(lines)} now")
    if gone := set(head.tombstones) - set(now.tombstones):
        missing.append(f"{len(gone)} tombstone(s) are gone: records that were forgotten can come back")
    missing += [f"the note that {name} was removed is gone" for name in sorted(set(head.removed) - set(now.removed))]
    return [*missing, *_former_elections(now, head)]


def write_head(file: Path, store: ArtifactStore, key: "Ed25519PrivateKey") -> StoreHead:
    """Sign the store's head into a file, after the head that is there.

    Raises:
        InputError: the head there is not this key's.
        IntegrityError: the store was rolled back since.
    """
    before = read_head(file, public_key(key)) if file.exists() else None
    if before is not None and (lost := rolled_back(store, before)):
        raise IntegrityError(f"the store is older than the head in {file}: {'; '.join(lost)}")
    head = head_of(store, before.number + 1 if before else 1)
    document = {"head": head.model_dump(mode="json"), "signature": signature_of(head.text, key)}
    write_bytes_atomic(file, canonical_json(document))
    return head


def read_head(file: Path, public: str, at_least: int = 1) -> StoreHead:
    """A head that was signed.

    Args:
        public: key of whoever signs (base64).
        at_least: number of a head that was seen before: an older head goes with an older store.

    Raises:
        InputError: no head, another's, or an older one.
    """
    try:
        document = strict_json(read_document(file, _LARGEST))
        head = StoreHead.model_validate(document["head"])
        signature = document["signature"]
    except OSError as error:
        raise InputError(f"cannot read the head {file}: {error.strerror}") from error
    except ValidationError as error:
        raise InputError(f"{file} is no head of a store: {in_words(error)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is no head of a store: it is {why_not_json(error)}") from error
    except (KeyError, TypeError) as error:
        raise InputError(f"{file} is no head of a store; `capibara checkpoint head --write` makes one") from error
    if not is_signature(signature, head.text, public):
        raise InputError(f"the head {file} is not signed by this key: it was changed, or is another's")
    if head.number < at_least:
        raise InputError(
            f"the head {file} has number {head.number}, and {at_least} was seen before: it is an older one"
        )
    return head


def _former_versions(store: ArtifactStore, head: StoreHead) -> Iterator[str]:
    if not has_checkpoints(store):
        yield from (f"the checkpoints of {model} are gone" for model in head.checkpoints)
        return
    checkpoints = checkpoints_of(store)
    by_version = {
        (one.manifest.about.model, one.version): {one.id, *one.manifest.aliases} for one in checkpoints.list()
    }
    for model, (number, identity) in sorted(head.checkpoints.items()):
        last = checkpoints.versions.next(checkpoints.versions.folder(model)) - 1
        known = by_version.get((model, number))
        if last < number:
            yield f"{model}@v{number} was there, and {f'v{last}' if last else 'nothing'} is the newest now"
        elif known is not None and identity not in known:
            yield f"{model}@v{number} is another checkpoint than {identity[:12]}"


def _former_elections(now: StoreHead, head: StoreHead) -> Iterator[str]:
    for name, digest in sorted(head.elections.items()):
        if name not in now.elections:
            yield f"the election {name} was published, and is gone: restore {ELECTIONS}/{name}.json"
        elif now.elections[name] != digest:
            yield f"the file of the election {name} is another than was published: restore {ELECTIONS}/{name}.json"


def _former_results(now: StoreHead, head: StoreHead) -> Iterator[str]:
    gone = {name.rpartition("|")[0]: name for name in now.removed}
    for name, (time, digest) in sorted(head.results.items()):
        if name not in now.results:
            if f"{name}|{digest}" not in now.removed and name not in gone:
                yield f"{name} was published {time}, and is no more"
        elif now.results[name][0] < time:
            yield f"{name} was published {time}; the latest one is of {now.results[name][0]}"
        elif now.results[name][0] == time and now.results[name][1] != digest:
            yield f"{name} of {time} was {digest[:12]}, and is {now.results[name][1][:12]} now"


def _former_artifacts(store: ArtifactStore, now: StoreHead, head: StoreHead) -> Iterator[str]:
    """Results that the head names and that are no longer whole; what was removed is noted."""
    for name, (_, digest) in sorted(head.results.items()):
        if f"{name}|{digest}" in now.removed:
            continue
        asset, _, partition = name.partition("|")
        try:
            yield from (f"{name}: {lack}" for lack in _lacks(store.open(asset, partition or None, digest)))
        except MissingArtifact:
            yield f"{name} {digest[:12]} is gone, and no note says that it was removed"
        except IntegrityError as error:
            yield f"{name}: {error}"


def _lacks(artifact: Artifact) -> Iterator[str]:
    """Files that an artifact lacks, or that are others: small ones by their bytes, others by their size."""
    elsewhere = artifact.manifest.elsewhere()
    for relative, entry in sorted(artifact.manifest.files.items()):
        if relative in elsewhere:
            continue
        try:
            if entry.bytes <= _READ:
                artifact.read_bytes(relative)
            elif (size := (artifact.path / relative).stat().st_size) != entry.bytes:
                yield f"{relative} has {size} bytes, {entry.bytes} were published"
        except IntegrityError as error:
            yield str(error)
        except FileNotFoundError:
            yield f"{relative} is missing"


def _checkpoints(store: ArtifactStore) -> dict[str, tuple[int, str]]:
    if not has_checkpoints(store):
        return {}
    newest: dict[str, tuple[int, str]] = {}
    for one in checkpoints_of(store).list():
        model = one.manifest.about.model
        newest[model] = max(newest.get(model, (0, "")), (one.version, one.id))
    return dict(sorted(newest.items()))


def _results(store: ArtifactStore) -> dict[str, tuple[str, str]]:
    """What the pointers name, and since when."""
    results = {}
    for asset in store.names():
        for partition in sorted({artifact.partition for artifact in store.list(asset)}, key=str):
            pointer = store.pointer(asset, partition)
            if pointer.exists():
                try:
                    stated = parse_json(read_stored(pointer))
                    results[f"{asset}|{partition or ''}"] = (str(stated["published"]), str(stated["digest"]))
                except (ValueError, KeyError, TypeError) as error:
                    raise IntegrityError(f"{pointer} is damaged: materialize {asset} again to replace it") from error
    return results


def _certificates(store: ArtifactStore) -> list[str]:
    file = Path(store.root.path) / LOG
    if not store.is_local or not file.exists():
        return []
    log = read_log(file)
    if log.problem:
        raise IntegrityError(f"{file}: {log.problem}")
    return [line.digest for line in log.lines]


def _elections(store: ArtifactStore) -> dict[str, str]:
    folder = store.root / ELECTIONS
    files = sorted(folder.glob("*.json"), key=lambda file: file.name) if folder.exists() else []
    return {file.name.removesuffix(".json"): sha256_bytes(read_stored(file)) for file in files}


def _tombstones(store: ArtifactStore) -> list[str]:
    return sorted(_digest(one) for one in read_tombstones(store))


def _digest(document: Mapping[str, Any]) -> str:
    return sha256_bytes(canonical_json(document))
