"""What the consensus asset leaves around its vote: election, log, one certificate, and of private keys nothing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from capibara_assets.assets.consensus import consensus_checkpoint
from capibara_assets.consensus import agree_on_artifacts as artifacts_module
from capibara_assets.consensus.agree import Agreement, agree
from capibara_assets.consensus.certificates.certificate import sealed, verify_certificate
from capibara_assets.consensus.certificates.certificate_log import read_log
from capibara_assets.consensus.certificates.public_record import PublicRecord
from capibara_assets.consensus.election.keys import read_private_key, read_registry, register, write_new_key
from capibara_assets.datasets.schema import Example
from capibara_assets.domains import Domain
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.resources import BaseModel, Recipes
from capibara_assets.storage.records import table
from capibara_assets_tests.consensus.choose.test_experts import example
from capibara_assets_tests.consensus.conftest import Tokens, honest, shards, validation
from capibara_assets_tests.consensus.conftest import deeper as tiny
from capibara_assets_tests.consensus.in_process import hold_here
from capibara_assets_tests.published import Published

__all__ = ["honest", "shards", "tiny", "validation"]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """Its history lies in files."""
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster"))) as made:
        yield made


def _run(published: Published, base: Path) -> None:
    dg.materialize(
        [consensus_checkpoint],
        instance=published.instance,
        partition_key="python",
        resources={
            "store": published.store, "recipes": Recipes(profile="demo", folder=""),
            "base_model": BaseModel(location=str(base)),
        },
    )  # fmt: skip


def test_election_log_and_keys_of_a_run(
    instance: dg.DagsterInstance, tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens],
    shards: dict[str, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    published = Published.afresh(instance, tmp_path)
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    for name, adapter in honest.items():
        write_adapter(adapter, tmp_path / "voters" / name)
        register(keys / "registry.json", name, write_new_key(name, keys / f"{name}.key"))
    published.put("moe_dataset", Domain.PYTHON, tables={"examples": (Example, table(Example, [example(0)]))})
    published.put(
        "trained_adapters", Domain.PYTHON, trees={"voters": tmp_path / "voters"}, documents={"summary": {"missing": []}}
    )
    monkeypatch.setenv("CAPIBARA_VOTER_KEYS", str(keys))
    made: list[Agreement] = []

    def agreeing(base: Base, adapters: Any, dataset: Any, recipe: Any, own: Any, announce: Any) -> Agreement:
        folders = {name: adapters.directory("voters") / name for name in honest}
        made.append(
            agree(base, folders, validation, shards, recipe, {"domain": "python", "trained_adapters": adapters.digest},
                  keys=own, announce=announce, hold=hold_here)
        )  # fmt: skip
        return made[-1]

    monkeypatch.setattr(artifacts_module, "agree_on_artifacts", agreeing)
    _run(published, tiny.path)
    store = tmp_path / "store"
    certificate = made[0].certificate
    record = PublicRecord.read(store / "elections" / f"{certificate.election}.json", store / "certificates.jsonl", None)
    found = verify_certificate(certificate, keys=read_registry(keys / "registry.json"), record=record)
    assert found.problems == () and not any("key" in line for line in found.unchecked)

    second = sealed(certificate.model_copy(update={"seeds": {"x": 1}}))
    monkeypatch.setattr(artifacts_module, "agree_on_artifacts", lambda *_: replace(made[0], certificate=second))
    _run(published, tiny.path)
    assert read_log(store / "certificates.jsonl").of(certificate.election) == (certificate.digest, second.digest)

    said = capfd.readouterr()
    places = [*tmp_path.rglob("*"), *Path(instance.root_directory).rglob("*")]
    everything = [file.read_bytes() for file in places if file.is_file() and keys not in file.parents]
    everything.append((said.out + said.err).encode())
    assert any(certificate.digest.encode() in data for data in everything) and any(b"SQLite" in d for d in everything)
    for file in keys.glob("*.key"):
        raw = read_private_key(file).private_bytes_raw()
        for secret in (raw, raw.hex().encode(), file.read_bytes().splitlines()[1][-40:]):
            assert not any(secret in data for data in everything)
