"""Clusters: stars round the best member, every member in exactly one, with its strongest link."""

from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.code.structure import shingles, tokens
from capibara_assets.datasets.duplicates.clusters import Cluster, Member, cluster_members, cluster_table
from capibara_assets.datasets.duplicates.near import jaccard
from capibara_assets.datasets.recipe import NearDuplicates

SETTINGS = NearDuplicates.model_validate({})
WORDS = [f"word{number}" for number in range(60)]


def member(member_id: str, text: str, block: str = "solve", key: str | None = None) -> Member:
    return Member(member_id, block, text, "python", key)


def links(members: list[Member]) -> dict[str, Cluster]:
    return {link.member_id: link for cluster in cluster_members(members, SETTINGS) for link in cluster}


def test_each_sort_of_link() -> None:
    text = " ".join(WORDS)
    found = links(
        [
            member("best", text, key="k"),
            member("spaced", text.upper().replace(" ", "  ") + " .", key="other"),
            member("renamed", "nothing of the kind", key="k"),
            member("near", " ".join([*WORDS[:-1], "changed"]), key="third"),
            member("alone", " ".join(reversed(WORDS)), key="fourth"),
            member("apart", text, block="repair", key="k"),
        ]
    )
    assert {name: (link.representative_id, link.sort) for name, link in found.items()} == {
        "best": ("best", "representative"),
        "spaced": ("best", "exact"),
        "renamed": ("best", "structural"),
        "near": ("best", "near"),
        "alone": ("alone", "representative"),
        "apart": ("apart", "representative"),
    }
    assert found["near"].similarity == round(55 / 57, 6)
    assert found["renamed"].similarity == 0
    assert {found[name].cluster_id for name in ("best", "spaced", "renamed", "near")} == {"best"}
    assert cluster_table([list(found.values())]).height == 6


def test_a_chain_of_templates_does_not_melt_into_one() -> None:
    # each text shares all but one word with the next, and nothing with one far down
    texts = [" ".join(f"w{number}" for number in range(start, start + 60)) for start in range(200)]
    clusters = cluster_members([member(f"{n:03d}", text) for n, text in enumerate(texts)], SETTINGS)
    assert len(clusters) > 20
    for cluster in clusters:
        by_id = {link.member_id: link for link in cluster}
        assert all(link.similarity >= SETTINGS.jaccard for link in by_id.values())


def test_thousands_of_equal_members_are_one_cluster() -> None:
    text = " ".join(WORDS)
    near = [member(f"n{n:04d}", text.replace(" ", " " * (n % 3 + 1)) + " # x" * (n % 2)) for n in range(3000)]
    other = " ".join([*WORDS[:-1], "changed"])
    clusters = cluster_members([member("first", other), *near], SETTINGS)
    assert [len(cluster) for cluster in clusters] == [3001]


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(WORDS[:8]), max_size=14).map(" ".join),
            st.sampled_from(["solve", "repair"]),
            st.sampled_from([None, "k1", "k2", "k3"]),
        ),
        max_size=25,
    )
)
def test_every_member_is_in_one_star_and_fits_its_representative(drawn: list[tuple[str, str, str | None]]) -> None:
    members = [member(f"m{n:02d}", text, block, key) for n, (text, block, key) in enumerate(drawn)]
    by_id = {m.member_id: m for m in members}
    clusters = cluster_members(members, SETTINGS)
    assert sorted(link.member_id for cluster in clusters for link in cluster) == sorted(by_id)
    for cluster in clusters:
        best = by_id[cluster[0].member_id]
        assert cluster[0].sort == "representative"
        for link in cluster:
            mine = by_id[link.member_id]
            assert (link.representative_id, mine.block) == (best.member_id, best.block)
            assert link.cluster_id == min(other.member_id for other in cluster)
            if link.sort == "structural":
                assert mine.structural_key == best.structural_key
            if link.sort == "near":
                bags = [shingles(tokens(m.text, "python"), SETTINGS.shingle) for m in (mine, best)]
                assert jaccard(*bags) >= SETTINGS.jaccard
    # what is left over resembles no representative before it
    heads = [by_id[cluster[0].member_id] for cluster in clusters]
    bags = [shingles(tokens(head.text, "python"), SETTINGS.shingle) for head in heads]
    for i, left in enumerate(heads):
        for j in range(i):
            if left.block == heads[j].block:
                assert jaccard(bags[i], bags[j]) < SETTINGS.jaccard
