"""The card: the Hub reads its front matter, and its figures are those of the decisions."""

from dataclasses import replace

import yaml
from huggingface_hub import ModelCard

from capibara_assets.evaluation.serving.model_card import CardFacts, ServedDomain, card, intervals

GAIN = {"estimate": 0.25, "low": 0.2, "high": 0.3, "n": 60, "groups": 17}
FACTS = CardFacts(
    title="nano with experts for python",
    base_name="nano",
    base_digest="b" * 64,
    base_licence="mit",
    licence="mit",
    licences={"MIT": 40, "none stated": 2},
    credits=["repo (CC-BY-4.0)"],
    examples=42,
    domains=[
        ServedDomain(
            "python", "p" * 64, "better | <b>by far</b>", {"verdict": "promote", "gain_over_base": GAIN, "note": "x"}
        ),
        ServedDomain("sql", None, "inconclusive", {"gain_over_base": GAIN}),
    ],
    merged=None,
    router={
        "trained": True,
        "experts": ["python"],
        "test_accuracy": 0.9,
        "test_prompts": 10,
        "ece": 0.02,
        "answered": 0.75,
    },
    routing={
        "routed": 1.5,
        "oracle": 1.4,
        "merged": 1.9,
        "regret": 0.1,
        "regret_low": 0.05,
        "regret_high": 0.2,
        "prompts": 9,
    },
    commands={"experts": "vllm serve nano"},
)


def test_the_hub_reads_it():
    found = ModelCard(card(FACTS)).data
    assert (found.base_model, found.license, found.library_name) == ("nano", "mit", "peft")
    [result] = found.eval_results
    assert (result.metric_value, result.dataset_split) == (0.25, "test") and "n = 60" in result.metric_name
    assert set(found.tags) == {"capibara-assets", "lora", "python"}


def test_it_says_what_serves_how_good_whose_data_and_the_limits():
    text = card(FACTS)
    for words in (
        "| python | `pppppppppppp` |", "| sql | base model |", "| 0.250 | 0.200 to 0.300 | 60 |", "| MIT | 40 |",
        "- repo (CC-BY-4.0)", "better \\| &lt;b>by far", "Right for 90.0% of 10",
        "regret 0.100, 95 % interval 0.050 to 0.200",
        "leaves 25.0% to the base", "No merged model serves", "No adapter serves in sql", "vllm serve nano",
    ):  # fmt: skip
        assert words in text, words
    assert text == card(FACTS)


def test_figures_without_an_interval_are_not_figures():
    assert intervals({"a": GAIN, "b": 3, "c": {"estimate": 1.0}, "d": None}) == {"a": GAIN}
    arms = {"consensus": {"value": 1.7, "score": GAIN}, "base": {"value": 2.2}}
    assert intervals({"arms": arms}) == {"score_of_consensus": GAIN}


def test_other_licences_are_named_for_the_hub():
    data = yaml.safe_load(card(replace(FACTS, licence="other")).split("---")[1])
    assert data["license"] == "other" and data["license_name"] == "MIT, none stated"


def test_nothing_promoted_is_said_plainly():
    nothing = replace(FACTS, domains=[ServedDomain("sql", None, "inconclusive")], router={}, routing={}, commands={})
    text = card(nothing)
    assert "The base alone serves." in text and "No adapter serves whose evaluation" in text and "There is none" in text
    assert ModelCard(text).data.eval_results is None
