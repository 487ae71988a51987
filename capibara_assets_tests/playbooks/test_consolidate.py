"""Consolidation: what is merged, what contradicts, ranks, the compressed form, and independence of order."""

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from capibara_assets.playbooks.consolidate import consolidate
from capibara_assets.playbooks.coverage import cover, estimate_tokens
from capibara_assets.playbooks.formats.write import HEADING, render_playbook
from capibara_assets.playbooks.graduation import AgentFilter, graduate, wilson_lower_bound
from capibara_assets.playbooks.near import NEAR, likeness, meaning_of, weights_of
from capibara_assets.playbooks.read import Playbooks, read_playbooks
from capibara_assets.playbooks.schema import Consolidated
from capibara_assets.storage.records import frame_digest

EVERYBODY = AgentFilter(min_graduation_score=0, min_interactions=0, min_success_rate=0)
LONG = (
    "Always look at the names and types of the columns with PRAGMA before you join two big tables of one schema in SQL"
)
AGENTS = {
    "ada": [(10, 0, LONG), (4, 1, "Name every column in the SELECT list of a SQL query")],
    "bob": [
        (1, 8, LONG + " files"),
        (3, 0, "Think about the question before the answer"),
        (0, 0, "Use an index in SQL"),
    ],
    "cat": [(5, 0, LONG.replace("Always look", "Never look"))],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for agent, lessons in AGENTS.items():
        home = tmp_path / "playbooks" / agent
        home.mkdir(parents=True)
        manifest = {"agent_id": agent, "interactions": 50, "successes": 45}
        (home / "agent.json").write_text(json.dumps(manifest))
        lines = [
            f"[s-{n:05d}] helpful={helpful} harmful={harmful} :: {text}\n"
            for n, (helpful, harmful, text) in enumerate(lessons)
        ]
        (home / "playbook.txt").write_text("## RULES\n" + "".join(lines))
    return tmp_path


def test_a_merged_lesson_has_the_evidence_of_all_its_origins(tmp_path: Path) -> None:
    home = tmp_path / "playbooks"
    home.mkdir()
    for agent, evidence in {"ada": [{"type": "execution", "ref": "a1"}, "told"], "bob": [{"ref": "b1"}]}.items():
        entry = {"id": "s-1", "content": LONG, "helpful_count": 10, "harmful_count": 0, "evidence": evidence}
        (home / f"{agent}.json").write_text(json.dumps({"agent_id": agent, "bullets": [entry]}))
    playbooks = read_playbooks(tmp_path)
    (lesson,) = consolidate(playbooks.bullets, graduate(playbooks, EVERYBODY), "sql").bullets.to_dicts()
    assert lesson["agents"] == ["ada", "bob"]
    assert lesson["evidence"] == [":b1", ":told", "execution:a1"]


def test_duplicates_merge_contradictions_are_told_and_ranks_follow_the_bound(folder: Path) -> None:
    playbooks = read_playbooks(folder)
    result = consolidate(playbooks.bullets, graduate(playbooks, EVERYBODY), "sql")
    rows = result.bullets.to_dicts()
    merged = next(row for row in rows if len(row["origins"]) == 2)
    assert (merged["content"], merged["helpful"], merged["harmful"], merged["agents"]) == (LONG, 11, 8, ["ada", "bob"])
    assert merged["score"] == pytest.approx(wilson_lower_bound(11, 19))
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    assert all({"sql", "general"} & {*row["domains"]} for row in rows)
    kinds = {found["kind"]: found["bullets"] for found in result.statistics["contradictions"]}
    assert kinds["helpful_here_harmful_there"] == ["ada/playbook.txt/s-00000", "bob/playbook.txt/s-00000"]
    assert "cat/playbook.txt/s-00000" in kinds["negated"]
    counts = result.statistics["bullets"]
    assert (counts["in_domain"], counts["duplicates_merged"], counts["kept"]) == (6, 1, 5)


def test_other_domains_take_the_general_bullets_only(folder: Path) -> None:
    playbooks = read_playbooks(folder)
    result = consolidate(playbooks.bullets, graduate(playbooks, EVERYBODY), "ml")
    assert result.bullets["content"].to_list() == ["Think about the question before the answer"]


def test_top_k_and_inactive_bullets(folder: Path) -> None:
    playbooks = read_playbooks(folder)
    agents = graduate(playbooks, EVERYBODY)
    first = consolidate(playbooks.bullets, agents, "sql", top_k=2)
    assert first.bullets["rank"].to_list() == [1, 2] and first.statistics["bullets"]["beyond_top_k"] == 3
    withdrawn = playbooks.bullets.with_columns(
        status=pl.when(pl.col("agent_id") == "cat").then(pl.lit("invalid")).otherwise("status")
    )
    rest = consolidate(withdrawn, agents, "sql")
    assert rest.statistics["bullets"]["inactive"] == 1 and not any("cat" in a for a in rest.bullets["agents"])


def test_nobody_graduated_is_a_valid_empty_playbook(folder: Path) -> None:
    playbooks = read_playbooks(folder)
    result = consolidate(playbooks.bullets, graduate(playbooks, AgentFilter()), "sql")
    assert (
        len(result.bullets) == 0
        and result.bullets.schema
        == consolidate(playbooks.bullets, graduate(playbooks, EVERYBODY), "sql").bullets.schema
    )
    assert set(result.statistics["agents"]["rejected"]) == {"ada", "bob", "cat"}
    assert "min_interactions: 50 < 100" in result.statistics["agents"]["rejected"]["ada"]
    assert result.statistics["quality"] == {"mean": None, "median": None}
    assert render_playbook(result.bullets, estimate_tokens, 100) == ""
    json.dumps(result.statistics, allow_nan=False)


def test_order_of_rows_does_not_matter(public: Playbooks) -> None:
    agents = graduate(public, EVERYBODY)
    straight = consolidate(public.bullets, agents, "api")
    mixed = consolidate(public.bullets.sample(fraction=1.0, shuffle=True, seed=5), agents.reverse(), "api")
    assert frame_digest(Consolidated, straight.bullets) == frame_digest(Consolidated, mixed.bullets)
    assert straight.statistics == mixed.statistics
    # snapshots and derived copies of one playbook are one history: no lesson is counted beyond its file's counter
    assert straight.bullets["helpful"].max() == public.bullets["helpful"].max()
    assert 0 < straight.statistics["compressed"]["tokens"] <= 512


def _share(texts: list[str], values: list[float], places: Sequence[int]) -> float:
    """Covered share of the weight, by the definition."""
    sets = [set(text.split()) for text in texts]
    weight = {
        word: math.log1p(len(sets) / sum(word in each for each in sets))
        * max(value for each, value in zip(sets, values, strict=True) if word in each)
        for word in set().union(*sets)
    }
    return sum(weight[word] for word in set().union(*(sets[place] for place in places))) / sum(weight.values())


def test_cover_is_close_to_the_best_subset_and_within_budget() -> None:
    texts = ["a b c d e f", "a b c", "d e f", "g", "a g", "h h h h h h h h"]
    values = [1.0, 1.0, 1.0, 1.0, 1.0, 0.1]
    for budget in range(12):
        chosen = cover(texts, values, budget=budget, enough=1.0)
        cost = sum(len(texts[place].split()) for place in chosen.chosen)
        assert cost == chosen.tokens <= budget
        best = max(
            _share(texts, values, places)
            for size in range(len(texts) + 1)
            for places in itertools.combinations(range(len(texts)), size)
            if sum(len(texts[place].split()) for place in places) <= budget
        )
        assert (1 - 1 / math.e) / 2 * best <= chosen.share <= best + 1e-12
        if budget in (1, 2, 4, 7):
            assert chosen.share == pytest.approx(best)
        assert chosen.share == pytest.approx(_share(texts, values, chosen.chosen))
    assert cover(texts, values, budget=0).chosen == ()
    assert cover([], [], budget=9).share == 1.0
    everything = cover(texts, values, budget=1000, enough=1.0)
    assert everything.share == pytest.approx(1.0) and not {0, 4} & {*everything.chosen}


def test_render_keeps_the_budget_and_whole_bullets(folder: Path) -> None:
    playbooks = read_playbooks(folder)
    frame = consolidate(playbooks.bullets, graduate(playbooks, EVERYBODY), "sql", budget_tokens=200).bullets
    for budget in (0, 5, 25, 40, 80, 500):
        text = render_playbook(frame, estimate_tokens, budget)
        assert estimate_tokens(text) <= budget or text == ""
        for line in text.splitlines():
            assert line in ("", HEADING, "## RULES") or line.removeprefix("- ") in frame["content"].to_list()
    full = render_playbook(frame, estimate_tokens, 500)
    assert full.count("\n- ") == frame["compressed"].sum() and full.count("## RULES") == 1


def test_texts_that_the_cover_does_not_need_are_removed() -> None:
    # the first choice, best per token, is spare once the two that follow cover the rest
    texts = ["a b", "a c c c", "b d d d"]
    values = [1.0, 1.0, 1.0]
    everything = cover(texts, values, budget=100, enough=1.0)
    assert set(everything.chosen) == {1, 2} and everything.share == pytest.approx(1.0)
    assert everything.tokens == 8


def test_a_chain_of_small_differences_does_not_drift(tmp_path: Path) -> None:
    words = [f"word{letter}" for letter in "abcdefghijklmnopqrst"]
    home = tmp_path / "playbooks"
    texts = [" ".join(words[shift : shift + 16]) for shift in range(5)]
    for number, text in enumerate(texts):
        (home / str(number)).mkdir(parents=True)
        (home / str(number) / "agent.json").write_text(json.dumps({"agent_id": f"agent-{number}", "interactions": 1}))
        (home / str(number) / "p.txt").write_text(f"## SQL\n[s-00001] helpful={9 - number} harmful=0 :: {text}\n")
    playbooks = read_playbooks(tmp_path)
    result = consolidate(playbooks.bullets, graduate(playbooks, EVERYBODY), "sql")
    kept = [meaning_of(row["content"]) for row in result.bullets.sort("rank").to_dicts()]
    assert 1 < len(kept) < 5
    everything = [meaning_of(text) for text in texts]
    weights = weights_of(everything)
    for row in result.bullets.to_dicts():
        for origin in row["origins"]:
            member = everything[int(origin.split("/")[0])]
            assert likeness(member.stems, meaning_of(row["content"]).stems, weights) >= NEAR
    assert sum(len(row["origins"]) for row in result.bullets.to_dicts()) == 5
    assert result.bullets["helpful"].sum() == 9 + 8 + 7 + 6 + 5


def test_every_bullet_is_accounted_for(folder: Path) -> None:
    playbooks = read_playbooks(folder)
    criteria = AgentFilter(min_graduation_score=0.5, min_interactions=0, min_success_rate=0)
    counts = consolidate(playbooks.bullets, graduate(playbooks, criteria), "sql", top_k=1).statistics["bullets"]
    assert counts["in_domain"] == counts["of_graduated_agents"] + counts["of_rejected_agents"] == 6
    assert counts["of_rejected_agents"] > 0
    assert counts["distinct"] == (
        counts["inactive"] + counts["duplicates_merged"] + counts["kept"] + counts["beyond_top_k"]
    )
