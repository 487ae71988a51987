"""Families of playbooks in small authored files, chosen by content: JSON variants, TOON, front matter, manifests."""

import json
from pathlib import Path
from typing import Any

import pytest
import toon
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.playbooks.formats.detection import read_contents
from capibara_assets.playbooks.formats.parsed import tidy
from capibara_assets.playbooks.read import read_playbooks

ENTRY = {"id": "s-00001", "content": "Look at the schema first", "helpful_count": 4, "harmful_count": 1}


def contents(text: str, own_folder: bool = True):
    return read_contents(text.encode(), own_folder=own_folder)


@pytest.mark.parametrize(
    ("document", "family", "section"),
    [
        ({"strategies": [ENTRY]}, "strategies-json", ""),
        ({"strategies": {"s-00001": ENTRY}}, "strategies-json", ""),
        ({"entries": [ENTRY]}, "entries-json", ""),
        ([{**ENTRY, "text": ENTRY["content"]}], "evidence-json", ""),
        (
            {"playbook_id": "p", "version": 3, "sections": {"SQL": [{**ENTRY, "embedding": [0.1]}]}},
            "sections-json",
            "SQL",
        ),
        ({"messages": [{"role": "user"}], "playbook": {"strategies": {"s-00001": ENTRY}}}, "strategies-json", ""),
        ({"skills": {"s-00001": {**ENTRY, "section": "S", "justification": "why"}}, "next_id": 1}, "kayba-json", "S"),
    ],
)
@pytest.mark.parametrize("own_folder", [True, False])
def test_json_families_by_content(document: Any, family: str, section: str, own_folder: bool) -> None:
    found = contents(json.dumps(document), own_folder)
    assert found.family == family and found.parsed is not None and not found.parsed.rejected
    (bullet,) = found.parsed.bullets
    assert (bullet.local_id, bullet.section, bullet.content, bullet.helpful, bullet.harmful) == (
        "s-00001",
        section,
        ENTRY["content"],
        4,
        1,
    )


def test_evidence_is_kept_as_references() -> None:
    evidence = [
        {"type": "execution", "ref": " 82e2 ", "note": "Solved: 2/2"},
        {"type": None, "ref": "box-7"},
        {"type": "execution", "ref": ""},
        {"type": "execution"},
        "run:9",
        "run:9",
        7,
    ]
    entries = [
        {"id": "a", "content": "Read before you edit", "helpful_count": 1, "evidence": evidence},
        {"id": "b", "content": "Commit often", "helpful_count": 1, "evidence": "told by a user"},
    ]
    first, second = contents(json.dumps({"bullets": entries})).parsed.bullets
    assert first.evidence == ("execution:82e2", ":box-7", ":run:9")
    assert second.evidence == ()


def test_text_instead_of_content_archived_and_epoch_times() -> None:
    entries = [{"id": "u-1", "text": "Ask first", "archived": True, "created_at": 1_700_000_000.5, "helpful_count": 1}]
    parsed = contents(json.dumps(entries)).parsed
    assert parsed is not None
    (bullet,) = parsed.bullets
    assert (bullet.content, bullet.status) == ("Ask first", "archived")
    assert bullet.created_at is not None and bullet.created_at.timestamp() == 1_700_000_000.5


def test_a_bad_entry_of_a_section_costs_that_entry_alone() -> None:
    document = {"sections": {"A": [ENTRY, {"id": "s-2", "content": 7, "helpful": 1}], "B": "none"}}
    parsed = contents(json.dumps(document)).parsed
    assert parsed is not None and [bullet.local_id for bullet in parsed.bullets] == ["s-00001"]
    assert [(each.locator, each.reason) for each in parsed.rejected] == [("s-2", "type:content"), ("B", "type:section")]


def test_common_words_are_no_playbook() -> None:
    assert contents(json.dumps({"strategies": ["retry", "cache"], "entries": [{"id": 1}]})).status == "ignored"
    assert contents(json.dumps({"sections": {"intro": ["a-1"]}})).status == "ignored"


TOON = 'skills[3\t]{id\tsection\tcontent\thelpful\tharmful\tneutral}:\n  a-00001\tA b\t"x\\ty \\"q\\""\t3\t1\t0\n'


def test_toon_table_with_one_bad_row_and_a_wrong_count() -> None:
    found = contents(TOON + "  a-00002\tA b\tplain, with comma\tmany\t0\t0\n")
    assert found.family == "kayba-toon" and found.parsed is not None
    (bullet,) = found.parsed.bullets
    assert (bullet.local_id, bullet.section, bullet.content, bullet.helpful, bullet.harmful, bullet.line) == (
        "a-00001",
        "A b",
        'x\ty "q"',
        3,
        1,
        2,
    )
    assert [(each.reason, each.line) for each in found.parsed.rejected] == [("counter", 3), ("row_count", 1)]
    for cells in ("  a-1\tA", '  a-1\tA\t"open\t1\t0\t0', '  a-1\tA\t"x"y\t1\t0\t0', '  a-1\tA\t"\\q"\t1\t0\t0'):
        parsed = contents(TOON + cells).parsed
        assert parsed is not None and parsed.rejected[0].reason == "format", cells


@pytest.mark.parametrize("text", ["", " \n", "\x1d", "\u2003\u00a0\n", "\ufeff"])
def test_a_file_of_blanks_of_any_kind_is_empty(text: str) -> None:
    assert [read_contents(text.encode(), own_folder=own).family for own in (True, False)] == ["empty", "empty"]


@pytest.mark.parametrize("text", ["(empty playbook)", toon.encode({"skills": []}), "skills[0]:\n"])
def test_an_empty_toon_playbook_is_read(text: str) -> None:
    found = contents(text)
    assert (found.family, found.status) == ("kayba-toon", "read")
    assert found.parsed is not None and not found.parsed.bullets and not found.parsed.rejected


line = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=15)
skill = st.fixed_dictionaries(
    {"section": line, "content": line.map(tidy).filter(bool), "helpful": st.integers(0, 10**20)}
)


@given(st.lists(skill, min_size=1, max_size=5), st.sampled_from([",", "\t", "|"]))
def test_what_the_library_writes_is_what_we_read(skills: list[dict[str, Any]], delimiter: str) -> None:
    skills = [{"id": f"s-{n:05d}", **each, "harmful": 0, "neutral": n} for n, each in enumerate(skills)]
    parsed = contents(toon.encode({"skills": skills}, {"delimiter": delimiter})).parsed
    assert parsed is not None and not parsed.rejected
    assert [
        {
            "id": bullet.local_id,
            "section": bullet.section,
            "content": bullet.content,
            "helpful": bullet.helpful,
            "harmful": bullet.harmful,
            "neutral": bullet.neutral,
        }
        for bullet in parsed.bullets
    ] == [{**each, "section": tidy(each["section"])} for each in skills]


def test_front_matter_above_a_bullet_list() -> None:
    text = "---\ntitle: notes\nagent_id: ada\ninteractions: 120\nsuccess_rate: 0.9\n---\n# Playbook\n"
    found = contents(text + "## QA\n- [qa-00001] helpful=2 harmful=0 :: Cite the source\n")
    assert found.family == "ace-text" and found.parsed is not None and found.manifest is not None
    (bullet,) = found.parsed.bullets
    assert (bullet.local_id, bullet.section, bullet.helpful, bullet.line) == ("qa-00001", "QA", 2, 9)
    assert (found.manifest.agent_id, found.manifest.interactions, found.manifest.success_rate) == ("ada", 120, 0.9)
    # a title above the sections is no bullet that got lost
    assert [each.text for each in found.parsed.rejected] == ["# Playbook"]


@pytest.mark.parametrize("front", ["due: 2026-13-45", "- " * 3000 + "a", "a: !!bool maybe"])
def test_front_matter_that_is_no_yaml_loses_no_bullet(front: str) -> None:
    found = contents(f"---\n{front}\n---\n## QA\n- [qa-00001] helpful=2 harmful=0 :: Cite the source\n")
    assert found.parsed is not None and found.manifest is None
    assert [bullet.local_id for bullet in found.parsed.bullets] == ["qa-00001"]
    assert front[:20] in "".join(each.text for each in found.parsed.rejected)  # quarantined, not lost


def test_manifests_are_found_by_content_and_may_come_with_a_playbook(tmp_path: Path) -> None:
    home = tmp_path / "playbooks" / "one"
    home.mkdir(parents=True)
    record = {"agent_id": "ada", "graduation_score": 0.9, "name": "Ada", "version": 2}
    (home / "about.json").write_text(json.dumps(record))
    (home / "p.txt").write_text("## S\n[s-00001] helpful=1 harmful=0 :: One thing\n")
    book = {"agent_id": "bob", "interactions": 7, "success_rate": 0.5, "bullets": {"b-1": {"content": "Another thing"}}}
    (tmp_path / "playbooks" / "bob.json").write_text(json.dumps(book))
    (tmp_path / "playbooks" / "odd.json").write_text(json.dumps({**book, "agent_id": "eve", "success_rate": 2}))
    (tmp_path / "playbooks" / "loose.txt").write_text("## S\n[s-00001] helpful=1 harmful=0 :: A third thing\n")
    found = read_playbooks(tmp_path)
    agents = dict(found.bullets.select("playbook_id", "agent_id").iter_rows())
    assert agents == {"one/p.txt": "ada", "bob.json": "bob", "odd.json": "eve", "loose.txt": "loose.txt"}
    figures = found.runs.select("agent_id", "interactions", "success_rate", "graduation_score").sort("agent_id").rows()
    assert figures == [("ada", None, None, 0.9), ("bob", 7, 0.5, None)]
    assert found.quarantine.select("file", "locator", "reason").rows() == [
        ("playbooks/odd.json", "manifest", "agent:success_rate")
    ]
