"""The pages of a whole materialized graph: each begins with whether it is good and ends with what machines read."""

import os
from unittest.mock import patch

import dagster as dg
import pytest

from capibara_assets.assets.inputs import latest_digests
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.definitions import build
from capibara_assets.metadata.page import INLINE
from capibara_assets_tests.home import MadeHome

pytestmark = pytest.mark.slow
SHOWN_ROWS = 20


def test_every_page_is_in_order(shared_home: MadeHome):
    shown = 0
    with patch.dict(os.environ, {"DAGSTER_HOME": ""}), open_instance(shared_home.deployment) as instance:
        assets = build(shared_home.deployment).resolve_asset_graph().materializable_asset_keys
        for key in assets:
            for partition in latest_digests(instance, key.to_user_string()):
                wanted = dg.AssetRecordsFilter(key, asset_partitions=[partition] if partition else None)
                (record,) = instance.fetch_materializations(wanted, limit=1).records
                assert record.asset_materialization is not None
                check(key.to_user_string(), dict(record.asset_materialization.metadata))
                shown += 1
    assert shown >= len(assets)


def check(name: str, metadata: dict[str, dg.MetadataValue]) -> None:
    names = list(metadata)
    assert names[0] == "verdict" and names[1] == "compared", name
    assert names[-2:] == ["inputs", "digest"], name
    assert isinstance(metadata[names[2]], dg.IntMetadataValue | dg.FloatMetadataValue), f"{name}: Dagster plots it"
    assert len(str(metadata["verdict"].value)) < INLINE, name
    pictures = [names.index(key) for key, value in metadata.items() if "![plot]" in str(value.value)]
    assert pictures == list(range(3, 3 + len(pictures))), name
    for value in metadata.values():
        assert not isinstance(value, dg.TableMetadataValue) or len(value.records) <= SHOWN_ROWS, name
