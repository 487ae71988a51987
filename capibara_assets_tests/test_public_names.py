"""What documents tell Python users to import is in the `api` modules, explained there, and costs what it needs."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import capibara_assets
from capibara_assets_tests.test_docs import DOCUMENTS, FENCE

PACKAGE = Path(capibara_assets.__file__).parent
APIS = sorted(f"capibara_assets.{file.parent.name}.api" for file in PACKAGE.glob("*/api.py"))
SHORT = {"capibara_assets.executions", "capibara_assets.consensus"}
"""Packages whose public names can be imported from the package itself."""
_IMPORT = re.compile(r"^\s*from (capibara_assets[\w.]*) import (.+)$", re.MULTILINE)


@pytest.mark.parametrize("api", APIS)
def test_every_name_is_there_and_in_the_table(api: str) -> None:
    module = import_module(api)
    assert sorted(module.__all__) == list(module.__all__)
    for name in module.__all__:
        assert getattr(module, name).__doc__
        assert f"`{name}`" in (module.__doc__ or "") and name in dir(module)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing


def test_documents_import_public_names_alone() -> None:
    found = {
        (place, name.strip())
        for document in DOCUMENTS
        for block in FENCE.findall(document.read_text("utf-8"))
        for place, names in _IMPORT.findall(block)
        for name in names.split("#")[0].split(",")
    }
    assert len(found) > 10
    for place, name in sorted(found):
        assert place in {*APIS, *SHORT}, f"documents import {name} from {place}, which may move"
        assert name in import_module(place).__all__


def test_importing_them_imports_no_framework() -> None:
    """Dagster's own are named apart: what starts trainings from Dagster needs it."""
    program = f"import sys\nfor name in {APIS!r}: __import__(name)\n"
    program += "print(sorted({'torch', 'jax', 'transformers', 'peft', 'numba', 'dagster'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
