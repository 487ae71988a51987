"""Results over all domains that are older than their inputs: found by name, in a job of their own."""

import dagster as dg

from capibara_assets.assets.inputs import INPUTS, latest_metadata
from capibara_assets.checks.currency import CURRENCY_CHECKS, NAMES, older_than
from capibara_assets.definitions import defs
from capibara_assets.domains import Domain
from capibara_assets_tests.published import Published

PYTHON, SQL, ML = Domain.PYTHON, Domain.SQL, Domain.ML


def merged_of(published: Published) -> None:
    """A merge of python's expert; ml's was there, and had failed a check; sql has none."""
    expert = published.put("consensus_checkpoint", PYTHON, documents={"losses": 1})
    published.put("consensus_checkpoint", ML, documents={"losses": 1})
    record = {
        "consensus_checkpoint|python": expert.digest,
        "consensus_checkpoint|sql": "",
        "consensus_checkpoint|ml": "",
    }
    published.put("merged_checkpoint", documents={"report": {}}, upstream=record)


def older(published: Published) -> dict[str, str]:
    recorded = latest_metadata(published.instance, "merged_checkpoint")[INPUTS]["upstream"]
    return older_than(published.instance, "merged_checkpoint", recorded)


def test_a_changed_and_an_arrived_input_are_named_one_that_was_left_out_is_not(published: Published):
    merged_of(published)
    assert older(published) == {}
    published.put("consensus_checkpoint", PYTHON, documents={"losses": 2})
    published.put("consensus_checkpoint", SQL, documents={"losses": 2})
    found = older(published)
    assert [*found] == ["consensus_checkpoint|python", "consensus_checkpoint|sql"]
    assert found["consensus_checkpoint|sql"].startswith("consensus_checkpoint[sql] was made anew ")


def test_the_job_says_so_and_fails_nothing(published: Published):
    merged_of(published)
    published.put("consensus_checkpoint", PYTHON, documents={"losses": 2})
    check = next(one for one in CURRENCY_CHECKS if one.check_key.name == "merged_inputs_are_current")
    job = dg.define_asset_job("job", dg.AssetSelection.checks(check))
    merged = dg.AssetSpec("merged_checkpoint")
    result = (
        dg.Definitions([merged], asset_checks=[check], jobs=[job])
        .resolve_job_def("job")
        .execute_in_process(instance=published.instance)
    )
    (found,) = result.get_asset_check_evaluations()
    assert result.success and not found.passed and found.severity == dg.AssetCheckSeverity.WARN
    assert found.metadata["changed"].value == ["consensus_checkpoint|python"]
    assert "consensus\\_checkpoint\\[python\\] was made anew" in (found.description or "")
    assert "materialize merged\\_checkpoint again" in (found.description or "")


def test_every_result_over_all_domains_has_its_check():
    graph = defs.resolve_asset_graph()
    over_all = {key for key in graph.materializable_asset_keys if not graph.get(key).is_partitioned}
    assert {key.to_user_string() for key in over_all if graph.get(key).parent_keys} == NAMES.keys()
    (chosen,) = [job for job in defs.jobs or () if job.name == "check_currency"]
    assert chosen.selection.resolve_checks(graph) == {one.check_key for one in CURRENCY_CHECKS}
