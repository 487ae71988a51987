"""Requests: the digest follows what decides the adapters and nothing else."""

from pathlib import Path

import pytest

from capibara_assets.errors import InputError
from capibara_assets.training.request import read_request
from capibara_assets_tests.training.conftest import MakeRequest


def test_a_request_survives_its_file(make_request: MakeRequest, tmp_path: Path) -> None:
    request = make_request(fault={"voter-1": "nan"})
    (tmp_path / "request.json").write_text(request.model_dump_json())
    assert read_request(tmp_path / "request.json") == request


def test_the_digest_follows_what_decides_the_adapters(make_request: MakeRequest) -> None:
    digest = make_request().input_digest()
    for same in ({"work": "elsewhere"}, {"fault": {"voter-0": "nan"}}, {"threads": 2}, {"checkpoint_every": 7},
                 {"parallel": 1}, {"max_restarts": 0}, {"report_every": 9}):  # fmt: skip
        assert make_request(**same).input_digest() == digest
    for other in ({"seed": 2}, {"learning_rate": 0.02}, {"max_steps": 9}, {"precision": "bf16"}):
        assert make_request(**other).input_digest() != digest


def test_bad_requests_are_refused(make_request: MakeRequest, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fault names no voter of the recipe: nobody"):
        make_request(fault={"nobody": "nan"})
    with pytest.raises(InputError, match="does not exist"):
        read_request(tmp_path / "request.json")
    (tmp_path / "request.json").write_text('{"domain": "../cobol"}')
    with pytest.raises(InputError, match="domain: String should match pattern"):
        read_request(tmp_path / "request.json")
    (tmp_path / "request.json").write_text('{"seed": 1, "seed": 2}')
    with pytest.raises(InputError, match="is ambiguous: 'seed' is there twice"):
        read_request(tmp_path / "request.json")
