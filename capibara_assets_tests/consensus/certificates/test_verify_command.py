"""What a process of `capibara consensus verify` ends with: 0 proven, 3 with reservations, 1 and 2 refused."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.cli.main import main
from capibara_assets.consensus import agree_on_artifacts
from capibara_assets.consensus.agree import VOLATILE, agree
from capibara_assets.consensus.certificates.certificate import certify, parse_certificate, sealed, write_certificate
from capibara_assets.consensus.election.keys import VoterKeys, register, write_new_key
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.datasets.schema import Example
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base
from capibara_assets.storage.records import table
from capibara_assets.storage.store import ArtifactStore
from capibara_assets_tests.consensus.certificates.conftest import registered
from capibara_assets_tests.consensus.conftest import Tokens
from capibara_assets_tests.consensus.in_process import hold_here

VERSION_1 = Path(__file__).parent / "certificate_1.json"
PROVEN, REFUSED, WRONG_CALL, RESERVED = 0, 1, 2, 3
Verify = Callable[..., tuple[int, str]]
Hold = Callable[..., Path]


@pytest.fixture
def verify(
    tmp_path: Path, tiny: Base, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Verify:  # fmt: skip
    """The console script's entry point: the code that its process ends with, and all that it said.

    In this process: one that is forked cannot read tables, and one of its own knows nothing of the examples here.
    """
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CAPIBARA_BASE_MODEL", str(tiny.path))
    monkeypatch.setenv("DAGSTER_HOME", "")

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["capibara", "consensus", "verify", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, "".join(capsys.readouterr())

    return call


@pytest.fixture
def hold(tiny: Base, validation: list[Tokens], shards: dict[str, list[int]], tmp_path: Path) -> Hold:
    """A vote of registered voters in a folder, with everything that verifying needs beside its certificate."""

    def held(adapters: dict[str, LoraAdapter], **settings: Any) -> Path:
        (folder := tmp_path / "vote").mkdir()
        voters, keys = registered(folder, adapters), VoterKeys.of(folder / "keys")
        own = {name: shards[name] for name in adapters}
        recipe = ConsensusRecipe.model_validate(settings)
        certify(agree(tiny, voters, validation, own, recipe, {}, keys=keys, hold=hold_here), folder)
        return folder

    return held


def keys_of(folder: Path) -> tuple[str, Path]:
    return "--keys", folder / "keys" / "registry.json"


@pytest.fixture
def published(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> tuple[Path, Path]:  # fmt: skip
    """The folder of a vote's keys, and its certificate in the deployment's store, with all that it was made from."""
    store, folder = ArtifactStore(tmp_path / "home" / "store"), tmp_path / "vote"
    folder.mkdir()
    voters = registered(folder, honest)
    trained = store.publish("trained_adapters", "sql", trees={"voters": folder / "voters"})
    dataset = store.publish("moe_dataset", "sql", tables={"examples": (Example, table(Example, []))})
    context = {"domain": "sql", "trained_adapters": trained.digest, "moe_dataset": dataset.digest}
    agreement = agree(
        tiny, voters, validation, shards, ConsensusRecipe(), context, keys=VoterKeys.of(folder / "keys"), hold=hold_here
    )
    certify(agreement, folder)
    consensus = store.publish(
        "consensus_checkpoint", "sql", trees={"adapter": folder / "adapter"}, documents=agreement.documents(),
        volatile=VOLATILE,
    )  # fmt: skip
    # the examples are tokens, as the voters read them: the base model here knows no text
    monkeypatch.setattr(agree_on_artifacts, "validation_shards", lambda *_: (validation, shards))
    (file,) = (tmp_path / "home" / "store" / "artifacts").glob(f"*/sql/{consensus.digest}/certificate.json")
    return folder, file


def test_all_is_proven_with_registered_keys_and_losses_measured_again(
    published: tuple[Path, Path], verify: Verify
) -> None:
    folder, file = published
    code, said = verify(file, *keys_of(folder), "--remeasure")
    assert code == PROVEN and "the certificate holds\n" in said, said
    assert "could not be checked" not in said and "proves less than usual" not in said
    code, said = verify(file, *keys_of(folder))
    assert code == RESERVED and "measure them again (--remeasure)" in said, said
    code, said = verify(file, "--remeasure")
    assert code == RESERVED and "whose keys these are: give the public keys" in said, said
    (folder / "own").mkdir(mode=0o700)
    for voter in json.loads(file.read_text())["voters"]:
        own = write_new_key(voter["name"], folder / "own" / f"{voter['name']}.key")
        register(folder / "own" / "registry.json", voter["name"], own)
    code, said = verify(file, "--keys", folder / "own" / "registry.json", "--remeasure")
    assert code == REFUSED and "does not hold" in said, said


def _only(known: Any, value: Any) -> Any:
    """What of a document the example of its first version has, too."""
    if isinstance(value, dict) and isinstance(known, dict):
        return {name: _only(known[name], of) for name, of in value.items() if name in known}
    if isinstance(value, list) and isinstance(known, list) and known:
        return [_only(known[0], each) for each in value]
    return value


def stripped(file: Path) -> Path:
    """A certificate without anything that version 1 has not, sealed again, as whoever holds the file can."""
    known = json.loads(VERSION_1.read_text())
    document = _only({**known, "evidence": None, "context": {}}, json.loads(file.read_text()))
    to = file.with_name("stripped.json")
    write_certificate(sealed(parse_certificate({**document, "schema_version": 1})), to)
    assert b"signature" not in to.read_bytes() and b"public_key" not in to.read_bytes()
    return to


def test_a_certificate_of_today_stripped_whole_to_version_1_is_refused_with_keys_and_never_proven(
    hold: Hold, honest: dict[str, LoraAdapter], verify: Verify
) -> None:
    folder = hold(honest)
    bare = stripped(folder / "certificate.json")
    code, said = verify(bare, *keys_of(folder))
    assert code == WRONG_CALL and "a certificate of version 1 has no keys to compare with those given" in said, said
    for beside in ((), ("--voters", folder / "voters"), ("--result", folder / "adapter")):
        code, said = verify(bare, *beside)
        assert code in (RESERVED, REFUSED) and "signatures: version 1 has none" in said, said
    only = folder / "only"
    only.mkdir()
    code, said = verify(bare.rename(only / "certificate.json"))
    assert code == RESERVED and "the certificate holds, with reservations" in said, said
    code, said = verify(folder / "certificate.json", *keys_of(folder))
    assert code == RESERVED and "signatures" in said, "the one that it was made from still holds"


def test_two_voters_alone_stand_no_liar_and_that_is_said(
    hold: Hold, honest: dict[str, LoraAdapter], verify: Verify
) -> None:
    folder = hold(dict(list(honest.items())[:2]))
    code, said = verify(folder / "certificate.json", *keys_of(folder))
    assert code == RESERVED and "that a liar does no harm: 2 voters stand none, it takes four" in said, said


def test_a_vote_without_tolerance_for_faults_says_so(
    hold: Hold, honest: dict[str, LoraAdapter], verify: Verify
) -> None:
    folder = hold(honest, fault_tolerance=0.0)
    code, said = verify(folder / "certificate.json", *keys_of(folder))
    assert code == RESERVED and "that a liar does no harm: f is 0, 4 voters stand 1" in said, said


def test_numbers_of_hundreds_of_digits_are_no_traceback(
    hold: Hold, honest: dict[str, LoraAdapter], verify: Verify
) -> None:
    file = hold(honest) / "certificate.json"
    sound = file.read_text()
    for field in ("n", "iterations", "residual", "all_tokens", "loss"):
        longer = re.sub(rf'"{field}": -?\d[\d.e-]*', f'"{field}": 1{"0" * 400}', sound, count=1)
        assert longer != sound, field
        file.write_text(longer)
        code, said = verify(file)
        assert code == WRONG_CALL and "is ambiguous: a whole number has 401 digits" in said, said
        assert "Traceback" not in said
    file.write_text(sound.replace('"kept": ', f'"was": 1{"0" * 400}, "kept": ', 1))  # in an attempt
    assert verify(file)[0] == WRONG_CALL
    file.write_text(sound)
    assert verify(file)[0] == RESERVED


def test_a_file_that_cannot_be_read_is_named_by_a_path_that_exists(
    hold: Hold, honest: dict[str, LoraAdapter], verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = hold(honest)
    monkeypatch.chdir(folder.parent)
    here = Path(folder.name)
    assert verify(here / "certificate.json")[0] == RESERVED
    os.mkfifo(folder / "voters" / "voter-1" / "manifest.json")
    code, said = verify(here / "certificate.json")
    where = folder.resolve() / "voters" / "voter-1"
    assert code == REFUSED and f"voter-1: its adapter in {where} is unreadable: manifest.json is no file but" in said
    assert str(folder.parent / "manifest.json") not in said


def test_a_changed_certificate_and_one_that_is_none_are_refused(
    hold: Hold, honest: dict[str, LoraAdapter], verify: Verify
) -> None:
    file = hold(honest) / "certificate.json"
    document = json.loads(file.read_text())
    document["ballots"][0]["quality"] = 0.123
    file.write_text(json.dumps(document))
    code, said = verify(file)
    assert code == REFUSED and "does not hold" in said, said
    file.write_text("[" * 100_000)
    code, said = verify(file)
    assert code == WRONG_CALL and "nested too deeply" in said and "Traceback" not in said, said
