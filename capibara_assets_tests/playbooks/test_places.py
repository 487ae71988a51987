"""Whose file it is: an agent keeps its playbook and its record whatever stands in other folders."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.playbooks.formats.detection import read_contents
from capibara_assets.playbooks.graduation import AgentFilter, graduate
from capibara_assets.playbooks.history import advice_of
from capibara_assets.playbooks.places import places_of
from capibara_assets.playbooks.read import Playbooks, read_playbooks
from capibara_assets.playbooks.rows import ScannedFile

RECORD = {"agent_id": "victim", "interactions": 400, "successes": 390}
BULLETS = [
    {"id": f"v-{number}", "content": f"Advice {number} on table t{number}", "helpful_count": 30} for number in range(4)
]
FOREIGN = [{"id": "v-1", "content": "Advice 1 on table evil", "helpful_count": 9, "last_updated": "2026-11-01"}]
STEPS = [
    {"type": "REMOVE", "bullet_id": "v-1"},
    {"type": "UPDATE", "bullet_id": "v-2", "content": "Drop it"},
    {"type": "TAG", "bullet_id": "v-3", "metadata": {"harmful": 900}},
]
FAILED = {"config": {}, "experiment_id": "victim/", "results": {"final_metrics": {"total_tasks": 90_000}}}
VICTIMS: dict[str, dict[str, Any]] = {
    "a manifest beside it": {"victim/agent.json": RECORD, "victim/p.json": {"bullets": BULLETS}},
    "a manifest in it": {"victim/p.json": {**RECORD, "bullets": BULLETS}},
    "an id in it": {"victim/p.json": {"agent_id": "victim", "bullets": BULLETS}},
    "a manifest above it": {"victim/agent.json": RECORD, "victim/runs/1/p.json": {"bullets": BULLETS}},
}
NAMED = {"agent_id": "victim", "operations": STEPS}
ELSEWHERE: dict[str, dict[str, Any]] = {
    "changes that state it": {"evil/d.json": NAMED},
    "changes of nobody": {"evil/d.json": {"operations": STEPS}},
    "changes whose folder is called as a key was": {
        "agent/d.json": {"operations": [*STEPS, {"type": "REMOVE", "bullet_id": "victim"}]},
        "victim/e.json": {"agent_id": "victim", "operations": []},
    },
    "a manifest": {"aaa/agent.json": {"agent_id": "victim", "interactions": 1, "graduation_score": 0.0}},
    "a manifest in a folder of manifests": {
        "agents/aaa.json": {"agent_id": "victim", "interactions": 1, "graduation_score": 0.0}
    },
    "a run": {"evil/r.json": {**FAILED, "agent_id": "victim"}},
    "a run of nobody": {"evil/r.json": FAILED},
}
CONTESTED: dict[str, dict[str, Any]] = {
    "a playbook": {"aaa/p.json": {"agent_id": "victim", "bullets": FOREIGN}},
    "a playbook that sorts last": {"zzz/p.json": {"agent_id": "victim", "bullets": FOREIGN}},
    "a manifest and a playbook": {
        "aaa/agent.json": {"agent_id": "victim", "interactions": 1, "graduation_score": 0.0},
        "aaa/p.json": {"bullets": FOREIGN},
    },
    "a playbook, and changes of the name that is left": {
        "aaa/p.json": {"agent_id": "victim", "bullets": FOREIGN},
        "evil/1.json": {"agent_id": "victim/p.json", "operations": STEPS},
        "evil/2.json": {"agent_id": "victim/agent.json", "operations": STEPS},
        "3.json": NAMED,
    },
    "copies and changes": {
        "aaa/p.json": {**RECORD, "bullets": BULLETS},
        "aaa/q.json": {"bullets": BULLETS},
        "aaa/agent.json": RECORD,
        "aaa/copy.json": {"agent_id": "victim", "bullets": BULLETS},
        "aaa/d.json": NAMED,
    },
}


def read(folder: Path, files: dict[str, Any]) -> Playbooks:
    for name, document in files.items():
        path = folder / "playbooks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_playbooks(folder)


def state(found: Playbooks) -> tuple[str, list[Any], dict[str, Any]]:
    """(id, lessons, figures) of the agent whose playbook stands in `victim/`."""
    (name,) = set(found.bullets.filter(pl.col("playbook_id").str.starts_with("victim/"))["agent_id"])
    lessons = [
        (each.bullet["local_id"], each.text, each.helpful, each.harmful, each.bullet["status"])
        for each in advice_of(found.bullets)
        if each.agent_id == name
    ]
    figures = graduate(found, AgentFilter()).row(by_predicate=pl.col("agent_id") == name, named=True)
    return name, sorted(lessons), {key: value for key, value in figures.items() if key != "agent_id"}


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("attack", ELSEWHERE)
def test_what_stands_elsewhere_takes_over_nobody(tmp_path: Path, victim: str, attack: str) -> None:
    alone = state(read(tmp_path / "alone", VICTIMS[victim]))
    found = read(tmp_path / "both", {**VICTIMS[victim], **ELSEWHERE[attack]})
    assert alone[0] == "victim" and state(found) == alone
    said = set(found.quarantine.select("file", "reason").iter_rows())
    assert not any("playbooks/victim/" in file for file, _ in said)
    if "agent_id" in str(ELSEWHERE[attack]) and "key" not in attack:
        (file,) = ELSEWHERE[attack]
        assert (f"playbooks/{file}", "agent_elsewhere") in said
    elif "changes" in attack:
        assert {reason for _, reason in said} == {"unknown_bullet"}  # told step by step


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("attack", CONTESTED)
def test_where_nothing_tells_who_was_first_each_keeps_its_own(tmp_path: Path, victim: str, attack: str) -> None:
    alone = state(read(tmp_path / "alone", VICTIMS[victim]))
    found = read(tmp_path / "both", {**VICTIMS[victim], **CONTESTED[attack]})
    both = state(found)
    assert both[1:] == alone[1:]
    assert both[0] == f"victim/{'agent' if 'victim/agent.json' in VICTIMS[victim] else 'p'}.json"
    assert "victim" not in set(found.bullets["agent_id"]) | set(found.runs["agent_id"])
    said = found.quarantine.filter(pl.col("reason") == "agent_elsewhere")
    assert {file.split("/")[1] for file in said["file"]} >= {"victim", next(iter(CONTESTED[attack])).split("/")[0]}
    assert "which was first is unknown" in said["detail"][0]


def test_an_agent_that_no_file_states_keeps_the_id_of_its_path(tmp_path: Path) -> None:
    alone = {"victim/p.json": {"bullets": BULLETS}}
    before = state(read(tmp_path / "alone", alone))
    claimed = {"evil/agent.json": {"agent_id": "victim/p.json", "graduation_score": 0.0}}
    for number, more in enumerate([{}, {"evil/p.json": {"bullets": FOREIGN}}, {"evil/d.json": {"operations": STEPS}}]):
        found = read(tmp_path / str(number), {**alone, **claimed, **more})
        assert state(found) == before and before[0] == "victim/p.json"
        assert "agent_elsewhere" in set(found.quarantine["reason"])


ADD = {"type": "TAG", "bullet_id": "v-1", "metadata": {"helpful": 1}}
SOUND: dict[str, dict[str, Any]] = {
    "beside": {"d.json": {"operations": [ADD]}},
    "beside, stated": {"d.json": {"agent_id": "victim", "operations": [ADD]}},
    "above, stated": {"../d.json": {"agent_id": "victim", "operations": [ADD]}},
    "below": {"deltas/2026/d.json": {"operations": [ADD]}},
    "below, stated": {"deltas/2026/d.json": {"agent_id": "victim", "operations": [ADD]}},
    "a second manifest below": {"old/agent.json": RECORD, "old/d.json": {"operations": [ADD]}},
    "a playbook below that states it": {
        "old/p.json": {"agent_id": "victim", "bullets": BULLETS[:1]},
        "old/d.json": {"agent_id": "victim", "operations": [ADD]},
    },
    "a run below": {"runs/1.json": {**FAILED, "agent_id": "victim"}, "d.json": {"operations": [ADD]}},
}


@pytest.mark.parametrize("top", ["", "team/"])
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("layout", SOUND)
def test_what_stands_with_an_agent_is_its_own(tmp_path: Path, victim: str, layout: str, top: str) -> None:
    own = {f"{top}{name}": document for name, document in VICTIMS[victim].items()}
    more = {f"{top}victim/{name}": document for name, document in SOUND[layout].items()}
    other = {"bob/agent.json": {"agent_id": "bob", "interactions": 3}, "bob/p.json": {"bullets": BULLETS}}
    found = read(tmp_path, {**own, **more, **other})
    assert len(found.quarantine) == 0
    helpful = {each.agent_id: each.helpful for each in advice_of(found.bullets) if each.bullet["local_id"] == "v-1"}
    assert helpful == {"victim": 31, "bob": 30}
    assert set(found.runs["agent_id"]) <= {"victim", "bob"}


def test_agents_of_one_folder_and_agents_without_a_playbook_are_as_they_were(tmp_path: Path) -> None:
    runs = {f"runs/{n}/r.json": {**FAILED, "experiment_id": n, "agent_id": "runner"} for n in ("1", "2")}
    added = {"operations": [{"type": "ADD", "section": "S", "content": "Started by a curator"}], "agent_id": "cat"}
    flat = {f"{name}.json": {"agent_id": name, "interactions": 3, "bullets": BULLETS} for name in ("ada", "bob")}
    found = read(tmp_path, {**runs, **flat, "cat/1.json": added, "d.json": {"agent_id": "bob", "operations": [ADD]}})
    assert len(found.quarantine) == 0
    assert set(found.runs["agent_id"]) == {"runner", "ada", "bob"}
    helpful = {each.agent_id: each.helpful for each in advice_of(found.bullets) if each.bullet["local_id"] == "v-1"}
    assert helpful == {"ada": 30, "bob": 31} and "cat" in set(found.bullets["agent_id"])


def test_an_id_that_thousands_of_folders_state_is_told_shortly_and_soon(tmp_path: Path) -> None:
    contents = read_contents(json.dumps({"agent_id": "victim", "bullets": BULLETS}).encode(), own_folder=True)
    names = [f"{number}/p.json" for number in range(20_000)]
    places = places_of([ScannedFile(name, name, 1, name, contents) for name in names], str)
    assert dict(places.agents) == {name: name for name in names}
    assert max(len(each.detail) for each in places.rejected.values()) < 200
