"""Freshness policies: what may grow how old, evaluated by Dagster's own daemon as days pass."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import dagster as dg
import pytest
from dagster._core.loader import LoadingContextForTest
from dagster._core.test_utils import freeze_time, mock_workspace_from_repos
from dagster._daemon.freshness import FreshnessDaemon

from capibara_assets.automation.chosen import choose_domains
from capibara_assets.automation.freshness import freshness_policies, longest_interval_days
from capibara_assets.automation.graph import Graph
from capibara_assets.cli.graph.health_of_results import check_freshness
from capibara_assets.definitions import build
from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.file import AutomationChoice
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError

DAY = 86_400.0
WEEKLY = "0 4 * * 1"


def deployment(**automation: Any) -> Deployment:
    return replace(Deployment.from_environment({}), automation=AutomationChoice.model_validate(automation))


def policies(**automation: Any) -> dict[str, dg.FreshnessPolicy | None]:
    """Of the assets of a code location that have one."""
    specs = build(deployment(**automation)).resolve_all_asset_specs()
    return {spec.key.to_user_string(): spec.freshness_policy for spec in specs if spec.freshness_policy}


class Served:
    """A code location as the daemon sees it: through snapshots, with the instance where its runs are."""

    def __init__(self, instance: dg.DagsterInstance, made: Deployment):
        definitions = build(made)
        self.deployment, self.instance, self.graph = made, instance, Graph.of(definitions)
        self.remote = mock_workspace_from_repos([definitions.get_repository_def()]).asset_graph

    def create_request_context(self) -> Any:
        context = LoadingContextForTest(self.instance)
        cast(Any, context).asset_graph = self.remote
        return context

    def states(self, now: float) -> dict[str, str]:
        """What the daemon writes down at a time, of the assets with a policy."""
        with freeze_time(now):
            list(FreshnessDaemon().run_iteration(cast(Any, self)))
        keys = [node.key for node in self.remote.asset_nodes if node.freshness_policy]
        found = self.instance.get_freshness_state_records(keys)
        return {key.to_user_string(): record.freshness_state.value for key, record in found.items()}

    def doctor(self, now: float) -> str:
        return check_freshness(self.deployment, self.instance, self.graph, now).line


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp() as made:
        choose_domains(made, (Domain.PYTHON, Domain.SQL))
        yield made


def make(instance: dg.DagsterInstance, asset: str, domain: Domain | None, at: float) -> None:
    with freeze_time(at):
        instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=domain and domain.value))


def test_an_evaluation_grows_old_and_is_fresh_again(instance: dg.DagsterInstance) -> None:
    served, made = Served(instance, deployment()), time.time()
    assert served.states(made) == {"evaluation": "UNKNOWN"} and served.doctor(made).startswith("pass")
    for domain in (Domain.PYTHON, Domain.SQL):
        make(instance, "evaluation", domain, made)
    assert served.states(made + 8 * DAY) == {"evaluation": "PASS"}, "a week without use is nothing"
    assert served.states(made + 34 * DAY) == {"evaluation": "PASS"}
    assert served.states(made + 36 * DAY) == {"evaluation": "WARN"}
    assert served.states(made + 3000 * DAY) == {"evaluation": "WARN"}, "it is never red unless the file says so"
    make(instance, "evaluation", Domain.SQL, made + 37 * DAY)
    # Dagster takes the newest partition; the doctor names the domain whose own evaluation is old
    assert served.states(made + 38 * DAY) == {"evaluation": "PASS"}
    assert "1 results have grown old, up to 38 days: evaluation[python]" in served.doctor(made + 38 * DAY)


def test_what_is_served_and_read_fails_where_the_file_says_so(instance: dg.DagsterInstance) -> None:
    days = {"evaluation": None, "promoted_model": {"fail_days": 10}, "e2b_executions": {"warn_days": 1, "fail_days": 3}}
    served, made = Served(instance, deployment(freshness=days)), time.time()
    make(instance, "promoted_model", None, made)
    make(instance, "e2b_executions", Domain.ML, made - 9 * DAY)  # a domain that nobody chose
    make(instance, "e2b_executions", Domain.SQL, made)
    assert served.states(made + 2 * DAY) == {"promoted_model": "PASS", "e2b_executions": "WARN"}
    assert served.doctor(made + 2 * DAY).startswith("warn") and "[ml]" not in served.doctor(made + 2 * DAY)
    assert served.states(made + 11 * DAY) == {"promoted_model": "FAIL", "e2b_executions": "FAIL"}
    line = served.doctor(made + 11 * DAY)
    assert line.startswith("fail") and "2 results" in line and "promoted_model[_], e2b_executions[sql]" in line


def test_the_schedule_of_evaluation_says_when_one_is_late() -> None:
    assert policies() == {"evaluation": window(warn=35)}
    assert window(warn=35).fail_window.to_timedelta().total_seconds() < 2**31, "Dagster's UI has 32 bits for it"
    assert policies(evaluate_again=WEEKLY) == {"evaluation": window(warn=14)}
    own = {"evaluation": {"warn_days": 3, "fail_days": 9}}
    assert policies(evaluate_again=WEEKLY, freshness=own) == {"evaluation": window(warn=3, fail=9)}
    assert policies(evaluate_again=WEEKLY, freshness={"evaluation": None}) == {}
    assert [longest_interval_days(cron) for cron in ("0 4 * * 1-5", "0 4 1 * *", "0 * * * *")] == [3, 31, 1 / 24]
    assert policies(evaluate_again="0 * * * *") == {"evaluation": window(warn=2)}, "a day off is no missed turn"
    with pytest.raises(InputError, match=r"automation\.evaluate_again is 'monday': give a cron expression"):
        build(deployment(evaluate_again="monday"))


def window(**days: float) -> Any:
    freshness = {"evaluation": {f"{name}_days": value for name, value in days.items()}}
    return freshness_policies(AutomationChoice.model_validate({"freshness": freshness}))["evaluation"]
