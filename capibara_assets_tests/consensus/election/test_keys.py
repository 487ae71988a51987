"""Long-lived keys: private files that others cannot use, one registry, and votes that are signed with them."""

import base64
import io
import json
import multiprocessing
import os
import pickle
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from capibara_assets.consensus.agree import Agreement, agree
from capibara_assets.consensus.certificates.certificate import certify, verify_certificate
from capibara_assets.consensus.election import voter as voter_module
from capibara_assets.consensus.election.ballots import is_public_key, is_signature, is_signed_by, new_key, public_key
from capibara_assets.consensus.election.keys import (
    VoterKeys,
    read_private_key,
    read_registry,
    register,
    registry_digest,
    write_new_key,
)
from capibara_assets.consensus.election.polling import hold_vote
from capibara_assets.consensus.election.voter import ANSWER, Assignment, answer, own_key, run, second_round
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens
from capibara_assets_tests.consensus.in_process import hold_here

VOTERS = tuple(f"voter-{number}" for number in range(4))
Vote = Callable[..., Agreement]


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder that its owner alone may write."""
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def keys(private: Path) -> VoterKeys:
    """Four voters with a registered key each."""
    for voter in VOTERS:
        register(private / "registry.json", voter, write_new_key(voter, private / f"{voter}.key"))
    return VoterKeys.of(private)


@pytest.fixture
def vote(tiny: Base, folders: dict[str, Path], validation: list[Tokens], shards: dict[str, list[int]]) -> Vote:
    recipe = ConsensusRecipe(max_retries=0)
    return partial(agree, tiny, folders, validation, shards, recipe, {"domain": "python"})


@pytest.mark.usefixtures("open_umask")
def test_a_new_key_is_its_owners_alone(private: Path) -> None:
    file = private / "voter-0.key"
    public = write_new_key("voter-0", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert public_key(read_private_key(file)) == public
    before = file.read_bytes()
    with pytest.raises(InputError, match="never overwritten"):
        write_new_key("voter-0", file)
    (private / "link.key").symlink_to(private / "elsewhere.key")
    with pytest.raises(InputError, match="never overwritten"):
        write_new_key("voter-0", private / "link.key")
    assert file.read_bytes() == before and not (private / "elsewhere.key").exists()
    with pytest.raises(InputError, match="no name of a voter"):
        write_new_key("../voter-0", private / "other.key")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_no_key_in_a_folder_that_others_may_write(private: Path, mode: int) -> None:
    private.chmod(mode)
    with pytest.raises(InputError, match="others may write"):
        write_new_key("voter-0", private / "voter-0.key")
    assert list(private.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_key_that_others_may_use_is_none(private: Path, mode: int) -> None:
    write_new_key("voter-0", private / "voter-0.key")
    (private / "voter-0.key").chmod(mode)
    with pytest.raises(InputError, match="may be used by others"):
        read_private_key(private / "voter-0.key")


def test_what_is_no_private_key(private: Path) -> None:
    file = private / "voter-0.key"
    with pytest.raises(InputError, match="cannot be read"):
        read_private_key(file)
    other = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    half = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
    for secret in (b"c2VjcmV0", b"", half, other):
        file.write_bytes(secret)
        file.chmod(0o600)
        with pytest.raises(InputError, match="is no private key of Ed25519") as found:
            read_private_key(file)
        assert "c2VjcmV0" not in str(found.value) and found.value.__cause__ is None
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.raises(InputError, match="no regular file"):
        read_private_key(file)


def test_one_key_for_one_voter_once(tmp_path: Path) -> None:
    file, one, other = tmp_path / "registry.json", public_key(new_key()), public_key(new_key())
    assert register(file, "voter-0", one) == json.loads(file.read_text()) == {"voter-0": one}
    for voter, key, words in (
        ("voter-0", one, "registered already"),
        ("voter-0", other, "registered already"),
        ("voter-1", one, "one key is one voter's"),
        ("voter-1", "", "no public key"),
        ("voter-1", other[:-5] + "=", "no public key"),
        ("voter-1", f" {other}", "no public key"),
        ("a/b", other, "no name"),
    ):
        with pytest.raises(InputError, match=words):
            register(file, voter, key)
    assert read_registry(file) == {"voter-0": one}
    assert register(file, "voter-1", other).keys() == {"voter-0", "voter-1"}


def test_a_registry_that_somebody_edited(tmp_path: Path) -> None:
    file, key = tmp_path / "registry.json", public_key(new_key())
    for text, words in (
        (f'{{"voter-0": "{key}", "voter-0": "{public_key(new_key())}"}}', "twice"),
        (f'{{"voter-0": "{key}", "voter-1": "{key}"}}', "one key is one voter's"),
        ('{"voter-0": 7}', "no public key"),
        *((json.dumps({name: key}), "no name of a voter") for name in ("..", "/tmp/v", "../v", "", "v\n", "v" * 5000)),
        ("[]", "expected a JSON object of voters"),
        ('{"voter-0": ', "not JSON"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=words):
            read_registry(file)


_PRIME = 2**255 - 19
_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7


@pytest.mark.parametrize("y", [0, 1, _PRIME - 1, _PRIME, _PRIME + 1, _ORDER_8, _PRIME - _ORDER_8])
@pytest.mark.parametrize("sign", [0, 1 << 255])
def test_a_key_under_which_anybody_can_sign_is_none(y: int, sign: int, tmp_path: Path) -> None:
    """Points of small order, in all their spellings: one signature holds for every text, or for one in a few."""
    weak = base64.b64encode((y + sign).to_bytes(32, "little")).decode()
    anybodys = base64.b64encode(bytes([1]) + bytes(63)).decode()
    assert not is_public_key(weak)
    assert not any(is_signature(anybodys, b"text %d" % number, weak) for number in range(32))
    with pytest.raises(InputError, match="is no public key"):
        register(tmp_path / "registry.json", "voter-0", weak)


def test_registering_at_once_loses_nobody(tmp_path: Path) -> None:
    file, context = tmp_path / "registry.json", multiprocessing.get_context("fork")
    own = {f"voter-{number}": public_key(new_key()) for number in range(6)}
    processes = [context.Process(target=register, args=(file, *one)) for one in own.items()]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert read_registry(file) == own


def test_a_key_that_nobody_could_look_up_is_an_error(keys: VoterKeys) -> None:
    write_new_key("voter-9", keys.folder / "voter-9.key")
    with pytest.raises(InputError, match="no public key of voter-9"):
        VoterKeys.of(keys.folder)
    assert VoterKeys.from_environment({}) is None
    (keys.folder / "voter-9.key").unlink()
    assert VoterKeys.from_environment({"CAPIBARA_VOTER_KEYS": str(keys.folder)}) == keys


def test_registered_voters_sign_with_their_keys(vote: Vote, keys: VoterKeys, folders: dict[str, Path]) -> None:
    agreement = vote(keys=keys, hold=hold_here)
    certificate = agreement.certificate
    assert {voter.name: voter.public_key for voter in certificate.voters} == keys.registry
    assert all(is_signed_by(ballot, keys.registry[ballot.voter]) for ballot in certificate.ballots)
    found = verify_certificate(certificate, folders, keys=keys.registry)
    assert found.problems == () and not any("key" in line for line in found.unchecked)
    assert vote(keys=keys, hold=hold_here).certificate.seal == certificate.seal, "nothing is drawn any more"
    drawn = vote(hold=hold_here).certificate
    assert drawn.digest != certificate.digest and "registry" not in drawn.context


def test_a_registry_that_is_not_that_of_the_vote_is_refused(vote: Vote, keys: VoterKeys) -> None:
    certificate = vote(keys=keys, hold=hold_here).certificate
    other = public_key(new_key())
    for registry, words in (
        ({**keys.registry, "voter-1": other}, "voter-1: its key is"),
        ({**keys.registry, "voter-1": other}, "its election names others"),
        ({**keys.registry, "voter-9": other}, "voter-9: registered, but no voter of this vote"),
        ({"voter-1": keys.registry["voter-0"]}, "voter-1: its key is"),
    ):
        problems = verify_certificate(certificate, keys=registry).problems
        assert any(words in problem for problem in problems), problems
    some = {"voter-0": keys.registry["voter-0"]}
    partly = verify_certificate(certificate, keys=some)
    assert partly.ok and any("are not among the keys given" in line for line in partly.unchecked)
    assert registry_digest(keys.registry, VOTERS) == certificate.context["registry"]


def _anothers(keys: VoterKeys) -> None:
    (keys.folder / "voter-3.key").write_bytes((keys.folder / "voter-1.key").read_bytes())


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_anothers, "is registered for it"),
        pytest.param(
            lambda keys: (keys.folder / "voter-3.key").chmod(0o644), "may be used by others", marks=pytest.mark.extended
        ),
        pytest.param(lambda keys: (keys.folder / "voter-3.key").unlink(), "cannot be read", marks=pytest.mark.extended),
    ],
)
def test_a_registered_voter_without_its_key_is_absent(
    spoil: Callable[[VoterKeys], None], words: str, vote: Vote, keys: VoterKeys, folders: dict[str, Path]
) -> None:
    """It draws no other: a ballot in its name would be nobody's."""
    spoil(keys)
    certificate = vote(keys=keys, hold=partial(hold_vote, processes=2, start_method="fork")).certificate
    assert list(certificate.absent) == ["voter-3"] and words in certificate.absent["voter-3"]
    assert str(keys.folder) not in certificate.model_dump_json(), "nothing of this machine in what is published"
    found = verify_certificate(certificate, folders, keys=keys.registry)
    assert found.problems == () and any("voter-3 kept silent" in line for line in found.unchecked)


def test_an_answer_under_another_key_than_the_registered_one_is_none(
    vote: Vote, keys: VoterKeys, folders: dict[str, Path]
) -> None:
    def forging(assignment: Assignment, base: Base, folder: Path, threads: int) -> None:
        forged = {**vars(assignment), "key_file": None, "registered": None}
        run(Assignment(**forged) if assignment.voter == "voter-2" else assignment, base, folder, threads)

    hold = partial(hold_vote, processes=2, start_method="fork", entry=forging)
    certificate = vote(keys=keys, hold=hold).certificate
    assert list(certificate.absent) == ["voter-2"] and "is registered for it" in certificate.absent["voter-2"]


def _watched(record: Path, assignment: Assignment, base: Base, folder: Path, threads: int) -> None:
    """Entry of a voter's process that keeps what it was given and what it says, before it says it."""
    key = own_key(assignment)
    found = answer(assignment, base, key=key)
    said = json.dumps(found).encode()
    given = Path("/proc/self/cmdline").read_bytes() + Path("/proc/self/environ").read_bytes() + pickle.dumps(assignment)
    (record / assignment.voter).write_bytes(given + said)
    (folder / "part").write_bytes(said)
    (folder / "part").replace(folder / ANSWER)
    second_round(assignment, base, folder, found, key)


def test_private_keys_stay_where_they_are(
    vote: Vote, keys: VoterKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    logged: io.StringIO, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    secrets = _spellings(keys)
    record = tmp_path / "record"
    record.mkdir()
    coordinator = os.getpid()

    def elsewhere(file: Path) -> object:
        assert os.getpid() != coordinator, "the coordinator reads no private key"
        return read_private_key(file)

    monkeypatch.setattr(voter_module, "read_private_key", elsewhere)
    hold = partial(hold_vote, processes=2, start_method="fork", entry=partial(_watched, record))
    agreement = vote(keys=keys, hold=hold)
    certify(agreement, tmp_path / "published")
    said = capfd.readouterr()
    everything = {str(file): file.read_bytes() for file in tmp_path.rglob("*")
                  if file.is_file() and keys.folder not in file.parents}  # fmt: skip
    everything |= {"agreement": pickle.dumps(agreement), "log": (logged.getvalue() + said.out + said.err).encode()}
    assert {Path(place).name for place in everything} >= {*VOTERS, "certificate.json"}, "voters were watched"
    assert not [
        (place, name) for place, data in everything.items() for name, secret in secrets.items() if secret in data
    ]
    assert secrets["voter-0 base64"] in (keys.folder / "voter-0.key").read_bytes(), "it would be found"


def _spellings(keys: VoterKeys) -> Mapping[str, bytes]:
    """Each private key as it may occur: bytes, hex, and the base64 of its file."""
    spelt = {}
    for voter in VOTERS:
        raw = read_private_key(keys.folder / f"{voter}.key").private_bytes_raw()
        spelt[f"{voter} raw"], spelt[f"{voter} hex"] = raw, raw.hex().encode()
        spelt[f"{voter} base64"] = (keys.folder / f"{voter}.key").read_bytes().splitlines()[1][-40:]
    return spelt
