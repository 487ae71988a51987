"""The experience that a home's runs read: who is asked before it, and what a damaged record of it says."""

import json
import os
from pathlib import Path

import pytest

from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.home import EXPERIENCE, kept_experience
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import IntegrityError

SHIPPED = str(resources_root() / "experience")


def keep(home: Path, text: str) -> None:
    (home / EXPERIENCE).parent.mkdir(parents=True, exist_ok=True)
    (home / EXPERIENCE).write_text(text)


def test_the_home_is_asked_after_the_variable_and_the_file_and_before_what_ships(tmp_path: Path) -> None:
    environment = {"CAPIBARA_HOME": str(tmp_path)}
    assert Deployment.from_environment(environment).experience == SHIPPED
    keep(tmp_path, json.dumps({"folder": "gs://bucket/logs"}))
    found = Deployment.from_environment(environment)
    assert found.experience == "gs://bucket/logs"
    assert {one.name: (one.value, one.by) for one in found.settings}["experience.folder"] == (found.experience, "home")
    file = tmp_path / "mine.yaml"
    file.write_text("experience: {folder: /of/the/file}\n")
    environment["CAPIBARA_DEPLOYMENT"] = str(file)
    assert Deployment.from_environment(environment).experience == "/of/the/file"
    environment["CAPIBARA_EXPERIENCE"] = "/of/the/variable"
    assert Deployment.from_environment(environment).experience == "/of/the/variable"
    environment |= {"CAPIBARA_DEPLOYMENT": "", "CAPIBARA_EXPERIENCE": "", "CAPIBARA_HOME": str(tmp_path / "another")}
    assert Deployment.from_environment(environment).experience == SHIPPED


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"folder": 3}', "[" * 100_000, '"folder"'])
def test_a_damaged_record_is_named_and_never_taken_for_none(tmp_path: Path, text: str) -> None:
    keep(tmp_path, text)
    with pytest.raises(IntegrityError, match=r"experience\.json does not say which .*: remove it, and name the folder"):
        kept_experience(tmp_path)
    named = {"CAPIBARA_HOME": str(tmp_path), "CAPIBARA_EXPERIENCE": "/named"}
    assert Deployment.from_environment(named).experience == "/named"


def test_a_pipe_is_not_waited_for_and_a_file_in_place_of_a_home_knows_nothing(tmp_path: Path) -> None:
    (tmp_path / EXPERIENCE).parent.mkdir()
    os.mkfifo(tmp_path / EXPERIENCE)
    with pytest.raises(IntegrityError, match="is no file but a pipe"):
        kept_experience(tmp_path)
    (tmp_path / "file").touch()
    assert kept_experience(tmp_path / "file") == ""
