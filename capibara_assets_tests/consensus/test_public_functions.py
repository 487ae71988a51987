"""The public functions are where users look for them, and cost what they need."""

import subprocess
import sys

import pytest

import capibara_assets.consensus as consensus


@pytest.mark.parametrize("name", consensus.__all__)
def test_every_public_function_is_there_and_explained(name: str):
    function = getattr(consensus, name)
    assert callable(function) and function.__doc__


def test_the_list_is_sorted_and_shown():
    assert consensus.__all__ == sorted(consensus.__all__)
    assert set(consensus.__all__) <= set(dir(consensus))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'agregate'"):
        _ = consensus.agregate  # type: ignore[attr-defined]


def test_a_rule_on_vectors_loads_no_framework():
    code = "import sys; from capibara_assets.consensus import aggregate; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
