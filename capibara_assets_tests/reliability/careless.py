"""A writer that syncs nothing, and loads no library: `python -m capibara_assets_tests.reliability.careless FOLDER`."""

import sys
from pathlib import Path


def write(folder: Path, text: str) -> None:
    (folder / "part").write_text(text * 1000)
    (folder / "part").rename(folder / "whole")


if __name__ == "__main__":
    write(Path(sys.argv[1]), "b")
