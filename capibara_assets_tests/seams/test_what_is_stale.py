"""`capibara run` and the UI decide alike what has to be made; where they differ, decision 0013 says why."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest

from capibara_assets.automation.outcome import Task
from capibara_assets.automation.pipeline import GraphRun
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.cli.graph.opened import graph_run
from capibara_assets.domains import Domain
from capibara_assets_tests.home import DOMAINS, MadeHome
from capibara_assets_tests.reliability.test_automation import drop_new_sql_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
CHOSEN = tuple(Domain(name) for name in DOMAINS)
Results = set[tuple[str, str | None]]


@dataclass
class Both:
    """The two deciders on one deployment."""

    made: MadeHome
    instance: dg.DagsterInstance
    cursor: Any = None

    @property
    def run(self) -> GraphRun:
        return graph_run(self.made.deployment, self.instance, force=False)

    def requested(self) -> Results:
        """What one tick of the automation conditions requests."""
        definitions = self.run.definitions
        tick = dg.evaluate_automation_conditions(definitions, self.instance, cursor=self.cursor)
        self.cursor = tick.cursor
        keys = definitions.resolve_asset_graph().materializable_asset_keys
        return {(key.to_user_string(), p) for key in keys for p in tick.get_requested_partitions(key) or ()}

    def to_make(self) -> Results:
        """What `capibara run` makes first: what is not current, and stands behind nothing else that is not."""
        run = self.run
        graph = run.graph
        held = graph.held(self.instance, graph.parents)
        behind: set[str] = set()
        first: Results = set()
        for name, parents in graph.parents.items():  # topological order
            partitions = CHOSEN if graph.partitioned[name] else (None,)
            stale = {one for one in partitions if parents and not run.is_current(name, one, held)}
            if parents & behind:
                behind.add(name)
            elif stale:
                behind.add(name)
                first |= {(name, one and one.value) for one in stale}
        return first

    def make(self, asset: str, partition: Domain | None = None) -> None:
        assert not self.run.materialize(Task((asset,), partition), print).failures


@pytest.fixture
def both(made: MadeHome) -> Iterator[Both]:
    """With the automation's first look behind it: changes are what comes later."""
    with open_instance(made.deployment) as instance:
        both = Both(made, instance)
        assert both.requested() == set(), "what is current is left alone"
        yield both


def test_both_leave_alone_what_is_current_and_follow_a_new_log(both: Both):
    assert both.to_make() == set()  # as the fixture's look requested nothing
    drop_new_sql_session(both.made)
    both.make("e2b_logs")
    assert both.requested() == both.to_make() == {("e2b_executions", "python"), ("e2b_executions", "sql")}


@pytest.mark.extended
def test_both_stop_where_a_log_changes_nothing_and_make_again_what_was_wiped(both: Both):
    drop_new_sql_session(both.made)
    both.make("e2b_logs")
    for domain in CHOSEN:
        both.make("e2b_executions", domain)
    assert both.requested() == both.to_make() == {("e2b_patterns", "sql")}
    both.make("e2b_patterns", Domain.SQL)
    both.instance.wipe_assets([dg.AssetKey("consolidated_playbook")])
    wiped = {("consolidated_playbook", domain.value) for domain in CHOSEN}
    assert both.requested() == both.to_make() == wiped


@pytest.mark.extended
def test_a_changed_recipe_is_for_the_command_alone(both: Both):
    """A training does not start because somebody edits a file while the UI is open."""
    recipe = both.made.folder / "recipes" / "dataset.yaml"
    recipe.write_text(recipe.read_text().replace("solutions_per_task: 3", "solutions_per_task: 2"))
    assert both.to_make() == {("example_groups", None)}
    assert both.requested() == set()


@pytest.mark.extended
def test_a_request_that_nobody_fulfilled_is_for_the_command_alone(both: Both):
    """A run that was killed goes on when it is started again; if conditions did that, too, one decider would do."""
    drop_new_sql_session(both.made)
    both.make("e2b_logs")
    asked = both.requested()
    assert asked == both.to_make() != set()
    assert both.requested() == set()
    assert both.to_make() == asked
