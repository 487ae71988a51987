"""Words and anchors that are sought together are found where each by itself is."""

import random
import time

from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.secrets.rules import provider_rules, provider_rules_for, rules_for
from capibara_assets.executions.secrets.words import seeking

SIGNS = "aAbB.*[](){}^$|?+\\é\u2126\ud800\0\n "
ANCHORS = sorted({anchor for rule in provider_rules() for anchor in rule.anchors})


@given(st.lists(st.text("aAbB.*[](){}^$|?+\\é\0\n ", min_size=1, max_size=4), min_size=1, unique=True), st.text(SIGNS))
def test_a_word_is_found_where_it_stands_and_nowhere_else(words: list[str], text: str) -> None:
    assert sorted(seeking(words).numbers_in(text)) == [number for number, word in enumerate(words) if word in text]


def test_rules_are_told_by_their_anchors() -> None:
    every, chance = provider_rules(), random.Random(7)
    for case in (str, str.upper, str.lower, str.swapcase):
        for _ in range(20):
            text = case(" ".join(chance.choices(ANCHORS, k=5))) + "\ud800 \u2126"
            by_itself = rules_for(text, every)  # rule by rule
            assert by_itself and provider_rules_for(text) == by_itself


def test_a_long_text_is_passed_once_however_many_the_rules() -> None:
    every, text = provider_rules(), "x y z, " * 20_000
    provider_rules_for(text)  # builds what finds them
    started = time.process_time()
    assert provider_rules_for(text) == []
    together = time.process_time()
    assert rules_for(text, every) == []
    assert (together - started) * 10 < time.process_time() - together
