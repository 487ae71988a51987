"""A certificate of a real vote with one liar, what it was made from, and copies of it to spoil."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capibara_assets.consensus.agree import Agreement, agree
from capibara_assets.consensus.certificates.certificate import certify, sealed
from capibara_assets.consensus.certificates.model import Certificate, stated_election
from capibara_assets.consensus.election.ballots import new_key, public_key, signed
from capibara_assets.consensus.election.confirmations import ballots_digest, confirmed
from capibara_assets.consensus.election.keys import register, write_new_key
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens, changed
from capibara_assets_tests.consensus.in_process import hold_here

Agreed = tuple[Path, dict[str, Path], Path]


@pytest.fixture(scope="module")
def original(
    tiny: Base,
    honest: dict[str, LoraAdapter],
    validation: list[Tokens],
    shards: dict[str, list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Agreement]:
    """A certificate of a vote with one liar, the published adapter beside it, and the voters elsewhere."""
    folder = tmp_path_factory.mktemp("agreed")
    for name, adapter in {**honest, "voter-2": changed(honest["voter-2"], -1.0)}.items():
        write_adapter(adapter, folder / "inputs" / name)
    voters = {name: folder / "inputs" / name for name in honest}
    context = {"domain": "python", "data": "a" * 64}
    agreement = agree(tiny, voters, validation, shards, ConsensusRecipe(), context, hold=hold_here)
    certify(agreement, folder)
    return folder, agreement


@pytest.fixture
def agreed(original: tuple[Path, Agreement], tmp_path: Path) -> Agreed:
    """A copy of it: certificate, voters, published adapter."""
    shutil.copytree(original[0], tmp_path / "copy")
    folder = tmp_path / "copy"
    voters = {path.name: path for path in sorted((folder / "inputs").iterdir())}
    return folder / "certificate.json", voters, folder / "adapter"


def registered(folder: Path, adapters: Mapping[str, LoraAdapter]) -> dict[str, Path]:
    """Voters' adapters on disk, each voter with a key of its own that is registered in the folder's `keys`."""
    (folder / "keys").mkdir(mode=0o700)
    for name, adapter in adapters.items():
        write_adapter(adapter, folder / "voters" / name)
        register(folder / "keys" / "registry.json", name, write_new_key(name, folder / "keys" / f"{name}.key"))
    return {name: folder / "voters" / name for name in adapters}


def voted_again(
    certificate: Certificate, keys: Mapping[str, Ed25519PrivateKey] | None = None, **changes: Any
) -> Certificate:
    """The certificate with other content as if it had been voted on: all signed by keys that are made up for it."""
    changed = certificate.model_copy(update=changes)
    election = stated_election(changed).digest
    own = {voter.name: new_key() for voter in changed.voters} if keys is None else keys
    ballots = tuple(
        signed(ballot.model_copy(update={"election": election}), own[ballot.voter]) for ballot in changed.ballots
    )
    named = {"election": election, "ballots": ballots_digest(ballots)}
    confirmations = tuple(confirmed(one.model_copy(update=named), own[one.voter]) for one in changed.confirmations)
    voters = tuple(v.model_copy(update={"public_key": public_key(own[v.name])}) for v in changed.voters)
    update = {"election": election, "ballots": ballots, "voters": voters, "confirmations": confirmations}
    return sealed(changed.model_copy(update=update))
