"""The domains that the automation materializes: all, until somebody asks for some."""

import dagster as dg
import pytest

from capibara_assets.automation.chosen import add_domains, choose_domains, chosen_domains
from capibara_assets.domains import DOMAINS, Domain


def test_all_domains_until_somebody_chooses():
    with dg.DagsterInstance.ephemeral() as instance:
        assert chosen_domains(instance) == DOMAINS


def test_what_runs_ask_for_adds_up_in_the_order_of_the_partitions():
    with dg.DagsterInstance.ephemeral() as instance:
        assert add_domains(instance, (Domain.SQL,)) == (Domain.SQL,)
        assert add_domains(instance, (Domain.PYTHON,)) == (Domain.PYTHON, Domain.SQL)
        choose_domains(instance, (Domain.ML,))
        assert chosen_domains(instance) == (Domain.ML,)


@pytest.mark.parametrize("root", ["e2b_executions", "consolidated_playbook"])
def test_domains_with_results_stay_when_one_is_run_by_hand_for_the_first_time(root: str):
    with dg.DagsterInstance.ephemeral() as instance:
        for domain in (Domain.API, Domain.ML):
            instance.report_runless_asset_event(dg.AssetMaterialization(root, partition=domain.value))
        assert set(add_domains(instance, (Domain.SQL,))) == {Domain.SQL, Domain.ML, Domain.API}
