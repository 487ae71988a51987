"""The seeded secrets: what redaction is measured on, and the figures it must reach."""

import json
import re
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from benchmarks.experience.redact import measure, redact
from benchmarks.experience.seeded_secrets import NAMED, SHAPED, filled, private_key, seed
from capibara_assets.executions.formats.envelope_reader import read_line
from capibara_assets_tests.executions.conftest import NOW, envelope, line

pytestmark = pytest.mark.extended


def test_every_kind_comes_up_and_every_secret_is_in_its_record() -> None:
    lines = [line(envelope(execution_id=f"e{number}")) for number in range(400)]
    seeded, seeds = seed(lines, 200, Random(3))
    assert {each.kind for each in seeds} >= {*SHAPED, *NAMED, "JWT", "PRIVATE_KEY", "PASSWORD", "AZURE_STORAGE_KEY"}
    records = {record.execution_id: record for record in (read_line(data, NOW) for data in seeded)}
    assert len({each.execution_id for each in seeds}) == 200
    for each in seeds:
        record = records[each.execution_id]
        fields = (record.code, record.task, record.stdout, record.result_text, record.error_value)
        assert any(each.value in text for text in fields if text), each.kind
    assert sum(before != after for before, after in zip(lines, seeded, strict=True)) == 300  # and 100 look-alikes


def test_the_same_seed_gives_the_same_secrets_and_another_others() -> None:
    lines = [line(envelope(execution_id=f"e{number}")) for number in range(50)]
    assert seed(lines, 20, Random(1)) == seed(lines, 20, Random(1))
    assert seed(lines, 20, Random(1)) != seed(lines, 20, Random(2))


def test_templates_hold_no_key() -> None:
    text = json.dumps([SHAPED, NAMED])
    assert not re.search(r"[A-Za-z0-9+/_-]{24,}", text.replace("DefaultEndpointsProtocol", ""))
    assert re.fullmatch(r"ghp_[A-Za-z0-9]{36}", filled("ghp_{an:36}", Random(1)))
    assert private_key(Random(1)).count("-----") == 4


@pytest.mark.parametrize("number", [11, pytest.param(12, marks=pytest.mark.extended)])
def test_recall_and_precision_on_the_real_logs(shared_data: Path, number: int) -> None:
    result = measure(shared_data / "experience", 1000, number, Path("no peers"), Path("no rules"))
    assert result["seeded"] == 1000
    assert result["recall"] >= 0.99
    assert result["precision"] >= 0.95


def test_the_command_prints_one_line_on_the_shipped_experience() -> None:
    done = CliRunner().invoke(redact, ["--secrets", "150", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    assert result["experience"] == "shipped"
    assert result["recall"] >= 0.99 and result["precision"] >= 0.95
