"""A provider's precise shape tells a secret in any file; what only resembles one does not stop an export."""

import pytest

from capibara_assets.executions.secrets.shaped import find_shaped, has_shape, precise_rules

TOKEN = "ghp" + "_q7RzT2mXc9LwVb4KpN8dHs3YfJ6gAe1UoWi0"
AWS = "AKIA" + "Q3RZT7MXC9LWVB4K"


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        (f'{{"github_token": "{TOKEN}"}}', TOKEN, "GITHUB_TOKEN"),
        (f"line\\n{TOKEN}\\n", TOKEN, "GITHUB_TOKEN"),
        (f"aws_access_key_id={AWS}", AWS, "AWS_ACCESS_KEY_ID"),
        ("x" * 100_000 + f" {AWS} " + "y" * 100_000, AWS, "AWS_ACCESS_KEY_ID"),
    ],
)
def test_a_shape_is_found_wherever_it_stands(text: str, value: str, kind: str) -> None:
    (found,) = find_shaped(text)
    assert text[found.start : found.end] == value and found.kind == kind and has_shape(value)


@pytest.mark.parametrize(
    "text",
    [
        "<GITHUB_TOKEN:1> and <AWS_ACCESS_KEY_ID:0>",
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp" + "_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "4b1d" + "0f" * 30,  # a digest, which begins as a key of ClickHouse
        "test_" + "0f" * 16,
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIN\n-----END PRIVATE KEY-----",  # a deployment's own
        "password = 'kT9x2LmQ8vR4wZ7p'",
        f"x{TOKEN}",
        "",
    ],
)
def test_nothing_else_is(text: str) -> None:
    assert find_shaped(text) == []


def test_a_rule_counts_whose_every_beginning_is_a_providers_own() -> None:
    anchors = {anchor for rule in precise_rules() for anchor in rule.anchors}
    assert {"ghp_", "AKIA", "sk-ant-", "hf_", "glpat-"} <= anchors
    assert not anchors & {"s.", ":", ".", "SK", "aws", "secret_", "live_", "test_", "4b1d", "PRIVATE KEY"}
