"""A plugin of pytest that keeps what the readers' own tests read, as seeds for the bench `fuzz`.

`CAPIBARA_FUZZ_SEEDS` names the folder. Run it where `../shared` is absent: what others wrote is no seed of ours.
"""

import hashlib
import os
from pathlib import Path

from capibara_assets.executions.formats.agents.runs import LogDocument
from capibara_assets.playbooks import read
from capibara_assets.playbooks.formats import detection

LARGEST = 12_000  # bytes: a mutated small log shows as much, a hundred times as often
FOLDER = Path(os.environ["CAPIBARA_FUZZ_SEEDS"])


def keep(data: bytes) -> None:
    if 0 < len(data) <= LARGEST:
        (FOLDER / hashlib.sha256(data).hexdigest()[:20]).write_bytes(data)


def pytest_configure() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    begin = LogDocument.__init__

    def begin_and_keep(document: LogDocument, data: bytes) -> None:
        keep(data)
        begin(document, data)

    LogDocument.__init__ = begin_and_keep  # type: ignore[assignment]
    read_contents = detection.read_contents

    def read_and_keep(data: bytes, *, own_folder: bool) -> detection.Contents:
        keep(data)
        return read_contents(data, own_folder=own_folder)

    vars(read)["read_contents"] = read_and_keep
