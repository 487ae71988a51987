"""The console script's entry point in this process."""

import os
import subprocess
import sys
from collections.abc import Callable
from unittest.mock import patch

import pytest

from capibara_assets.cli.main import main

Done = subprocess.CompletedProcess[str]


@pytest.fixture
def capibara(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The console script's entry point, here: a process of its own takes seconds to import what each case needs.

    An error that is none of the user's is not caught, so it fails the test with its traceback.
    """

    def call(*arguments: str, home: object, **environment: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["capibara", *arguments])
        code = 0
        # commands set variables of their own
        with patch.dict(os.environ, {"CAPIBARA_HOME": str(home), "DAGSTER_HOME": "", **environment}):
            try:
                main()
            except SystemExit as error:
                code = int(error.code or 0)
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return call
