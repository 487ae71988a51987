"""Gaps: 15 %, of which 80/10/10, never a special token, and the same for the same key wherever it is asked."""

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.tokens.masking import Masking
from capibara_assets.datasets.tokens.tokenising import Encoded

MASKING = Masking(mask_id=4, ordinary=np.arange(5, 1000))


def example(length: int, seed: int = 0) -> Encoded:
    ids = np.random.RandomState(seed).randint(5, 1000, length).tolist()
    return Encoded([2, *ids, 3], [-100, *ids, -100], length)


def test_shares_over_many_tokens() -> None:
    whole = example(100_000)
    seen = MASKING.hidden(whole, 1, "step", "e1")
    labels, ids, shown = (np.array(values) for values in (seen.labels, whole.input_ids, seen.input_ids))
    gaps = labels != -100
    assert gaps.sum() == seen.supervised == 15_000
    assert (labels[gaps] == ids[gaps]).all() and (shown[~gaps] == ids[~gaps]).all()
    assert abs((shown[gaps] == 4).mean() - 0.8) < 0.01
    assert abs((shown[gaps] == ids[gaps]).mean() - 0.1) < 0.01
    others = shown[gaps & (shown != 4) & (shown != ids)]
    assert abs(len(others) / 15_000 - 0.1) < 0.01 and others.min() >= 5 and len(set(others)) > 700


@given(length=st.integers(1, 60), step=st.integers(0, 10**6), name=st.text(max_size=5))
def test_at_least_one_gap_and_none_at_a_special_token(length: int, step: int, name: str) -> None:
    seen = MASKING.hidden(example(length), "seed", step, name)
    assert seen.supervised == max(1, round(0.15 * length)) == sum(label != -100 for label in seen.labels)
    assert seen.input_ids[0] == 2 and seen.input_ids[-1] == 3 and seen.labels[0] == seen.labels[-1] == -100
    assert seen == MASKING.hidden(example(length), "seed", step, name)


def test_another_step_or_example_has_other_gaps_and_another_process_the_same() -> None:
    one = MASKING.hidden(example(200), "s", 3, "e1")
    assert len({tuple(one.labels), *(tuple(MASKING.hidden(example(200), "s", *key).labels)
                                     for key in ((4, "e1"), (3, "e2")))}) == 3  # fmt: skip
    code = (
        "import numpy as np; from capibara_assets.datasets.tokens.masking import Masking;"
        "from capibara_assets_tests.datasets.tokens.test_masking import MASKING, example;"
        "print(MASKING.hidden(example(200), 's', 3, 'e1').input_ids)"
    )
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert again.strip() == str(one.input_ids)
