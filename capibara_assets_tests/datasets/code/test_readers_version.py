"""What is kept of a text, and the name it is kept under, are what `READERS_VERSION` stands for."""

import gzip
import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code import sessions
from capibara_assets.datasets.code.structure import structural_key
from capibara_assets.datasets.duplicates.readings import readings
from capibara_assets.executions.patterns.extract import idioms_of
from capibara_assets.storage import kept
from capibara_assets.storage.kept import keeping
from capibara_assets_tests.datasets.duplicates.test_readings import CODES as ODD_CODES
from capibara_assets_tests.datasets.duplicates.test_readings import plain
from capibara_assets_tests.executions.ingest.test_reading_version import KNOWN_LOGS

KNOWN = {"texts": "d5220647637d850b", "readings": "b9ccd31efd43ce3e"}


def codes() -> list[tuple[str, str]]:
    """(language, text) of a day of real executions in three languages, and texts that do not parse."""
    (log,) = KNOWN_LOGS.iterdir()
    logged = [json.loads(line) for line in gzip.decompress(log.read_bytes()).splitlines()]
    return [*dict.fromkeys((record["language"], record["code"]) for record in logged), *ODD_CODES]


def test_a_change_of_what_is_kept_raises_the_version(tmp_path: Path) -> None:
    texts = codes()
    with keeping(tmp_path):
        for language, code in texts:
            dissect(code, language)
            structural_key(code, language)
            sessions.statements(code, language)
            idioms_of(language, code)
    (file,) = tmp_path.iterdir()
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute("SELECT key, value, sum FROM cached ORDER BY key").fetchall()
    assert len(rows) >= 3 * len(texts)
    found = {
        "texts": hashlib.sha256(b"".join(part for row in rows for part in row)).hexdigest()[:16],
        "readings": hashlib.sha256(repr(plain(readings(texts, 5))).encode("utf-8", "surrogatepass")).hexdigest()[:16],
    }
    assert found == KNOWN, (
        "Texts are read otherwise, or kept under other names, than READERS_VERSION in storage/kept.py stands for: raise"
        " it there, so that they are read again, and put what was found here into KNOWN"
    )


def test_another_version_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept.program_digest.__wrapped__()
    monkeypatch.setattr(kept, "READERS_VERSION", "another")
    assert kept.program_digest.__wrapped__() != before
