"""A certificate's pictures: right colours at right places, for 1 to 32 voters, small enough for an event."""

import copy
import json
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import dagster as dg
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.consensus.election.voting import Ballot, vote
from capibara_assets.metadata.consensus_charts import (
    ballot_matrix,
    distance_map,
    losses_chart,
    outcome_words,
    signature_words,
    verdict_table,
    weights_chart,
)
from capibara_assets.metadata.consensus_entries import certificate_page
from capibara_assets.metadata.drawing import GREEN, RED

SVG = "{http://www.w3.org/2000/svg}"
UI_SHOWS_INLINE = 1_000  # characters of markdown; longer ones are behind a click
EVENT_BYTES = 16_384  # of one entry


def certificate(
    n: int, *, rounds: int = 1, outvoted: tuple[int, ...] = (), quarantined: tuple[int, ...] = (), seed: int = 0
) -> dict[str, Any]:
    """As `agree` would write it for n voters, of which some are bad; distances are those of points in the plane."""
    random = np.random.default_rng(seed)
    names = [f"voter-{i}" for i in range(n)]
    excluded = [names[i] for i in quarantined]
    bad = {names[i] for i in outvoted}
    left = [name for name in names if name not in excluded]
    ballots = [
        Ballot(
            voter=voter, candidate=candidate, round=number, tokens=700, loss=1.5, base_loss=2.5, best_loss=1.4,
            quality=float(random.uniform(0, 0.3) if candidate in bad else random.uniform(0.6, 1)),
        )
        for voter in left for candidate in left if voter != candidate for number in range(rounds)
    ]  # fmt: skip
    outcome = vote(ballots, 0.5, 0.5, rounds, voters=names, excluded=excluded)
    order = sorted(outcome.accepted, reverse=True)
    points = random.standard_normal((len(order), 2))
    weights = dict(zip(order, random.dirichlet(np.ones(len(order))).tolist(), strict=True)) if order else {}

    def stage(name: str) -> str:
        return "attestation" if name in excluded else "accepted" if name in order else "vote"

    document = {
        "schema_version": 1, "trust_model": "single-operator", "n": n, "f": outcome.f, "quorum": outcome.quorum,
        "thresholds": {"quality": 0.5, "consensus": 0.5, "verification_rounds": rounds},
        "voters": [
            {"name": name, "accepted": name in order, "stage": stage(name), "reason": f"because {name} | it is",
             "weight": weights.get(name)}
            for name in names
        ],
        "ballots": [ballot.model_dump(mode="json") for ballot in ballots],
        "tallies": [
            {"candidate": t.candidate, "accepting": t.accepting, "refusing": t.refusing, "missing": t.missing,
             "required": t.required, "accepted": t.accepted}
            for t in outcome.tallies
        ],
        "rule": "geometric_median", "pre": None,
        "evidence": {"order": order, "distances": np.linalg.norm(points[:, None] - points[None], axis=2).tolist()},
        "result": {"loss": 1.4, "base_loss": 2.5}, "digest": "ab" * 32,
    }  # fmt: skip
    return dict(json.loads(json.dumps(document)))


def losses(document: dict[str, Any]) -> dict[str, float]:
    voters = {v["name"]: 1.5 if v["accepted"] else 9.0 for v in document["voters"] if v["stage"] != "attestation"}
    return {"base": 2.5, **voters, "consensus": 1.4}


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def words(root: ElementTree.Element, colour: str) -> list[str]:
    """Texts of one colour, their own or their group's."""
    own = [t.text or "" for t in root.iter(f"{SVG}text") if t.get("fill") == colour]
    groups = [g for g in root.iter(f"{SVG}g") if g.get("fill") == colour]
    return own + [t.text or "" for g in groups for t in g.iter(f"{SVG}text")]


def test_verdicts_show_at_once_with_a_dot_for_each():
    table = verdict_table(certificate(4, outvoted=(1,)))
    rows = [line for line in table.splitlines() if line.startswith("| voter-")]
    assert len(table) < UI_SHOWS_INLINE
    assert [("![][r] **rejected**" in row, "![][a] accepted" in row) for row in rows] == [
        (False, True), (True, False), (False, True), (False, True),
    ]  # fmt: skip
    assert "[r]: data:image/svg+xml;base64," in table and "[a]: data:image/svg+xml;base64," in table
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)  # a bar in a reason is no column


def test_the_matrix_has_the_ballots_colours_and_the_rejected_in_red():
    document = certificate(4, rounds=3, outvoted=(2,), quarantined=())
    root = drawn(ballot_matrix(document))
    assert words(root, RED).count("voter-2") == 2  # its row and its column
    assert "0 of 3" in words(root, RED) and words(root, GREEN) == ["3 of 3"] * 3
    quality = {(b["voter"], b["candidate"]): [] for b in document["ballots"]}
    for ballot in document["ballots"]:
        quality[ballot["voter"], ballot["candidate"]].append(ballot["quality"])
    shown = [t.text for t in root.iter(f"{SVG}text") if re.fullmatch(r"\d\.\d\d", t.text or "")]
    assert sorted(shown) == sorted(f"{np.mean(q):.2f}" for q in quality.values())
    marks = {
        p.get("stroke"): p.get("d", "").count("M") for p in root.iter(f"{SVG}path") if p.get("stroke-width") == "4"
    }
    accepting = sum(ballot["quality"] >= 0.5 for ballot in document["ballots"])
    assert marks == {GREEN: accepting, RED: len(document["ballots"]) - accepting}


def test_cells_are_where_their_voter_and_candidate_are():
    document = certificate(4, outvoted=(2,))
    root = drawn(ballot_matrix(document))
    refused = [p for p in root.iter(f"{SVG}path") if p.get("stroke") == "#f3b4ad"]
    columns = {
        t.text: float(t.get("x", "0")) for g in root.iter(f"{SVG}g") if g.get("text-anchor") == "middle" for t in g
    }
    runs = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)", "".join(path.get("d", "") for path in refused))
    assert len(runs) == len({y for _, y, _ in runs}) == 3  # in each other voter's row
    for start, _, length in runs:
        assert float(start) + float(length) / 2 == pytest.approx(columns["voter-2"], abs=0.2)


def test_distances_in_the_picture_are_those_given():
    document = certificate(7)
    root = drawn(distance_map(document))
    dots = [(float(c.get("cx", "0")), float(c.get("cy", "0"))) for c in root.iter(f"{SVG}circle")][:7]
    shown = np.linalg.norm(np.array(dots)[:, None] - np.array(dots)[None], axis=2)
    given_ = np.array(document["evidence"]["distances"])
    assert shown / shown.max() == pytest.approx(given_ / given_.max(), abs=1e-3)
    assert "stress 0.00" in next(t.text or "" for t in root.iter(f"{SVG}text"))


def test_rejected_voters_are_red_where_there_are_distances_and_named_where_not():
    document = certificate(7, quarantined=(5,), outvoted=(2,))
    root = drawn(distance_map(document))
    assert not [p for p in root.iter(f"{SVG}path") if p.get("class") == "rejected"]
    assert "not placed, rejected before distances were taken: voter-2, voter-5" in words(root, RED)
    order = [*document["evidence"]["order"], "voter-2"]
    points = np.random.default_rng(1).standard_normal((len(order), 3))
    measured = {"order": order, "distances": np.linalg.norm(points[:, None] - points[None], axis=2).tolist()}
    root = drawn(distance_map(document, measured))
    (diamond,) = (p for p in root.iter(f"{SVG}path") if p.get("class") == "rejected")
    assert diamond.get("fill") == RED and "voter-2" in words(root, RED)
    assert "not placed, rejected before distances were taken: voter-5" in words(root, RED)


def test_the_mean_lies_where_the_weights_put_it():
    document = certificate(4)
    root = drawn(distance_map(document))
    dots = np.array([(float(c.get("cx", "0")), float(c.get("cy", "0"))) for c in root.iter(f"{SVG}circle")][:4])
    weight = {voter["name"]: voter["weight"] for voter in document["voters"]}
    weights = np.array([weight[name] for name in document["evidence"]["order"]])
    crosses = [p.get("d", "") for p in root.iter(f"{SVG}path") if p.get("d", "").endswith("v14")]
    x, y = map(float, re.match(r"M([\d.]+) ([\d.]+)h14", crosses[0]).groups())  # type: ignore[union-attr]
    assert (x + 7, y) == pytest.approx(tuple(weights @ dots), abs=0.2)
    for voter in document["voters"]:
        voter["weight"] = None
    assert "weighted mean" not in distance_map(document)  # a rule per coordinate has no such place


def test_bars_are_weights_and_dots_are_losses():
    document = certificate(4, outvoted=(1,))
    root = drawn(weights_chart(document))
    bars = [float(r.get("width", "0")) for r in root.iter(f"{SVG}rect") if r.get("fill") == GREEN]
    weights = [voter["weight"] for voter in document["voters"] if voter["accepted"]]
    assert np.array(bars) / max(bars) == pytest.approx(np.array(weights) / max(weights), abs=0.01)
    assert "voter-1" in words(root, RED) and "rejected (vote)" in words(root, RED)
    document["tried"] = [
        {"name": "uniform_soup", "kind": "uniform_soup", "loss": 1.45, "passed": True, "reason": "passes"},
        {"name": "convex", "kind": "convex", "loss": None, "passed": False, "reason": "not finite"},
        {"name": "voter-0", "kind": "voter", "loss": 1.5, "passed": True, "reason": "passes"},
    ]
    document["chosen"] = "uniform_soup"
    found = [t.text or "" for t in drawn(losses_chart(document, losses(document))).iter(f"{SVG}text")][1:]
    assert found[::2] == ["base", "voter-0", "voter-1", "voter-2", "voter-3", "uniform_soup", "convex", "consensus"]
    assert found[found.index("convex") + 1] == "refused by the gate"
    assert found[found.index("voter-1") + 1] == "9 rejected"
    assert found[found.index("uniform_soup") + 1] == "1.45 chosen"


def test_signatures_keys_and_who_is_missing_are_said():
    document = certificate(4)
    assert signature_words(document) == "no ballot is signed; trust model single-operator"
    for ballot in document["ballots"][:11]:
        ballot["signature"] = "c2ln"
    for voter in document["voters"][:3]:
        voter["public_key"] = f"key of {voter['name']}"
    document |= {"refused": [{}, {}], "equivocated": ["voter-2"], "absent": {"voter-3": "died 6 times"}}
    assert signature_words(document) == (
        "11 of 12 ballots signed by 3 keys; 2 refused; contradicted itself: voter-2; absent: voter-3; "
        "trust model single-operator"
    )
    document |= {"confirmations": [{}] * 3, "unconfirmed": {"voter-1": "refused: another loss"}}
    assert "; 3 accepted voters signed the losses of the candidates and the choice; " in signature_words(document)
    assert "did not confirm the choice: voter-1; trust" in signature_words(document)


def test_the_outcome_names_what_was_chosen():
    document = certificate(4, outvoted=(1,))
    assert outcome_words(document) == (
        "3 of 4 voters accepted (f = 1); robust: geometric_median; loss 1.4000, base 2.5000"
    )
    assert "greedy_soup; loss" in outcome_words(document | {"chosen": "greedy_soup"})


@pytest.mark.parametrize(("n", "bad"), [(1, ()), (2, ()), (4, ()), (10, (1, 4)), (13, (0,)), (32, (2, 9, 11))])
def test_every_picture_is_well_formed_and_small(n: int, bad: tuple[int, ...]):
    document = certificate(n, rounds=3, outvoted=bad, quarantined=(n - 1,) if n > 4 else ())
    shown = certificate_page(document, losses(document)).entries()
    for name, value in shown.items():
        content = value.md_str if isinstance(value, dg.MarkdownMetadataValue) else None
        size = len(content or json.dumps(value.data) if isinstance(value, dg.JsonMetadataValue) else str(content))
        assert size < EVENT_BYTES, name
    for svg in (ballot_matrix(document), distance_map(document), weights_chart(document)):
        for element in drawn(svg).iter():
            for attribute in ("x", "y", "cx", "cy", "width", "height"):
                place = element.get(attribute, "0")
                assert place.endswith("%") or -200 <= float(place) <= 2_000, (element.tag, attribute, place)


def test_a_large_certificate_says_where_its_ballots_are():
    document = certificate(13, rounds=3)
    value = certificate_page(document, losses(document)).records["certificate"]
    assert isinstance(value, dg.JsonMetadataValue) and isinstance(value.data, dict)
    assert (
        value.data["ballots"] == "see certificate.json of the artifact" and value.data["voters"] == document["voters"]
    )
    small = certificate_page(certificate(2), {"base": 2.0}).records["certificate"]
    assert isinstance(small, dg.JsonMetadataValue) and small.data == certificate(2)


def test_the_same_certificate_gives_the_same_bytes():
    first, second = certificate(7, rounds=2, seed=3), certificate(7, rounds=2, seed=3)
    assert [p(first) for p in (ballot_matrix, distance_map, weights_chart)] == [
        p(second) for p in (ballot_matrix, distance_map, weights_chart)
    ]


@given(st.text(min_size=1, max_size=40))
def test_any_name_is_drawn_and_nothing_in_it_is_markup(name: str):
    document = certificate(4, outvoted=(1,))
    text = json.dumps(document).replace('"voter-1"', json.dumps(name)).replace('"voter-3"', json.dumps(f"<{name}>"))
    named = json.loads(text)
    for picture in (ballot_matrix, distance_map, weights_chart):
        root = drawn(picture(copy.deepcopy(named)))
        assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
            "svg",
            "rect",
            "text",
            "path",
            "circle",
            "g",
        }
    assert len(verdict_table(named).splitlines()) == 9
