"""The schedule that evaluates again: off unless the deployment says when, for the chosen domains that can be."""

from pathlib import Path

import dagster as dg
import pytest

from capibara_assets.automation.chosen import choose_domains
from capibara_assets.automation.schedules import evaluate_again
from capibara_assets.definitions import defs
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets_tests.published import Published


def test_it_is_off_by_default_and_a_wrong_time_is_refused():
    assert evaluate_again(None).default_status is dg.DefaultScheduleStatus.STOPPED
    on = evaluate_again("15 3 * * *")
    assert (on.default_status, on.cron_schedule) == (dg.DefaultScheduleStatus.RUNNING, "15 3 * * *")
    with pytest.raises(InputError, match=r"automation\.evaluate_again is 'monday': give a cron expression"):
        evaluate_again("monday")


def test_it_evaluates_the_chosen_domains_that_have_a_consensus(tmp_path: Path):
    with (
        dg.DagsterInstance.local_temp() as instance,
        dg.build_schedule_context(instance=instance, repository_def=defs.get_repository_def()) as context,
    ):
        published = Published.afresh(instance, tmp_path)
        choose_domains(instance, (Domain.PYTHON, Domain.SQL))
        assert "none of python, sql has" in (evaluate_again(None).evaluate_tick(context).skip_message or "")
        for domain in (Domain.SQL, Domain.ML):
            published.put("consensus_checkpoint", domain, documents={"losses": 1})
        tick = evaluate_again(None).evaluate_tick(context)
        assert [one.partition_key for one in tick.run_requests or ()] == ["sql"]
