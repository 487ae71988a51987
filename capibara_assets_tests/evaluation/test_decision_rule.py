"""The decision rule as it is declared: the specification's defaults, what ships, and what does not fit together."""

from pathlib import Path

import pytest

from capibara_assets.deployment.declarations import read_declared, shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.evaluation.decision_rule import DecisionRule, ScoreRule


def declared(tmp_path: Path, text: str) -> DecisionRule:
    file = tmp_path / "decision.yaml"
    file.write_text(text)
    return read_declared(file, DecisionRule)


def test_the_defaults_are_the_specifications():
    rule = DecisionRule().score("python")
    assert (rule.min_score, rule.min_gain) == (0.90, 0.05)
    assert (rule.metric, rule.range, rule.direction) == ("pass@1", (0.0, 1.0), "higher")
    assert (DecisionRule().confidence, DecisionRule().resamples) == (0.95, 10_000)


def test_what_ships_judges_by_the_loss_that_is_saved():
    rule = shipped_recipe("decision", DecisionRule).default
    assert (rule.metric, rule.good, rule.bad) == ("loss_per_assistant_token", 0.0, "base")
    assert (rule.min_score, rule.min_gain) == (0.10, 0.05)


def test_a_domain_states_what_differs(tmp_path: Path):
    rule = declared(
        tmp_path,
        "default: {metric: exact_match, min_score: 0.7}\n"
        "domains:\n  sql: {min_gain: 0.2}\n  python: {metric: pass@10}\n",
    )
    assert rule.score("sql") == ScoreRule(metric="exact_match", min_score=0.7, min_gain=0.2)
    assert rule.score("python") == ScoreRule(metric="pass@10", min_score=0.7)
    assert rule.score("ml") == rule.score("HumanEval") == ScoreRule(metric="exact_match", min_score=0.7)
    assert DecisionRule.model_validate(rule.model_dump()) == rule


def test_a_domain_alone_differs_from_the_defaults(tmp_path: Path):
    assert declared(tmp_path, "domains: {sql: {min_gain: 0.2}}").score("sql") == ScoreRule(min_gain=0.2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default: {metric: accuracy}", "unknown metric 'accuracy'"),
        ("default: {metric: pass@0}", "unknown metric 'pass@0'"),
        ("default: {metric: perplexity}", "direction of perplexity is lower, not higher"),
        ("default: {direction: lower}", "direction of pass@1 is higher, not lower"),
        ("default: {range: [0, base]}", "base may only be the bad end"),
        ("default: {range: [base, 1]}", "and of a loss"),
        ("default: {metric: perplexity, direction: lower, range: [base, 9]}", "base may only be the bad end"),
        ("default: {range: [1, 0]}", "the lowest value comes first"),
        ("default: {range: [0, best]}", "range"),
        ("default: {min_score: 90}", "min_score"),
        ("default: {min_scor: 0.9}", "did you mean 'min_score'"),
        ("domains: {cobol: {min_score: 0.8}}", "cobol"),
        ("domains: {sql: {min_scor: 0.8}}", "did you mean 'min_score'"),
        ("domains: {sql: 0.8}", "sql"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, text: str, said: str):
    with pytest.raises(InputError) as caught:
        declared(tmp_path, text)
    assert said in str(caught.value) and "decision.yaml" in str(caught.value)
