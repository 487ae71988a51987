"""The public playbooks, read once for every test of this folder that changes nothing in them."""

from pathlib import Path

import pytest

from capibara_assets.playbooks.read import Playbooks, read_playbooks


@pytest.fixture(scope="session")
def public(shared_data: Path) -> Playbooks:
    return read_playbooks(shared_data / "experience")
