"""The certificate that a run publishes, verified from the store: with known keys and measured again it is proven."""

import json
from pathlib import Path

import pytest

from capibara_assets_tests.home import MadeHome, command_here

pytestmark = pytest.mark.slow


def test_a_published_certificate_is_proven_by_keys_and_measuring_again(shared_home: MadeHome, tmp_path: Path) -> None:
    (file,) = (shared_home.folder / "home" / "store" / "artifacts" / "consensus_checkpoint" / "sql").glob(
        "*/cert*.json"
    )
    stated = json.loads(file.read_text())["voters"]
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({voter["name"]: voter["public_key"] for voter in stated if voter["public_key"]}))
    arguments = ("consensus", "verify", str(file))
    plain = command_here(shared_home.environment, *arguments, exit_code=3)
    assert "holds, with reservations" in plain and "whose keys these are" in plain and "measure them again" in plain
    shown = json.loads(
        command_here(shared_home.environment, *arguments, "--keys", str(keys), "--remeasure", "--json", exit_code=3)
    )
    assert shown["problems"] == shown["unchecked"] == [] and "losses" in shown["recomputed"]
    # the tests' recipe asks less of voters than the shipped one, and that is said
    assert {line.split(":")[1].split()[0] for line in shown["reservations"]} == {"quality", "tolerance"}
    of_lineage = command_here(shared_home.environment, "lineage", "certificate", "sql", exit_code=3)
    assert "the certificate holds, with reservations" in of_lineage
