"""What made an adapter, and the proof that a record is not in it."""

import pytest

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.executions.ingest.forgotten import NOTHING, Forgotten, Tombstone, execution_digest
from capibara_assets.lineage.adapters import absence, adapter_trail
from capibara_assets.storage.removal import remove_artifact
from capibara_assets_tests.lineage.conftest import Made, own_shard


def test_a_voter_is_made_of_its_own_part(made: Made) -> None:
    whole, voter = adapter_trail(made.results, "python"), adapter_trail(made.results, "python/v0")
    assert (whole.what, whole.examples, whole.validation) == ("trained_adapters", 39, 4)
    assert whole.certificates == {"python": "certificate-of-python"}
    own = {f"p{i:02d}" for i in range(39) if own_shard(f"g-p{i:02d}") == 0}
    assert (voter.what, voter.examples, voter.validation) == ("voter", 39 - len(own), 1)
    assert set(whole.executions) - set(voter.executions) == own - ({"p02"} if own_shard("g-p01") != 0 else set())
    assert voter.seeds == (42,) and voter.base_model == ("base-digest",)
    assert voter.settings == {"recipe:training": "training-recipe"}


def test_of_the_licences_each_example_counts(made: Made) -> None:
    found = adapter_trail(made.results, "python")
    assert found.licences == {"CC-BY-4.0": 1, "MIT": 38}
    assert found.sources == (("A. Author, example.org", "CC-BY-4.0", 1), ("fixture", "MIT", 38))
    assert found.tenants == {"acme": 1} and found.bullets == ("book/b-2",)


def test_a_consensus_is_made_of_the_voters_it_accepted_and_a_merge_of_all(made: Made) -> None:
    consensus = adapter_trail(made.results, "python/consensus")
    assert [name.split()[0] for name in consensus.voters] == ["python/v0", "python/v2", "python/v3"]
    merged = adapter_trail(made.results, "merged_checkpoint")
    assert len(merged.voters) == 6 and {one.domain for one in merged.datasets} == {"python", "sql"}
    assert "q0" in merged.executions and set(consensus.executions) < set(merged.executions)


@pytest.mark.parametrize("name", ["trained_adapters", "consensus_checkpoint"])
def test_by_the_first_characters_of_a_digest(made: Made, name: str) -> None:
    artifact = made.current[name, "sql"]
    assert adapter_trail(made.results, artifact.digest[:12]).artifact == artifact.digest
    assert adapter_trail(made.results, "sql-v1-weights").name == "sql/v1"


def test_unknown_ones_say_what_there_is(made: Made) -> None:
    with pytest.raises(InputError, match=r"no voter 'v9': the nearest of 4"):
        adapter_trail(made.results, "python/v9")
    with pytest.raises(InputError, match=r"trained_adapters\[ml\] is not materialized"):
        adapter_trail(made.results, "ml")
    with pytest.raises(InputError, match="name a domain, domain/voter"):
        adapter_trail(made.results, "zzzz")


def test_absence_is_proved_over_every_split(made: Made) -> None:
    sql = absence(made.results, "sql", ["p00", "nobody"], NOTHING)
    assert sql.absent and sql.never_seen == ("nobody",)
    found = absence(made.results, "python", ["p39", "q1"], NOTHING)  # p39 only validates
    assert (found.absent, found.found) == (False, ("p39",))
    left_out = absence(made.results, "python/v0", ["p03"], NOTHING)
    assert not left_out.absent
    assert absence(made.results, "merged_checkpoint", ["q1"], NOTHING).found == ("q1",)


@pytest.mark.parametrize("id_of_it", ["P39", " p39", "p39"])
def test_an_id_is_known_in_other_capitals_and_by_its_beginning(made: Made, id_of_it: str) -> None:
    assert absence(made.results, "python", [id_of_it], NOTHING).found == ("p39",)


def test_an_id_that_is_blank_or_of_several_proves_nothing(made: Made) -> None:
    with pytest.raises(InputError, match="is blank"):
        absence(made.results, "python", [" "], NOTHING)
    with pytest.raises(InputError, match=r"'p3' begins the ids of \d+ executions"):
        absence(made.results, "python", ["p3"], NOTHING)


def test_nothing_forgotten_may_be_in_it(made: Made) -> None:
    gone = Forgotten((Tombstone(execution=execution_digest("p07")),))
    assert absence(made.results, "python", [], gone).found == ("p07",)
    assert absence(made.results, "sql", [], gone).absent


def test_nothing_is_said_of_a_dataset_that_is_gone_or_damaged(made: Made) -> None:
    sql, python = made.current["moe_dataset", "sql"], made.current["moe_dataset", "python"]
    remove_artifact(made.store, "moe_dataset", "sql", sql.digest)
    found = absence(made.results, "sql", ["q1"], NOTHING)
    assert not found.absent and found.unknown == (f"moe_dataset|sql {sql.digest} (forgotten)",)
    assert [one.state for one in adapter_trail(made.results, "sql").datasets] == ["forgotten"]
    path = python.path / "examples.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(IntegrityError, match="examples"):
        absence(made.results, "python", ["p00"], NOTHING)


def test_an_adopted_rounds_adapter_names_its_voters_keys_and_the_datasets_that_they_state(made: Made) -> None:
    adopted = made.adopt("ml")
    found = adapter_trail(made.results, "ml/consensus")
    assert [(one.name, one.digest, one.public_key, one.round) for one in found.round_voters] == [
        ("silent", "silent-weights", "key-of-silent", "r" * 64),
        ("told", "told-weights", "key-of-told", "r" * 64),
    ]
    silent, told = found.round_voters
    assert silent.datasets == () and told.datasets == (("ml", "d" * 64), ("sql", "e" * 64))
    assert found.rounds == {"r" * 64: {"table": "t" * 64}} and found.certificates == {"ml": "certificate-of-round"}
    assert found.voters == () and found.datasets == ()  # the store has none of them
    merged = made.put("merged_checkpoint", None, adopted, made.current["consensus_checkpoint", "python"])
    whole = adapter_trail(made.results, merged.digest)
    assert whole.round_voters == found.round_voters and whole.certificates.keys() == {"python", "ml"}
    assert {name.partition("/")[0] for name in whole.voters} == {"python"}


def test_of_an_adopted_rounds_adapter_no_absence_is_proven(made: Made) -> None:
    made.adopt("ml")
    proof = absence(made.results, "ml/consensus", ["p00"], NOTHING)
    assert not proof.absent and proof.found == ()
    assert proof.unknown == tuple(f"data of ml/{name} of round {'r' * 64}" for name in ("silent", "told"))
