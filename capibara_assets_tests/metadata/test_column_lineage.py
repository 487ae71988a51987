"""The lineage of columns is held against the record types, the graph, and what a whole run made."""

import dagster as dg
import polars as pl
import pytest

from capibara_assets.assets.inputs import COLUMNS, Inputs, latest_metadata
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.datasets.schema import Example, Group, Route
from capibara_assets.definitions import defs
from capibara_assets.domains import Domain
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.executions.schema import Execution
from capibara_assets.metadata.column_lineage import COLUMN_LINEAGE, MADE_FROM, column_lineage
from capibara_assets.playbooks.schema import Bullet, Consolidated
from capibara_assets.resources import Store
from capibara_assets.storage.records import Record
from capibara_assets_tests.home import MadeHome

TABLES: dict[str, type[Record]] = {
    "ace_playbooks": Bullet,
    "e2b_logs": Execution,
    "e2b_executions": Execution,
    "consolidated_playbook": Consolidated,
    "e2b_patterns": Execution,
    "example_groups": Group,
    "imported_examples": Example,
    "moe_dataset": Example,
    "routing_dataset": Route,
    "evaluation": ExampleLoss,
}
MADE_THERE = {
    "moe_dataset": {"example_id", "kind", "derived", "weight", "balance", "verified", "not_replayed", "provenance"},
    "evaluation": {"contender"},
}
"""Columns that a stage makes itself: an id, a label, a figure over many rows."""


@pytest.mark.parametrize("asset", sorted(MADE_FROM))
def test_each_column_comes_from_one_that_is_there(asset: str) -> None:
    graph = defs.resolve_asset_graph()
    upstream = {key.to_user_string() for key in graph.get(dg.AssetKey(asset)).parent_keys}
    columns = set(TABLES[asset].model_fields)
    assert set(MADE_FROM[asset]) == columns - MADE_THERE.get(asset, set())
    for column, sources in MADE_FROM[asset].items():
        assert sources, column
        for source, name in sources:
            assert source in upstream, f"{asset}.{column}: {source} is not what {asset} is made from"
            assert name in TABLES[source].model_fields, f"{asset}.{column}: {source} has no column {name}"


def test_an_asset_of_which_nothing_is_known_has_none() -> None:
    assert column_lineage("ace_playbooks", ["bullet_id"]) is None
    some = column_lineage("evaluation", ["nll", "contender"])
    assert some is not None and set(some.deps_by_column) == {"nll"}


COPIED = {
    "e2b_executions": ("execution_id", "sandbox_id", "code", "record_digest"),
    "consolidated_playbook": ("bullet_id", "origins", "agents"),
    "example_groups": ("unit_id", "sandbox_id"),
    "moe_dataset": ("group_id", "execution_ids", "bullet_ids", "sandbox_ids", "tenants"),
    "routing_dataset": ("group_id", "domains"),
    "evaluation": ("example_id", "group_id"),
}
"""Columns whose values are values of the columns that they are made from."""
FIRST = dict.fromkeys(("e2b_logs", "e2b_executions", "e2b_patterns"), "executions") | {
    "ace_playbooks": "bullets",
    "consolidated_playbook": "bullets",
    "example_groups": "groups",
    "moe_dataset": "examples",
    "imported_examples": "examples",
    "routing_dataset": "routes",
    "evaluation": "losses",
}


@pytest.mark.slow
def test_what_a_run_made_says_the_same_and_copied_values_are_upstream(shared_home: MadeHome) -> None:
    domain, deployment = Domain.SQL, shared_home.deployment
    store = Store(root=deployment.store, work=str(deployment.work)).open()
    with open_instance(deployment) as instance:
        inputs = Inputs(instance, store)

        def partitioned(asset: str) -> bool:
            return defs.resolve_asset_graph().get(dg.AssetKey(asset)).is_partitioned

        def values(asset: str, column: str) -> set[str]:
            found: set[str] = set()
            for where in Domain if partitioned(asset) else (None,):
                if (artifact := inputs.available(asset, where)) is not None:
                    given = artifact.frame(FIRST[asset])[column]
                    found |= set((given.explode() if isinstance(given.dtype, pl.List) else given).drop_nulls())
            return found

        for asset, sources in MADE_FROM.items():
            shown = latest_metadata(instance, asset, domain.value if partitioned(asset) else None)
            lineage = shown[COLUMN_LINEAGE]
            told = {
                column: {(dep.asset_key.to_user_string(), dep.column_name) for dep in deps}
                for column, deps in lineage.deps_by_column.items()
            }
            assert told == {column: set(given) for column, given in sources.items()}, asset
            assert set(told) <= {column.name for column in shown[COLUMNS].columns}, asset
            for column in COPIED.get(asset, ()):
                upstream = set().union(*(values(source, name) for source, name in sources[column]))
                assert values(asset, column) <= upstream, f"{asset}.{column}"
