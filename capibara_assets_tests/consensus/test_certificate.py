"""Certificates: written, read, verified from the inputs, and any tampering found."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate

from capibara_assets.consensus.agree import agree
from capibara_assets.consensus.certificate import (
    Certificate,
    json_schema,
    read_certificate,
    sealed,
    verify_certificate,
    write_certificate,
)
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens, changed

Writer = Callable[[Mapping[str, LoraAdapter]], dict[str, Path]]


@pytest.fixture
def agreed(
    tiny: Base,
    honest: dict[str, LoraAdapter],
    validation: list[Tokens],
    shards: dict[str, list[int]],
    on_disk: Writer,
    tmp_path: Path,
) -> tuple[Path, dict[str, Path], Path]:
    """A certificate of a vote with one liar, its voters, and the published adapter."""
    voters = on_disk({**honest, "voter-2": changed(honest["voter-2"], -1.0)})
    agreement = agree(tiny, voters, validation, shards, ConsensusRecipe(), {"domain": "python", "data": "a" * 64})
    write_certificate(agreement.certificate, tmp_path / "certificate.json")
    write_adapter(agreement.adapter, tmp_path / "adapter")
    return tmp_path / "certificate.json", voters, tmp_path / "adapter"


def test_a_certificate_verifies_from_its_inputs(agreed: tuple[Path, dict[str, Path], Path]) -> None:
    path, voters, adapter = agreed
    alone = verify_certificate(path)
    assert alone.ok and "result" not in alone.recomputed
    full = verify_certificate(path, voters, result=adapter)
    assert full.problems == ()
    assert {"result", "attestation", "published adapter"} <= set(full.recomputed)
    validate(json.loads(path.read_text()), json_schema())
    document = json.loads(path.read_text())
    assert document["trust_model"] == "single-operator"
    assert {voter["name"]: voter["accepted"] for voter in document["voters"]} == {
        "voter-0": True, "voter-1": True, "voter-2": False, "voter-3": True,
    }  # fmt: skip
    before = path.read_bytes()
    write_certificate(read_certificate(path), path)
    assert path.read_bytes() == before


def _first_voter(document: dict[str, Any], **changes: Any) -> None:
    document["voters"][0] |= changes


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (lambda d: d["ballots"][0].update(quality=0.123), "quality 0.1230 stated"),
        (lambda d: d["ballots"][0].update(loss=d["ballots"][0]["base_loss"] + 1), "from its losses"),
        (lambda d: d["voters"][2].update(accepted=True, stage="accepted"), "the ballots accept"),
        (lambda d: d["thresholds"].update(quality=1.0), "the tallies are not what the ballots add up to"),
        (lambda d: d["ballots"].pop(), "tallies"),
        (lambda d: d.update(f=0, quorum=1), "n, f, quorum are 4, 1, 3"),
        (lambda d: d.update(rule="median"), "the rule makes adapter"),
        (lambda d: d["result"].update(digest="0" * 64), "the rule makes adapter"),
        (lambda d: _first_voter(d, digest="0" * 64), "voter-0: digest is"),
        (lambda d: _first_voter(d, weight=0.9), "voter-0: its weight is"),
        (lambda d: _first_voter(d, norm=1.5), "voter-0: the norm"),
        (lambda d: _first_voter(d, accepted=False, stage="attestation", reason="not finite"), "voter-0: attestation"),
    ],
)
def test_tampering_is_found_even_when_resealed(
    tamper: Callable[[dict[str, Any]], Any], words: str, agreed: tuple[Path, dict[str, Path], Path]
) -> None:
    path, voters, _ = agreed
    document = json.loads(path.read_text())
    tamper(document)
    path.write_text(json.dumps(document))
    problems = verify_certificate(path).problems
    assert problems[0] == "the certificate's content is not what its digest states: it was changed"
    # Whoever can edit the file can also renew its digest: the inputs still tell
    resealed = sealed(Certificate.model_validate(document))
    found = verify_certificate(resealed, voters).problems
    assert any(words in problem for problem in found), found


def test_changed_inputs_are_found(agreed: tuple[Path, dict[str, Path], Path], honest: dict[str, LoraAdapter]) -> None:
    path, voters, adapter = agreed
    write_adapter(changed(honest["voter-1"], 1.01), voters["voter-1"])
    problems = verify_certificate(path, voters).problems
    assert any(problem.startswith("voter-1: digest is") for problem in problems)
    assert any(problem.startswith("the rule makes adapter") for problem in problems)
    write_adapter(honest["voter-0"], adapter)
    assert any("published adapter" in problem for problem in verify_certificate(path, result=adapter).problems)
    missing = {name: folder for name, folder in voters.items() if name != "voter-3"}
    assert "no folder given for voter voter-3" in verify_certificate(path, missing).problems


def test_inputs_that_were_forgotten_are_named_and_no_problem(agreed: tuple[Path, dict[str, Path], Path]) -> None:
    path, voters, adapter = agreed
    assert verify_certificate(path, voters, result=adapter).forgotten == ()
    found = verify_certificate(path, voters, result=adapter, forgotten={"a" * 64, "b" * 64})
    assert found.ok and found.forgotten == ("data",)


def test_what_is_no_certificate(tmp_path: Path, agreed: tuple[Path, dict[str, Path], Path]) -> None:
    file = tmp_path / "other.json"
    with pytest.raises(InputError, match="is not a certificate"):
        read_certificate(file)
    file.write_text('{"schema_version": 1}')
    with pytest.raises(InputError, match="is not a certificate"):
        read_certificate(file)
    document = json.loads(agreed[0].read_text())
    file.write_text(json.dumps({**document, "schema_version": 99}))
    with pytest.raises(InputError, match="schema version 99"):
        read_certificate(file)
