"""Seconds per test module as a table: a plugin of pytest, loaded by `make test-durations`."""

import os
import shlex
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--module-seconds", metavar="FILE", help="write the seconds of each test module to FILE")


def pytest_configure(config: pytest.Config) -> None:
    # The process that was started hears of every test, whichever worker ran it.
    if (path := config.getoption("--module-seconds")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ModuleSeconds(Path(path), config.invocation_params.args), "module-seconds")


class ModuleSeconds:
    """Adds up set-up, call and teardown of the tests of each module."""

    def __init__(self, path: Path, arguments: tuple[str | os.PathLike[str], ...]):
        self.path, self.arguments = path, arguments
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        module = report.nodeid.partition("::")[0]
        self.seconds[module] += report.duration
        self.tests[module] += report.when == "setup"

    def pytest_sessionfinish(self) -> None:
        slowest = sorted(self.seconds.items(), key=lambda item: -item[1])
        command = shlex.join(["python", "-m", "pytest", *map(str, self.arguments)])
        lines = [
            f"# {command}",
            f"# {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores: {sum(self.tests.values())} tests,"
            f" {sum(self.seconds.values()):.0f} s of all workers together",
            "seconds\ttests\tmodule",
            *(f"{seconds:.1f}\t{self.tests[module]}\t{module}" for module, seconds in slowest),
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("\n".join(lines) + "\n")
