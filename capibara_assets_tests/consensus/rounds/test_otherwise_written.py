"""Rounds whose adapters are spelt otherwise than by this code, by honest voters or by one that wants no result."""

import copy
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from capibara_assets.checkpoints.inspect.verify import adapter_digest, digest_of
from capibara_assets.cli.checkpoint.consensus import consensus
from capibara_assets.consensus.agree import ConsensusError
from capibara_assets.consensus.election.attestation import order_of_computing
from capibara_assets.consensus.election.keys import read_private_key
from capibara_assets.consensus.rounds.closing import close_round
from capibara_assets.consensus.rounds.submissions import sort_submissions
from capibara_assets.consensus.rounds.taking_part import vote_in
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter, write_adapter
from capibara_assets.modeling.files import ADAPTER_CONFIG
from capibara_assets_tests.consensus.conftest import changed
from capibara_assets_tests.consensus.rounds.conftest import Meet, Meeting, after_deadline

VOTERS = ("voter-0", "voter-1", "voter-2", "voter-3")
BASE = "base_model_name_or_path"


def state(folder: Path, **options: Any) -> None:
    """Options in a config, spelt as no writer of ours does."""
    file = folder / ADAPTER_CONFIG
    file.write_text(json.dumps({**json.loads(file.read_text()), **options}, separators=(",", ":")))


def orders(folders: dict[str, Path]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The voters by the digests of their files, and by those of the files that this code would write."""
    submitted = {name: adapter_digest(folder) for name, folder in folders.items()}
    ours = {name: digest_of(read_adapter(folder)) for name, folder in folders.items()}
    return order_of_computing(submitted), order_of_computing(ours)


def with_own_folders(m: Meeting) -> Meeting:
    """The same meeting; the voters' folders are copies, to be changed."""
    own = {name: m.home / "adapters" / name for name in VOTERS}
    for name, folder in own.items():
        shutil.copytree(m.folders[name], folder)
    return replace(m, folders=own)


def hold(m: Meeting) -> Path:
    """Everybody hands in and votes, the organiser closes; the result that the first voter keeps."""
    for name in VOTERS:
        m.hand_in(name)
    outs = {name: m.home / f"out-{name}" for name in VOTERS}
    with ThreadPoolExecutor(len(VOTERS)) as pool:
        votes = [
            pool.submit(vote_in, m.box(name), m.examples, copy.deepcopy(m.base), name, m.key_file(name), outs[name], 60)
            for name in VOTERS
        ]
        key = read_private_key(m.key_file("organiser"))
        close_round(after_deadline(m.box("organiser")), m.examples, m.base, key, m.home / "closed")
        for each in votes:
            each.result(60)
    return outs["voter-0"]


def verified_and_adopted(m: Meeting, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPIBARA_HOME", str(m.home / "home"))
    monkeypatch.setenv("CAPIBARA_BASE_MODEL", str(m.base.path))
    verify = ["verify", str(folder / "certificate.json"), "--keys", str(folder / "keys.json")]
    found = CliRunner().invoke(consensus, [*verify, "--election", str(folder / "election.json"), "--json"])
    document = json.loads(found.output)
    assert found.exit_code == 3 and document["problems"] == [] and "result" in document["recomputed"]
    adopt = CliRunner().invoke(consensus, ["adopt", str(folder), "--round", m.terms.digest], catch_exceptions=False)
    assert adopt.exit_code == 0 and "is now consensus_checkpoint[python]" in adopt.output


def test_one_voters_spelling_and_options_do_not_spoil_the_result(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    m = with_own_folders(meet(seconds=3600, names=VOTERS))
    for name in VOTERS[:3]:
        state(m.folders[name], **{BASE: "org/base"})
    for number in range(1000):  # until the digest stands elsewhere among the others'
        state(m.folders["voter-3"], **{BASE: f"/mnt/{number}"}, task_type="SEQ_CLS", revision="x", lora_dropout=0.5)
        if len(set(orders(m.folders))) == 2:
            break
    submitted, ours = orders(m.folders)
    assert submitted != ours
    folder = hold(m)
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["evidence"]["order"] == list(submitted) and len(certificate["confirmations"]) == 4
    assert json.loads((folder / "adapter" / ADAPTER_CONFIG).read_text())[BASE] == "org/base"  # the majority's
    verified_and_adopted(m, folder, monkeypatch)


def test_honest_voters_may_have_their_base_at_a_path_of_their_own(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    m = with_own_folders(meet(seconds=3600, names=VOTERS))
    for number in range(1000):
        for name in VOTERS:
            state(m.folders[name], **{BASE: f"/home/{name}/{number}"}, inference_mode=True)
        if len(set(orders(m.folders))) == 2:
            break
    assert len(set(orders(m.folders))) == 2
    verified_and_adopted(m, hold(m), monkeypatch)


def test_more_liars_than_f_get_no_result(meet: Meet) -> None:
    m = with_own_folders(meet(seconds=3600, names=VOTERS))
    for name in VOTERS[2:]:
        write_adapter(changed(read_adapter(m.folders[name]), -1.0), m.folders[name])
        state(m.folders[name], **{BASE: "/elsewhere"})
    with pytest.raises(InputError, match=r"no consensus: 2 of 4 voters accepted, 3 needed \(f=1\)") as told:
        hold(m)
    assert isinstance(told.value, ConsensusError) and not (m.home / "closed" / "certificate.json").exists()


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "1" + "0" * 400])
def test_a_number_that_nothing_can_write_is_one_voters_fault(meet: Meet, value: str) -> None:
    m = with_own_folders(meet(seconds=3600, names=VOTERS))
    state(m.folders["voter-3"], qalora_group_size="here")  # an option of a method that is off may say anything
    file = m.folders["voter-3"] / ADAPTER_CONFIG
    file.write_text(file.read_text().replace('"here"', value))
    m.hand_in("voter-3")
    box = m.box("organiser")
    box.look()
    assert "voter-3" not in (found := sort_submissions(box)).accepted
    assert any(one.what == "unfit" and one.sender == "voter-3" and "number" in one.why for one in found.named)
