"""`capibara consensus verify`: exit codes, named problems, JSON; version 1 as a file that needs no model to be made."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.cli.checkpoint.consensus import consensus
from capibara_assets.errors import InputError
from capibara_assets_tests import consensus as consensus_tests

CERTIFICATE = Path(consensus_tests.__file__).parent / "vote" / "certificate_1.json"


def test_a_certificate_that_holds() -> None:
    found = CliRunner().invoke(consensus, ["verify", str(CERTIFICATE)])
    assert found.exit_code == 0, found.output
    assert "the certificate holds" in found.output and "signatures: version 1 has none" in found.output
    found = CliRunner().invoke(consensus, ["verify", str(CERTIFICATE), "--json"])
    document = json.loads(found.output)
    assert document["ok"] is True and document["problems"] == [] and "count" in document["recomputed"]


def test_problems_are_named_and_exit_with_1(tmp_path: Path) -> None:
    document = json.loads(CERTIFICATE.read_text())
    document["ballots"][0]["quality"] = 0.5
    (tmp_path / "certificate.json").write_text(json.dumps(document))
    found = CliRunner().invoke(consensus, ["verify", str(tmp_path / "certificate.json")])
    assert found.exit_code == 1
    assert "does not hold" in found.output and "quality 0.5000 stated" in found.output
    found = CliRunner().invoke(consensus, ["verify", str(CERTIFICATE), "--voters", str(tmp_path), "--json"])
    assert found.exit_code == 1
    assert any(problem.startswith("voter-0: digest is None") for problem in json.loads(found.output)["problems"])
    found = CliRunner().invoke(consensus, ["verify", str(CERTIFICATE), "--result", str(tmp_path)])
    assert found.exit_code == 1 and "the published adapter cannot be read" in found.output


def test_what_is_no_certificate_or_no_keys(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("[]")
    for arguments, words in (
        ([str(tmp_path / "none.json")], "is not a certificate"),
        ([str(CERTIFICATE), "--keys", str(tmp_path / "keys.json")], "expected a JSON object of voters"),
    ):
        found = CliRunner().invoke(consensus, ["verify", *arguments], standalone_mode=False)
        with pytest.raises(InputError, match=words):
            raise found.exception or AssertionError(found.output)
