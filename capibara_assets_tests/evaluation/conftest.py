"""A tiny model that answers at once."""

from pathlib import Path

import pytest

from capibara_assets.modeling.base import Base, load_base
from capibara_assets_tests.modeling.tiny import save_tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    """The tiny model's folder, with the tokenizer of the base model that ships."""
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer_of=nano)


@pytest.fixture(scope="module")
def base(folder: Path) -> Base:
    return load_base(folder)
