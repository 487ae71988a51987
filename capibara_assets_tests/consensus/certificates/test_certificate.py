"""Certificates: written, read, verified from the inputs, and any tampering found."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import validate

from capibara_assets.consensus.agree import Agreement
from capibara_assets.consensus.certificates import certificate as certificates
from capibara_assets.consensus.certificates.certificate import (
    certify,
    json_schema,
    parse_certificate,
    read_certificate,
    sealed,
    verify_certificate,
    write_certificate,
)
from capibara_assets.consensus.certificates.model import Certificate, content_digest, stated_election
from capibara_assets.consensus.electorate import attest_voters
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.certificates.conftest import Agreed, voted_again
from capibara_assets_tests.consensus.conftest import changed


def test_a_certificate_verifies_from_its_inputs(agreed: Agreed) -> None:
    path, voters, adapter = agreed
    beside = verify_certificate(path)
    assert beside.ok and "published adapter" in beside.recomputed and "result" not in beside.recomputed
    assert any(line.startswith("attestation and the candidates") for line in beside.unchecked)
    shutil.copy(path, path.parent / "inputs" / "certificate.json")
    alone = verify_certificate(path.parent / "inputs" / "certificate.json")
    assert alone.ok and "published adapter" not in alone.recomputed
    full = verify_certificate(path, voters, result=adapter)
    assert full.problems == ()
    assert {"signatures", "result", "attestation", "choice", "published adapter"} <= set(full.recomputed)
    validate(json.loads(path.read_text()), json_schema())
    document = json.loads(path.read_text())
    assert document["trust_model"] == "single-operator"
    assert {voter["name"]: voter["accepted"] for voter in document["voters"]} == {
        "voter-0": True, "voter-1": True, "voter-2": False, "voter-3": True,
    }  # fmt: skip
    kinds = {entry["kind"] for entry in document["tried"]}
    assert kinds == {"robust", "convex", "uniform_soup", "weighted_soup", "greedy_soup", "voter"}
    before = path.read_bytes()
    write_certificate(read_certificate(path), path)
    assert path.read_bytes() == before


def test_a_path_alone_finds_voters_beside_the_certificate_and_in_a_store(agreed: Agreed, tmp_path: Path) -> None:
    path, voters, adapter = agreed
    (path.parent / "inputs").rename(path.parent / "voters")
    found = verify_certificate(str(path))
    assert found.ok and {"result", "attestation", "published adapter"} <= set(found.recomputed)
    document = json.loads(path.read_text())
    shutil.rmtree(path.parent / "voters" / "voter-0")
    absent = "attestation and the candidates: adapters of voter-0 are not here"
    assert absent in verify_certificate(path).unchecked
    trained = tmp_path / "artifacts" / "trained_adapters" / "python" / ("b" * 64) / "voters"
    (path.parent / "voters").rename(path.parent / "gone")
    shutil.copytree(path.parent / "gone", trained)
    here = tmp_path / "artifacts" / "consensus_checkpoint" / "python" / ("c" * 64) / "certificate.json"
    here.parent.mkdir(parents=True)
    certificate = parse_certificate({**document, "context": {**document["context"], "trained_adapters": "b" * 64}})
    write_certificate(sealed(certificate), here)
    assert absent in verify_certificate(here).unchecked, "the store's voters were read"
    assert voters and adapter


def _first_voter(document: dict[str, Any], **changes: Any) -> None:
    document["voters"][0] |= changes


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (lambda d: d["ballots"][0].update(quality=0.123), "bad signature"),
        (lambda d: d["ballots"][0].update(loss=d["ballots"][0]["base_loss"] + 1), "bad signature"),
        (lambda d: d["voters"][2].update(accepted=True, stage="accepted"), "the ballots accept"),
        (lambda d: d["thresholds"].update(quality=1.0), "the tallies are not what the ballots add up to"),
        (lambda d: d["ballots"].pop(), "tallies"),
        (lambda d: d.update(f=0, quorum=1), "n, f, quorum are 4, 1, 3"),
        (lambda d: d.update(rule="median"), "candidate robust: made by other settings"),
        (lambda d: d["tried"][0].update(rule="median"), "candidate robust: its voters make adapter"),
        (lambda d: d["tried"].pop(1), "some are missing"),
        (lambda d: d["tried"].pop(), "the candidates do not hold each accepted voter once"),
        (lambda d: d["tried"][0].update(loss=0.0), "candidate robust: the gate says"),
        (lambda d: d.update(chosen="voter-0"), "the best candidate that passes the gate is"),
        (lambda d: d["result"].update(digest="0" * 64), "the result is not what is stated of candidate"),
        (lambda d: _first_voter(d, digest="0" * 64), "voter-0: digest is"),
        (lambda d: _first_voter(d, weight=0.9), "voter-0: its weight is"),
        (lambda d: _first_voter(d, norm=1.5), "voter-0: the norm"),
        (lambda d: _first_voter(d, accepted=False, stage="attestation", reason="not finite"), "voter-0: attestation"),
        (lambda d: d.update(schema_version=1), "schema version 1 does not have an election"),
        (lambda d: d["voters"].append(d["voters"][0]), "a voter is listed twice"),
    ],
)
def test_tampering_is_found_even_when_resealed(
    tamper: Callable[[dict[str, Any]], Any], words: str, agreed: Agreed
) -> None:
    path, voters, _ = agreed
    document = json.loads(path.read_text())
    tamper(document)
    path.write_text(json.dumps(document))
    problems = verify_certificate(path).problems
    assert problems[0] == "the certificate's content is not what its digest states: it was changed"
    # Whoever can edit the file can also renew its digest: signatures and inputs still tell
    resealed = sealed(Certificate.model_validate(document))
    found = verify_certificate(resealed, voters).problems
    assert any(words in problem for problem in found), found


def _leaves(node: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, (*place, key))
    elif isinstance(node, list):
        for position, value in enumerate(node):
            yield from _leaves(value, (*place, position))
    else:
        yield place, node


def _flipped(value: Any, how: int) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 + how % 3
    if isinstance(value, float):
        return value * (1.001 + how % 7) + 0.01
    if value is None:
        return 1 if how % 2 else "x"
    position = how % max(1, len(value))
    other = "A" if value[position : position + 1] != "A" else "B"
    return value[:position] + other + value[position + 1 :]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_no_leaf_can_be_changed(original: tuple[Path, Agreement], which: int, how: int) -> None:
    document = json.loads((original[0] / "certificate.json").read_text())
    leaves = list(_leaves(document))
    assert _shows(document, *leaves[which % len(leaves)], how)


@pytest.mark.parametrize("of_a_name", [1, pytest.param(None, marks=pytest.mark.extended)])
def test_no_leaf_can_be_changed_and_sealed_again(original: tuple[Path, Agreement], of_a_name: int | None) -> None:
    """One of each name, or every single one: signatures, count and inputs cover all of it."""
    text = (original[0] / "certificate.json").read_text()
    voters = {path.name: path for path in sorted((original[0] / "inputs").iterdir())}
    named: dict[tuple[str | int, ...], list[tuple[tuple[str | int, ...], Any]]] = {}
    for place, value in _leaves(json.loads(text)):
        if place not in (("digest",), ("seal",)):
            named.setdefault(tuple("" if isinstance(step, int) else step for step in place), []).append((place, value))
    leaves = [leaf for alike in named.values() for leaf in alike[:of_a_name]]
    hidden = {
        place
        for number, (place, value) in enumerate(leaves)
        if not _shows(json.loads(text), place, value, number, voters)
    }
    assert not hidden


def _shows(
    document: dict[str, Any],
    place: tuple[str | int, ...],
    value: Any,
    how: int,
    voters: dict[str, Path] | None = None,
) -> bool:
    """Whether a changed leaf is found; with `voters` also in a certificate that was sealed again."""
    node: Any = document
    for step in place[:-1]:
        node = node[step]
    node[place[-1]] = _flipped(value, how)
    try:
        certificate = parse_certificate(document)
    except InputError:
        return True
    if voters is None:
        return bool(verify_certificate(certificate).problems)
    certificate = sealed(certificate)
    return bool(verify_certificate(certificate).problems or verify_certificate(certificate, voters).problems)


def test_known_keys_find_a_vote_that_somebody_made_up(agreed: Agreed) -> None:
    """All of it signed anew by other keys is sound in itself; who knows the voters' keys sees it."""
    path, voters, _ = agreed
    document = json.loads(path.read_text())
    real = {voter["name"]: voter["public_key"] for voter in document["voters"]}
    assert verify_certificate(path, voters, keys=real).ok
    certificate = voted_again(parse_certificate(document))
    alone = verify_certificate(certificate, voters)
    assert alone.ok and any(line.startswith("whose keys these are") for line in alone.unchecked)
    problems = verify_certificate(certificate, voters, keys=real).problems
    assert len(problems) == 4 and all("its key is" in problem for problem in problems)


def test_the_digest_leaves_out_keys_and_signatures_alone(agreed: Agreed) -> None:
    certificate = read_certificate(agreed[0])
    first, *others = certificate.voters
    other_key = certificate.model_copy(
        update={"voters": (first.model_copy(update={"public_key": "x"}), *others), "seal": "y"}
    )
    assert content_digest(other_key) == certificate.digest == content_digest(certificate)
    assert verify_certificate(other_key).problems[0].startswith("the certificate's keys or signatures")
    assert stated_election(certificate).digest == certificate.election == certificate.ballots[0].election


def test_changed_inputs_are_found(agreed: Agreed, honest: dict[str, LoraAdapter]) -> None:
    path, voters, adapter = agreed
    write_adapter(changed(honest["voter-1"], 1.01), voters["voter-1"])
    problems = verify_certificate(path, voters).problems
    assert any(problem.startswith("voter-1: digest is") for problem in problems)
    assert any(problem.startswith("candidate robust: its voters make adapter") for problem in problems)
    write_adapter(honest["voter-0"], adapter)
    assert any("published adapter" in problem for problem in verify_certificate(path, result=adapter).problems)
    (adapter / "adapter_model.safetensors").unlink()
    assert any("cannot be read" in problem for problem in verify_certificate(path, result=adapter).problems)


@pytest.mark.parametrize("how", ["no folder given", "the folder is gone"])
def test_a_voter_that_is_not_here_is_a_reservation_and_the_others_are_still_compared(
    agreed: Agreed, honest: dict[str, LoraAdapter], how: str
) -> None:
    path, voters, _ = agreed
    if how == "no folder given":
        here = {name: folder for name, folder in voters.items() if name != "voter-3"}
    else:
        shutil.rmtree(voters["voter-3"])
        here = voters
    found = verify_certificate(path, here)
    assert found.ok and not found.proven and "attestation" not in found.recomputed
    assert "attestation and the candidates: adapters of voter-3 are not here" in found.unchecked
    write_adapter(changed(honest["voter-1"], 1.01), voters["voter-1"])
    (problem,) = verify_certificate(path, here).problems
    assert problem.startswith("voter-1: digest is")


def test_inputs_that_were_forgotten_are_named_and_no_problem(agreed: Agreed) -> None:
    path, voters, adapter = agreed
    assert verify_certificate(path, voters, result=adapter).forgotten == ()
    found = verify_certificate(path, voters, result=adapter, forgotten={"a" * 64, "b" * 64})
    assert found.ok and found.forgotten == ("data",)


def test_certificates_of_version_1_are_checked_as_far_as_they_go(tmp_path: Path) -> None:
    """Written by the software of then: no signatures, the rule's adapter is the result."""
    file = Path(__file__).parent / "certificate_1.json"
    document = json.loads(file.read_text())
    found = verify_certificate(file)
    assert found.problems == () and any("version 1 has none" in line for line in found.unchecked)
    write_certificate(read_certificate(file), tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == document
    changes = deepcopy(document)
    changes["ballots"][0]["quality"] = 0.123
    certificate = parse_certificate(changes)
    assert "content is not what its digest states" in verify_certificate(certificate).problems[0]
    assert any("quality 0.1230 stated" in problem for problem in verify_certificate(sealed(certificate)).problems)


def test_what_is_no_certificate(tmp_path: Path, agreed: Agreed) -> None:
    file = tmp_path / "other.json"
    with pytest.raises(InputError, match=r"other\.json does not exist: give the certificate\.json of a consensus"):
        read_certificate(file)
    file.write_text('{"schema_version": 1}')
    with pytest.raises(InputError, match="is not a certificate"):
        read_certificate(file)
    document = json.loads(agreed[0].read_text())
    file.write_text(json.dumps({**document, "schema_version": 99}))
    with pytest.raises(InputError, match="schema version 99, this software reads 1, 2, 3"):
        read_certificate(file)
    file.write_text(json.dumps({**document, "election": ""}))
    with pytest.raises(InputError, match="names the election"):
        read_certificate(file)


@pytest.mark.parametrize("name", ["", ".", "..", "../elsewhere", "/etc", "v" * 256, "a\nholds", "a\u202eb", "\x1b[2J"])
def test_a_voter_is_looked_for_in_a_folder_of_its_own_alone(agreed: Agreed, name: str) -> None:
    certificate, _, _ = agreed
    certificate.write_text(certificate.read_text().replace('"voter-3"', json.dumps(name)))
    with pytest.raises(InputError, match="no name of a folder of its own"):
        read_certificate(certificate)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("n",), "4"), (("n",), 4.0), (("f",), True), (("ballots", 0, "round"), -0.0), (("ballots", 0, "round"), False),
        (("voters", 0, "accepted"), "on"), (("voters", 0, "accepted"), 1), (("ballots", 0, "quality"), "1e0"),
        (("tried", 0, "f"), "0"), (("thresholds", "norm_ratio"), "3"),
    ],
)  # fmt: skip
def test_equal_values_of_another_type_are_no_certificate(
    agreed: Agreed, path: tuple[str | int, ...], value: Any
) -> None:
    """Its schema refuses them, too: readers in other languages would take them for something else."""
    document: Any = json.loads(agreed[0].read_text())
    part = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(InputError, match=str(path[-1])):
        parse_certificate(document)


@pytest.mark.parametrize("how", ["a link out", "cut"])
def test_a_voter_that_cannot_be_read_is_named_with_the_cause_and_no_other_is(
    agreed: Agreed, how: str, tmp_path: Path
) -> None:
    path, voters, adapter = agreed
    weights = voters["voter-1"] / "adapter_model.safetensors"
    if how == "cut":
        weights.write_bytes(weights.read_bytes()[:100])
    else:
        weights.rename(tmp_path / "elsewhere")
        weights.symlink_to(tmp_path / "elsewhere")
    found = verify_certificate(path, voters, result=adapter)
    said = f"voter-1: its adapter in {voters['voter-1']} is unreadable: adapter_model.safetensors is"
    assert found.problems[0].startswith(said)
    assert not any(name in line for line in found.problems for name in ("voter-0", "voter-2", "voter-3"))
    assert "attestation" not in found.recomputed and "published adapter" in found.recomputed
    assert "attestation and the candidates: adapters of voter-1 cannot be read" in found.unchecked


def test_a_threshold_beyond_all_numbers_is_a_contradiction(agreed: Agreed) -> None:
    document = json.loads(agreed[0].read_text())
    document["thresholds"]["fault_tolerance"] = 1e308
    found = verify_certificate(Certificate.model_validate(document))
    assert any("cannot be counted: fault_tolerance" in problem for problem in found.problems)


def test_a_certificate_that_never_ends_or_never_comes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 42)
    for name in ("pipe", "sparse"):
        with pytest.raises(InputError, match="is not a certificate"):
            read_certificate(tmp_path / name)


@pytest.mark.parametrize("field", ["ballots", "voters", "tried", "tallies", "refused", "confirmations"])
def test_a_certificate_of_endless_parts_is_refused_before_they_are_checked(agreed: Agreed, field: str) -> None:
    document = json.loads(agreed[0].read_text())
    document[field] = (document[field] or [{}]) * 100_000
    began = time.process_time()
    with pytest.raises(InputError, match=rf"{field}: Tuple should have at most|{field}\.0\."):
        parse_certificate(document)
    assert time.process_time() - began < 2


def test_no_vote_is_held_whose_certificate_nobody_could_check(tiny: Base, tmp_path: Path) -> None:
    voters = {f"voter-{number}": tmp_path for number in range(65)}
    for names, rounds in ((voters, 1), (dict(list(voters.items())[:64]), 5)):
        with pytest.raises(InputError, match="a vote has at most 64 voters and 16,384 ballots"):
            attest_voters(tiny, names, ConsensusRecipe(verification_rounds=rounds))


def test_interrupted_while_it_is_written_again_no_certificate_lies_beside_another_adapter(
    original: tuple[Path, Agreement], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, agreement = original
    written = certify(agreement, tmp_path)

    def broken(*_: object) -> None:
        raise OSError("the disk failed")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="the disk failed"):
        patched.setattr(certificates, "write_adapter", broken)
        certify(agreement, tmp_path)
    assert not written.exists()
    assert certify(agreement, tmp_path).exists()
