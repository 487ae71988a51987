"""What a training reads besides its own domain's dataset: the others', where a voter trains on all of them."""

from typing import Any

from capibara_assets.assets.inputs import Inputs
from capibara_assets.assets.training import other_datasets
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets_tests.published import Published


def recipe(*strategies: dict[str, Any]) -> TrainingRecipe:
    voters = [{"name": f"v{n}", "seed": n, "shard": n, "strategy": one} for n, one in enumerate(strategies)]
    sections: dict[str, Any] = {"training": {"evaluate_every": 1}, "checkpoint": {"every": 1}}
    return TrainingRecipe.model_validate({"name": "test", "seed": 1, "voters": voters, **sections})


def test_other_domains_are_inputs_only_where_a_voter_trains_on_them(published: Published) -> None:
    sql = published.put("moe_dataset", Domain.SQL, documents={"audit": {}})
    published.put("moe_dataset", Domain.PYTHON, documents={"audit": {}})
    inputs = Inputs(published.instance, published.store.open())
    level = {"name": "own", "data": "domain", "epochs": 1}
    own = recipe({"kind": "plain"}, {"kind": "hierarchical", "levels": [level]})
    assert other_datasets(inputs, Domain.PYTHON, own) == {} and inputs.upstream == {}
    found = other_datasets(inputs, Domain.PYTHON, recipe({"kind": "plain"}, {"kind": "hierarchical"}))
    assert {domain: artifact.digest for domain, artifact in found.items()} == {Domain.SQL: sql.digest}
    # The absent ones are on record, too: an arrival is a change
    expected = {f"moe_dataset|{domain}": "" for domain in DOMAINS if domain != Domain.PYTHON}
    assert inputs.upstream == expected | {"moe_dataset|sql": sql.digest}
