"""A playbook read, written and read again is the same playbook."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.playbooks.formats.detection import read_contents
from capibara_assets.playbooks.formats.parsed import RawBullet, tidy
from capibara_assets.playbooks.formats.write import to_ace_json, to_ace_text, write_playbook
from capibara_assets.playbooks.history import exact_counters
from capibara_assets.playbooks.read import Playbooks, read_playbooks
from capibara_assets.playbooks.schema import Consolidated
from capibara_assets.storage.records import table

CORE = ["local_id", "section", "content", "helpful", "harmful", "counters_exact"]
MORE = [*CORE, "agent_id", "title", "neutral", "tags", "status", "created_at", "updated_at", "domains"]


def again(folder: Path, name: str, data: str | bytes) -> pl.DataFrame:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    found = read_playbooks(folder)
    (folder / name).unlink()
    assert len(found.quarantine) == 0
    return found.bullets


@pytest.mark.parametrize("step", [20, pytest.param(4, marks=pytest.mark.extended)])
def test_every_public_playbook_survives_both_forms(public: Playbooks, tmp_path: Path, step: int) -> None:
    bullets = public.bullets
    playbooks = sorted(bullets["playbook_id"].unique())
    assert len(playbooks) > 60
    for playbook in playbooks[::step]:
        one = bullets.filter(pl.col("playbook_id") == playbook)
        back = again(tmp_path / "json", "p.json", to_ace_json(one))
        assert back.sort("local_id").select(MORE).equals(one.sort("local_id").select(MORE)), playbook
        if one["title"].is_null().all() and (one["status"] == "active").all():
            back = again(tmp_path / "text", "p.txt", to_ace_text(one))
            assert back.sort("local_id").select(CORE).equals(one.sort("local_id").select(CORE)), playbook


def test_huge_counters_survive(shared_data: Path, tmp_path: Path) -> None:
    bullets = read_playbooks(shared_data / "experience" / "bad").bullets
    one = bullets.filter(pl.col("playbook_id") == "playbook_bad_lines.txt")
    assert (
        again(tmp_path, "p.txt", to_ace_text(one))
        .sort("local_id")
        .select(CORE)
        .equals(one.sort("local_id").select(CORE))
    )


line = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20)


@given(st.lists(line, min_size=1, max_size=5).map("\n".join), st.integers(0, 10**25))
def test_any_content_survives_as_text(tmp_path_factory: pytest.TempPathFactory, content: str, helpful: int) -> None:
    content = tidy(content)
    if not content:
        return
    folder = tmp_path_factory.mktemp("one")
    source = f'{{"bullets": {{"s-00001": {{"section": "S", "content": {json.dumps(content)}, "helpful": {helpful}}}}}}}'
    one = again(folder, "p.json", source)
    read = read_contents(to_ace_text(one).encode(), own_folder=True)
    assert read.parsed is not None and read.parsed.rejected == []
    assert read.parsed.bullets == [RawBullet("s-00001", "S", content, helpful=helpful, line=2)]


word = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=12)
heading = word.map(tidy).filter(lambda text: bool(text) and not text.startswith("#"))
advice = st.lists(line, min_size=1, max_size=4).map("\n".join).map(tidy).filter(bool)
count = st.integers(0, 10**20)
moment = st.datetimes(timezones=st.just(UTC), min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1))
entry = st.fixed_dictionaries(
    {"section": heading, "content": advice, "helpful": count, "harmful": count},
    optional={
        "neutral": count,
        "tags": st.lists(heading, max_size=3),
        "status": st.sampled_from(["active", "invalid", "deprecated"]),
        "created_at": moment.map(datetime.isoformat),
        "updated_at": moment.map(datetime.isoformat),
        "title": heading,
    },
)


def in_text(bullets: pl.DataFrame) -> list[tuple]:
    """What the text form holds of bullets: no neutral counter."""
    return sorted(
        (row["local_id"], row["section"], row["content"], *exact_counters(row)[:2]) for row in bullets.to_dicts()
    )


@given(st.lists(entry, min_size=1, max_size=6))
def test_any_playbook_survives_both_forms(tmp_path_factory: pytest.TempPathFactory, entries: list[dict]) -> None:
    folder = tmp_path_factory.mktemp("book")
    source = {"bullets": {f"s-{number:05d}": each for number, each in enumerate(entries)}}
    one = again(folder, "p.json", json.dumps(source))
    written = to_ace_json(one)
    back = again(folder, "p.json", written)
    assert back.sort("local_id").select(MORE).equals(one.sort("local_id").select(MORE))
    assert to_ace_json(back) == written
    # text holds less: what is written of it and read again is the same from then on
    active = one.filter(pl.col("status") == "active")
    first = again(folder, "p.txt", to_ace_text(one)) if len(active) else active
    assert first["local_id"].sort().to_list() == active["local_id"].sort().to_list()
    if len(active):
        second = again(folder, "p.txt", to_ace_text(first))
        columns = [*CORE, "domains", "bullet_id", "source_line"]
        assert second.sort("local_id").select(columns).equals(first.sort("local_id").select(columns))
        untitled = active.filter(pl.col("title").is_null())
        kept = first.filter(pl.col("local_id").is_in(untitled["local_id"].to_list()))
        assert in_text(kept) == in_text(untitled)


def test_a_consolidated_playbook_is_one_that_agents_can_read(tmp_path: Path) -> None:
    rows = [
        Consolidated(
            bullet_id=f"x/{rank}",
            content=f"Lesson {rank}\nwith more",
            section="## ODD\nSECTION" if rank == 2 else "",
            domains=["sql"],
            helpful=10 - rank,
            harmful=0,
            score=0.5,
            origins=[f"x/{rank}"],
            evidence=["execution:e1", ":plain"] if rank == 1 else [],
            agents=["ada"],
            rank=rank,
            compressed=rank == 1,
        )
        for rank in (1, 2, 3)
    ]
    write_playbook(table(Consolidated, rows), "sql", tmp_path / "playbooks")
    found = read_playbooks(tmp_path)
    assert len(found.quarantine) == 0
    per_file = {name: frame for (name,), frame in found.bullets.group_by("playbook_id")}
    assert sorted(per_file) == ["compressed.json", "compressed.txt", "playbook.json", "playbook.txt"]
    for name in ("playbook.json", "playbook.txt"):
        shown = per_file[name].sort("local_id").select("local_id", "section", "content", "helpful").rows()
        assert shown == [
            ("sql-00001", "", "Lesson 1\nwith more", 9),
            ("sql-00002", "ODD SECTION", "Lesson 2\nwith more", 8),
            ("sql-00003", "", "Lesson 3\nwith more", 7),
        ]
    kept = per_file["playbook.json"].sort("local_id")["evidence"].to_list()
    assert kept == [["execution:e1", ":plain"], [], []]
    assert per_file["compressed.txt"]["local_id"].to_list() == ["sql-00001"]
    write_playbook(table(Consolidated, []), "sql", tmp_path / "none")
    assert (tmp_path / "none" / "playbook.txt").read_text() == ""
