"""Deltas applied in order: what becomes of a playbook, whose it is, and what cannot be applied."""

import itertools
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.playbooks.history import Advice, advice_of
from capibara_assets.playbooks.read import Playbooks, read_playbooks
from capibara_assets.playbooks.schema import Bullet
from capibara_assets.storage.records import frame_digest

BASE = {
    "bullets": [
        {
            "id": f"b-{number}",
            "content": content,
            "helpful_count": helpful,
            "harmful_count": 1,
            "tags": [f"t{number}"],
            "last_updated": "2026-01-01T00:00:00Z",
        }
        for number, content, helpful in [
            (1, "Check the columns before a join", 5),
            (2, "Test the smallest step first", 3),
            (3, "Cache tokens", 2),
            (4, "Log every request", 1),
        ]
    ]
}


def read(folder: Path, files: dict[str, Any]) -> Playbooks:
    for name, document in files.items():
        path = folder / "playbooks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_playbooks(folder)


def lessons(found: Playbooks) -> dict[str, Advice]:
    return {advice.bullet["local_id"]: advice for advice in advice_of(found.bullets)}


def delta(number: int, day: int, **steps: Any) -> dict[str, Any]:
    return {"delta_id": f"d-{number}", "timestamp": f"2026-01-{day:02d}T00:00:00Z", "new_bullets": [], **steps}


def test_an_evidence_delta_changes_what_it_names(tmp_path: Path) -> None:
    steps = delta(
        1,
        2,
        new_bullets=[{"id": "b-5", "content": "Name things well"}],
        edits=[{"id": "b-1", "set": {"content": "Entirely other words stand here now", "helpful_count": 6}}],
        merges=[{"keep_id": "b-2", "merge_ids": ["b-3"]}],
        deprecations=[{"id": "b-4", "reason": "obsolete"}],
        counters=[{"id": "b-5", "helpful_delta": 2}, {"id": "b-2", "harmful_delta": 4}],
    )
    found = read(tmp_path, {"base.json": BASE, "deltas/1.json": steps})
    assert len(found.quarantine) == 0
    after = lessons(found)
    state = {name: (each.helpful, each.harmful, each.bullet["status"]) for name, each in after.items()}
    assert state == {
        "b-1": (6, 1, "active"),
        "b-2": (5, 6, "active"),
        "b-3": (2, 1, "merged"),
        "b-4": (1, 1, "deprecated"),
        "b-5": (2, 0, "active"),
    }
    assert after["b-1"].text == "Entirely other words stand here now"
    assert sorted(after["b-2"].bullet["tags"]) == ["t2", "t3"]
    row = found.bullets.row(by_predicate=pl.col("bullet_id") == "deltas/1.json/b-1", named=True)
    assert row["replaces"] == "base.json/b-1" and row["updated_at"].day == 2
    assert set(found.files["agent_id"]) == {"base.json"}


def test_deltas_apply_in_the_order_of_their_times_whatever_the_files_are_called(tmp_path: Path) -> None:
    words = ["first wording of it", "second form of this", "third and last phrase"]
    documents = [delta(n, n + 2, edits=[{"id": "b-1", "set": {"content": text}}]) for n, text in enumerate(words)]
    digests = set()
    for turn, order in enumerate(itertools.permutations(range(3))):
        files = {f"deltas/{name}.json": documents[place] for name, place in zip("abc", order, strict=True)}
        found = read(tmp_path / str(turn), {"base.json": BASE, **files})
        assert lessons(found)["b-1"].text == words[-1]
        digests.add(tuple(sorted(found.bullets.filter(found.bullets["local_id"] == "b-1")["content"])))
    assert len(digests) == 1
    again = read_playbooks(tmp_path / "0")
    assert frame_digest(Bullet, again.bullets) == frame_digest(Bullet, read_playbooks(tmp_path / "0").bullets)


def test_a_delta_that_a_snapshot_already_holds_is_not_counted_twice(tmp_path: Path) -> None:
    rated = delta(1, 2, counters=[{"id": "b-1", "helpful_delta": 4}])
    later = json.loads(json.dumps(BASE))
    later["bullets"][0] |= {"helpful_count": 9, "last_updated": "2026-01-03T00:00:00Z"}
    found = read(tmp_path, {"base.json": BASE, "later.json": later, "deltas/1.json": rated, "deltas/copy.json": rated})
    assert lessons(found)["b-1"].helpful == 9
    only_later = read(tmp_path / "two", {"later.json": later, "deltas/1.json": rated})
    assert lessons(only_later)["b-1"].helpful == 9 and len(only_later.quarantine) == 0


OPERATIONS = [
    {"type": "ADD", "section": "SQL rules", "content": "Use parameters", "metadata": {"helpful": 1}},
    {"type": "UPDATE", "bullet_id": "b-1", "content": "Check names and types of columns before a join"},
    {"type": "TAG", "bullet_id": "b-2", "metadata": {"harmful": 2, "neutral": 1}},
    {"type": "REMOVE", "bullet_id": "b-3"},
    {"type": "tag", "skill_id": "b-1", "metadata": {"helpful": -1}},
]


def test_a_delta_batch_without_times_comes_after_the_playbook(tmp_path: Path) -> None:
    found = read(tmp_path, {"base.json": BASE, "ops/1.json": {"reasoning": "because", "operations": OPERATIONS}})
    assert len(found.quarantine) == 0
    after = lessons(found)
    new = after.pop("sql-00005")
    assert (new.text, new.bullet["section"], new.helpful) == ("Use parameters", "SQL rules", 1)
    assert new.bullet["flags"] == ["generated_id"]
    assert (after["b-1"].text, after["b-2"].harmful, after["b-2"].neutral) == (OPERATIONS[1]["content"], 3, 1)
    assert after["b-3"].bullet["status"] == "removed"
    row = found.bullets.row(by_predicate=pl.col("bullet_id") == "ops/1.json/b-1", named=True)
    assert row["helpful"] == 4


def test_a_log_of_batches_and_a_reflectors_tags(tmp_path: Path) -> None:
    batches = [{"operations": [{"type": "TAG", "bullet_id": "b-1", "metadata": {"helpful": 1}}]} for _ in range(3)]
    found = read(
        tmp_path,
        {
            "base.json": BASE,
            "log.jsonl": "".join(json.dumps(batch) + "\n" for batch in batches),
            "tags.json": {
                "reasoning": "…",
                "bullet_tags": [{"id": "b-2", "tag": "helpful"}, {"id": "b-2", "tag": "great"}],
            },
            "tags2.json": [{"bullet": "b-2", "tag": "harmful"}],
        },
    )
    after = lessons(found)
    assert (after["b-1"].helpful, after["b-2"].helpful, after["b-2"].harmful) == (8, 4, 2)
    assert found.quarantine.select("file", "locator", "reason").rows() == [("playbooks/tags.json", "b-2", "tag")]


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ({"type": "UPDATE", "bullet_id": "b-9", "content": "x"}, "unknown_bullet"),
        ({"type": "UPDATE", "content": "x"}, "missing:id"),
        ({"type": "UPDATE", "bullet_id": "b-1", "content": 7}, "type:content"),
        ({"type": "TAG", "bullet_id": "b-1", "metadata": {"helpful": "1"}}, "type:helpful"),
        ({"type": "TAG", "bullet_id": "b-1", "metadata": {"helpful": -6}}, "counter"),
        ({"type": "ADD", "section": "S", "content": " "}, "empty_content"),
        ({"type": "ADD", "section": "S", "content": "Other advice", "bullet_id": "b-1"}, "conflicting_bullet_id"),
        ({"type": "EXPLODE"}, "unknown_operation"),
        ("ADD", "not_an_object"),
    ],
)
def test_a_step_that_cannot_be_applied_is_quarantined_alone(tmp_path: Path, operation: Any, reason: str) -> None:
    good = {"type": "TAG", "bullet_id": "b-2", "metadata": {"helpful": 1}}
    found = read(tmp_path, {"base.json": BASE, "ops.json": {"operations": [operation, good]}})
    assert found.quarantine.select("file", "reason").rows() == [("playbooks/ops.json", reason)]
    assert lessons(found)["b-2"].helpful == 4 and len(lessons(found)) == 4


def test_a_curator_may_start_a_playbook(tmp_path: Path) -> None:
    adds = [{"type": "ADD", "section": "api calls", "content": text} for text in ("Page to the end", "Retry on 429")]
    found = read(tmp_path, {"curator/1.json": {"reasoning": "", "operations": adds}})
    assert sorted(lessons(found)) == ["api-00001", "api-00002"]
    assert set(found.bullets["agent_id"]) == {"curator/1.json"}


def test_whose_delta_it_is(tmp_path: Path) -> None:
    other = {"bullets": [{"id": "b-1", "content": "A quite different lesson", "helpful_count": 1}]}
    tag = {"operations": [{"type": "TAG", "bullet_id": "b-1", "metadata": {"helpful": 1}}]}
    manifest = {"agent_id": "bob", "interactions": 3, "successes": 3}
    found = read(
        tmp_path,
        {
            "ada/base.json": BASE,
            "ada/deltas/1.json": tag,
            "bob/base.json": other,
            "bob/agent.json": manifest,
            "bob/deltas/2.json": tag | {"reasoning": "bob's"},
        },
    )
    after = {(each.agent_id, each.bullet["local_id"]): each.helpful for each in advice_of(found.bullets)}
    assert after["ada/base.json", "b-1"] == 6 and after["bob", "b-1"] == 2
