"""The published schemas are those of the code: a change needs a new version, a migration and new files."""

import json
from pathlib import Path

from capibara_assets.cli.dataset.schema import records, schemas

PUBLISHED = Path(__file__).resolve().parents[3] / "docs" / "schemas"


def test_published_schemas_are_current():
    published = {path.stem: json.loads(path.read_text()) for path in PUBLISHED.glob("*.json")}
    current = json.loads(json.dumps(schemas()))
    assert published == current, (
        "a schema changed: raise schema_version, write a migration, run `capibara schema --write`"
    )


def test_every_record_has_a_version_and_a_key():
    for record in records():
        assert record.schema_version >= 1 and record.key, record
        assert set(record.key) <= set(record.model_fields)
