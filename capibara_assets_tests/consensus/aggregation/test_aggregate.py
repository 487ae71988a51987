"""The rules against the known answers, their preconditions, and independence of order."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capibara_assets.consensus.aggregation.aggregate import RULES, aggregate, linear_weights
from capibara_assets.consensus.aggregation.coordinate_rules import mean_around_median, sorted_rows
from capibara_assets.consensus.aggregation.preaggregation import pre_aggregate

# oracle key -> (rule, options); strict=False where a case breaks the rule's precondition on purpose
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "mean": ("mean", {}),
    "median": ("median", {}),
    "trmean": ("trimmed_mean", {}),
    "meamed": ("meamed", {}),
    "krum_blanchard": ("krum", {}),
    "krum_byzfl": ("krum", {"neighbours": "n-f-1"}),
    "multikrum_byzfl": ("multi_krum", {"neighbours": "n-f-1"}),
    "bulyan_flower": ("bulyan", {}),
    "geomed_exact": ("geometric_median", {}),
    "mda": ("mda", {}),
    "smea_exact": ("smea", {}),
    "nnm_trmean": ("trimmed_mean", {"pre": "nnm"}),
    "nnm_median": ("median", {"pre": "nnm"}),
    "nnm_krum_byzfl": ("krum", {"pre": "nnm", "neighbours": "n-f-1"}),
    "nnm_geomed_exact": ("geometric_median", {"pre": "nnm"}),
    "cclip_L1_tau1.0": ("centered_clipping", {"iterations": 1, "tau": 1.0}),
    "cclip_L5_tau2.0": ("centered_clipping", {"iterations": 5, "tau": 2.0}),
    "arc_then_mean": ("mean", {"pre": "arc"}),
}
NOT_A_RULE = {"nnm", "monna", "krum_scores_blanchard_nf2", "krum_scores_byzfl_nf1", "geomed_byzfl_default_nu0.1_T3"}


def oracle(shared: Path) -> tuple[Path, dict[str, Any]]:
    folder = shared / "oracles" / "consensus"
    return folder, json.loads((folder / "index.json").read_text())


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float, label: str) -> None:
    scale = max(1.0, float(np.abs(expected).max()))
    assert np.abs(actual - expected).max() <= tolerance * scale, label


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.extended)])
def test_byzantine_oracles(shared: Path, every: int) -> None:
    folder, index = oracle(shared)
    checked, met = 0, set[str]()
    for case in index["byz"][::every]:
        data = np.load(folder / case["file"])
        inputs, f = data["inputs"], case["f"]
        finite = np.flatnonzero(data["finite"])
        for key in case["keys"]:
            expected, label = data[f"expected_{key}"], f"{case['name']} {key}"
            if key in CALLS:
                rule, options = CALLS[key]
                result = aggregate(inputs, rule, f=f, strict=False, **options)
                assert result.rejected == tuple(np.flatnonzero(~data["finite"])), label
                assert_close(result.vector, expected, 1e-6 if "geomed" in key else 1e-9, label)
                checked += 1
                met.add(key)
            elif key == "monna":
                reference = int(finite[case["meta"]["monna_idx_in_finite"]])
                result = aggregate(inputs, "monna", f=f, reference=reference)
                assert_close(result.vector, expected, 1e-9, label)
            elif key == "nnm":
                assert_close(pre_aggregate(inputs[finite], "nnm", f=case["f_after_quarantine"]), expected, 1e-9, label)
            elif key.startswith("krum_scores"):
                neighbours = "n-f-2" if key.endswith("nf2") else "n-f-1"
                evidence = aggregate(inputs, "krum", f=f, neighbours=neighbours, strict=False).evidence
                scores = np.array([evidence["scores"][i] for i in finite])
                assert_close(scores, expected, 1e-9, label)
            else:
                assert key in NOT_A_RULE, f"no call for the known answer {label}"
    assert checked > 1000 // every and met == CALLS.keys()


def test_flower_oracles(shared: Path) -> None:
    folder, index = oracle(shared)
    assert len(index["flower"]) == 6
    for case in index["flower"]:
        data = np.load(folder / case["file"])
        inputs, f, examples = data["inputs"], case["f"], data["num_examples"].tolist()
        for key in case["keys"]:
            expected, label = data[f"expected_{key}"], f"{case['name']} {key}"
            if key == "fedavg":
                actual = aggregate(inputs, "weighted_mean", weights=examples).vector
            elif key == "fedmedian":
                actual = aggregate(inputs, "median").vector
            elif key.startswith("fedtrimmedavg_"):
                actual = aggregate(inputs, "trimmed_mean", cut=float(key.rsplit("_", 1)[1])).vector
            elif key == "krum":
                actual = aggregate(inputs, "krum", f=f).vector
            elif key == "krum_scores":
                actual = np.array(aggregate(inputs, "krum", f=f).evidence["scores"])
            elif key == "multikrum_weighted":
                kept = case["meta"]["multikrum_to_keep"]
                result = aggregate(inputs, "multi_krum", f=f, m=kept, weighted=True, weights=examples)
                assert result.evidence["selected"] == case["meta"]["multikrum_selected"], label
                actual = result.vector
            elif key == "bulyan":
                result = aggregate(inputs, "bulyan", f=f, strict=False)
                assert result.evidence["selected"] == case["meta"]["bulyan_selected"], label
                actual = result.vector
            else:
                assert key == "dp_clipped_mean", label
                clip = case["meta"]["dp"]["clip_norm"]
                moved = aggregate(inputs - data["base"], "mean", pre="clipping", pre_options={"threshold": clip})
                actual = data["base"] + moved.vector
            assert_close(actual, expected, 1e-9, label)


@pytest.mark.parametrize(
    ("rule", "n", "f", "theorem"),
    [
        ("krum", 4, 1, "n >= 2f + 3"),
        ("multi_krum", 6, 2, "n >= 2f + 3"),
        ("bulyan", 6, 1, "n >= 4f + 3"),
        ("median", 4, 2, "n > 2f"),
        ("trimmed_mean", 2, 1, "n > 2f"),
        ("mda", 6, 3, "n > 2f"),
    ],
)
def test_precondition_is_stated(rule: str, n: int, f: int, theorem: str) -> None:
    vectors = np.random.default_rng(0).normal(size=(n, 5))
    with pytest.raises(ValueError, match=theorem.replace("+", r"\+")):
        aggregate(vectors, rule, f=f)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ("krum", "multi_krum", "bulyan")])
def test_four_voters_one_fault_is_allowed(rule: str) -> None:
    vectors = np.random.default_rng(1).normal(size=(4, 5))
    options = {"tau": 1.0} if rule == "centered_clipping" else {}
    assert np.isfinite(aggregate(vectors, rule, f=1, **options).vector).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pre", [None, "nnm", "arc", "clipping", "bucketing"])
def test_order_of_voters_does_not_show(rule: str, pre: str | None) -> None:
    random = np.random.default_rng(2)
    vectors = random.normal(size=(15, 300)).astype(np.float32)
    vectors[3] *= 1e6
    weights = random.integers(1, 9, 15)
    options: dict[str, Any] = {"tau": 1.0} if rule == "centered_clipping" else {}
    options |= {"weighted": True} if rule == "multi_krum" else {}
    strict = pre != "bucketing"
    if pre == "bucketing":
        options["pre_options"] = {"size": 1}
    first = aggregate(
        vectors, rule, f=3, pre=pre, weights=weights, strict=strict,
        **options, **({"reference": 4} if rule == "monna" else {}),
    )  # fmt: skip
    for _ in range(3):
        order = random.permutation(15)
        where = {"reference": int(np.flatnonzero(order == 4)[0])} if rule == "monna" else {}
        again = aggregate(vectors[order], rule, f=3, pre=pre, weights=weights[order], strict=strict, **options, **where)
        assert first.vector.tobytes() == again.vector.tobytes()
        if first.weights is not None:
            assert again.weights == tuple(first.weights[i] for i in order)


def test_non_finite_voters_are_left_out_before_any_rule() -> None:
    vectors = np.random.default_rng(3).normal(size=(7, 40))
    honest = vectors[[0, 1, 3, 5, 6]]
    vectors[2, 5], vectors[4, 0] = np.nan, np.inf
    for rule in ("krum", "mda", "median", "geometric_median", "caf"):
        result = aggregate(vectors, rule, f=2)
        assert result.rejected == (2, 4)
        assert np.array_equal(result.vector, aggregate(honest, rule, f=0).vector)
    vectors[0, 0] = -np.inf
    with pytest.raises(ValueError, match="3 of 7 voters are not finite, more than f=2"):
        aggregate(vectors, "mean", f=2)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e12, 1e200])
def test_caf_ends_whatever_the_norm(size: float) -> None:
    vectors = np.random.default_rng(4).normal(size=(7, 50))
    vectors[6] = size * np.sign(vectors[6])
    result = aggregate(vectors, "caf", f=1)
    assert np.linalg.norm(result.vector - vectors[:6].mean(axis=0)) < 3.0


def test_caf_stands_liars_of_different_orders_of_magnitude() -> None:
    """Squares of what they stick out by overflow; f = 2 of 7 is within its precondition."""
    voters = np.random.default_rng(0).standard_normal((7, 10))
    voters[0] *= 1e80
    voters[1] *= 1e40
    found = aggregate(voters, "caf", f=2)
    assert np.abs(found.vector).max() <= np.abs(voters[2:]).max()


def test_caf_against_the_range_of_the_randomised_tool(shared: Path) -> None:
    folder, index = oracle(shared)
    for case in index["byz"]:
        if "caf_random" not in case["meta"] or case["f_after_quarantine"] == 0:
            continue
        data = np.load(folder / case["file"])
        distance = np.linalg.norm(
            aggregate(data["inputs"], "caf", f=case["f"]).vector - data["inputs"][data["honest"]].mean(axis=0)
        )
        # The tool starts at random and takes one power step; the exact direction must not do worse than its worst
        assert distance <= 1.5 * case["meta"]["caf_random"]["max"] + 0.5, case["name"]


@given(st.integers(1, 17), st.integers(0, 10**6))
def test_network_sorts(n: int, seed: int) -> None:
    block = np.random.default_rng(seed).integers(-3, 4, (n, 20)).astype(float)
    assert np.array_equal(sorted_rows(block), np.sort(block, axis=0))


@given(st.integers(2, 12), st.integers(0, 10**6))
def test_mean_around_median_keeps_the_closest(n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    block, keep = random.normal(size=(n, 9)), int(random.integers(1, n + 1))
    centre = np.median(block, axis=0)
    order = np.argsort(np.abs(block - centre), axis=0)[:keep]
    brute = np.take_along_axis(block, order, axis=0)
    # With an even n the two middle values are equally far from the median: either is a right answer for keep = 1
    if keep > 1 or n % 2:
        assert np.allclose(mean_around_median(block, keep), brute.mean(axis=0))


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 10**6))
@example(4, 3, 3411)  # the pull on one point is exactly 1, and 1 + 2e-16 in float64
def test_geometric_median_has_no_downhill(n: int, d: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    points = random.integers(-2, 3, (n, d)).astype(float)
    found = aggregate(points, "geometric_median").vector
    cost = np.linalg.norm(points - found, axis=1).sum()
    for candidate in [*points, points.mean(axis=0), *(found + random.normal(0, 0.01, (20, d)))]:
        assert cost <= np.linalg.norm(points - candidate, axis=1).sum() + 1e-9


@pytest.mark.parametrize("size", [1e6, 1e10, 1e15, 1e25])
def test_geometric_median_does_not_feel_how_long_a_voter_is(size: float) -> None:
    """Beyond a million all that counts is the voter's direction, however little of it the distances still tell."""
    for seed in range(20):
        vectors = np.random.default_rng(seed).normal(size=(13, 5))
        far = vectors.copy()
        vectors[0] *= 1e6
        far[0] *= size
        expected, found = (aggregate(points, "geometric_median", f=4).vector for points in (vectors, far))
        assert np.abs(found - expected).max() < 1e-5


def test_geometric_median_of_lengths_of_many_orders_of_magnitude() -> None:
    for seed in range(30):
        random = np.random.default_rng(seed)
        points = random.normal(size=(random.integers(4, 12), 3)) * 10.0 ** random.integers(-5, 5, size=(1, 1))
        points[::2] *= 1e3
        result = aggregate(points, "geometric_median")
        assert result.evidence["residual"] < 1e-9, seed


@given(st.integers(3, 11), st.integers(1, 12), st.integers(0, 10**6))
def test_geometric_median_of_any_finite_voters_is_no_worse_than_the_best_of_them(n: int, d: int, seed: int) -> None:
    """Each voter at its own order of magnitude, 1e-30 to 1e30: a sum of their inverses overflows."""
    random = np.random.default_rng(seed)
    voters = random.standard_normal((n, d)) * 10.0 ** random.integers(-30, 31, size=(n, 1))
    found = aggregate(voters, "geometric_median", f=(n - 1) // 2).vector
    costs = np.linalg.norm(voters[:, None] - voters[None, :], axis=2).sum(axis=1)
    assert np.linalg.norm(voters - found, axis=1).sum() <= costs.min() * (1 + 1e-9)


def test_geometric_median_is_found_where_the_mean_is_a_voter() -> None:
    """There is no gradient at a voter, so a method that begins at this mean must not stay there."""
    points = np.array([[0.0, 0.0], [3.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [-1.0, 0.0]])
    assert np.array_equal(points.mean(axis=0), points[0])
    found = aggregate(points, "geometric_median")
    apart = found.vector - points
    assert np.abs((apart / np.linalg.norm(apart, axis=1)[:, None]).sum(axis=0)).max() < 1e-12


def test_geometric_median_of_an_even_number_on_a_line_is_their_median() -> None:
    assert aggregate([[1.0, 2.0], [3.0, 6.0]], "geometric_median").weights == (0.5, 0.5)
    found = aggregate([[5.0], [1.0], [2.0], [9.0], [2.0], [4.0]], "geometric_median")
    assert found.vector == np.array([3.0])
    assert found.weights == (0.0, 0.0, 0.25, 0.0, 0.25, 0.5)


def test_nearest_neighbour_mixing_without_its_precondition_is_computed_all_the_same() -> None:
    vectors = np.random.default_rng(6).normal(size=(5, 4))
    with pytest.raises(ValueError, match="nnm needs n > 2f, but n=5, f=3"):
        pre_aggregate(vectors, "nnm", f=3)
    mixed = pre_aggregate(vectors, "nnm", f=3, strict=False)
    apart = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    assert np.allclose(mixed, [vectors[np.argsort(row)[:2]].mean(axis=0) for row in apart])
    assert np.allclose(aggregate(vectors, "mean", f=3, pre="nnm", strict=False).vector, mixed.mean(axis=0))


def test_linear_weights_from_products_equal_the_dense_rule() -> None:
    vectors = np.random.default_rng(5).normal(size=(7, 30))
    for rule in ("mda", "geometric_median", "multi_krum"):
        for pre in (None, "nnm"):
            dense = aggregate(vectors, rule, f=2, pre=pre)
            choice = linear_weights(vectors @ vectors.T, rule, f=2, pre=pre)
            assert np.allclose(choice.weights, dense.weights, atol=1e-9)
            assert np.allclose(choice.weights @ vectors, dense.vector)


def test_unknown_names_and_shapes() -> None:
    with pytest.raises(ValueError, match="unknown rule 'majority'"):
        aggregate(np.ones((3, 2)), "majority")
    with pytest.raises(ValueError, match="unknown pre-aggregation"):
        aggregate(np.ones((3, 2)), "mean", pre="shuffle")
    with pytest.raises(ValueError, match=r"\(n, d\) matrix"):
        aggregate(np.ones(3), "mean")
    with pytest.raises(ValueError, match="one for each voter"):
        aggregate(np.ones((3, 2)), "weighted_mean", weights=[1.0])


def test_options_that_a_rule_does_not_have_are_refused() -> None:
    vectors = np.random.default_rng(7).normal(size=(7, 3))
    for rule, options, said in [
        ("median", {"cut": 1}, "median has no option cut: it has none"),
        ("krum", {"m": 2}, "krum has no option m: neighbours"),
        ("krum", {"neighbours": "n-1"}, "neighbours are n-f-2 or n-f-1, not 'n-1'"),
        ("bulyan", {"neighbours": "n-1"}, "neighbours are"),
        ("centered_clipping", {}, "centered_clipping needs tau"),
        ("centered_clipping", {"tau": float("nan")}, "tau > 0"),
        ("mean", {"pre": "nnm", "pre_options": {"size": 2}}, "nnm has no option size"),
        ("mean", {"pre": "bucketing", "pre_options": {"size": 0}}, "not size=0"),
        ("mean", {"pre": "clipping", "pre_options": {"threshold": float("nan")}}, "threshold >= 0"),
        ("monna", {"pre": "bucketing"}, "no point stands for monna's reference voter"),
    ]:
        with pytest.raises(ValueError, match=said):
            aggregate(vectors, rule, f=1, **options)


def test_faults_and_weights_that_leave_nobody() -> None:
    vectors = np.random.default_rng(8).normal(size=(5, 3))
    with pytest.raises(ValueError, match="has to be 0 at least, not -1"):
        aggregate(vectors, "mean", f=-1)
    with pytest.raises(ValueError, match="has to be 0 at least, not -1"):
        pre_aggregate(vectors, "nnm", f=-1)
    with pytest.raises(ValueError, match="none of the 5 voters is finite"):
        aggregate(vectors * np.nan, "median", f=5)
    for rule in ("multi_krum", "mda", "smea", "monna", "meamed"):
        with pytest.raises(ValueError, match="5 finite voters leaves out f=6: none is left"):
            aggregate(vectors, rule, f=6, strict=False)
        with pytest.raises(ValueError, match=r"n > 2f|n >= 2f \+ 3"):
            aggregate(vectors, rule, f=6)
    lonely = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    vectors[4] += 100
    with pytest.raises(ValueError, match="multi_krum keeps have weight 0"):
        aggregate(vectors, "multi_krum", f=1, weighted=True, weights=lonely)
