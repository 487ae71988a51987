"""The provenance of an adapter or merged model, its certificate, and the proof that a record is not in it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from capibara_assets.checkpoints.artifacts import checkpoints_of
from capibara_assets.consensus.rounds.adopted import RoundVoter, is_adopted, judged_on, round_voters
from capibara_assets.domains import DOMAINS
from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.forgotten import Forgotten
from capibara_assets.lineage.ancestors import parsed_source, upstream
from capibara_assets.lineage.attribution import COLUMNS, attribution
from capibara_assets.lineage.checkpoints import has_checkpoints
from capibara_assets.lineage.columns import columns, one_of
from capibara_assets.lineage.lost import absent_state, lost_models
from capibara_assets.lineage.records import MANY, ONE, Results
from capibara_assets.lineage.trails import Absence, AdapterTrail, DatasetState
from capibara_assets.lineage.voters import SEEN, Voter, dataset, voters_of
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.manifest import title_of
from capibara_assets.storage.removal import removed
from capibara_assets.storage.store import ArtifactStore, MissingArtifact

if TYPE_CHECKING:
    from capibara_assets.checkpoints.store.store import Checkpoint
    from capibara_assets.consensus.certificates.certificate import Remeasure, Verification
    from capibara_assets.consensus.certificates.public_record import PublicRecord

_VOTERS = "voters/"
_MODELS = ("trained_adapters", "consensus_checkpoint", "merged_checkpoint", "moe_checkpoint")


@dataclass(frozen=True)
class _ResolvedModel:
    """The model that a name or digest refers to, with the voters and datasets it comes from."""

    what: str
    name: str
    digest: str
    artifact: Artifact | None
    voters: tuple[tuple[Artifact | None, Voter], ...]
    datasets: frozenset[tuple[str, str]]
    """(domain, digest) of those that it names itself."""
    adopted: tuple[Artifact, ...] = ()
    """Results of rounds of several organisations that it is, or is made of."""
    lost: tuple[str, ...] = ()
    """What it comes from beside datasets, or which dataset of no known domain, and is not in the store."""

    def round_voters(self) -> list[RoundVoter]:
        """The accepted voters of those rounds."""
        return [voter for artifact in self.adopted for voter in round_voters(artifact)]


@dataclass(frozen=True)
class TracedAdapter:
    """The provenance of an adapter, and the artifacts read to establish it.

    Attributes:
        artifact: that it belongs to; None: there is none.
        seen: the train examples of its voters; None: no dataset is left.
    """

    trail: AdapterTrail
    artifact: Artifact | None
    seen: pl.DataFrame | None


def adapter_trail(results: Results, wanted: str) -> AdapterTrail:
    """The provenance of an adapter: the trail of `traced_adapter`, which raises the same."""
    return traced_adapter(results, wanted).trail


def traced_adapter(results: Results, wanted: str) -> TracedAdapter:
    """Find the provenance of an adapter; its datasets are read once.

    Args:
        wanted: `domain`, `domain/voter`, `merged_checkpoint`, `moe_checkpoint`, `domain/consensus`, a checkpoint
            (`model@v7`, or its id), or a digest of a voter's weights or of one of these artifacts; of ids and digests
            the first characters do.

    Raises:
        InputError: no adapter matches, or several do.
    """
    chosen = _choose(results, wanted)
    states = _datasets(results, chosen)
    seen, validated = _examples(results, chosen, states)
    owed = attribution(seen) if seen is not None else None
    settings: dict[str, str] = {}
    for artifact, _ in chosen.voters:
        stated: dict[str, Any] = artifact.manifest.inputs.get("settings", {}) if artifact is not None else {}
        settings |= stated
    trail = AdapterTrail(
        what=chosen.what,
        name=chosen.name,
        digest=chosen.digest,
        artifact=chosen.artifact.digest if chosen.artifact is not None else "",
        current=chosen.artifact is not None and results.is_current(chosen.artifact),
        voters=tuple(sorted({f"{voter.domain}/{voter.name} {voter.digest}" for _, voter in chosen.voters})),
        datasets=states,
        examples=seen.height if seen is not None else 0,
        validation=validated,
        executions=_all(seen, "execution_ids"),
        bullets=_all(seen, "bullet_ids"),
        licences=owed.licences if owed else {},
        sources=tuple((source, licence, n) for (source, licence), n in owed.sources.items()) if owed else (),
        tenants=owed.tenants if owed else {},
        base_model=tuple(sorted({voter.base for _, voter in chosen.voters})),
        seeds=tuple(sorted({voter.seed for _, voter in chosen.voters})),
        settings=dict(sorted(settings.items())),
        certificates=_certificates(results, chosen),
        round_voters=tuple(chosen.round_voters()),
        rounds={one.document("certificate")["context"]["round"]: judged_on(one) for one in chosen.adopted},
        unread=tuple(_unread(chosen, states)),
    )
    return TracedAdapter(trail, chosen.artifact, seen)


def _examples(
    results: Results, chosen: _ResolvedModel, states: Sequence[DatasetState]
) -> tuple[pl.DataFrame | None, int]:
    """Train examples of a model's voters (None: no dataset is present), and how many they were validated on."""
    trained, validated = list[pl.DataFrame](), list[pl.DataFrame]()
    for state in states:
        table = dataset(results.store, state.domain, state.digest)
        if table is None:
            continue
        frame = columns(table, "examples", list(dict.fromkeys([*SEEN, *COLUMNS])))
        of_it = [voter for _, voter in chosen.voters if (state.domain, state.digest) in voter.datasets]
        trained += [voter.trained(frame) for voter in of_it]
        validated += [voter.validated(frame) for voter in of_it if voter.domain == state.domain]
    seen = pl.concat(trained).unique("example_id", maintain_order=True) if trained else None
    return seen, pl.concat(validated)["example_id"].n_unique() if validated else 0


def absence(results: Results, wanted: str, execution_ids: Sequence[str], forgotten: Forgotten) -> Absence:
    """Check that executions are in no split of any dataset that an adapter or model was made from.

    The datasets are read whole and checked against their manifests, whose digests the certificate names.

    Args:
        execution_ids: ids to check, or prefixes of one id of the current tables or datasets; capitals do not count.
        forgotten: all tombstones, whose executions may not be in a dataset either.

    Raises:
        InputError: no such adapter; an id that is blank, or a prefix of several.
        IntegrityError: a dataset is not what was published.
    """
    chosen = _choose(results, wanted)
    states = _datasets(results, chosen)
    present, unknown, checked, read = set[str](), list(chosen.lost), set[str](), list[str]()
    for state in states:
        name = f"moe_dataset|{state.domain} {state.digest}"
        artifact = dataset(results.store, state.domain, state.digest)
        if artifact is None:
            unknown.append(f"{name} ({state.state})")
            continue
        artifact.verify()
        read.append(name)
        inside = executions_in(artifact)
        checked |= inside
        present |= set(forgotten.among(inside))
    # What organisations have trained on lies with them; what they say of it proves nothing.
    unknown += [f"data of {one.domain}/{one.name} of round {one.round}" for one in chosen.round_voters()]
    if not states and not unknown:
        unknown.append(f"data of {chosen.name}: nothing names the dataset that it was made from")
    logs = results.get("e2b_logs")
    known = checked | (set() if logs is None else set(columns(logs, "executions", ["execution_id"])["execution_id"]))
    ids = {one: _known_id(one, known) for one in execution_ids}
    present |= checked & set(ids.values())
    never = tuple(one for one, known_as in ids.items() if known_as is None and not forgotten.holds(one))
    absent = not present and not unknown
    return Absence(absent, tuple(sorted(present)), tuple(unknown), tuple(read), len(checked), never)


def _known_id(wanted: str, known: Collection[str]) -> str | None:
    """The id that is meant; None where no execution has it, or one that begins so."""
    if wanted in known:
        return wanted
    begins = wanted.strip().casefold()
    if not begins:
        raise InputError("an execution's id is blank: give the id, or the beginning of it")
    alike = sorted(one for one in known if one.casefold().startswith(begins))
    if len(alike) > 1:
        raise InputError(
            f"{wanted!r} begins the ids of {len(alike)} executions, {alike[0]} among them: give more of it"
        )
    return alike[0] if alike else None


def verify_published(
    store: ArtifactStore,
    consensus: Artifact,
    keys: Mapping[str, str] | None = None,
    remeasure: "Remeasure | None" = None,
    record: "PublicRecord | None" = None,
) -> "Verification":
    """Verify a `consensus_checkpoint`: its certificate, its adapter, and its voters where they are still in the store.

    Args:
        keys: signer -> public key that is known from elsewhere.
        remeasure: makes the choice again, from base model and examples.
        record: the election that was published, and the log of certificates.

    Returns:
        The verification; voters that were removed because a record was forgotten are in `forgotten`.

    Raises:
        IntegrityError: the artifact is not what was published.
    """
    from capibara_assets.consensus.certificates.certificate import parse_certificate, verify_certificate

    certificate = parse_certificate(consensus.document("certificate"))
    try:
        of_others = is_adopted(consensus)
        attested = "" if of_others else certificate.context["trained_adapters"]
        adapters = consensus if of_others else store.open("trained_adapters", consensus.partition, attested)
    except (MissingArtifact, KeyError):
        voters = None
    else:
        folder = adapters.directory("voters")
        voters = {voter.name: folder / voter.name for voter in certificate.voters}
    return verify_certificate(
        certificate,
        voters,
        result=consensus.directory("adapter"),
        forgotten={gone.digest for gone in removed(store)},
        keys=keys,
        remeasure=remeasure,
        record=record,
    )


def executions_in(artifact: Artifact) -> set[str]:
    """Ids of all executions in the tables of an artifact."""
    ids: set[str] = set()
    for relative in artifact.manifest.files:
        if relative.endswith(".parquet") and "/" not in relative:
            for column in columns(artifact, relative.removesuffix(".parquet"), [*ONE, *MANY]).get_columns():
                ids |= set((column.explode() if column.dtype == pl.List else column).drop_nulls())
    return ids


def forgotten_datasets(results: Results) -> set[tuple[str, str]]:
    """(domain, digest) of the datasets that were removed."""
    return {(str(gone.partition), gone.digest) for gone in removed(results.store, "moe_dataset")}


def _choose(results: Results, wanted: str) -> _ResolvedModel:
    if "@" in wanted:
        return _by_digest(results, checkpoints_of(results.store).open(wanted).id)
    domain, _, rest = wanted.partition("/")
    if domain in DOMAINS:
        name = "consensus_checkpoint" if rest in ("consensus", "consensus_checkpoint") else "trained_adapters"
        artifact = results.get(name, domain)
        if artifact is None:
            raise InputError(f"{name}[{domain}] is not materialized: `capibara run --domains {domain}` makes it")
        if name == "consensus_checkpoint" or not rest:
            return _of_artifact(results, artifact)
        voters = {voter.name: voter for voter in voters_of(artifact)}
        return _voter(artifact, voters[one_of("voter", rest, voters, f"those of {domain} are named here")])
    if wanted in _MODELS and (whole := results.get(wanted)) is not None:
        return _of_artifact(results, whole)
    return _by_digest(results, wanted)


def _by_digest(results: Results, wanted: str) -> _ResolvedModel:
    """Resolve a digest or a checkpoint's id; checkpoints that no artifact names are searched last."""
    every = {(a.name, a.partition, a.digest): a for name in _MODELS for a in results.store.list(name)}
    voters = {
        voter.digest: (artifact, voter)
        for (name, *_), artifact in every.items()
        if name == "trained_adapters"
        for voter in voters_of(artifact)
    }
    by_digest = {artifact.digest: artifact for artifact in every.values()}
    named = {identity: (a, folder) for a in every.values() for folder, identity in a.checkpoints.items()}
    unnamed: dict[str, Checkpoint] = {}
    known = [*voters, *by_digest, *named]
    if not any(name.startswith(wanted) for name in known) and has_checkpoints(results.store):
        unnamed = {one.id: one for one in checkpoints_of(results.store).list()}
    hint = "name a domain, domain/voter, domain/consensus, merged_checkpoint, a digest, or a checkpoint's id"
    digest = one_of("adapter", wanted, [*known, *unnamed], hint)
    if digest in unnamed:
        return _of_checkpoint(results, unnamed[digest])
    if digest in named:
        artifact, folder = named[digest]
        if not folder.startswith(_VOTERS):
            return _of_artifact(results, artifact)
        return next(_voter(artifact, one) for one in voters_of(artifact) if one.name == folder.removeprefix(_VOTERS))
    return _voter(*voters[digest]) if digest in voters else _of_artifact(results, by_digest[digest])


def _voter(artifact: Artifact, voter: Voter) -> _ResolvedModel:
    name = f"{voter.domain}/{voter.name}"
    return _ResolvedModel("voter", name, voter.digest, artifact, ((artifact, voter),), _judged_by(artifact))


def _of_artifact(results: Results, artifact: Artifact) -> _ResolvedModel:
    name = title_of(artifact.name, artifact.partition)
    voters = tuple(_voters_behind(results, artifact))
    adopted = tuple(_adopted_behind(results, artifact))
    lost = tuple(lost_models(results.store, artifact))
    return _ResolvedModel(artifact.name, name, artifact.digest, artifact, voters, _judged_by(artifact), adopted, lost)


def _judged_by(artifact: Artifact) -> frozenset[tuple[str, str]]:
    return frozenset((n.partition, n.digest) for n in upstream(artifact.manifest) if n.asset == "moe_dataset")


def _of_checkpoint(results: Results, checkpoint: "Checkpoint") -> _ResolvedModel:
    """Resolve a checkpoint by its manifest: its sources, and the voter of its recipe that a tag names."""
    about, voters, datasets = checkpoint.manifest.about, list[tuple[Artifact | None, Voter]](), set[tuple[str, str]]()
    adopted, lost = list[Artifact](), list[str]()
    for source, digest in about.sources.items():
        asset, partition = parsed_source(source)
        if asset == "moe_dataset" and partition in DOMAINS:
            datasets.add((partition, digest))
        elif asset in _MODELS and (made := results.store.find(asset, partition, digest)) is not None:
            voters += _voters_behind(results, made)
            adopted += _adopted_behind(results, made)
            lost += lost_models(results.store, made)
        elif asset in _MODELS:
            lost.append(f"{source} {digest} ({absent_state(results.store, asset, digest)})")
    if about.dataset_digest is not None and about.dataset_digest not in {digest for _, digest in datasets}:
        of_it = _with_domain(results, about.model, about.dataset_digest)
        datasets |= of_it
        lost += [] if of_it else [f"dataset {about.dataset_digest} (not one of this store)"]
    registered = (about.recipe or {}).get("voters", [])
    for domain, digest in sorted(datasets):
        for spec in registered if digest == about.dataset_digest else ():
            if spec["name"] in about.tags:
                voter = Voter(
                    domain=domain,
                    name=spec["name"],
                    digest=checkpoint.id,
                    artifact="",
                    dataset=digest,
                    shard=spec["shard"],
                    of=len(registered),
                    seed=(about.recipe or {})["seed"],
                    voter_seed=spec["seed"],
                    base=about.base_digest or "",
                )
                voters.append((None, voter))
    name = f"{about.model}@v{checkpoint.version}"
    named = frozenset(datasets)
    return _ResolvedModel(
        "checkpoint", name, checkpoint.id, None, tuple(voters), named, tuple(adopted), tuple(dict.fromkeys(lost))
    )


def _with_domain(results: Results, model: str, digest: str) -> set[tuple[str, str]]:
    """(domain, digest) of a dataset given by digest only; models of the graph are named `domain/voter`."""
    domain = model.partition("/")[0]
    domains = [domain] if domain in DOMAINS else [one.value for one in DOMAINS if dataset(results.store, one, digest)]
    return {(one, digest) for one in domains[:1]}


def _voters_behind(results: Results, artifact: Artifact) -> Iterable[tuple[Artifact, Voter]]:
    """The voters that an artifact holds, or that the consensus upstream of it accepted."""
    if artifact.name == "trained_adapters":
        yield from ((artifact, voter) for voter in voters_of(artifact))
        return
    accepted = None
    if artifact.name == "consensus_checkpoint":
        accepted = {v["name"] for v in artifact.document("certificate")["voters"] if v["accepted"]}
    wanted = {"consensus_checkpoint": "trained_adapters"}.get(artifact.name, "consensus_checkpoint")
    for node in upstream(artifact.manifest):
        if node.asset != wanted or not node.digest:
            continue
        parent = results.store.find(node.asset, None if node.partition == "_" else node.partition, node.digest)
        if parent is None:
            continue
        for owner, voter in _voters_behind(results, parent):
            if accepted is None or voter.name in accepted:
                yield owner, voter


def _adopted_behind(results: Results, artifact: Artifact) -> Iterable[Artifact]:
    """The results of rounds that an artifact is, or that were merged into it."""
    if artifact.name == "consensus_checkpoint":
        yield from (artifact,) if is_adopted(artifact) else ()
        return
    for node in upstream(artifact.manifest):
        if node.asset == "consensus_checkpoint" and node.digest:
            parent = results.store.find(node.asset, node.partition, node.digest)
            if parent is not None and is_adopted(parent):
                yield parent


def _datasets(results: Results, chosen: _ResolvedModel) -> tuple[DatasetState, ...]:
    """The datasets a model was trained on; of a model of several adapters also those that judged them."""
    named = chosen.datasets | {one for _, voter in chosen.voters for one in voter.datasets}
    gone = forgotten_datasets(results)
    return tuple(
        DatasetState(
            domain,
            digest,
            "present"
            if dataset(results.store, domain, digest)
            else ("forgotten" if (domain, digest) in gone else "missing"),
        )
        for domain, digest in sorted(named)
        if digest
    )


def _unread(chosen: _ResolvedModel, states: Sequence[DatasetState]) -> Iterable[str]:
    """What a model was made from and that cannot be read here, with why."""
    yield from (f"moe_dataset[{one.domain}] {one.digest} ({one.state})" for one in states if one.state != "present")
    yield from chosen.lost


def _certificates(results: Results, chosen: _ResolvedModel) -> dict[str, str]:
    digests = {str(one.partition): one.document("certificate")["digest"] for one in chosen.adopted}
    trained = {(voter.domain, artifact.digest) for artifact, voter in chosen.voters if artifact is not None}
    for artifact in results.store.list("consensus_checkpoint"):
        certificate = artifact.document("certificate")
        if (str(artifact.partition), certificate["context"].get("trained_adapters")) in trained:
            digests[str(artifact.partition)] = certificate["digest"]
    return digests


def _all(frame: pl.DataFrame | None, column: str) -> tuple[str, ...]:
    return tuple(sorted(frame[column].explode().drop_nulls().unique())) if frame is not None else ()
