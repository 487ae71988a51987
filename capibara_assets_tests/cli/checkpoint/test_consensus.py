"""`capibara consensus verify`: exit codes, named problems, JSON; version 1 as a file that needs no model to be made."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.cli.checkpoint.consensus import consensus
from capibara_assets.errors import InputError
from capibara_assets_tests.consensus import certificates as certificate_tests

CERTIFICATE = Path(certificate_tests.__file__).parent / "certificate_1.json"


def test_one_that_holds_with_reservations_exits_with_3() -> None:
    found = CliRunner().invoke(consensus, ["verify", str(CERTIFICATE)])
    assert found.exit_code == 3, found.output
    assert "the certificate holds, with reservations" in found.output
    assert "signatures: version 1 has none" in found.output and "not proven by any such certificate" in found.output
    found = CliRunner().invoke(consensus, ["verify", str(CERTIFICATE), "--json"])
    document = json.loads(found.output)
    assert document["ok"] is True and document["proven"] is False and document["problems"] == []
    assert "count" in document["recomputed"] and found.exit_code == 3


def test_problems_are_named_and_exit_with_1(tmp_path: Path) -> None:
    document = json.loads(CERTIFICATE.read_text())
    document["ballots"][0]["quality"] = 0.5
    (tmp_path / "certificate.json").write_text(json.dumps(document))
    found = CliRunner().invoke(consensus, ["verify", str(tmp_path / "certificate.json")])
    assert found.exit_code == 1
    assert "does not hold" in found.output and "quality 0.5000 stated" in found.output
    (tmp_path / "voter-0").mkdir()
    (tmp_path / "voter-0" / "adapter_config.json").write_text("{}")
    found = CliRunner().invoke(consensus, ["verify", str(CERTIFICATE), "--voters", str(tmp_path), "--json"])
    assert found.exit_code == 1
    said = f"voter-0: its adapter in {tmp_path.resolve() / 'voter-0'} is unreadable"
    assert any(problem.startswith(said) for problem in json.loads(found.output)["problems"])
    found = CliRunner().invoke(consensus, ["verify", str(CERTIFICATE), "--result", str(tmp_path)])
    assert found.exit_code == 1 and "the published adapter cannot be read" in found.output


def test_a_voters_folder_that_leads_elsewhere_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "voters").mkdir()
    (tmp_path / "voters" / "voter-0").symlink_to(tmp_path / "elsewhere")
    arguments = ["verify", str(CERTIFICATE), "--voters", str(tmp_path / "voters")]
    found = CliRunner().invoke(consensus, arguments, standalone_mode=False)
    assert isinstance(found.exception, InputError) and "voter-0 is a link out of its folder" in str(found.exception)


@pytest.mark.parametrize("head", ["abc", "g" * 64, "a" * 63])
def test_a_head_that_is_no_digest_is_no_accusation(head: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("")
    arguments = ["verify", str(CERTIFICATE), "--log", str(tmp_path / "log.jsonl"), "--log-head", head]
    found = CliRunner().invoke(consensus, arguments, standalone_mode=False)
    assert isinstance(found.exception, InputError) and "64 hexadecimal digits" in str(found.exception)


def test_what_is_no_certificate_or_no_keys(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("[]")
    (tmp_path / "no_key.json").write_text("{}")
    (tmp_path / "twice.json").write_text('{"voter-0": "a", "voter-0": "b"}')
    for arguments, words in (
        ([str(CERTIFICATE), "--keys", str(tmp_path / "no_key.json")], "no public key was given"),
        ([str(CERTIFICATE), "--keys", str(tmp_path / "twice.json")], "'voter-0' is there twice in one object"),
        ([str(CERTIFICATE), "--remeasure"], "is not in the deployment's store"),
        ([str(CERTIFICATE), "--voters", str(tmp_path)], "holds no adapter of voter-0, voter-1"),
        ([str(tmp_path / "none.json")], "does not exist"),
        ([str(CERTIFICATE), "--keys", str(tmp_path / "keys.json")], "expected a JSON object of voters"),
    ):
        found = CliRunner().invoke(consensus, ["verify", *arguments], standalone_mode=False)
        with pytest.raises(InputError, match=words):
            raise found.exception or AssertionError(found.output)
