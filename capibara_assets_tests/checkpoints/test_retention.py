"""What a policy keeps: known plans, and what holds for any checkpoints and any policy."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from capibara_assets.checkpoints.content import PIECE
from capibara_assets.checkpoints.retention import (
    RetentionDecision,
    RetentionPolicy,
    check_metric,
    freed,
    pieces_of,
    plan,
)
from capibara_assets.checkpoints.store.manifest import About, CheckpointManifest, TensorEntry
from capibara_assets.errors import InputError


@dataclass(frozen=True)
class Saved:
    id: str
    version: int
    manifest: CheckpointManifest


def saved(name: str, version: int, model: str = "python", tensors: Any = None, **about: Any) -> Saved:
    manifest = CheckpointManifest(
        about=About(model=model, **({"step": 10 * version} | about)),
        kind="state",
        tensors=tensors or {},
        created="2026-11-20T00:00:00Z",
    )
    return Saved(name, version, manifest)


def kept(decisions: list[RetentionDecision]) -> set[str]:
    return {decision.checkpoint.id for decision in decisions if decision.keep}


def reasons(decisions: list[RetentionDecision]) -> dict[str, tuple[str, ...]]:
    return {decision.checkpoint.id: decision.reasons for decision in decisions}


RUN = [saved(f"c{n}", n, metrics={"loss": loss}) for n, loss in enumerate([9.0, 2.0, 5.0, 1.0, 7.0, 3.0], start=1)]


def test_the_last_the_best_and_every_kth_step_add_up() -> None:
    policy = RetentionPolicy(keep_last=2, keep_best=2, metric="loss", keep_every=30)
    decisions = plan(RUN, policy)
    assert [d.checkpoint.id for d in decisions] == ["c1", "c2", "c3", "c4", "c5", "c6"]
    assert kept(decisions) == {"c2", "c3", "c4", "c5", "c6"}
    assert reasons(decisions) == {
        "c1": ("not among the last 2", "loss 9: not among the best 2", "step 10 is no multiple of 30"),
        "c2": ("loss 2 is number 2 of the best 2",),
        "c3": ("step 30 is a multiple of 30",),
        "c4": ("loss 1 is number 1 of the best 2",),
        "c5": ("among the last 2",),
        "c6": ("the newest version", "among the last 2", "step 60 is a multiple of 30"),
    }


def test_best_may_be_the_greatest_and_a_nan_or_an_unstated_metric_is_no_candidate() -> None:
    run = [*RUN, saved("nan", 7, metrics={"loss": float("nan")}), saved("none", 8), saved("newest", 9)]
    best = plan(run, RetentionPolicy(keep_best=1, metric="loss", mode="max"))
    assert kept(best) == {"c1", "newest"}
    assert reasons(best)["none"] == ("states no loss: not among the best 1",)
    assert reasons(best)["nan"] == ("states no loss: not among the best 1",)


def test_of_equally_good_ones_the_newer_is_kept() -> None:
    run = [saved("old", 1, metrics={"loss": 1.0}), saved("new", 2, metrics={"loss": 1.0}), saved("newest", 3)]
    assert kept(plan(run, RetentionPolicy(keep_best=1, metric="loss"))) == {"new", "newest"}


def test_a_model_that_does_not_state_the_metric_keeps_everything() -> None:
    other = [saved("x1", 1, model="sql"), saved("x2", 2, model="sql")]
    decisions = plan([*RUN, *other], RetentionPolicy(keep_best=1, metric="loss"))
    assert kept(decisions) == {"c4", "c6", "x1", "x2"}
    assert reasons(decisions)["x1"] == ("no checkpoint of the model states loss: which is best is not known",)


def test_a_metric_that_nobody_states_is_an_error_that_names_those_there_are() -> None:
    check_metric(RUN, RetentionPolicy(keep_best=1, metric="loss"))
    check_metric([], RetentionPolicy(keep_best=1, metric="losss"))
    with pytest.raises(InputError, match=r"no checkpoint states the metric 'losss': they state loss$"):
        check_metric(RUN, RetentionPolicy(keep_best=1, metric="losss"))


def test_tags_and_needs_keep_what_no_rule_keeps() -> None:
    run = [
        saved("p", 1, tags=("voter-1", "promoted")),
        saved("pin", 2, tags=("pinned",)),
        saved("cert", 3),
        saved("gone", 4, tags=("best",)),
        saved("newest", 5),
    ]
    decisions = plan(run, RetentionPolicy(keep_last=1), {"cert": ["a certificate names it"], "unknown": ["x"]})
    assert kept(decisions) == {"p", "pin", "cert", "newest"}
    assert reasons(decisions)["p"] == ("tagged promoted",)
    assert reasons(decisions)["cert"] == ("a certificate names it",)


def test_what_a_kept_checkpoint_was_made_from_is_kept_through_any_number_of_steps_but_its_parent_is_not() -> None:
    run = [
        saved("base", 1, model="base"),
        saved("base2", 2, model="base"),
        saved("voter", 1, model="voter", base_digest="base"),
        saved("parent", 2, model="voter"),
        saved("voter3", 3, model="voter"),
        saved("merged", 1, model="merged", sources={"voter[python]": "voter", "moe_dataset[python]": "f" * 64},
              parent="parent"),
    ]  # fmt: skip
    decisions = plan(run, RetentionPolicy(keep_last=1))
    assert kept(decisions) == {"base", "base2", "voter", "voter3", "merged"}
    assert reasons(decisions)["voter"] == ("source voter[python] of merged@v1, which is kept",)
    assert reasons(decisions)["base"] == ("base of voter@v1, which is kept",)


def test_a_name_from_before_the_store_was_encrypted_counts() -> None:
    plain = saved("sealed-id", 1, model="base")
    base = Saved("sealed-id", 1, plain.manifest.model_copy(update={"aliases": ("plain-id",)}))
    run = [base, saved("base2", 2, model="base"), saved("child", 1, base_digest="plain-id")]
    assert reasons(plan(run, RetentionPolicy(keep_last=1)))["sealed-id"] == ("base of python@v1, which is kept",)


def test_what_only_removed_checkpoints_name_goes_with_them() -> None:
    run = [saved("a", 1), saved("b", 2, sources={"x": "a"}), saved("c", 3)]
    assert kept(plan(run, RetentionPolicy(keep_last=1))) == {"c"}


def test_versions_of_one_checkpoint_stay_or_go_together() -> None:
    run = [saved("same", 1), saved("other", 2), saved("same", 3), saved("newest", 4)]
    decisions = plan(run, RetentionPolicy(keep_last=2))
    assert [d.keep for d in decisions] == [True, False, True, True]


def test_a_policy_for_one_model_leaves_the_others_alone() -> None:
    other = [saved("x1", 1, model="sql"), saved("x2", 2, model="sql")]
    decisions = plan([*RUN, *other], RetentionPolicy(keep_last=1), models={"python"})
    assert kept(decisions) == {"c6", "x1", "x2"}


def test_no_rule_keeps_all_and_half_a_rule_is_an_error() -> None:
    assert kept(plan(RUN, RetentionPolicy())) == {one.id for one in RUN}
    for wrong in ({"keep_best": 2}, {"metric": "loss"}, {"keep_last": 0}, {"keep_every": 0}, {"keep_lst": 3}):
        with pytest.raises(ValidationError):
            RetentionPolicy.model_validate(wrong)


def test_freed_bytes_are_those_of_pieces_that_nothing_kept_holds() -> None:
    def entry(*digests: str, length: int) -> TensorEntry:
        return TensorEntry(dtype="U8", shape=(length,), pieces=digests)

    run = [
        saved("a", 1, tensors={"x": entry("p", "q", length=PIECE + 5), "y": entry("own", length=7)}),
        saved("b", 2, tensors={"x": entry("p", "r", length=PIECE + 6), "again": entry("r", length=6)}),
        saved("c", 3, tensors={"x": entry("q", length=5), "empty": entry(length=0)}),
    ]
    assert pieces_of(run[0].manifest) == {"p": PIECE, "q": 5, "own": 7}
    assert freed(plan(run, RetentionPolicy(keep_last=1))) == {"p": PIECE, "own": 7, "r": 6}
    assert freed(plan(run, RetentionPolicy())) == {}


@st.composite
def stores(draw: st.DrawFn) -> list[Saved]:
    """Some models with some versions that name one another; some ids stand under two versions."""
    found: list[Saved] = []
    for model in ("a", "b"):
        for version in range(1, draw(st.integers(0, 7)) + 1):
            own = [one for one in found if one.manifest.about.model == model]
            if own and draw(st.booleans()) and draw(st.booleans()):
                again = draw(st.sampled_from(own))
                found.append(Saved(again.id, version, again.manifest))
                continue
            ids = st.sampled_from([one.id for one in found] or ["elsewhere"])
            found.append(
                saved(
                    f"{model}{version}",
                    version,
                    model=model,
                    step=draw(st.integers(0, 12)),
                    parent=draw(st.none() | ids),
                    base_digest=draw(st.none() | ids),
                    sources=draw(st.dictionaries(st.just("made from"), ids)),
                    tags=tuple(draw(st.lists(st.sampled_from(["promoted", "pinned", "best"]), max_size=1))),
                    metrics=draw(st.dictionaries(st.just("loss"), st.floats(allow_infinity=False, width=16))),
                )
            )
    return draw(st.permutations(found))


@st.composite
def policies(draw: st.DrawFn) -> RetentionPolicy:
    number = st.none() | st.integers(1, 8)
    best = draw(number)
    return RetentionPolicy(
        keep_last=draw(number),
        keep_best=best,
        metric=None if best is None else "loss",
        mode=draw(st.sampled_from(["min", "max"])),
        keep_every=draw(number),
    )


@given(stores(), policies(), st.sets(st.sampled_from(["a1", "a2", "b3"])))
def test_what_is_promoted_or_needed_is_never_removed(
    store: list[Saved], policy: RetentionPolicy, needed: set[str]
) -> None:
    decisions = plan(store, policy, {name: ["a certificate"] for name in needed})
    stays = kept(decisions)
    assert all(decision.reasons for decision in decisions)
    assert sorted((d.checkpoint.manifest.about.model, d.checkpoint.version) for d in decisions) == sorted(
        (one.manifest.about.model, one.version) for one in store
    )
    for one in store:
        about = one.manifest.about
        if {"promoted", "pinned"} & set(about.tags) or one.id in needed:
            assert one.id in stays
        if one.id in stays:  # all that it names is still there, if it was
            named = {about.base_digest, *about.sources.values()} & {other.id for other in store}
            assert named <= stays
    for model in {one.manifest.about.model for one in store}:
        newest = max((one for one in store if one.manifest.about.model == model), key=lambda one: one.version)
        assert newest.id in stays


@given(stores(), policies())
def test_a_second_plan_removes_nothing_more(store: list[Saved], policy: RetentionPolicy) -> None:
    stays = kept(plan(store, policy))
    left = [one for one in store if one.id in stays]
    assert kept(plan(left, policy)) == stays


@given(stores(), policies(), st.sampled_from(["keep_last", "keep_best"]), st.integers(1, 3))
def test_a_larger_number_keeps_no_less(store: list[Saved], policy: RetentionPolicy, rule: str, more: int) -> None:
    number = getattr(policy, rule)
    if number is None:
        return
    larger = policy.model_copy(update={rule: number + more})
    assert kept(plan(store, policy)) <= kept(plan(store, larger))


@given(stores(), policies(), st.randoms())
def test_the_order_of_the_listing_does_not_matter(store: list[Saved], policy: RetentionPolicy, random: Any) -> None:
    shuffled = list(store)
    random.shuffle(shuffled)
    assert plan(store, policy) == plan(shuffled, policy)
