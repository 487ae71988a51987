"""Contenders named one by one: losses of the same tokens whatever the prompt around, crashes named, runs kept apart."""

from pathlib import Path

import pytest

from capibara_assets.deployment.declarations import declared
from capibara_assets.evaluation.contenders.contenders import (
    EndpointContender,
    Framing,
    ModelContender,
    StoredContender,
)
from capibara_assets.evaluation.contenders.endpoints import Endpoint
from capibara_assets.evaluation.evaluate import notes
from capibara_assets.evaluation.measuring.domain import DomainModels, domain_losses
from capibara_assets.evaluation.measuring.named import measure_named, model_losses
from capibara_assets.evaluation.recipe import EvaluationRecipe
from capibara_assets.modeling.base import Base
from capibara_assets_tests.evaluation.contenders.test_contenders import adapter
from capibara_assets_tests.evaluation.test_evaluate import ITEMS

RECIPE = declared(
    EvaluationRecipe,
    {"generation": {"max_items": 2}, "decoding": {"max_new_tokens": 4}, "max_length": 256},
    "here",
)
DEMOS = (
    {"role": "user", "content": "Write a function that returns 1."},
    {"role": "assistant", "content": "def one():\n    return 1"},
)
FEW = ITEMS[:4]


def test_worked_examples_are_read_but_have_no_loss(base: Base):
    plain = model_losses(ModelContender("plain", base), FEW, 256)
    framed = model_losses(ModelContender("framed", base, framing=Framing("Be brief.", DEMOS)), FEW, 256)
    assert {item: row.tokens for item, row in framed.items()} == {item: row.tokens for item, row in plain.items()}
    assert all(framed[item].nll != plain[item].nll for item in plain)


def test_a_contender_has_the_same_losses_named_as_among_those_of_a_domain(base: Base):
    playbook, rule = "Check the type of every argument.", adapter(2)
    domain = DomainModels("python", base, playbook, rule)
    names = ["base", "playbook", "consensus", "consensus+playbook"]
    losses = domain_losses(domain, FEW, RECIPE, names)
    assert losses["contender"].unique().sort().to_list() == names[:1] + names[2:] + names[1:2]
    for name in names:
        named = model_losses(domain.model(name), FEW, RECIPE.max_length)
        of_domain = losses.filter(contender=name)
        assert dict(of_domain.select("example_id", "nll").iter_rows()) == {item: row.nll for item, row in named.items()}


def test_models_prompts_and_former_runs_side_by_side(base: Base):
    texts = {(item.item_id, 0): (item.reference, None, "stop") for item in FEW[:3]}
    found = measure_named(
        [
            ModelContender("base", base),
            ModelContender("tuned", base, adapter(1)),
            StoredContender("former", Path("former.jsonl"), texts),
            StoredContender("scored", Path("scores.jsonl"), scores={item.item_id: 1.0 for item in FEW}),
        ],
        FEW,
        RECIPE,
        "pass@1",
    )
    assert found.contenders == ["base", "tuned", "former", "scored"] and found.crashed == {}
    assert set(found.losses["contender"]) == {"base", "tuned"} and found.losses.height == 8
    asked = {answer.item_id for answer in found.answers}
    assert len(asked) == 2 and asked <= {item for item, _ in texts}
    lost = [why for why in found.left_out.values() if "no answer" in why]
    assert lost == ["former.jsonl holds no answer"]  # who hands in answers does not choose the questions unseen
    assert "1 of 4 items left out for all contenders: former.jsonl holds no answer" in notes(FEW, found, [], {})
    assert {answer.contender for answer in found.answers} == {"base", "tuned", "former"}
    assert found.stored == {"scored": ("pass@1", {item.item_id: 1.0 for item in FEW})}


def test_what_fails_is_named_and_the_others_go_on(base: Base, tmp_path: Path):
    nobody = Endpoint("openai", "http://127.0.0.1:9", "m", timeout_s=1.0, attempts=1)
    found = measure_named(
        [
            ModelContender("base", base),
            ModelContender("absent", tmp_path / "absent"),
            EndpointContender("endpoint", nobody),
        ],
        FEW,
        RECIPE,
        "pass@1",
    )
    assert set(found.crashed) == {"absent", "endpoint"} and "127.0.0.1:9" in found.crashed["endpoint"]
    assert {answer.contender for answer in found.answers} == {"base"}


def test_losses_of_another_tokenizer_are_not_compared(base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from capibara_assets.evaluation.measuring import named as named_measures

    real = named_measures.model_losses

    def doubled(contender: ModelContender, *rest: object) -> dict:
        found = real(contender, *rest)
        if contender.name != "other":
            return found
        return {item: row.model_copy(update={"tokens": 2 * row.tokens}) for item, row in found.items()}

    monkeypatch.setattr(named_measures, "model_losses", doubled)
    found = measure_named([ModelContender("base", base), ModelContender("other", base)], FEW, RECIPE, "pass@1")
    assert found.other_tokens == ("other",) and set(found.losses["contender"]) == {"base"}
    assert {answer.contender for answer in found.answers} == {"base", "other"}
