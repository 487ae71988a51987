"""Compiled kernels are kept from process to process, and compiled again when one that they call was changed."""

import subprocess
import sys
from pathlib import Path

import pytest

from capibara_assets_tests.conftest import REPOSITORY

CALLEE = """
from capibara_assets.consensus.aggregation.kernel_compilation import compiled

STEP = 10

@compiled()
def twice(x):
    return 2 * x
"""
CALLER = """
from callee_kernel import STEP, twice
from capibara_assets.consensus.aggregation.kernel_compilation import compiled

@compiled()
def stepped(x):
    return twice(x) + STEP
"""
CALL = """
from caller_kernel import stepped
print(stepped(1), sum(stepped.stats.cache_hits.values()))
"""


def called(folder: Path, call: str = CALL) -> list[int]:
    """(what the kernel gives, how often it was found in the cache)."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(folder), str(REPOSITORY)]}\n{call}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(number) for number in done.stdout.split()]


def test_a_change_in_another_folder_of_the_package_is_not_answered_from_the_cache(tmp_path: Path) -> None:
    for folder in ("kernels", "kernels/called", "kernels/calling"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    callee = tmp_path / "kernels" / "called" / "callee_kernel.py"
    caller = CALLER.replace("from callee_kernel", "from kernels.called.callee_kernel")
    callee.write_text(CALLEE)
    (tmp_path / "kernels" / "calling" / "caller_kernel.py").write_text(caller)
    call = CALL.replace("from caller_kernel", "from kernels.calling.caller_kernel")
    assert [called(tmp_path, call), called(tmp_path, call)] == [[12, 0], [12, 1]]
    callee.write_text(CALLEE.replace("2 * x", "3 * x").replace("STEP = 10", "STEP = 20"))
    assert called(tmp_path, call) == [23, 0]


@pytest.mark.extended
def test_a_change_in_another_module_is_not_answered_from_the_cache(tmp_path: Path) -> None:
    callee = tmp_path / "callee_kernel.py"
    callee.write_text(CALLEE)
    (tmp_path / "caller_kernel.py").write_text(CALLER)
    assert called(tmp_path) == [12, 0]
    assert called(tmp_path) == [12, 1]
    callee.write_text(CALLEE.replace("2 * x", "3 * x").replace("STEP = 10", "STEP = 20"))
    assert called(tmp_path) == [23, 0]
