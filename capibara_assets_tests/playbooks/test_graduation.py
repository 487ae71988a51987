"""Graduation: the score's known values, where each figure comes from, and the criteria that were missed."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.domains import Domain
from capibara_assets.playbooks.graduation import AgentFilter, graduate, wilson_lower_bound
from capibara_assets.playbooks.read import Playbooks, read_playbooks


@pytest.mark.parametrize(
    ("successes", "trials", "bound"),
    # the last three: Newcombe 1998, Statistics in Medicine 17, table I, method 3
    [(0, 0, 0.0), (0, 10, 0.0), (3, 3, 0.4385), (81, 263, 0.2553), (15, 148, 0.0624), (1, 29, 0.0061)],
)
def test_wilson_bound_has_the_published_values(successes: int, trials: int, bound: float) -> None:
    assert wilson_lower_bound(successes, trials) == pytest.approx(bound, abs=5e-5)


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_wilson_bound_lies_below_the_share_and_grows_with_evidence(helpful: int, harmful: int) -> None:
    total = helpful + harmful
    bound = wilson_lower_bound(helpful, total)
    assert 0 <= bound <= (helpful / total if total else 0) + 1e-12
    assert wilson_lower_bound(10 * helpful, 10 * total) >= bound - 1e-12


def write(folder: Path, agent: str, lines: list[str], **manifest: Any) -> None:
    home = folder / "playbooks" / agent
    home.mkdir(parents=True)
    (home / "playbook.txt").write_text("## SQL\n" + "".join(f"{line}\n" for line in lines))
    if manifest:
        (home / "agent.json").write_text(json.dumps({"agent_id": agent, **manifest}))


def test_who_graduates_and_what_the_others_missed(tmp_path: Path) -> None:
    good = ["[s-00001] helpful=300 harmful=3 :: Use sqlite parameters in every query"]
    write(tmp_path, "good", good, interactions=400, successes=380)
    write(tmp_path, "few", good, interactions=20, successes=19)
    write(tmp_path, "poor", good, interactions=400, successes=100, domain_expertise=["ml"])
    write(
        tmp_path, "given", ["[s-00001] helpful=0 harmful=9 :: x"], interactions=100, successes=85, graduation_score=0.85
    )
    write(tmp_path, "silent", ["[s-00001] helpful=50 harmful=1 :: y", "[s-00002] helpful=3 harmful=1 :: z"])
    agents = {row["agent_id"]: row for row in graduate(read_playbooks(tmp_path), AgentFilter()).iter_rows(named=True)}
    assert {name: row["missed"] for name, row in agents.items()} == {
        "good": [],
        "few": ["min_interactions: 20 < 100"],
        "poor": ["min_success_rate: 0.250 < 0.85"],
        "given": [],
        "silent/playbook.txt": ["min_interactions: 51 < 100", "min_success_rate: unknown, 0.85 needed"],
    }
    assert [name for name, row in sorted(agents.items()) if row["graduated"]] == ["given", "good"]
    assert agents["good"]["graduation_score"] == pytest.approx(wilson_lower_bound(300, 303))
    assert agents["good"]["domain_expertise"] == ["sql"]

    experts = graduate(read_playbooks(tmp_path), AgentFilter(domain_expertise=[Domain.ML], min_success_rate=0.2))
    assert experts.filter("graduated")["agent_id"].to_list() == ["poor"]
    missed = experts.row(by_predicate=pl.col("agent_id") == "good", named=True)["missed"]
    assert missed == ["domain_expertise: ['sql'] has none of ['ml']"]


def test_snapshots_are_not_counted_twice_and_runs_find_their_agent(tmp_path: Path) -> None:
    home = tmp_path / "playbooks"
    home.mkdir()

    def bullets(helpful: int, content: str) -> str:
        entries = [
            {"id": "b-1", "title": "t", "content": content, "helpful_count": helpful, "harmful_count": 1},
            {"id": "b-2", "content": "another lesson altogether", "helpful_count": 1, "harmful_count": 0},
        ]
        return json.dumps({"bullets": entries})

    (home / "playbook_initial_77.json").write_text(bullets(5, "check the columns of every table before a join"))
    (home / "playbook_final_77.json").write_text(bullets(9, "always check the columns of every table before a join"))
    metrics = {"total_tasks": 40, "successful_tasks": 30}
    run = {"experiment_id": "77", "config": {}, "results": {"final_metrics": metrics}}
    (home / "run.json").write_text(json.dumps(run))
    (agent,) = graduate(read_playbooks(tmp_path), AgentFilter()).to_dicts()
    assert (agent["bullets"], agent["interactions"], agent["success_rate"]) == (2, 40, 0.75)
    assert agent["graduation_score"] == pytest.approx(wilson_lower_bound(10, 11))


def test_the_public_playbooks_graduate_nobody_at_the_defaults(public: Playbooks) -> None:
    agents = graduate(public, AgentFilter())
    assert len(agents) > 5 and not agents["graduated"].any()
    assert all(len(missed) > 0 for missed in agents["missed"])
    # some run reports name playbooks that are there, and say how often the tasks were solved
    assert agents["success_rate"].is_not_null().any()


def test_old_merits_count_less_and_a_manifest_may_give_a_rate(tmp_path: Path) -> None:
    def book(month: int) -> dict[str, Any]:
        time = f"2026-{month:02d}-01T00:00:00Z"
        return {"id": "b-1", "content": "Use parameters", "helpful_count": 40, "harmful_count": 1, "last_updated": time}

    home = tmp_path / "playbooks"
    for agent, bullets in {"new": [book(7)], "old": [book(1)], "undated": [book(7) | {"last_updated": None}]}.items():
        (home / agent).mkdir(parents=True)
        (home / agent / "p.json").write_text(json.dumps({"bullets": bullets}))
        (home / agent / "agent.json").write_text(json.dumps({"agent_id": agent, "success_rate": 0.5}))
    playbooks = read_playbooks(tmp_path)
    half_life = (datetime(2026, 7, 1) - datetime(2026, 1, 1)).days
    agents = graduate(playbooks, AgentFilter(), half_life_days=half_life)
    scores = dict(agents.select("agent_id", "graduation_score").iter_rows())
    assert scores["new"] == scores["undated"] == pytest.approx(wilson_lower_bound(40, 41))
    assert scores["old"] == pytest.approx(wilson_lower_bound(20, 20.5))
    later = graduate(playbooks, AgentFilter(), as_of=datetime(2027, 1, 1, tzinfo=UTC))
    assert later["graduation_score"][0] < scores["new"]
    # what the manifest leaves open is what the counters imply
    assert agents["success_rate"].to_list() == [0.5] * 3 and agents["interactions"].to_list() == [41] * 3


def test_a_weighted_bound_is_between_those_of_whole_numbers() -> None:
    assert wilson_lower_bound(3, 3) < wilson_lower_bound(3.5, 3.5) < wilson_lower_bound(4, 4)


def test_several_reports_add_up(tmp_path: Path) -> None:
    write(tmp_path, "ada", ["[s-00001] helpful=5 harmful=0 :: One thing"], interactions=100)
    for number, (total, solved) in enumerate([(30, 30), (10, 2)]):
        metrics = {"total_tasks": total, "successful_tasks": solved}
        run = {"experiment_id": str(number), "agent_id": "ada", "config": {}, "results": {"final_metrics": metrics}}
        (tmp_path / "playbooks" / f"run{number}.json").write_text(json.dumps(run))
    (agent,) = graduate(read_playbooks(tmp_path), AgentFilter()).to_dicts()
    assert (agent["interactions"], agent["success_rate"]) == (100, 0.8)
