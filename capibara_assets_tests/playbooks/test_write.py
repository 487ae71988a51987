"""A playbook read, written and read again is the same playbook."""

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capibara_assets.playbooks.families import read_contents
from capibara_assets.playbooks.parsed import RawBullet, tidy
from capibara_assets.playbooks.read import read_playbooks
from capibara_assets.playbooks.write import to_ace_json, to_ace_text

CORE = ["local_id", "section", "content", "helpful", "harmful", "counters_exact"]
MORE = [*CORE, "title", "neutral", "tags", "status", "created_at", "updated_at", "domains"]


def again(folder: Path, name: str, data: str | bytes) -> pl.DataFrame:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    found = read_playbooks(folder)
    (folder / name).unlink()
    assert len(found.quarantine) == 0
    return found.bullets


def test_every_public_playbook_survives_both_forms(shared_data: Path, tmp_path: Path) -> None:
    bullets = read_playbooks(shared_data / "experience").bullets
    playbooks = sorted(bullets["playbook_id"].unique())
    assert len(playbooks) > 60
    for playbook in playbooks[::4]:
        one = bullets.filter(pl.col("playbook_id") == playbook)
        back = again(tmp_path / "json", "p.json", to_ace_json(one))
        assert back.sort("local_id").select(MORE).equals(one.sort("local_id").select(MORE)), playbook
        if one["title"].is_null().all():
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


@settings(max_examples=80, deadline=None)
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
