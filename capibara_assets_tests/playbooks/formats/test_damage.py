"""Damage costs the entry that it is in: bytes that are not UTF-8, absurd numbers and times, half surrogate pairs."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.playbooks.formats.detection import read_contents
from capibara_assets.playbooks.graduation import AgentFilter, graduate
from capibara_assets.playbooks.read import Playbooks, read_playbooks

HUGE = "9" * 5000
"""More digits than Python converts."""
BOOK = {"bullets": [{"id": "a-1", "content": "Look first", "helpful_count": 1}]}


def read(folder: Path, files: dict[str, Any]) -> Playbooks:
    for name, document in files.items():
        path = folder / "playbooks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = document if isinstance(document, (str, bytes)) else json.dumps(document)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read_playbooks(folder)
    graduate(found, AgentFilter())  # nothing of it ends what comes after
    return found


def rejected(found: Playbooks) -> list[tuple[int, str, str]]:
    return sorted(found.quarantine.select("line", "locator", "reason").rows())


ACE = b"## S\n[b-1] helpful=3 harmful=0 :: One.\n[b-2] helpful=1 harmful=0 :: %s\n[b-3] helpful=3 harmful=0 :: Three.\n"
MARKDOWN = b"## S\n### `b-1`\n\nOne.\n\n### `b-2`\n\nTwo %s.\n\n### `b-3`\n\nThree.\n"
TOON = b"skills[3]{id,content}:\n  b-1,One\n  b-2,%s\n  b-3,Three\n"
BY_ID = b'{"bullets": {"b-1": {"content": "One"},\n"b-2": {"content": "%s"},\n"b-3": {"content": "Three"}}}'
LISTED = (
    b'[{"id": "b-1", "content": "One"},\n{"id": "b-2", "content": "x", "tags": ["%s"]},\n{"id": "b-3", "content": "3"}]'
)
SECTIONS = (
    b'{"sections": {"S": [{"id": "b-1", "content": "One"},\n'
    b'{"id": "b-2", "content": "%s"},\n{"id": "b-3", "content": "3"}]}}'
)
FORMS = [(ACE, 3), (MARKDOWN, 6), (TOON, 3), (BY_ID, 2), (LISTED, 2), (SECTIONS, 2)]


@pytest.mark.parametrize(("form", "line"), FORMS)
@pytest.mark.parametrize("own_folder", [True, False])
def test_bytes_that_are_no_utf8_cost_their_entry(form: bytes, line: int, own_folder: bool) -> None:
    sound = read_contents(form % "caf\u00e9".encode(), own_folder=own_folder)
    assert sound.parsed is not None and not sound.parsed.rejected and not sound.rejected
    assert [bullet.local_id for bullet in sound.parsed.bullets] == ["b-1", "b-2", "b-3"]
    damaged = read_contents(form % b"caf\xe9", own_folder=own_folder)
    assert damaged.parsed is not None and not damaged.rejected
    assert damaged.parsed.bullets == [sound.parsed.bullets[0], sound.parsed.bullets[2]]
    assert [(each.line, each.reason) for each in damaged.parsed.rejected] == [(line, "invalid_utf8")]


def test_damage_in_a_later_line_costs_its_bullet_and_in_an_id_too(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            "a.txt": b"## S\n[b-1] helpful=3 harmful=0 :: One.\n[b-2] helpful=1 harmful=0 :: x\n  caf\xe9\n",
            "b.txt": b"## S\n[b-1] helpful=2 harmful=0 :: Other.\n[\xe9-2] helpful=1 harmful=0 :: y\n",
            "c.json": b'{"bullets": {"b-1": {"content": "Third"}, "\xe9": {"content": "z"}}}',
            "d.md": b"## S\n### `b-1`\n\nFourth.\n\n### `\xe9`\n\nFifth.\n",
        },
    )
    assert found.bullets["bullet_id"].to_list() == [f"{name}/b-1" for name in ("a.txt", "b.txt", "c.json", "d.md")]
    assert rejected(found) == [
        (1, "\ufffd\ufffd", "invalid_utf8"),
        (3, "", "invalid_utf8"),
        (3, "b-2", "invalid_utf8"),
        (6, "\ufffd\ufffd", "invalid_utf8"),
    ]
    assert "caf\ufffd" in "".join(found.quarantine["text"])


def test_damage_outside_the_entries_is_said_and_costs_none(tmp_path: Path) -> None:
    manifest = b'{"agent_id": "ada", "interactions": 9,\n "name": "Ren\xe9"}'
    found = read(
        tmp_path, {"ada/p.txt": b"# Caf\xe9\n## S\xe9\n[b-1] helpful=3 harmful=0 :: One.\n", "ada/agent.json": manifest}
    )
    assert found.bullets.select("agent_id", "local_id", "section").rows() == [("ada", "b-1", "S\ufffd\ufffd")]
    assert found.runs["interactions"].to_list() == [9]
    assert sorted(found.quarantine.select("file", "line", "reason").rows()) == [
        ("playbooks/ada/agent.json", 2, "invalid_utf8"),
        ("playbooks/ada/p.txt", 1, "invalid_utf8"),
        ("playbooks/ada/p.txt", 1, "orphan_continuation"),
    ]


def test_files_that_are_no_text_are_left_alone_outside_the_folder_and_named_in_it(tmp_path: Path) -> None:
    data = b"\x89PNG\0\n## S\n[b-1] helpful=3 harmful=0 :: One.\n"
    assert read_contents(data, own_folder=False).status == "ignored"
    assert [each.reason for each in read_contents(data, own_folder=True).rejected] == ["invalid_utf8"]
    prose = b"caf\xe9\n"
    assert read_contents(prose, own_folder=False).status == "ignored"
    assert [each.reason for each in read_contents(prose, own_folder=True).rejected] == ["invalid_utf8"]


def entry(**fields: Any) -> str:
    """A playbook's JSON whose second of three entries has these fields; `HUGE` stands there as a number."""
    odd = {"id": "b-2", "content": "Two", **fields}
    entries = [{"id": "b-1", "content": "One", "helpful": 2}, odd, {"id": "b-3", "content": "Three", "helpful": 10**99}]
    return json.dumps({"bullets": {each["id"]: each for each in entries}}).replace(f'"{HUGE}"', HUGE)


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_of_any_length_costs_its_entry(tmp_path: Path, sign: str) -> None:
    found = read(tmp_path, {"p.json": entry(helpful=HUGE).replace(HUGE, sign + HUGE)})
    assert found.bullets["local_id"].to_list() == ["b-1", "b-3"]
    assert found.bullets["counters_exact"].to_list() == [None, f"{10**99}/0/0"]
    assert [reason for _, _, reason in rejected(found)] == ["counter"]
    assert "set_int_max_str_digits" not in str(found.quarantine.to_dicts())


def test_a_number_of_any_length_in_other_places(tmp_path: Path) -> None:
    counted = "### `b-{}`\n\nAdvice {}.\n\n*Tags: helpful={}, harmful=0*\n"
    record = {"agent_id": "ada", "interactions": HUGE}
    found = read(
        tmp_path,
        {
            "p.json": entry(created_at=HUGE, version=HUGE),
            "p.md": "## S\n" + counted.format(1, "one", HUGE) + counted.format(2, "two", 7),
            "p.toon": f"skills[{HUGE}]{{id,content}}:\n  b-1,Other\n",
            "agent/agent.json": json.dumps(record).replace(f'"{HUGE}"', HUGE),
            "front.txt": f"---\nagent_id: ada\ninteractions: {HUGE}\n---\n## S\n[b-1] helpful=1 harmful=0 :: Front\n",
        },
    )
    kept = found.bullets["bullet_id"].to_list()
    assert kept == ["front.txt/b-1", "p.json/b-1", "p.json/b-2", "p.json/b-3", "p.md/b-2", "p.toon/b-1"]
    reasons = {reason for _, _, reason in rejected(found)}
    assert reasons == {"counter", "row_count", "agent:interactions", "orphan_continuation"}


def test_changes_by_absurd_numbers_cost_the_change(tmp_path: Path) -> None:
    near = 10**99 * 9
    steps = [{"id": "a-1", "helpful_delta": change} for change in (10**4200, near, near, -(10**4200), 1)]
    manifest = {"agent_id": "ada", "interactions": 1}
    numbered = {"bullets": [*BOOK["bullets"], {"id": f"a-{HUGE}", "content": "Numbered", "helpful_count": 1}]}
    added = {"operations": [{"type": "ADD", "section": "", "content": "New"}]}
    found = read(
        tmp_path,
        {"agent.json": manifest, "p.json": numbered, "d.json": {"delta_id": "d", "counters": steps}, "e.json": added},
    )
    changed = found.bullets.filter(found.bullets["playbook_id"] == "d.json")
    assert changed["counters_exact"].to_list() == [f"{near + 2}/0/0"]
    assert [reason for _, _, reason in rejected(found)] == ["counter"]  # by file, line, id and reason, told once
    new = found.bullets.filter(found.bullets["playbook_id"] == "e.json")
    assert new["local_id"].to_list() == ["a-00002"]


@pytest.mark.parametrize(
    ("total", "solved", "reason"),
    [(10**30, 1, "type:total_tasks"), (3, 10**30, "type:successful_tasks"), (1, 5, "agent"), (5, 5, None)],
)
def test_a_run_that_cannot_be_is_quarantined_alone(tmp_path: Path, total: int, solved: int, reason: str | None) -> None:
    metrics = {"total_tasks": total, "successful_tasks": solved}
    run = {"config": {}, "experiment_id": "7", "agent_id": "ada", "results": {"final_metrics": metrics}}
    found = read(tmp_path, {"p.json": BOOK, "run.json": run})
    assert len(found.bullets) == 1
    assert [said for _, _, said in rejected(found)] == ([reason] if reason else [])
    assert len(found.runs) == (reason is None)


@pytest.mark.parametrize("name", ["graduation_score", "success_rate"])
@pytest.mark.parametrize(("value", "taken"), [(True, False), ("1.0", False), (1.5, False), (1, True), (0.5, True)])
def test_a_manifests_share_is_a_number(tmp_path: Path, name: str, value: Any, taken: bool) -> None:
    found = read(tmp_path, {"agent.json": {"agent_id": "ada", "interactions": 3, name: value}})
    assert found.runs[name].to_list() == ([float(value)] if taken else [])
    assert [said for _, _, said in rejected(found)] == ([] if taken else [f"agent:{name}"])


def test_times_before_all_times_are_flagged(tmp_path: Path) -> None:
    found = read(tmp_path, {"p.json": entry(created_at="0001-01-01T00:00:00+05:00")})
    assert found.bullets["flags"].to_list() == [[], ["unreadable_time"], []]


def test_half_a_surrogate_pair_ends_no_reading(tmp_path: Path) -> None:
    half = (
        '{"bullets": {"b-1": {"content": 7, "note": "\\ud800"}, "b\\ud800": {"content": 7}, "b-2": {"content": "Two"}}}'
    )
    metrics = '{"final_metrics": {"total_tasks": 1, "successful_tasks": 1}}'
    run = f'{{"config": {{}}, "experiment_id": "7", "agent_id": "ada\\ud800", "results": {metrics}}}'
    twice = '{"bullets": {}, "x\\ud800": 1, "x\\ud800": 2}'
    found = read(tmp_path, {"p.json": half, "run.json": run, "twice.json": twice})
    assert found.bullets["local_id"].to_list() == ["b-2"]
    assert found.runs["agent_id"].to_list() == ["ada\ufffd"]
    assert {said for _, _, said in rejected(found)} == {"type:content", "duplicate_key:x\ufffd"}


GOOD = '{"id": "a-1", "content": "One", "helpful_count": 1}'
TWICE = '{"id": "a-2", "content": "Two", "helpful_count": 1, "helpful_count": 9}'
BY_ID = '{"bullets": {"a-1": {"content": "One"}, "a-2": {"content": "Two", "tags": [{"t": 1, "t": 2}]}}}'
SAME_ID = '{"bullets": {"a-1": {"content": "One"}, "a-2": {"content": "x"}, "a-2": {"content": "x"}}}'
OTHER_ID = '{"bullets": {"a-1": {"content": "One"}, "a-1": {"content": "Two"}}}'


@pytest.mark.parametrize(
    ("text", "kept", "said"),
    [
        (f"[{GOOD}, {TWICE}]", ["a-1"], [("a-2", "duplicate_key:helpful_count")]),
        (f'{{"bullets": [{GOOD}, {TWICE}]}}', ["a-1"], [("a-2", "duplicate_key:helpful_count")]),
        (f'{{"sections": {{"s": [{GOOD}, {TWICE}]}}}}', ["a-1"], [("a-2", "duplicate_key:helpful_count")]),
        (BY_ID, ["a-1"], [("a-2", "duplicate_key:t")]),
        (SAME_ID, ["a-1", "a-2"], []),
        (OTHER_ID, ["a-1"], [("a-1", "conflicting_bullet_id")]),
        (f'{{"bullets": [{GOOD}], "bullets": []}}', [], [("", "duplicate_key:bullets")]),
        (f'{{"bullets": [{GOOD}], "meta": {{"x": 1, "x": 1}}}}', [], [("", "duplicate_key:x")]),
    ],
)
def test_a_key_named_twice_costs_the_entry_that_it_stands_in(
    tmp_path: Path, text: str, kept: list[str], said: list[tuple[str, str]]
) -> None:
    found = read(tmp_path, {"p.json": text})
    assert found.bullets["local_id"].to_list() == kept
    assert found.quarantine.select("locator", "reason").rows() == said
    assert all(text.count("Two") == found.quarantine["text"].str.count_matches("Two").sum() for _ in said[:1])


@pytest.mark.parametrize(
    ("delta", "said"),
    [
        ('{"delta_id": "d", "delta_id": "e", "counters": [{"id": "a-1", "helpful_delta": 1}]}',
         "duplicate_key:delta_id"),
        ('{"delta_id": "d", "counters": [{"id": "a-1", "helpful_delta": 1, "id": "b-1"}]}', "duplicate_key:id"),
        ('{"operations": [{"type": "TAG", "bullet_id": "a-1", "metadata": {"helpful": 1, "helpful": 5}}]}',
         "duplicate_key:helpful"),
    ],
)  # fmt: skip
def test_a_key_named_twice_costs_the_step_of_a_delta(tmp_path: Path, delta: str, said: str) -> None:
    whole = '{"operations": [{"type": "TAG", "bullet_id": "a-1", "metadata": {"helpful": 1}}]}'
    found = read(tmp_path, {"p.json": BOOK, "log.jsonl": f"{whole}\n{delta}\n{whole}\n"})
    assert found.bullets["helpful"].to_list() == [3, 1]
    assert [reason for _, _, reason in rejected(found)] == [said]
    said_twice = re.escape(said.partition(":")[2])
    assert len(re.findall(f'"{said_twice}"', found.quarantine["text"][0])) == 2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_broken_line_of_a_log_of_deltas_costs_that_line(tmp_path: Path, place: int) -> None:
    lines = [json.dumps({"operations": [{"type": "TAG", "bullet_id": "a-1", "metadata": {"helpful": 1}}]})] * 3
    broken = [line if number != place else '{"operations": [' for number, line in enumerate(lines)]
    found = read(tmp_path, {"p.json": BOOK, "log.jsonl": "\n".join(broken) + "\n"})
    assert found.bullets["helpful"].to_list() == [3, 1]
    assert rejected(found) == [(place + 1, "", "invalid_json")]
    bad = lines[1].replace("TAG", "T\u00e9").encode("latin-1")
    logged = "\n".join([lines[0], "%s", lines[2]]).encode() % bad
    (tmp_path / "playbooks" / "log.jsonl").write_bytes(logged)
    found = read_playbooks(tmp_path)
    assert found.bullets["helpful"].to_list() == [3, 1] and found.quarantine["reason"].to_list() == ["invalid_utf8"]


def test_a_document_that_is_cut_is_no_log_of_its_lines(tmp_path: Path) -> None:
    cut = '{"bullet_tags": [\n{"id": "a-1", "tag": "helpful"},\n{"id": "a-1", "tag": "helpful"}\n'
    found = read(tmp_path, {"p.json": BOOK, "tags.json": cut})
    assert found.bullets["helpful"].to_list() == [1]
    assert rejected(found) == [(0, "", "invalid_json")]


def test_a_name_that_is_no_utf8_costs_its_file(tmp_path: Path) -> None:
    read(tmp_path, {"a.json": BOOK, "caf\ufffd.json": {"bullets": {"b-1": {"content": "Another"}}}})
    for name in (b"caf\xe9.json", b"caf\xea.json"):
        (tmp_path / "playbooks" / os.fsdecode(name)).write_text(json.dumps(BOOK))
    found = read(tmp_path, {"caf\u00e9.json": {"bullets": {"c-1": {"content": "A third"}}}})
    assert sorted(found.bullets["bullet_id"]) == ["a.json/a-1", "caf\u00e9.json/c-1", "caf\ufffd.json/b-1"]
    (tmp_path / "playbooks" / "caf\ufffd.json").unlink()
    assert [reason for _, _, reason in rejected(read(tmp_path, {}))] == ["invalid_name"]
