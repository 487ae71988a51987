"""What an evaluation reads: what its dataset was made from, what its contenders trained on; once each."""

import pytest

from capibara_assets.assets.evaluation_inputs import executions_of, training_examples
from capibara_assets.datasets.schema import Example
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.executions.schema import Execution
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.records import table
from capibara_assets_tests.evaluation.contenders.test_contenders import example
from capibara_assets_tests.evaluation.items.test_items import execution
from capibara_assets_tests.published import Published

PYTHON, SQL = Domain.PYTHON, Domain.SQL


def patterns(published: Published, domain: Domain, *numbers: int) -> Artifact:
    rows = table(Execution, [execution(number, "x = 1") for number in numbers])
    return published.put("e2b_patterns", domain, tables={"executions": (Execution, rows)})


def test_executions_are_those_that_the_dataset_names_of_all_domains(published: Published):
    old = {f"e2b_patterns|{d}": patterns(published, d, n, 2).digest for n, d in enumerate((PYTHON, SQL))}
    groups = published.put("example_groups", documents={"statistics": {}}, upstream=old)
    patterns(published, SQL, 7)
    dataset = published.put(
        "moe_dataset", PYTHON, documents={"statistics": {}}, upstream={"example_groups|_": groups.digest}
    )
    found = executions_of(published.inputs(), dataset)
    assert sorted(found["execution_id"].to_list()) == ["e0", "e1", "e2"]


def test_where_a_result_of_then_is_no_more_the_newest_stands_in(published: Published):
    groups = published.put("example_groups", documents={"statistics": {}}, upstream={f"e2b_patterns|{SQL}": "0" * 64})
    patterns(published, SQL, 7)
    made = published.put(
        "moe_dataset", PYTHON, documents={"statistics": {}}, upstream={"example_groups|_": groups.digest}
    )
    assert executions_of(published.inputs(), made)["execution_id"].to_list() == ["e7"]


def dataset(published: Published, domain: Domain, *numbers: int) -> Artifact:
    rows = [example(n, split=split) for n, split in zip(numbers, ("train", "validation", "test"), strict=True)]
    return published.put("moe_dataset", domain, tables={"examples": (Example, table(Example, rows))})


def test_training_examples_are_those_of_every_expert_as_its_certificate_says(published: Published):
    own, trained_on = dataset(published, PYTHON, 0, 1, 2), dataset(published, SQL, 3, 4, 5)
    dataset(published, SQL, 6, 7, 8)  # a newer one that the expert has not seen
    consensus = {
        domain: published.put(
            "consensus_checkpoint", domain, documents={"certificate": {"context": {"moe_dataset": made.digest}}}
        )
        for domain, made in ((PYTHON, own), (SQL, trained_on))
    }
    found = training_examples(published.inputs(), PYTHON, own, consensus)
    assert sorted(found["example_id"].to_list()) == ["e000", "e001", "e003", "e004"]


def test_a_result_that_is_needed_is_read_once_and_its_absence_is_an_error(published: Published):
    made = published.put("consensus_checkpoint", SQL, documents={"certificate": {}})
    inputs = published.inputs()
    assert inputs.every("consensus_checkpoint", needed=SQL).keys() == {SQL}
    assert inputs.upstream[f"consensus_checkpoint|{SQL}"] == made.digest
    with pytest.raises(InputError, match=r"consensus_checkpoint\[python\] is not materialized yet"):
        inputs.every("consensus_checkpoint", needed=PYTHON)
