"""The tiny base model of these tests."""

from pathlib import Path

import pytest

from capibara_assets.modeling.base import Base, load_base
from capibara_assets_tests.modeling.tiny import save_tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer_of=nano)


@pytest.fixture
def tiny(tiny_folder: Path) -> Base:
    return load_base(tiny_folder)
