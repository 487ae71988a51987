"""The layout shows the architecture: small folders, nothing loose, and each folder says what it is for."""

import ast
from pathlib import Path

import pytest

import capibara_assets

PACKAGE = Path(capibara_assets.__file__).parent
LOOSE = {"definitions.py", "partitions.py", "resources.py", "domains.py", "errors.py"}
MOST_FILES = 20
FOLDERS = sorted(file.parent for file in PACKAGE.rglob("__init__.py"))


def named(folder: Path) -> str:
    return str(folder.relative_to(PACKAGE.parent))


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_a_folder_holds_few_files(folder: Path) -> None:
    files = [file.name for file in folder.glob("*.py") if file.name != "__init__.py"]
    assert len(files) <= MOST_FILES, f"{named(folder)} holds {len(files)} files: a shared prefix is a folder"


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != PACKAGE], ids=named)
def test_a_folder_says_what_lives_there_and_what_it_may_import(folder: Path) -> None:
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    said = ast.get_docstring(tree) or ""
    assert "import" in said.lower() and len(said.split(".")) >= 3, f"{named(folder)}/__init__.py: two sentences"


def test_nothing_else_lies_loose() -> None:
    assert {file.name for file in PACKAGE.glob("*.py")} == LOOSE | {"__init__.py"}


def test_tests_mirror_the_package() -> None:
    tests = Path(__file__).parent
    of_the_package = {folder.relative_to(PACKAGE) for folder in FOLDERS}
    for name in sorted({folder.parts[0] for folder in of_the_package if folder.parts}):
        mirrored = [file.parent.relative_to(tests) for file in (tests / name).rglob("test_*.py")]
        strange = {str(folder) for folder in mirrored if folder not in of_the_package and "drills" not in folder.parts}
        assert not strange, f"tests in folders that the package has not: {sorted(strange)}"
