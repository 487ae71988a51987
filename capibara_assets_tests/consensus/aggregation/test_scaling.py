"""Classical scaling against points whose distances are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.consensus.aggregation.geometry import classical_scaling


def distances(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points[:, None] - points[None, :], axis=2)


@given(st.integers(2, 12), st.integers(0, 100), st.floats(1e-6, 1e6))
def test_points_of_a_plane_come_back_with_their_distances(n: int, seed: int, size: float):
    points = size * np.random.default_rng(seed).standard_normal((n, 2))
    found, stress = classical_scaling(distances(points))
    assert distances(found) == pytest.approx(distances(points), rel=1e-5, abs=1e-6 * size)
    assert stress < 1e-6


def test_a_square_has_its_sides_and_diagonals():
    square = np.array([[0, 0], [3, 0], [3, 4], [0, 4]], dtype=float)
    found, stress = classical_scaling(distances(square))
    assert np.linalg.norm(found[0] - found[2]) == pytest.approx(5) and stress == pytest.approx(0, abs=1e-9)
    assert found.mean(axis=0) == pytest.approx([0, 0], abs=1e-12)


def test_what_a_plane_cannot_hold_is_stress():
    """Four points equally far apart: a regular tetrahedron loses one of three equal axes."""
    apart = np.ones((4, 4)) - np.eye(4)
    found, stress = classical_scaling(apart)
    shown = distances(found)
    assert stress == pytest.approx(float(np.sqrt(((apart - shown) ** 2).sum() / 12)))
    assert stress > 0.1


def test_the_axis_of_greatest_spread_comes_first_and_points_to_its_farthest():
    line = np.array([[0.0], [1.0], [2.0], [10.0]])
    found, _ = classical_scaling(distances(line))
    assert found[3, 0] == pytest.approx(10 - 13 / 4) and found[:, 1] == pytest.approx(np.zeros(4), abs=1e-6)


def test_copies_lie_at_one_place():
    found, stress = classical_scaling(np.zeros((3, 3)))
    assert not found.any() and stress == 0.0
    assert classical_scaling([[0.0]])[0].shape == (1, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        [[0.0, 1.0]],
        [[0.0, 1.0], [2.0, 0.0]],
        [[1.0]],
        [[0.0, float("nan")], [float("nan"), 0.0]],
        [[0, -1.0], [-1.0, 0]],
    ],
)
def test_what_is_no_distance_matrix_is_refused(wrong: list[list[float]]):
    with pytest.raises(ValueError, match="distances are"):
        classical_scaling(wrong)
