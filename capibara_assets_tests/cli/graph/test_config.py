"""`capibara config`: which deployment holds, and who decided each value."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.cli.graph.config import config
from capibara_assets.errors import InputError


def test_it_says_who_decided_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPIBARA_DEPLOYMENT", "kubernetes")
    monkeypatch.setenv("CAPIBARA_IMAGE", "ours:1")
    lines = CliRunner().invoke(config, [], catch_exceptions=False).output.splitlines()
    assert lines[0].startswith("deployment kubernetes: ") and lines[0].endswith("kubernetes.yaml")
    shown = {line.split()[0]: line for line in lines[1:]}
    assert shown["launcher.image"].split()[1:] == ["ours:1", "CAPIBARA_IMAGE"]
    assert shown["launcher.mode"].split()[1:] == ["k8s", "kubernetes.yaml"]
    assert shown["model.fetch_gib"].endswith("  default")
    assert shown["hardware.default"].split(maxsplit=1)[1].split("  ")[0] == "h100-8 (spot), then h100-8"


def test_json_holds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPIBARA_TARGET", "h200-1")
    told = json.loads(CliRunner().invoke(config, ["--json"], catch_exceptions=False).output)
    assert told["deployment"] == "local" and Path(told["file"]).is_file()
    assert told["settings"]["hardware.default"]["by"] == "CAPIBARA_TARGET"
    assert told["settings"]["hardware.default"]["value"]["targets"] == [
        {"target": "h200-1", "capacity": "on-demand", "usd_per_hour": None}
    ]


def test_a_target_that_there_is_not_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("hardware: {domains: {sql: {targets: [h100-9]}}}")
    monkeypatch.setenv("CAPIBARA_DEPLOYMENT", str(file))
    with pytest.raises(InputError, match=r"mine\.yaml, hardware\.domains\.sql, .*h100-9"):
        CliRunner().invoke(config, [], catch_exceptions=False)
