"""The n-gram yardstick: a proper distribution, a hand-computed example, and sane losses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workshop.base_model.ngram import fit_ngram

_STREAMS = st.lists(st.integers(0, 6), min_size=5, max_size=80)


@given(_STREAMS, st.lists(st.integers(0, 7), min_size=4, max_size=4))
def test_probabilities_sum_to_one_in_any_context(stream: list[int], context: list[int]) -> None:
    model = fit_ngram(np.array(stream), vocabulary=8, order=5)
    probabilities = model.probabilities(np.tile(context, (8, 1)), np.arange(8))
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert (probabilities > 0).all()


def test_bigram_by_hand() -> None:
    """Stream a b a c a b over the vocabulary {a, b, c, d}.

    Bigrams: ab 2, ba 1, ac 1, ca 1, so n1 = 3, n2 = 1 and D2 = 3 / 5. Continuation counts of the unigrams: a 2
    (after b, c), b 1, c 1, of 4 distinct bigrams; n1 = 2, n2 = 1, so D1 = 2 / 4.
    """
    a, b, c, d = range(4)
    model = fit_ngram(np.array([a, b, a, c, a, b]), vocabulary=4, order=2)
    spare = 0.5 * 3 / 4  # what the unigrams leave to the uniform distribution
    unigram = {a: (2 - 0.5) / 4 + spare / 4, b: 0.5 / 4 + spare / 4, c: 0.5 / 4 + spare / 4, d: spare / 4}
    after_a = {b: (2 - 0.6) / 3, c: (1 - 0.6) / 3}
    for token in (a, b, c, d):
        expected = after_a.get(token, 0.0) + 0.6 * 2 / 3 * unigram[token]
        assert model.probabilities(np.array([[a]]), np.array([token]))[0] == pytest.approx(expected)
        # d was never seen as a context: the unigrams alone decide.
        assert model.probabilities(np.array([[d]]), np.array([token]))[0] == pytest.approx(unigram[token])


def test_losses_are_those_of_single_look_ups() -> None:
    rng = np.random.default_rng(0)
    stream = rng.integers(0, 5, 200)
    model = fit_ngram(stream, vocabulary=5, order=3)
    losses = model.losses(stream, batch=7)
    assert losses.shape == (198,)
    single = [-np.log(model.probabilities(stream[None, i - 2 : i], stream[i : i + 1])[0]) for i in range(2, 200)]
    np.testing.assert_allclose(losses, single)


def test_a_rhythm_is_learned_and_noise_is_not() -> None:
    rhythm = np.tile([0, 1, 2, 3], 500)
    noise = np.random.default_rng(1).integers(0, 4, 4000)
    assert fit_ngram(rhythm, 4).losses(rhythm).mean() < 0.05
    trained, fresh = noise[:2000], noise[2000:]
    assert fit_ngram(trained, 4).losses(fresh).mean() > np.log(4) - 0.01


def test_impossible_models_are_refused() -> None:
    with pytest.raises(ValueError, match="63-bit"):
        fit_ngram(np.arange(100), vocabulary=2**16, order=5)
    with pytest.raises(ValueError, match="no 5-gram"):
        fit_ngram(np.arange(3), vocabulary=8, order=5)
