"""Compiled kernels are kept from process to process, and compiled again when one that they call was changed."""

import subprocess
import sys
from collections.abc import Callable, Iterator
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
from {package}caller_kernel import stepped
print(stepped(1), sum(stepped.stats.cache_hits.values()))
"""


SERVER = """
import importlib, os, sys
sys.dont_write_bytecode = True  # what a callee is changed to is as long, and of the same second
from capibara_assets.consensus.aggregation import kernel_compilation
for line in sys.stdin:
    if not os.fork():
        importlib.invalidate_caches()
        exec(sys.argv[1])
        sys.stdout.flush()
        os._exit(0)
    if os.wait()[1]:
        sys.exit(1)
"""


@pytest.fixture
def called(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], list[int]]]:
    """Calls the kernel in a new process: (what it gives, how often it was found in the cache).

    Each is a fork of one that has imported Numba, and no kernel: that takes seconds.
    """
    paths = f"import sys; sys.path[:0] = {[str(tmp_path), str(REPOSITORY)]}\n"
    with subprocess.Popen(
        [sys.executable, "-c", paths + SERVER, CALL.format(package=request.param)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdin is not None and server.stdout is not None
        asked, answered = server.stdin, server.stdout

        def call() -> list[int]:
            asked.write("\n")
            asked.flush()
            return [int(number) for number in answered.readline().split()]

        yield call
        asked.close()


@pytest.mark.parametrize("called", ["kernels.calling."], indirect=True)
def test_a_change_in_another_folder_of_the_package_is_not_answered_from_the_cache(
    called: Callable[[], list[int]], tmp_path: Path
) -> None:
    for folder in ("kernels", "kernels/called", "kernels/calling"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    callee = tmp_path / "kernels" / "called" / "callee_kernel.py"
    caller = CALLER.replace("from callee_kernel", "from kernels.called.callee_kernel")
    callee.write_text(CALLEE)
    (tmp_path / "kernels" / "calling" / "caller_kernel.py").write_text(caller)
    assert [called(), called()] == [[12, 0], [12, 1]]
    callee.write_text(CALLEE.replace("2 * x", "3 * x").replace("STEP = 10", "STEP = 20"))
    assert called() == [23, 0]


@pytest.mark.extended
@pytest.mark.parametrize("called", [""], indirect=True)
def test_a_change_in_another_module_is_not_answered_from_the_cache(
    called: Callable[[], list[int]], tmp_path: Path
) -> None:
    callee = tmp_path / "callee_kernel.py"
    callee.write_text(CALLEE)
    (tmp_path / "caller_kernel.py").write_text(CALLER)
    assert called() == [12, 0]
    assert called() == [12, 1]
    callee.write_text(CALLEE.replace("2 * x", "3 * x").replace("STEP = 10", "STEP = 20"))
    assert called() == [23, 0]
