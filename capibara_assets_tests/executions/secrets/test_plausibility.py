"""Random or a word: what decides where a rule's shape alone does not."""

import random
import string

import pytest

from capibara_assets.executions.secrets.characters import improbable, letters_at_random
from capibara_assets.executions.secrets.plausibility import (
    assigned_secret,
    bare_password,
    chosen_password,
    credential,
    filled_in,
    random_looking,
    strong_password,
    token,
)


def drawn(alphabet: str, length: int, count: int = 300) -> list[str]:
    generator = random.Random(7)
    return ["".join(generator.choices(alphabet, k=length)) for _ in range(count)]


@pytest.mark.parametrize(
    ("alphabet", "length"),
    [
        (string.hexdigits.lower()[:16], 32),
        (string.hexdigits.lower()[:16], 64),
        (string.ascii_letters + string.digits, 32),
        (string.ascii_letters + string.digits, 48),
        (string.ascii_letters + string.digits + "+/", 40),
    ],
)
def test_random_values_of_a_named_secret_look_random(alphabet: str, length: int) -> None:
    values = drawn(alphabet, length)
    assert sum(map(assigned_secret, values)) >= 0.98 * len(values)
    assert sum(map(random_looking, values)) >= 0.95 * len(values)


@pytest.mark.parametrize(
    "value",
    [
        "AutoModelForSequenceClassification",
        "DaysFromJoinToFirstTransaction",
        "customer_identifier_column_2",
        "bert-base-uncased-2023-finetuned",
        "/usr/local/lib/python3.11/site-packages",
        "claude-3-5-sonnet-20241022",
        "00000000000000000000000000000000",
        "YOUR_API_KEY_GOES_RIGHT_HERE",
        "this is a sentence about tokens",
    ],
)
def test_names_paths_and_sentences_do_not(value: str) -> None:
    assert not assigned_secret(value)
    assert not random_looking(value)


@pytest.mark.parametrize(
    "value", ["hunter2", "password1", "Passwort", "letmein", "./data/Foo-1.csv", "<PASSWORD:1>", "%s"]
)
def test_words_of_documentation_are_no_passwords(value: str) -> None:
    assert not strong_password(value)


@pytest.mark.parametrize("value", ["tR7#kq_2Lm!9", "CorrectHorse9battery", "v9-Xq2_Zp4"])
def test_mixed_sorts_of_characters_are(value: str) -> None:
    assert strong_password(value)


def test_a_blank_key_is_none() -> None:
    assert not filled_in("hf_" + "x" * 34)
    assert not token("sk-your-key-goes-here-123")
    assert token("sk-" + drawn(string.ascii_letters, 40)[0])


@pytest.mark.parametrize("length", [16, 24, 32])
def test_small_letters_and_digits_at_random_are_told_from_words(length: int) -> None:
    """Their letters alone make runs of four, as words do."""
    values = drawn(string.ascii_lowercase + string.digits, length)
    assert sum(map(credential, values)) >= 0.93 * len(values)
    names = ["bucketname2prod4eu", "V1AzureFileVolumeSource", "step2transformer3decoder", "utf8encodedstream2"]
    assert not any(map(credential, names))


@pytest.mark.parametrize(("value", "chosen"), [("changeme123", False), ("change-me!22", False), ("changeMe99x", True)])
def test_a_word_of_documentation_with_letters_behind_its_number_is_chosen(value: str, chosen: bool) -> None:
    assert chosen_password(value) is chosen


@pytest.mark.parametrize(("value", "chosen"), [("fluffy_cat_77", True), ("user_input_22", False), ("row_of_22", False)])
def test_words_and_a_number_are_no_name_unless_they_are_of_code(value: str, chosen: bool) -> None:
    assert bare_password(value) is chosen


def test_letters_at_random_are_told_from_names_of_classes() -> None:
    values = drawn(string.ascii_letters, 16)
    assert sum(map(letters_at_random, values)) >= 0.94 * len(values)
    signed = ["RkryBhTeKolydakhzb!w", "zu!KmXqIPsaDAoXw", "kAbXZ.wEHlX-nSqR"]
    assert all(map(letters_at_random, signed))
    names = [
        "XMLHttpRequest_getXByName",
        "OAuthTokenProvider",
        "getUserByName",
        "BertForMaskedLM",
        "AppHealthCheck",
        "AzureDevOpsClient",
        "lowercase",
    ]
    assert not any(map(letters_at_random, names))


def test_random_values_without_digits_among_their_letters_are_improbable() -> None:
    values = drawn(string.ascii_letters + string.digits, 16, 4000)
    assert sum(not (credential(value) or improbable(value)) for value in values) <= 0.01 * len(values)
    names = ["getHTTPSResponseCode", "XMLHttpRequestBody", "BackfillJobName", "LibUVStoreDaemon", "ReadJoystickXAxis"]
    assert not any(map(improbable, [*names, "ABCDEFGHIJKLMNOP", "RendezvousJoinOperation", "onZoomRejectedByUser"]))
